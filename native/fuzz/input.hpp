// Takes a fuzzer's input apart; what is missing reads as zero.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace pixnar::fuzz {

class Input {
  public:
    Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
    bool empty() const { return rest_.empty(); }
    uint8_t byte() {
        if (rest_.empty()) return 0;
        const auto value = static_cast<uint8_t>(rest_.front());
        rest_.remove_prefix(1);
        return value;
    }
    uint64_t number(int bytes) {
        uint64_t value = 0;
        for (int i = 0; i < bytes; ++i) value |= uint64_t{byte()} << (8 * i);
        return value;
    }
    // Up to the next line break, which is dropped.
    std::string_view line() {
        const std::string_view found = rest_.substr(0, rest_.find('\n'));
        rest_.remove_prefix(found.size() < rest_.size() ? found.size() + 1 : found.size());
        return found;
    }
    std::string_view rest() const { return rest_; }

  private:
    std::string_view rest_;
};

inline void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "violated: %s\n", what);
    std::abort();
}

}  // namespace pixnar::fuzz
