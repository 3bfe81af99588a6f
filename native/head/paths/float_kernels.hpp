// Dot products of float rows, and the sum of exponentials: the same source for every path.
#pragma once
#include "head/kernels.hpp"
#include "head/paths/lanes.hpp"

namespace pixnar::head {
namespace {

constexpr size_t fetch_ahead = 16;

// The rows that are wanted some time after the R rows from `first` on. They are fetched piece by piece while those are
// multiplied: all at once they would keep the processor from reading anything else.
template <int R> struct Next {
    const uint8_t* rows[R];

    PIXNAR_INLINE Next(const Batch& batch, size_t first) {
        for (int r = 0; r < R; ++r) {
            const size_t row = first + fetch_ahead + r;
            rows[r] = batch.rows[row < batch.count + batch.ahead ? row : first + r];
        }
    }
    PIXNAR_INLINE void fetch(size_t at) const {
        for (int r = 0; r < R; ++r) __builtin_prefetch(rows[r] + at);
    }
};

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
PIXNAR_INLINE void float_tile(const Batch& batch, size_t row, size_t slot, const Next<R>& next) {
    Lanes sums[R][S];
    for (int r = 0; r < R; ++r)
        for (int s = 0; s < S; ++s) sums[r][s] = lanes_of(0.0f);
    for (size_t j = 0; j < batch.numbers; j += 16) {
        if (slot == 0) next.fetch(j * Format::size);
        for (int p = 0; p < parts; ++p) {
            const size_t at = j + static_cast<size_t>(p * width);
            for (int r = 0; r < R; ++r) {
                const Floats values = Format::read(batch.rows[row + r] + at * Format::size);
                for (int s = 0; s < S; ++s)
                    sums[r][s].part[p] += values * load<Floats>(batch.floats + (slot + s) * batch.numbers + at);
            }
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
        const Next<2> next(batch, row);
        size_t slot = 0;
        for (; slot + 2 <= batch.slots; slot += 2) float_tile<Format, 2, 2>(batch, row, slot, next);
        if (slot < batch.slots) float_tile<Format, 2, 1>(batch, row, slot, next);
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

// A bit for each of sixteen values: whether it is at least `least`.
PIXNAR_INLINE unsigned hits(const float* values, float least) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(load<__m512>(values), _mm512_set1_ps(least), _CMP_GE_OQ);
#elif defined(__AVX2__)
    const __m256 border = _mm256_set1_ps(least);
    const int low = _mm256_movemask_ps(_mm256_cmp_ps(load<__m256>(values), border, _CMP_GE_OQ));
    const int high = _mm256_movemask_ps(_mm256_cmp_ps(load<__m256>(values + 8), border, _CMP_GE_OQ));
    return static_cast<unsigned>(low | high << 8);
#else
    Ints any = load<Floats>(values) >= every(least);
    for (int p = 1; p < parts; ++p) any |= load<Floats>(values + p * width) >= every(least);
    int32_t all[width], found = 0;
    __builtin_memcpy(all, &any, sizeof all);
    for (int i = 0; i < width; ++i) found |= all[i];
    if (found == 0) return 0;
    unsigned bits = 0;
    for (int i = 0; i < 16; ++i) bits |= static_cast<unsigned>(values[i] >= least) << i;
    return bits;
#endif
}

size_t above(const float* values, size_t count, float least, uint32_t* places) {
    size_t found = 0, i = 0;
    for (; i + 16 <= count; i += 16)
        for (unsigned bits = hits(values + i, least); bits != 0; bits &= bits - 1)
            places[found++] = static_cast<uint32_t>(i + static_cast<size_t>(__builtin_ctz(bits)));
    for (; i < count; ++i)
        if (values[i] >= least) places[found++] = static_cast<uint32_t>(i);
    return found;
}

}  // namespace
}  // namespace pixnar::head
