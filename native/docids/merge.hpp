// Tables of ranges of docids become one table.
#pragma once
#include <cstdint>
#include <span>

#include "common/parallel.hpp"
#include "docids/assembly.hpp"

namespace pixnar {

// Every docid of a part comes before every docid of the same length in the parts behind it: parts by ranges of first
// tokens are such. They need no index of their own. The table is the one that a builder makes of all records at once.
TableStore merge_tables(std::span<const DocidTable* const> parts, bool index, const Workers& workers);

}  // namespace pixnar
