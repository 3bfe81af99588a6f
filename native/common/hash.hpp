// Hashing of short byte strings and of 64-bit keys. Results are stored in files: changing them is a format change.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pixnar {

inline uint64_t mix(uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_key(uint64_t key) { return mix(key ^ 0x9e3779b97f4a7c15ULL, 0xd1342543de82ef95ULL); }

namespace detail {
template <class T> inline uint64_t load(const char* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}
}  // namespace detail

// Never reads outside [p, p + n).
inline uint64_t hash_bytes(const char* p, size_t n, uint64_t seed = 0x2545f4914f6cdd1dULL) {
    using detail::load;
    uint64_t h = seed ^ (n * 0x9e3779b97f4a7c15ULL);
    while (n > 16) {
        h = mix(load<uint64_t>(p) ^ 0xa0761d6478bd642fULL, load<uint64_t>(p + 8) ^ h);
        p += 16;
        n -= 16;
    }
    uint64_t a = 0, b = 0;
    if (n >= 8) {
        a = load<uint64_t>(p);
        b = load<uint64_t>(p + n - 8);
    } else if (n >= 4) {
        a = load<uint32_t>(p);
        b = load<uint32_t>(p + n - 4);
    } else if (n > 0) {
        a = (uint64_t(uint8_t(p[0])) << 16) | (uint64_t(uint8_t(p[n >> 1])) << 8) | uint8_t(p[n - 1]);
    }
    return mix(h ^ 0xe7037ed1a0b428dbULL, mix(a ^ 0x8ebc6af09c88c6e3ULL, b ^ h));
}

inline size_t power_of_two_above(size_t n) {
    size_t size = 8;
    while (size < n) size *= 2;
    return size;
}

}  // namespace pixnar
