// 64-bit ARM, with or without dot products of bytes. Not yet run on such a machine.
#pragma once
#include <arm_neon.h>

#include "head/paths/float_kernels.hpp"

namespace pixnar::head {

namespace {

PIXNAR_INLINE int32x4_t add_products(int32x4_t sum, int8x16_t a, int8x16_t b) {
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sum, a, b);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b));  // two products are at most 2 * 128 * 127
    return vpadalq_s16(sum, vmlal_s8(low, vget_high_s8(a), vget_high_s8(b)));
#endif
}

struct Int8 {
    static constexpr size_t per_block = 64;
    static PIXNAR_INLINE int32x4_t times(const uint8_t* row, const int8_t* x, int32x4_t sum) {
        return add_products(sum, vreinterpretq_s8_u8(vld1q_u8(row)), vld1q_s8(x));
    }
};

struct Int4 {
    static constexpr size_t per_block = 128;
    static PIXNAR_INLINE int32x4_t times(const uint8_t* row, const int8_t* x, int32x4_t sum) {
        const int8x16_t both = vreinterpretq_s8_u8(vld1q_u8(row));
        sum = add_products(sum, vshrq_n_s8(vshlq_n_s8(both, 4), 4), vld1q_s8(x));
        return add_products(sum, vshrq_n_s8(both, 4), vld1q_s8(x + 64));
    }
};

template <class Format, int S> PIXNAR_INLINE void whole_tile(const Batch& batch, size_t row, size_t slot) {
    int32x4_t sums[4][S];
    for (int r = 0; r < 4; ++r)
        for (int s = 0; s < S; ++s) sums[r][s] = vdupq_n_s32(0);
    const Next<4> next(batch, row);
    const int8_t* x = batch.bytes_x + slot * batch.numbers;
    for (size_t block = 0; block < batch.bytes; block += 64, x += Format::per_block) {
        if (slot == 0) next.fetch(block);
        for (size_t j = 0; j < 64; j += 16)
            for (int r = 0; r < 4; ++r)
                for (int s = 0; s < S; ++s)
                    sums[r][s] = Format::times(batch.rows[row + r] + block + j, x + s * batch.numbers + j, sums[r][s]);
    }
    for (int s = 0; s < S; ++s) {
        const int32x4_t dots = vpaddq_s32(vpaddq_s32(sums[0][s], sums[1][s]), vpaddq_s32(sums[2][s], sums[3][s]));
        float32x4_t logits =
            vmulq_f32(vcvtq_f32_s32(dots), vmulq_f32(vld1q_f32(batch.scales + row), vdupq_n_f32(batch.slot_scales[slot + s])));
        if (batch.bias) logits = vaddq_f32(logits, vld1q_f32(batch.bias + row));
        vst1q_f32(batch.out + (slot + s) * batch.out_step + row, logits);
    }
}

template <class Format> void whole_dots(const Batch& batch) {
    for (size_t row = 0; row < batch.count; row += 4) {
        size_t slot = 0;
        for (; slot + 4 <= batch.slots; slot += 4) whole_tile<Format, 4>(batch, row, slot);
        for (; slot < batch.slots; ++slot) whole_tile<Format, 1>(batch, row, slot);
    }
}

}  // namespace

}  // namespace pixnar::head
