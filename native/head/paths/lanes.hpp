// Sixteen floats at a time, in as many registers as the path needs for them. All paths do the same operations in the same
// order, so they give the same bits; -ffp-contract=off keeps compilers from fusing them.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace pixnar::head {
namespace {

#define PIXNAR_INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr int width = 16;
#elif defined(__AVX2__)
constexpr int width = 8;
#else
constexpr int width = 4;
#endif
constexpr int parts = 16 / width;

typedef float Floats __attribute__((vector_size(4 * width)));
typedef int32_t Ints __attribute__((vector_size(4 * width)));
typedef uint16_t Shorts __attribute__((vector_size(2 * width)));

template <class To, class From> PIXNAR_INLINE To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

template <class T> PIXNAR_INLINE T load(const void* from) {
    T value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

PIXNAR_INLINE Floats every(float value) {
    Floats out;
    for (int i = 0; i < width; ++i) out[i] = value;
    return out;
}

PIXNAR_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }

struct Lanes {
    Floats part[parts];
};

PIXNAR_INLINE Lanes lanes_of(float value) {
    Lanes out;
    for (int p = 0; p < parts; ++p) out.part[p] = every(value);
    return out;
}

PIXNAR_INLINE void store(const Lanes& lanes, float* to) { __builtin_memcpy(to, lanes.part, sizeof lanes.part); }

PIXNAR_INLINE float sum_of(const Lanes& lanes) {
    float all[16];
    store(lanes, all);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) all[i] += all[i + half];
    return all[0];
}

PIXNAR_INLINE float largest_of(const Lanes& lanes) {
    float all[16];
    store(lanes, all);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) all[i] = all[i] > all[i + half] ? all[i] : all[i + half];
    return all[0];
}

// exp of numbers up to 0; below -87 it is 0. x = n ln 2 + r; exp(r) by a polynomial fitted to [-ln 2 / 2, ln 2 / 2]
// (relative error 3e-9 before rounding); n goes into the exponent.
PIXNAR_INLINE Floats exp_of(Floats x) {
    const Floats least = every(-87.0f), round = every(12582912.0f);  // adding 1.5 * 2^23 rounds to whole numbers
    const auto tiny = x < least;
    x = tiny ? least : x;
    const Floats shifted = x * every(1.44269504f) + round;
    const Floats n = shifted - round;
    const Floats r = (x - n * every(0.693359375f)) - n * every(-0.00021219444f);
    Floats p = every(0x1.6a23cep-10f);
    p = p * r + every(0x1.123a20p-7f);
    p = p * r + every(0x1.5558f2p-5f);
    p = p * r + every(0x1.555492p-3f);
    p = p * r + every(0x1.fffffcp-2f);
    p = p * r + every(1.0f);
    p = p * r + every(1.0f);
    const Ints bits = same_bits<Ints>(p) + (same_bits<Ints>(shifted) << 23);
    return tiny ? every(0.0f) : same_bits<Floats>(bits);
}

}  // namespace
}  // namespace pixnar::head
