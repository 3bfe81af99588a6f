// Ways to spoil an array of a vocabulary, as a broken or hostile file would.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "vocab/tables.hpp"

namespace pixnar::test {

// Numbers at which some check might be off by one; `number` selects, `size` is that of the array at hand.
inline uint64_t telling_value(uint32_t number, uint64_t size) {
    const uint64_t values[] = {0, 1, 2, 255, 256, 511, 513, 514, highest_score, highest_score + 1u, size - 1, size, size + 1,
                               none_short, none_short - 1, atom_more, atom_more | none_short, no_token, no_token - 1,
                               uint64_t{1} << 32, uint64_t{child_more} << 32 | no_token, one_token, one_token - highest_score,
                               one_token * (longest_text - 1), one_token * (longest_text - 1) + 1, ~uint64_t{0}, ~uint64_t{0} - 1,
                               uint64_t{1} << 63};
    return values[number % std::size(values)];
}

template <class T> T from_number(uint64_t value) {
    if constexpr (std::is_same_v<T, Edge>) return {value, value * 0x9e3779b97f4a7c15ULL};
    else return static_cast<T>(value);
}

template <class T> void spoil_at(std::vector<T>& array, size_t at, uint64_t value, uint32_t part) {
    if constexpr (std::is_same_v<T, Edge>) (part % 2 ? array[at].key : array[at].target) = value;
    else array[at] = static_cast<T>(value);
}

// Changes one bit of an entry in use, which keeps most of what makes it be found.
template <class T> void flip_at(std::vector<T>& array, size_t at, uint64_t bit) {
    const auto used = [](const T& entry) {
        if constexpr (std::is_same_v<T, Edge>) return entry.key != 0;
        else return entry != 0;
    };
    for (size_t n = array.size(); n > 0 && !used(array[at]); --n) at = (at + 1) % array.size();
    if constexpr (std::is_same_v<T, Edge>) (bit & 64 ? array[at].key : array[at].target) ^= uint64_t{1} << (bit & 63);
    else array[at] = static_cast<T>(array[at] ^ T{1} << bit % (8 * sizeof(T)));
}

// One change, made from four numbers.
template <class T> void spoil(std::vector<T>& array, uint32_t how, uint32_t where, uint32_t what, uint64_t value) {
    const size_t n = array.size();
    const uint64_t bit = value;
    if (what % 4 != 3) value = telling_value(static_cast<uint32_t>(value), n);
    if (n == 0) {
        array.assign(where % 1024, from_number<T>(value));
        return;
    }
    const size_t at = where % n, other = value % n;
    switch (how % 8) {
        case 0: array.resize(at); break;
        case 1: array.insert(array.end(), array.begin(), array.begin() + static_cast<std::ptrdiff_t>(at)); break;
        case 2: array.push_back(from_number<T>(value)); break;
        case 3: std::swap(array[at], array[other]); break;
        case 4: array[at] = array[other]; break;
        case 5: array.erase(array.begin() + static_cast<std::ptrdiff_t>(at)); break;
        case 6: flip_at(array, at, bit); break;
        default: spoil_at(array, at, value, how / 8); break;
    }
    array.shrink_to_fit();  // so that AddressSanitizer sees the true end
}

}  // namespace pixnar::test
