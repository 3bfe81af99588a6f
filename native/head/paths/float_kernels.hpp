// Dot products of float rows, and the sum of exponentials: the same source for every path.
#pragma once
#include "head/kernels.hpp"
#include "head/paths/lanes.hpp"

namespace pixnar::head {
namespace {

PIXNAR_INLINE void fetch(const uint8_t* row, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(row + i);
}

constexpr size_t fetch_ahead = 12;

PIXNAR_INLINE void fetch_next(const Batch& batch, size_t first, size_t rows) {
    const size_t end = batch.count + batch.ahead;
    for (size_t i = first + fetch_ahead; i < first + fetch_ahead + rows && i < end; ++i) fetch(batch.rows[i], batch.bytes);
}

struct Float32 {
    static constexpr size_t size = 4;
    static PIXNAR_INLINE Floats read(const uint8_t* from) { return load<Floats>(from); }
};

struct Bfloat16 {
    static constexpr size_t size = 2;
    static PIXNAR_INLINE Floats read(const uint8_t* from) {
        return same_bits<Floats>(__builtin_convertvector(load<Shorts>(from), Ints) << 16);
    }
};

struct Float16 {
    static constexpr size_t size = 2;
    static PIXNAR_INLINE Floats read(const uint8_t* from) {
#if defined(__AVX512F__)
        return same_bits<Floats>(_mm512_cvtph_ps(load<__m256i>(from)));
#elif defined(__AVX2__)
        return same_bits<Floats>(_mm256_cvtph_ps(load<__m128i>(from)));
#else
        // Moving the exponent by a multiplication also makes subnormal numbers right.
        const Ints bits = __builtin_convertvector(load<Shorts>(from), Ints);
        const Ints magnitude = bits & 0x7fff;
        const Ints moved = same_bits<Ints>(same_bits<Floats>(magnitude << 13) * every(0x1p112f));
        const Ints endless = (magnitude > 0x7bff) & 0x7f800000;
        return same_bits<Floats>(moved | endless | ((bits & 0x8000) << 16));
#endif
    }
};

template <class Format, int R, int S>
PIXNAR_INLINE void float_tile(const Batch& batch, size_t row, size_t slot) {
    Lanes sums[R][S];
    for (int r = 0; r < R; ++r)
        for (int s = 0; s < S; ++s) sums[r][s] = lanes_of(0.0f);
    for (size_t j = 0; j < batch.numbers; j += 16)
        for (int p = 0; p < parts; ++p) {
            const size_t at = j + static_cast<size_t>(p * width);
            for (int r = 0; r < R; ++r) {
                const Floats values = Format::read(batch.rows[row + r] + at * Format::size);
                for (int s = 0; s < S; ++s)
                    sums[r][s].part[p] += values * load<Floats>(batch.floats + (slot + s) * batch.numbers + at);
            }
        }
    for (int r = 0; r < R; ++r)
        for (int s = 0; s < S; ++s) {
            const float sum = sum_of(sums[r][s]);
            batch.out[(slot + s) * batch.out_step + row + r] = batch.bias ? sum + batch.bias[row + r] : sum;
        }
}

template <class Format> void float_dots(const Batch& batch) {
    for (size_t row = 0; row < batch.count; row += 2) {
        fetch_next(batch, row, 2);
        size_t slot = 0;
        for (; slot + 2 <= batch.slots; slot += 2) float_tile<Format, 2, 2>(batch, row, slot);
        if (slot < batch.slots) float_tile<Format, 2, 1>(batch, row, slot);
    }
}

void log_sum(const float* values, size_t count, float* largest, float* sum) {
    float rest[16];
    for (int i = 0; i < 16; ++i) rest[i] = -__builtin_inff();
    const size_t whole = count / 16 * 16;
    for (size_t i = whole; i < count; ++i) rest[i - whole] = values[i];
    Lanes most = lanes_of(-__builtin_inff()), sums = lanes_of(0.0f);
    for (int p = 0; p < parts; ++p) {
        for (size_t i = 0; i < whole; i += 16) most.part[p] = larger(load<Floats>(values + i + p * width), most.part[p]);
        most.part[p] = larger(load<Floats>(rest + p * width), most.part[p]);
    }
    *largest = largest_of(most);
    if (*largest == -__builtin_inff()) {
        *sum = 0.0f;
        return;
    }
    const Floats top = every(*largest);
    for (int p = 0; p < parts; ++p) {
        for (size_t i = 0; i < whole; i += 16) sums.part[p] += exp_of(load<Floats>(values + i + p * width) - top);
        sums.part[p] += exp_of(load<Floats>(rest + p * width) - top);
    }
    *sum = sum_of(sums);
}

}  // namespace
}  // namespace pixnar::head
