// The texts one edit away from a given one, among sorted texts: nothing is stored beside the texts themselves.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "common/sorted_texts.hpp"

namespace pixnar {

// An edit inserts, deletes or replaces one UTF-8 character, or swaps two that stand side by side. The texts that begin
// like the given one lie together, so the characters that can stand at the place of an edit are read off the texts.
class NearTexts {
  public:
    // Characters from U+2E80 on (CJK scripts, Hangul and all behind them) are not inserted and replace nothing.
    static constexpr std::string_view first_untried = "\xE2\xBA\x80";

    explicit NearTexts(const SortedTexts& texts) : texts_(texts) {}

    // Where the texts at distance one are, ascending; never the text itself.
    std::vector<int64_t> find(std::string_view text) const {
        std::vector<int64_t> found;
        const std::vector<size_t> starts = characters(text);  // and the end
        const size_t length = starts.size() - 1;
        int64_t low = 0, high = texts_.size();
        std::string wanted;
        const auto try_text = [&](int64_t from, int64_t to) {
            const int64_t at = lower(wanted, from, to);
            if (at < to && texts_[at] == wanted && wanted != text) found.push_back(at);
        };
        for (size_t i = 0; i <= length && low < high; ++i) {  // the texts from low to high begin with `before`
            const std::string_view before = text.substr(0, starts[i]), here = text.substr(starts[i]);
            const std::string_view after = i < length ? text.substr(starts[i + 1]) : std::string_view();
            if (i < length) {
                wanted.assign(before).append(after);
                try_text(low, high);
            }
            if (i + 1 < length) {
                const std::string_view next = text.substr(starts[i + 1], starts[i + 2] - starts[i + 1]);
                wanted.assign(before).append(next).append(here.substr(0, starts[i + 1] - starts[i]));
                wanted.append(text.substr(starts[i + 2]));
                try_text(low, high);
            }
            for (int64_t at = low; at < high;) {
                const std::string_view other = texts_[at].substr(std::min(before.size(), texts_[at].size()));
                if (other.empty()) {
                    ++at;
                    continue;
                }
                if (other >= first_untried) break;
                const std::string_view inserted = other.substr(0, width(other));
                wanted.assign(before).append(inserted);
                const int64_t end = upper(wanted, at, high);
                wanted.append(here);
                try_text(at, end);
                if (i < length) {
                    wanted.assign(before).append(inserted).append(after);
                    try_text(at, end);
                }
                at = std::max(end, at + 1);
            }
            if (i < length) {
                const std::string_view longer = text.substr(0, starts[i + 1]);
                low = lower(longer, low, high);
                high = upper(longer, low, high);
            }
        }
        std::sort(found.begin(), found.end());
        found.erase(std::unique(found.begin(), found.end()), found.end());
        return found;
    }

  private:
    // Bytes of the character that a text begins with; of a damaged text any number that stays inside.
    static size_t width(std::string_view text) {
        const auto lead = static_cast<unsigned char>(text.front());
        const size_t told = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        return std::min(told, text.size());
    }
    static std::vector<size_t> characters(std::string_view text) {
        std::vector<size_t> starts{0};
        while (starts.back() < text.size()) starts.push_back(starts.back() + width(text.substr(starts.back())));
        return starts;
    }
    template <class Before> static int64_t first_not(Before before, int64_t low, int64_t high) {
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (before(middle)) low = middle + 1;
            else high = middle;
        }
        return low;
    }
    // The first text that is not below another.
    int64_t lower(std::string_view text, int64_t low, int64_t high) const {
        return first_not([&](int64_t i) { return texts_[i] < text; }, low, high);
    }
    // The first text behind those that begin with another.
    int64_t upper(std::string_view prefix, int64_t low, int64_t high) const {
        return first_not([&](int64_t i) { return texts_[i].substr(0, prefix.size()) <= prefix; }, low, high);
    }

    const SortedTexts& texts_;
};

}  // namespace pixnar
