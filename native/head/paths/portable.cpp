// Plain loops that every compiler turns into what the machine at least has.
#include "head/paths/float_kernels.hpp"

namespace pixnar::head {

namespace {

PIXNAR_INLINE void finish(const Batch& batch, size_t row, size_t slot, int32_t dot) {
    const float logit = static_cast<float>(dot) * (batch.scales[row] * batch.slot_scales[slot]);
    batch.out[slot * batch.out_step + row] = batch.bias ? logit + batch.bias[row] : logit;
}

void int8_dots(const Batch& batch) {
    for (size_t row = 0; row < batch.count; ++row) {
        const Next<1> next(batch, row);
        for (size_t i = 0; i < batch.bytes; i += 64) next.fetch(i);
        const auto* values = reinterpret_cast<const int8_t*>(batch.rows[row]);
        for (size_t slot = 0; slot < batch.slots; ++slot) {
            const int16_t* x = batch.words_x + slot * batch.numbers;
            int32_t dot = 0;
            for (size_t j = 0; j < batch.numbers; ++j) dot += static_cast<int16_t>(values[j]) * x[j];
            finish(batch, row, slot, dot);
        }
    }
}

void int4_dots(const Batch& batch) {
    for (size_t row = 0; row < batch.count; ++row) {
        const Next<1> next(batch, row);
        for (size_t i = 0; i < batch.bytes; i += 64) next.fetch(i);
        for (size_t slot = 0; slot < batch.slots; ++slot) {
            const int16_t* x = batch.words_x + slot * batch.numbers;
            int32_t dot = 0;
            for (size_t block = 0; block < batch.bytes; block += 64) {
                const uint8_t* values = batch.rows[row] + block;
                for (size_t j = 0; j < 64; ++j) {
                    const auto low = static_cast<int16_t>((values[j] & 15) ^ 8), high = static_cast<int16_t>((values[j] >> 4) ^ 8);
                    dot += (low - 8) * x[2 * block + j] + (high - 8) * x[2 * block + 64 + j];
                }
            }
            finish(batch, row, slot, dot);
        }
    }
}

}  // namespace

const Kernels portable_kernels{
    "portable", {int8_dots, float_dots<Float32>, float_dots<Float16>, float_dots<Bfloat16>, int4_dots}, log_sum, above};

}  // namespace pixnar::head
