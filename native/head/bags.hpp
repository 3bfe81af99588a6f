// Products with the docid-token matrix A, which is kept as token lists: row i of A holds ids[offsets[i] .. offsets[i + 1]).
//
// Threads share the columns of the dense side, never its rows, so every number is added up by one thread in one order: the
// results do not depend on how many threads there are.
#pragma once
#include <cstdint>
#include <span>

#include "common/parallel.hpp"

namespace pixnar::head {

struct Bags {
    std::span<const uint32_t> ids;
    std::span<const int64_t> offsets;  // one more than there are bags
    size_t size() const { return offsets.size() - 1; }
    void check(size_t rows) const;  // throws std::invalid_argument unless all ids are below `rows`
};

// out[i] = Σ rows[v] over the bag i: A · rows, [bags, width].
void bag_sums(const Bags& bags, const float* rows, size_t width, float* out, const Workers& workers);
// out[v] += values[i] for every v of bag i: Aᵀ · values is added to out, [rows, width].
void bag_scatter(const Bags& bags, const float* values, size_t width, float* out, const Workers& workers);
// out += Aᵀ A · rows in one pass; A · rows is never held.
void bag_gram(const Bags& bags, const float* rows, size_t width, float* out, const Workers& workers);

}  // namespace pixnar::head
