// What a path (portable, AVX2, …) provides. The files of paths/ are compiled for instruction sets that not every machine
// has. They must therefore not use inline functions of the standard library or of other headers of ours: the linker keeps
// one copy of such a function, and it may be theirs.
#pragma once
#include <cstddef>
#include <cstdint>

namespace pixnar::head {

constexpr size_t rows_at_once = 16;

// Some rows against all slots. Numbers behind the dimension are zero in the slots.
struct Batch {
    const uint8_t* const* rows;  // `count`, then `ahead` more that will be wanted next
    size_t count;                // a multiple of rows_at_once
    size_t ahead;
    size_t bytes;         // of a row, a multiple of 64
    const float* scales;  // of the rows, for int8 and int4
    const float* bias;    // of the rows, or null
    size_t slots;
    size_t numbers;           // of a slot, padded
    const float* floats;      // slots x numbers, for the float formats
    const int8_t* bytes_x;    // slots x numbers, for int8 and int4
    const int16_t* words_x;   // the same, wider
    const float* slot_scales;
    const int32_t* slot_sums;  // of bytes_x
    float* out;                // logit of slot t and row i at out[t * out_step + i]
    size_t out_step;
};

struct Kernels {
    const char* name;
    void (*dots[5])(const Batch& batch);  // by RowFormat
    // The largest of `count` > 0 values and the sum of exp(value - largest), the same bits on every path.
    void (*log_sum)(const float* values, size_t count, float* largest, float* sum);
    // The places of values that are at least `least`, rising; returns how many there are.
    size_t (*above)(const float* values, size_t count, float least, uint32_t* places);
};

extern const Kernels portable_kernels, avx2_kernels, avx512_kernels, neon_kernels, dotprod_kernels;

}  // namespace pixnar::head
