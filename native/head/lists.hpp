// The union of token lists.
#pragma once
#include <span>
#include <vector>

#include <cstdint>

namespace pixnar::head {

// The tokens of the chosen lists and of `extra`, sorted, each once. List i is lists[offsets[i]] to lists[offsets[i + 1]].
// Throws std::invalid_argument if there is no such list, it is not inside `lists`, or a token is not below `vocabulary`.
std::vector<uint32_t> union_of(std::span<const uint32_t> lists, std::span<const int64_t> offsets, std::span<const int64_t> chosen,
                               std::span<const uint32_t> extra, uint32_t vocabulary);

}  // namespace pixnar::head
