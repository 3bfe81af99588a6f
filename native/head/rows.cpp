#include "head/rows.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

namespace pixnar::head {

namespace {

constexpr std::array<std::string_view, formats> names{"int8", "float32", "float16", "bfloat16", "int4"};

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument("phrase rows: " + why); }

}  // namespace

RowFormat format_named(std::string_view name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) refuse("no format '" + std::string(name) + "': int8, float32, float16, bfloat16 or int4");
    return static_cast<RowFormat>(found - names.begin());
}

std::string_view name_of(RowFormat format) { return names[static_cast<size_t>(format)]; }

bool has_scales(RowFormat format) { return format == RowFormat::int8 || format == RowFormat::int4; }

size_t numbers_in(RowFormat format, size_t bytes) {
    switch (format) {
        case RowFormat::int8: return bytes;
        case RowFormat::float32: return bytes / 4;
        case RowFormat::int4: return bytes * 2;
        default: return bytes / 2;
    }
}

size_t stride_for(RowFormat format, uint32_t dim) {
    const size_t per_step = numbers_in(format, row_step);
    return (dim + per_step - 1) / per_step * row_step;
}

void Rows::check() const {
    if (dim == 0 || dim > most_dim) refuse(std::to_string(dim) + " numbers each: give 1 to " + std::to_string(most_dim));
    if (stride % row_step != 0 || stride < stride_for(format, dim) || stride > stride_for(format, most_dim))
        refuse("a stride of " + std::to_string(stride) + " bytes: rows of " + std::to_string(dim) + " numbers need " +
               std::to_string(stride_for(format, dim)) + ", and it must be a multiple of " + std::to_string(row_step));
    if (data.size() != count * stride)
        refuse(std::to_string(data.size()) + " bytes, and " + std::to_string(count) + " rows need " +
               std::to_string(count * stride));
    if (scales.size() != (has_scales(format) ? count : 0))
        refuse(std::to_string(scales.size()) + " scales for " + std::to_string(count) + " rows of format " +
               std::string(name_of(format)));
    if (!bias.empty() && bias.size() != count)
        refuse(std::to_string(bias.size()) + " biases for " + std::to_string(count) + " rows");
    if (!places.empty() && places.size() != count)
        refuse(std::to_string(places.size()) + " places for " + std::to_string(count) + " rows");
    for (const uint32_t place : places)
        if (place >= count) refuse("place " + std::to_string(place) + " of " + std::to_string(count));
}

bool Tokens::rising() const {
    if (!ids) return true;
    bool wrong = false;
    for (size_t i = 1; i < size; ++i) wrong |= ids[i] <= ids[i - 1];
    return !wrong;
}

void Tokens::check(uint32_t count) const {
    uint32_t most = 0;
    if (!ids) most = static_cast<uint32_t>(size == 0 ? 0 : size - 1);
    else
        for (size_t i = 0; i < size; ++i) most = std::max(most, ids[i]);
    if (size > 0 && most >= count)
        throw std::invalid_argument("token " + std::to_string(most) + " is not among " + std::to_string(count));
}

}  // namespace pixnar::head
