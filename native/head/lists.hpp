// The union of token lists.
#pragma once
#include <span>
#include <vector>

#include <cstdint>

namespace pixnar::head {

// The tokens of the chosen lists (each r long, one behind the other) and of `extra`, sorted, each once. Throws
// std::invalid_argument if there is no such list or a token is not below `vocabulary`.
std::vector<uint32_t> union_of(std::span<const uint32_t> lists, size_t r, std::span<const int64_t> chosen,
                               std::span<const uint32_t> extra, uint32_t vocabulary);

}  // namespace pixnar::head
