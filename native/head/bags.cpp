#include "head/bags.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace pixnar::head {

namespace {

constexpr size_t columns = 64;  // of the dense side that a task takes: 256 bytes a row, a few cache lines

// Calls task(from, to) for every block of columns; the calling thread looks for Ctrl-C between blocks.
void each_block(size_t width, const Workers& workers, const auto& task) {
    workers.run((width + columns - 1) / columns, [&](size_t block, unsigned) {
        task(block * columns, std::min(width, (block + 1) * columns));
    });
}

}  // namespace

void Bags::check(size_t rows) const {
    if (offsets.empty() || offsets.front() != 0 || offsets.back() != static_cast<int64_t>(ids.size()) ||
        !std::is_sorted(offsets.begin(), offsets.end()))
        throw std::invalid_argument("the offsets do not fit the token ids");
    for (const uint32_t id : ids)
        if (id >= rows)
            throw std::invalid_argument("token id " + std::to_string(id) + " is not below " + std::to_string(rows));
}

void bag_sums(const Bags& bags, const float* rows, size_t width, float* out, const Workers& workers) {
    each_block(width, workers, [&](size_t from, size_t to) {
        for (size_t i = 0; i < bags.size(); ++i) {
            float* sum = out + i * width;
            std::fill(sum + from, sum + to, 0.0f);
            for (int64_t j = bags.offsets[i]; j < bags.offsets[i + 1]; ++j) {
                const float* row = rows + size_t{bags.ids[j]} * width;
                for (size_t c = from; c < to; ++c) sum[c] += row[c];
            }
        }
    });
}

void bag_scatter(const Bags& bags, const float* values, size_t width, float* out, const Workers& workers) {
    each_block(width, workers, [&](size_t from, size_t to) {
        for (size_t i = 0; i < bags.size(); ++i) {
            const float* value = values + i * width;
            for (int64_t j = bags.offsets[i]; j < bags.offsets[i + 1]; ++j) {
                float* row = out + size_t{bags.ids[j]} * width;
                for (size_t c = from; c < to; ++c) row[c] += value[c];
            }
        }
    });
}

void bag_gram(const Bags& bags, const float* rows, size_t width, float* out, const Workers& workers) {
    each_block(width, workers, [&](size_t from, size_t to) {
        float sum[columns];
        for (size_t i = 0; i < bags.size(); ++i) {
            std::fill(sum, sum + (to - from), 0.0f);
            for (int64_t j = bags.offsets[i]; j < bags.offsets[i + 1]; ++j) {
                const float* row = rows + size_t{bags.ids[j]} * width + from;
                for (size_t c = 0; c < to - from; ++c) sum[c] += row[c];
            }
            for (int64_t j = bags.offsets[i]; j < bags.offsets[i + 1]; ++j) {
                float* row = out + size_t{bags.ids[j]} * width + from;
                for (size_t c = 0; c < to - from; ++c) row[c] += sum[c];
            }
        }
    });
}

}  // namespace pixnar::head
