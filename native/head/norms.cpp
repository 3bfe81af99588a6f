#include "head/norms.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

namespace pixnar::head {

namespace {

constexpr size_t lanes = 8;

float from_half(uint16_t half) {
    // Moving the exponent by a multiplication also makes subnormal numbers right.
    const uint32_t magnitude = half & 0x7fffu;
    const auto moved = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
    const uint32_t endless = magnitude > 0x7bff ? 0x7f800000u : 0u;
    return std::bit_cast<float>(moved | endless | (half & 0x8000u) << 16);
}

template <class T> T number_at(const uint8_t* row, size_t i) {
    T number;
    std::memcpy(&number, row + i * sizeof number, sizeof number);
    return number;
}

// Adds `count` numbers of a row, which is a whole number of steps, to `sum`.
void add_row(RowFormat format, const uint8_t* __restrict row, float scale, size_t count, float* __restrict sum) {
    switch (format) {
        case RowFormat::int8:
            for (size_t i = 0; i < count; ++i) sum[i] += static_cast<float>(static_cast<int8_t>(row[i])) * scale;
            return;
        case RowFormat::float32:
            for (size_t i = 0; i < count; ++i) sum[i] += number_at<float>(row, i);
            return;
        case RowFormat::float16:
            for (size_t i = 0; i < count; ++i) sum[i] += from_half(number_at<uint16_t>(row, i));
            return;
        case RowFormat::bfloat16:
            for (size_t i = 0; i < count; ++i) sum[i] += std::bit_cast<float>(uint32_t{number_at<uint16_t>(row, i)} << 16);
            return;
        case RowFormat::int4:
            for (size_t block = 0; block < count; block += 128, row += 64, sum += 128)
                for (size_t i = 0; i < 64; ++i) {
                    sum[i] += static_cast<float>(((row[i] & 15) ^ 8) - 8) * scale;
                    sum[i + 64] += static_cast<float>((row[i] >> 4 ^ 8) - 8) * scale;
                }
            return;
    }
}

// In lanes of a fixed number, so that every machine adds in the same order.
float norm_of(const float* vector, size_t count) {
    double sums[lanes] = {};
    size_t i = 0;
    for (; i + lanes <= count; i += lanes)
        for (size_t lane = 0; lane < lanes; ++lane) {
            const double number = vector[i + lane];
            sums[lane] += number * number;
        }
    for (; i < count; ++i) sums[i % lanes] += double{vector[i]} * double{vector[i]};
    double total = 0;
    for (const double sum : sums) total += sum;
    return static_cast<float>(std::sqrt(total));
}

}  // namespace

std::vector<float> docid_norms(const DocidTable& table, const Rows& rows, uint32_t slots, const Workers& workers) {
    if (table.rows() > 0 && rows.count < table.vocabulary())
        throw std::invalid_argument("phrase rows: " + std::to_string(rows.count) + " for a vocabulary of " +
                                    std::to_string(table.vocabulary()) + " tokens: give one for each token");
    constexpr uint32_t slice = 1 << 12;
    const size_t padded = numbers_in(rows.format, stride_for(rows.format, rows.dim));
    std::vector<float> norms(table.rows());
    std::vector<std::vector<float>> vectors(std::max(1u, workers.threads));
    workers.run((norms.size() + slice - 1) / slice, [&](size_t item, unsigned thread) {
        std::vector<float>& sum = vectors[thread];
        sum.resize(padded);
        const auto from = static_cast<uint32_t>(item * slice);
        const auto to = static_cast<uint32_t>(std::min<uint64_t>(norms.size(), uint64_t{from} + slice));
        for (uint32_t row = from; row < to; ++row) {
            const LengthClass& in = table.class_of(row);
            std::fill(sum.begin(), sum.end(), 0.0f);
            for (uint32_t t = 0; t < std::min(in.length, slots); ++t) {
                const size_t place = rows.place(table.token(in, row, t));
                add_row(rows.format, rows.data.data() + place * rows.stride, rows.scales.empty() ? 1.0f : rows.scales[place],
                        padded, sum.data());
            }
            norms[row] = norm_of(sum.data(), rows.dim);
        }
    });
    return norms;
}

}  // namespace pixnar::head
