// AVX-512 with VNNI: four products of bytes are added to a 32-bit sum at once, without saturation. One factor has to be
// unsigned: the rows' numbers are made so by adding something, which is taken off the sum again.
#include "head/paths/float_kernels.hpp"

namespace pixnar::head {

namespace {

struct Int8 {
    static constexpr int32_t added = 128;
    static constexpr size_t per_byte = 1;
    __m512i numbers;

    explicit PIXNAR_INLINE Int8(const uint8_t* row)
        : numbers(_mm512_xor_si512(load<__m512i>(row), _mm512_set1_epi8(static_cast<char>(0x80)))) {}
    PIXNAR_INLINE __m512i times(const int8_t* x, __m512i sum) const {
        return _mm512_dpbusd_epi32(sum, numbers, load<__m512i>(x));
    }
};

struct Int4 {
    static constexpr int32_t added = 8;
    static constexpr size_t per_byte = 2;
    __m512i low, high;

    explicit PIXNAR_INLINE Int4(const uint8_t* row) {
        const __m512i half = _mm512_set1_epi8(15);
        const __m512i both = _mm512_xor_si512(load<__m512i>(row), _mm512_set1_epi8(static_cast<char>(0x88)));
        low = _mm512_and_si512(both, half);
        high = _mm512_and_si512(_mm512_srli_epi16(both, 4), half);
    }
    PIXNAR_INLINE __m512i times(const int8_t* x, __m512i sum) const {
        return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, low, load<__m512i>(x)), high, load<__m512i>(x + 64));
    }
};

// In every quarter, the four registers' sums of that quarter.
PIXNAR_INLINE __m512i quarter_sums(const __m512i (&of)[4]) {
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(of[0], of[1]), _mm512_unpackhi_epi32(of[0], of[1]));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(of[2], of[3]), _mm512_unpackhi_epi32(of[2], of[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

PIXNAR_INLINE __m512i quarters_added(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

// The sums of sixteen registers, in order.
PIXNAR_INLINE __m512i sixteen_sums(const __m512i (&of)[4][4]) {
    return quarters_added(quarters_added(quarter_sums(of[0]), quarter_sums(of[1])),
                          quarters_added(quarter_sums(of[2]), quarter_sums(of[3])));
}

// One of four numbers in each quarter, or all four in every one.
template <class T> PIXNAR_INLINE __m512i one_each(const T* four) {
    const __m512i order = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return _mm512_permutexvar_epi32(order, _mm512_castsi128_si512(load<__m128i>(four)));
}
PIXNAR_INLINE __m512 all_each(const float* four) { return _mm512_broadcast_f32x4(load<__m128>(four)); }

template <class Format> PIXNAR_INLINE __m512 logits_of(__m512i sums, __m512i slot_sums, __m512 scales) {
    const __m512i dots = _mm512_sub_epi32(sums, _mm512_mullo_epi32(slot_sums, _mm512_set1_epi32(Format::added)));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(dots), scales);
}

template <class Format> PIXNAR_INLINE void four_slots(const Batch& batch, size_t row, size_t slot) {
    __m512i sums[4][4];  // by slot and row
    for (auto& of_slot : sums)
        for (__m512i& sum : of_slot) sum = _mm512_setzero_si512();
    const Next<4> next(batch, row);
    const int8_t* x = batch.bytes_x + slot * batch.numbers;
    for (size_t j = 0; j < batch.bytes; j += 64) {
        if (slot == 0) next.fetch(j);
        for (int r = 0; r < 4; ++r) {
            const Format values(batch.rows[row + r] + j);
            for (int s = 0; s < 4; ++s) sums[s][r] = values.times(x + s * batch.numbers + j * Format::per_byte, sums[s][r]);
        }
    }
    const __m512 scales = _mm512_mul_ps(all_each(batch.scales + row), _mm512_castsi512_ps(one_each(batch.slot_scales + slot)));
    __m512 logits = logits_of<Format>(sixteen_sums(sums), one_each(batch.slot_sums + slot), scales);
    if (batch.bias) logits = _mm512_add_ps(logits, all_each(batch.bias + row));
    float four[16];
    __builtin_memcpy(four, &logits, sizeof four);
    for (int s = 0; s < 4; ++s) __builtin_memcpy(batch.out + (slot + s) * batch.out_step + row, four + 4 * s, 16);
}

template <class Format> PIXNAR_INLINE void sixteen_rows(const Batch& batch, size_t row, size_t slot) {
    __m512i sums[4][4];  // of rows, in order
    for (auto& some : sums)
        for (__m512i& sum : some) sum = _mm512_setzero_si512();
    const Next<16> next(batch, row);
    const int8_t* x = batch.bytes_x + slot * batch.numbers;
    for (size_t j = 0; j < batch.bytes; j += 64) {
        if (slot == 0) next.fetch(j);
        for (int r = 0; r < 16; ++r)
            sums[r / 4][r % 4] = Format(batch.rows[row + r] + j).times(x + j * Format::per_byte, sums[r / 4][r % 4]);
    }
    const __m512 scales = _mm512_mul_ps(load<__m512>(batch.scales + row), _mm512_set1_ps(batch.slot_scales[slot]));
    __m512 logits = logits_of<Format>(sixteen_sums(sums), _mm512_set1_epi32(batch.slot_sums[slot]), scales);
    if (batch.bias) logits = _mm512_add_ps(logits, load<__m512>(batch.bias + row));
    __builtin_memcpy(batch.out + slot * batch.out_step + row, &logits, sizeof logits);
}

template <class Format> void whole_dots(const Batch& batch) {
    const size_t by_four = batch.slots / 4 * 4;
    for (size_t row = 0; row < batch.count; row += 16) {
        for (size_t part = row; part < row + 16; part += 4)
            for (size_t slot = 0; slot < by_four; slot += 4) four_slots<Format>(batch, part, slot);
        for (size_t slot = by_four; slot < batch.slots; ++slot) sixteen_rows<Format>(batch, row, slot);
    }
}

}  // namespace

const Kernels avx512_kernels{
    "avx512", {whole_dots<Int8>, float_dots<Float32>, float_dots<Float16>, float_dots<Bfloat16>, whole_dots<Int4>}, log_sum,
    above};

}  // namespace pixnar::head
