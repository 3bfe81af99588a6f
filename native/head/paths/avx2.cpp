#include "head/paths/float_kernels.hpp"

namespace pixnar::head {

namespace {

// The sums of four registers, side by side.
PIXNAR_INLINE __m128i four_sums(__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

PIXNAR_INLINE void finish(const Batch& batch, size_t row, size_t slot, __m128i dots) {
    const __m128 scales = _mm_mul_ps(_mm_loadu_ps(batch.scales + row), _mm_set1_ps(batch.slot_scales[slot]));
    __m128 logits = _mm_mul_ps(_mm_cvtepi32_ps(dots), scales);
    if (batch.bias) logits = _mm_add_ps(logits, _mm_loadu_ps(batch.bias + row));
    _mm_storeu_ps(batch.out + slot * batch.out_step + row, logits);
}

// Four rows, S slots. The signs of the row move to the slot, so that one factor is unsigned; sums of two products, at most
// 2 * 128 * 127, cannot saturate. Widening to 16 bits instead was slower.
template <int S> PIXNAR_INLINE void int8_tile(const Batch& batch, size_t row, size_t slot, const Next<4>& next) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sums[4][S];
    for (int r = 0; r < 4; ++r)
        for (int s = 0; s < S; ++s) sums[r][s] = _mm256_setzero_si256();
    const int8_t* x = batch.bytes_x + slot * batch.numbers;
    for (size_t step = 0; step < batch.bytes; step += 64) {
        if (slot == 0) next.fetch(step);
#pragma GCC unroll 2
        for (size_t j = step; j < step + 64; j += 32)
            for (int r = 0; r < 4; ++r) {
                const __m256i values = load<__m256i>(batch.rows[row + r] + j), sizes = _mm256_abs_epi8(values);
                for (int s = 0; s < S; ++s) {
                    const __m256i pairs = _mm256_maddubs_epi16(sizes, _mm256_sign_epi8(load<__m256i>(x + s * batch.numbers + j), values));
                    sums[r][s] = _mm256_add_epi32(sums[r][s], _mm256_madd_epi16(pairs, ones));
                }
            }
    }
    for (int s = 0; s < S; ++s) finish(batch, row, slot + s, four_sums(sums[0][s], sums[1][s], sums[2][s], sums[3][s]));
}

void int8_dots(const Batch& batch) {
    for (size_t row = 0; row < batch.count; row += 4) {
        const Next<4> next(batch, row);
        size_t slot = 0;
        for (; slot + 2 <= batch.slots; slot += 2) int8_tile<2>(batch, row, slot, next);
        if (slot < batch.slots) int8_tile<1>(batch, row, slot, next);
    }
}

// Halves of bytes are made unsigned by adding 8, which is taken off the sum again. Products of pairs stay far below 2^15.
template <int S> PIXNAR_INLINE void int4_tile(const Batch& batch, size_t row, size_t slot, const Next<4>& next) {
    const __m256i signs = _mm256_set1_epi8(static_cast<char>(0x88)), half = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i sums[4][S];
    for (int r = 0; r < 4; ++r)
        for (int s = 0; s < S; ++s) sums[r][s] = _mm256_setzero_si256();
    for (size_t j = 0; j < batch.bytes; j += 32) {
        if (slot == 0) next.fetch(j);
        const int8_t* x = batch.bytes_x + slot * batch.numbers + j / 64 * 128 + j % 64;
        for (int r = 0; r < 4; ++r) {
            const __m256i both = _mm256_xor_si256(load<__m256i>(batch.rows[row + r] + j), signs);
            const __m256i low = _mm256_and_si256(both, half), high = _mm256_and_si256(_mm256_srli_epi16(both, 4), half);
            for (int s = 0; s < S; ++s) {
                const int8_t* at = x + s * batch.numbers;
                const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(low, load<__m256i>(at)),
                                                       _mm256_maddubs_epi16(high, load<__m256i>(at + 64)));
                sums[r][s] = _mm256_add_epi32(sums[r][s], _mm256_madd_epi16(pairs, ones));
            }
        }
    }
    for (int s = 0; s < S; ++s) {
        const __m128i added = _mm_set1_epi32(8 * batch.slot_sums[slot + s]);
        finish(batch, row, slot + s, _mm_sub_epi32(four_sums(sums[0][s], sums[1][s], sums[2][s], sums[3][s]), added));
    }
}

void int4_dots(const Batch& batch) {
    for (size_t row = 0; row < batch.count; row += 4) {
        const Next<4> next(batch, row);
        size_t slot = 0;
        for (; slot + 2 <= batch.slots; slot += 2) int4_tile<2>(batch, row, slot, next);
        if (slot < batch.slots) int4_tile<1>(batch, row, slot, next);
    }
}

}  // namespace

const Kernels avx2_kernels{
    "avx2", {int8_dots, float_dots<Float32>, float_dots<Float16>, float_dots<Bfloat16>, int4_dots}, log_sum, above};

}  // namespace pixnar::head
