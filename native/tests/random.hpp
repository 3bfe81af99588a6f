// Random numbers and texts that are the same with every standard library.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/hash.hpp"

namespace pixnar::test {

class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() { return hash_key(state_ += 0x9e3779b97f4a7c15ULL); }
    uint32_t below(uint32_t n) { return static_cast<uint32_t>((next() >> 32) * n >> 32); }
    bool one_in(uint32_t n) { return below(n) == 0; }
    template <class T> const T& pick(const std::vector<T>& from) { return from[below(static_cast<uint32_t>(from.size()))]; }
    template <class T> void shuffle(std::vector<T>& items) {
        for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(static_cast<uint32_t>(i))]);
    }

  private:
    uint64_t state_;
};

// Few characters, so that random tokens and random texts meet: letters, digits, punctuation with and without a rule of
// its own, characters of two, three and four bytes, a combining mark, a script without blanks, a stray-looking U+FFFD.
inline const std::vector<std::string>& alphabet() {
    static const std::vector<std::string> chars{"a", "a", "b", "b", "c", "7", ",", ".", "\"", "-", "'", " ", " ", " ",
                                                "\u00e9", "\u0301", "\u00bf", "\u4e2d", "\u6587", "\U0001f600",
                                                "\U00010400", "\ufffd"};
    return chars;
}

// As the normaliser leaves blanks: single, and none at the ends.
inline std::string with_single_blanks(std::string_view text) {
    std::string out;
    for (const char c : text)
        if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
    if (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
}

inline std::string random_text(Random& random, uint32_t most_chars, const std::vector<std::string>& chars = alphabet()) {
    std::string text;
    for (uint32_t n = random.below(most_chars + 1); n > 0; --n) text += random.pick(chars);
    return with_single_blanks(text);
}

}  // namespace pixnar::test
