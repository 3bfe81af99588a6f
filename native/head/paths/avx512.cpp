// AVX-512 with VNNI: four products of bytes are added to a 32-bit sum at once, without saturation.
#include "head/paths/float_kernels.hpp"

namespace pixnar::head {

namespace {

PIXNAR_INLINE __m256i halves_added(__m512i a) {
    return _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
}

PIXNAR_INLINE __m128i four_sums(const __m512i* sums, int step) {
    const __m256i ab = _mm256_hadd_epi32(halves_added(sums[0]), halves_added(sums[step]));
    const __m256i cd = _mm256_hadd_epi32(halves_added(sums[2 * step]), halves_added(sums[3 * step]));
    const __m256i all = _mm256_hadd_epi32(ab, cd);
    return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

// The rows were made unsigned by adding `added`.
PIXNAR_INLINE void finish(const Batch& batch, size_t row, size_t slot, __m128i dots, int32_t added) {
    dots = _mm_sub_epi32(dots, _mm_set1_epi32(added * batch.slot_sums[slot]));
    const __m128 scales = _mm_mul_ps(_mm_loadu_ps(batch.scales + row), _mm_set1_ps(batch.slot_scales[slot]));
    __m128 logits = _mm_mul_ps(_mm_cvtepi32_ps(dots), scales);
    if (batch.bias) logits = _mm_add_ps(logits, _mm_loadu_ps(batch.bias + row));
    _mm_storeu_ps(batch.out + slot * batch.out_step + row, logits);
}

template <int S> PIXNAR_INLINE void int8_tile(const Batch& batch, size_t row, size_t slot) {
    const __m512i signs = _mm512_set1_epi8(static_cast<char>(0x80));
    __m512i sums[4][S];
    for (int r = 0; r < 4; ++r)
        for (int s = 0; s < S; ++s) sums[r][s] = _mm512_setzero_si512();
    const int8_t* x = batch.bytes_x + slot * batch.numbers;
    for (size_t j = 0; j < batch.bytes; j += 64)
        for (int r = 0; r < 4; ++r) {
            const __m512i values = _mm512_xor_si512(load<__m512i>(batch.rows[row + r] + j), signs);
            for (int s = 0; s < S; ++s)
                sums[r][s] = _mm512_dpbusd_epi32(sums[r][s], values, load<__m512i>(x + s * batch.numbers + j));
        }
    for (int s = 0; s < S; ++s) finish(batch, row, slot + s, four_sums(&sums[0][s], S), 128);
}

void int8_dots(const Batch& batch) {
    for (size_t row = 0; row < batch.count; row += 4) {
        fetch_next(batch, row, 4);
        size_t slot = 0;
        for (; slot + 4 <= batch.slots; slot += 4) int8_tile<4>(batch, row, slot);
        for (; slot + 2 <= batch.slots; slot += 2) int8_tile<2>(batch, row, slot);
        if (slot < batch.slots) int8_tile<1>(batch, row, slot);
    }
}

template <int S> PIXNAR_INLINE void int4_tile(const Batch& batch, size_t row, size_t slot) {
    const __m512i signs = _mm512_set1_epi8(static_cast<char>(0x88)), half = _mm512_set1_epi8(15);
    __m512i sums[4][S];
    for (int r = 0; r < 4; ++r)
        for (int s = 0; s < S; ++s) sums[r][s] = _mm512_setzero_si512();
    const int8_t* x = batch.bytes_x + slot * batch.numbers;
    for (size_t j = 0; j < batch.bytes; j += 64)
        for (int r = 0; r < 4; ++r) {
            const __m512i both = _mm512_xor_si512(load<__m512i>(batch.rows[row + r] + j), signs);
            const __m512i low = _mm512_and_si512(both, half), high = _mm512_and_si512(_mm512_srli_epi16(both, 4), half);
            for (int s = 0; s < S; ++s) {
                const int8_t* at = x + s * batch.numbers + 2 * j;
                sums[r][s] = _mm512_dpbusd_epi32(sums[r][s], low, load<__m512i>(at));
                sums[r][s] = _mm512_dpbusd_epi32(sums[r][s], high, load<__m512i>(at + 64));
            }
        }
    for (int s = 0; s < S; ++s) finish(batch, row, slot + s, four_sums(&sums[0][s], S), 8);
}

void int4_dots(const Batch& batch) {
    for (size_t row = 0; row < batch.count; row += 4) {
        fetch_next(batch, row, 4);
        size_t slot = 0;
        for (; slot + 4 <= batch.slots; slot += 4) int4_tile<4>(batch, row, slot);
        for (; slot + 2 <= batch.slots; slot += 2) int4_tile<2>(batch, row, slot);
        if (slot < batch.slots) int4_tile<1>(batch, row, slot);
    }
}

}  // namespace

const Kernels avx512_kernels{
    "avx512", {int8_dots, float_dots<Float32>, float_dots<Float16>, float_dots<Bfloat16>, int4_dots}, log_sum};

}  // namespace pixnar::head
