// One reading of phrase rows: every row is read once and multiplied with all slots.
#pragma once
#include <span>
#include <vector>

#include "head/kernels.hpp"
#include "head/rows.hpp"

namespace pixnar::head {

class Pass {
  public:
    static constexpr size_t block = 256;  // rows; their logits stay in the nearest cache

    // x: slots vectors of rows.dim numbers. Throws std::invalid_argument if there are other than that or if one is not finite.
    Pass(const Rows& rows, std::span<const float> x, size_t slots);

    size_t slots() const { return slots_; }
    const Kernels& kernels() const { return kernels_; }

    // Logits of tokens[from], … (at most `block`): that of slot t and the i-th of them at out[t * block + i]. The tokens
    // behind them are brought near.
    void run(const Tokens& tokens, size_t from, size_t count, float* out) const;

  private:
    void quantise(std::span<const float> x);

    const Rows& rows_;
    const Kernels& kernels_;
    size_t slots_, numbers_;
    std::vector<float> floats_, scales_;
    std::vector<int8_t> bytes_;
    std::vector<int16_t> words_;
    std::vector<int32_t> sums_;
};

}  // namespace pixnar::head
