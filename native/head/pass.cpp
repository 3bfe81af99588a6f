#include "head/pass.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "head/dispatch.hpp"

namespace pixnar::head {

namespace {

constexpr size_t most_ahead = 64;

}  // namespace

Pass::Pass(const Rows& rows, std::span<const float> x, size_t slots)
    : rows_(rows), kernels_(head::kernels()), slots_(slots), numbers_(numbers_in(rows.format, rows.stride)) {
    if (x.size() != slots * rows.dim)
        throw std::invalid_argument(std::to_string(x.size()) + " numbers are not " + std::to_string(slots) + " vectors of " +
                                    std::to_string(rows.dim));
    for (const float value : x)
        if (!std::isfinite(value)) throw std::invalid_argument("the vectors have numbers that are not finite");
    if (has_scales(rows.format)) {
        quantise(x);
        return;
    }
    floats_.resize(slots * numbers_);
    for (size_t t = 0; t < slots; ++t)
        std::copy_n(x.begin() + static_cast<ptrdiff_t>(t * rows.dim), rows.dim, floats_.begin() + static_cast<ptrdiff_t>(t * numbers_));
}

// Scale = largest magnitude / 127, numbers rounded half to even: as numpy's rint(x / scale) in 32-bit floats.
void Pass::quantise(std::span<const float> x) {
    scales_.resize(slots_);
    sums_.resize(slots_);
    bytes_.resize(slots_ * numbers_);
    words_.resize(slots_ * numbers_);
    for (size_t t = 0; t < slots_; ++t) {
        float most = 0;
        for (size_t j = 0; j < rows_.dim; ++j) most = std::max(most, std::fabs(x[t * rows_.dim + j]));
        scales_[t] = most / 127.0f;
        if (scales_[t] == 0) continue;
        for (size_t j = 0; j < rows_.dim; ++j) {
            const float rounded = std::clamp(std::nearbyint(x[t * rows_.dim + j] / scales_[t]), -127.0f, 127.0f);
            words_[t * numbers_ + j] = static_cast<int16_t>(rounded);
            bytes_[t * numbers_ + j] = static_cast<int8_t>(rounded);
            sums_[t] += static_cast<int32_t>(rounded);
        }
    }
}

void Pass::run(const Tokens& tokens, size_t from, size_t count, float* out) const {
    if (count == 0 || slots_ == 0) return;
    const uint8_t* rows[block + most_ahead];
    float scales[block], bias[block];
    for (size_t i = 0; i < count; ++i) {
        const size_t place = rows_.place(tokens[from + i]);
        rows[i] = rows_.data.data() + place * rows_.stride;
        if (!rows_.scales.empty()) scales[i] = rows_.scales[place];
        if (!rows_.bias.empty()) bias[i] = rows_.bias[place];
    }
    // The next block's scales and biases lie anywhere too.
    if (tokens.ids || !rows_.places.empty())
        for (size_t i = from + count; i < std::min(tokens.size, from + count + block); ++i) {
            const size_t place = rows_.place(tokens[i]);
            if (!rows_.scales.empty()) __builtin_prefetch(&rows_.scales[place]);
            if (!rows_.bias.empty()) __builtin_prefetch(&rows_.bias[place]);
        }
    size_t padded = count, ahead = 0;
    for (; padded % rows_at_once != 0; ++padded) {
        rows[padded] = rows[count - 1];
        scales[padded] = bias[padded] = 0;
    }
    // Rows that lie one behind the other are brought near by the processor itself.
    if (tokens.ids || !rows_.places.empty())
        for (; ahead < most_ahead && from + count + ahead < tokens.size; ++ahead)
            rows[padded + ahead] = rows_.data.data() + rows_.place(tokens[from + count + ahead]) * rows_.stride;
    kernels_.dots[static_cast<size_t>(rows_.format)]({rows, padded, ahead, rows_.stride, scales,
                                                      rows_.bias.empty() ? nullptr : bias, slots_, numbers_, floats_.data(),
                                                      bytes_.data(), words_.data(), scales_.data(), sums_.data(), out, block});
}

}  // namespace pixnar::head
