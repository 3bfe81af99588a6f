// Distinct texts in the order of their bytes, one behind the other, searched where they lie.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

namespace pixnar {

class SortedTexts {
  public:
    // Text i is bytes[offsets[i] … offsets[i + 1]). Damaged offsets may say anything; reading stays inside.
    SortedTexts(std::span<const uint8_t> bytes, std::span<const int64_t> offsets) : bytes_(bytes), offsets_(offsets) {}

    int64_t size() const { return offsets_.empty() ? 0 : static_cast<int64_t>(offsets_.size()) - 1; }
    std::string_view operator[](int64_t i) const {
        const auto most = static_cast<int64_t>(bytes_.size());
        const int64_t end = std::clamp<int64_t>(offsets_[static_cast<size_t>(i) + 1], 0, most);
        const int64_t begin = std::clamp<int64_t>(offsets_[static_cast<size_t>(i)], 0, end);
        return {reinterpret_cast<const char*>(bytes_.data()) + begin, static_cast<size_t>(end - begin)};
    }
    // Where a text is, or -1.
    int64_t find(std::string_view text) const {
        int64_t low = 0, high = size();
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if ((*this)[middle] < text) low = middle + 1;
            else high = middle;
        }
        return low < size() && (*this)[low] == text ? low : -1;
    }

  private:
    std::span<const uint8_t> bytes_;
    std::span<const int64_t> offsets_;
};

}  // namespace pixnar
