// How long the vector of a docid is: the sum of the phrase rows of its tokens.
#pragma once
#include <cstdint>
#include <vector>

#include "common/parallel.hpp"
#include "docids/table.hpp"
#include "head/rows.hpp"

namespace pixnar::head {

// By row of the table: the Euclidean norm of the sum of the phrase rows of the first `slots` tokens. The same bits for any
// number of threads, and for equal docids of different tables. Throws std::invalid_argument if a token has no row.
std::vector<float> docid_norms(const DocidTable& table, const Rows& rows, uint32_t slots, const Workers& workers);

}  // namespace pixnar::head
