#include "head/paths/neon_kernels.hpp"

namespace pixnar::head {

const Kernels neon_kernels{
    "neon", {whole_dots<Int8>, float_dots<Float32>, float_dots<Float16>, float_dots<Bfloat16>, whole_dots<Int4>}, log_sum,
    above};

}  // namespace pixnar::head
