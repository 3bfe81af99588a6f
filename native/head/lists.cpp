#include "head/lists.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pixnar::head {

namespace {

// A bit per token. It is kept from call to call, and between calls it is all zeros.
thread_local std::vector<uint64_t> marks;

void mark(std::span<const uint32_t> tokens, uint32_t vocabulary) {
    uint64_t* const to = marks.data();
    for (const uint32_t token : tokens) {
        if (token >= vocabulary) {
            std::fill(marks.begin(), marks.end(), 0);
            throw std::invalid_argument("token " + std::to_string(token) + " is not among " + std::to_string(vocabulary));
        }
        to[token / 64] |= uint64_t{1} << (token % 64);
    }
}

}  // namespace

std::vector<uint32_t> union_of(std::span<const uint32_t> lists, std::span<const int64_t> offsets, std::span<const int64_t> chosen,
                               std::span<const uint32_t> extra, uint32_t vocabulary) {
    size_t most = extra.size() + 1;  // one more is written to than may be used
    for (const int64_t i : chosen) {
        if (i < 0 || static_cast<size_t>(i) + 1 >= offsets.size()) throw std::invalid_argument("there is no list " + std::to_string(i));
        const int64_t begin = offsets[static_cast<size_t>(i)], end = offsets[static_cast<size_t>(i) + 1];
        if (begin < 0 || begin > end || static_cast<size_t>(end) > lists.size())
            throw std::invalid_argument("list " + std::to_string(i) + " is not among " + std::to_string(lists.size()) + " tokens");
        most += static_cast<size_t>(end - begin);
    }
    const auto list = [&](int64_t i) {
        const auto begin = static_cast<size_t>(offsets[static_cast<size_t>(i)]);
        return lists.subspan(begin, static_cast<size_t>(offsets[static_cast<size_t>(i) + 1]) - begin);
    };
    const size_t words = (size_t{vocabulary} + 63) / 64;
    if (marks.size() < words) marks.resize(words);
    std::vector<uint32_t> found(most);
    for (const int64_t i : chosen) mark(list(i), vocabulary);
    mark(extra, vocabulary);
    uint32_t* out = found.data();
    for (size_t w = 0; w < words; ++w) {
        uint64_t word = marks[w];
        marks[w] = 0;
        const auto first = static_cast<uint32_t>(w * 64);
        // Whether a bit is set is hard to foresee: writing thrice and counting is faster than a branch each time.
        for (int i = 0; i < 3; ++i, word &= word - 1) {
            *out = first + static_cast<uint32_t>(__builtin_ctzll(word | uint64_t{1} << 63));
            out += word != 0;
        }
        for (; word != 0; word &= word - 1) *out++ = first + static_cast<uint32_t>(__builtin_ctzll(word));
    }
    found.resize(static_cast<size_t>(out - found.data()));
    return found;
}

}  // namespace pixnar::head
