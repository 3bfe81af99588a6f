// Phrase rows as they lie in memory or in a mapped file: one row of numbers per token.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace pixnar::head {

// int8 and int4 rows have a scale each: number = whole number * scale. int4 rows come in blocks of 64 bytes for 128
// numbers: byte i of a block holds number i in its low half and number i + 64 in its high half, both two's complement.
enum class RowFormat : uint8_t { int8, float32, float16, bfloat16, int4 };
constexpr size_t formats = 5;

constexpr size_t row_step = 64;     // strides are multiples of this, so that kernels never need a remainder
constexpr uint32_t most_dim = 65536;  // sums of products stay below 2^31

RowFormat format_named(std::string_view name);
std::string_view name_of(RowFormat format);
bool has_scales(RowFormat format);
size_t numbers_in(RowFormat format, size_t bytes);
size_t stride_for(RowFormat format, uint32_t dim);

// `data`, `scales` and `bias` are in the order of places; without `places`, token v is at place v.
struct Rows {
    std::span<const uint8_t> data;
    RowFormat format = RowFormat::int8;
    uint32_t count = 0;
    uint32_t dim = 0;
    size_t stride = 0;  // bytes from row to row; what is behind the numbers of a row is zero
    std::span<const float> scales;
    std::span<const float> bias;
    std::span<const uint32_t> places;

    void check() const;  // throws std::invalid_argument if the parts do not fit together
    size_t place(uint32_t token) const { return places.empty() ? token : places[token]; }
};

// Tokens to look at: those listed, or all below `size`.
struct Tokens {
    const uint32_t* ids = nullptr;
    size_t size = 0;

    uint32_t operator[](size_t i) const { return ids ? ids[i] : static_cast<uint32_t>(i); }
    bool rising() const;  // in order, each once
    // Throws std::invalid_argument if an id is not below `count`.
    void check(uint32_t count) const;
};

}  // namespace pixnar::head
