// Where blanks go. Tokens carry no blank at their edges (one id per phrase wherever it stands), so the blank between two
// tokens follows a rule learned from the corpus: the majority for the characters on both sides. Where a text departs
// from the rule at a token border, a marker token says so.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "vocab/text.hpp"

namespace pixnar {

// What has been read so far, as far as the rule looks at it.
struct SpacingState {
    bool inside_quotes = false;  // an odd number of " so far
    bool detached = false;       // the last character is no word character, and a blank or nothing stands before it
    uint32_t last = 0;           // the last character

    void read(const Atom& atom, bool at_start) {
        detached = atom.kind == CharKind::single && (at_start || atom.blank_before);
        if (atom.last == '"') inside_quotes = !inside_quotes;
        last = atom.last;
    }
};

class Spacing {
  public:
    Spacing() = default;
    // `chars`: ascending code points with a class of their own; `rule`: 4 x C x C flags, C = chars + 4.
    Spacing(std::span<const uint32_t> chars, std::span<const uint8_t> rule);

    static constexpr uint32_t shared_classes = 4;  // letters, digits, lone characters, any other
    static bool valid(std::span<const uint32_t> chars, std::span<const uint8_t> rule);

    bool blank_before(const SpacingState& state, uint32_t next) const {
        const uint32_t row = (state.inside_quotes * 2 + state.detached) * classes_ + class_of(state.last);
        return rule_[row * classes_ + class_of(next)];
    }

    uint32_t class_of(uint32_t c) const { return c < 128 ? ascii_[c] : class_of_other(c); }

  private:
    uint32_t class_of_other(uint32_t c) const;
    uint32_t classes_ = shared_classes;
    uint8_t ascii_[128] = {};
    std::span<const uint32_t> chars_;
    std::span<const uint8_t> rule_;
};

// Counts how blanks are used and settles the rule.
class SpacingCounts {
  public:
    void count(const SpacingState& state, const Atom& next);

    struct Rule {
        std::vector<uint32_t> chars;
        std::vector<uint8_t> rule;
    };
    Rule settle() const;

    // The votes as five numbers each (left, right, state, with a blank, without), to be added to those of others.
    std::vector<uint64_t> votes() const;
    void add(std::span<const uint64_t> votes);

  private:
    struct Context {
        uint32_t left, right;
        uint8_t state;
        auto operator<=>(const Context&) const = default;
    };
    struct Votes {
        uint64_t blank = 0, none = 0;
    };
    static constexpr uint32_t shared_ascii = 128;
    Votes& votes_of(uint32_t left, uint32_t right, uint8_t state) {
        return left < shared_ascii && right < shared_ascii ? ascii_[(state * shared_ascii + left) * shared_ascii + right]
                                                           : others_[{left, right, state}];
    }
    std::map<Context, Votes> all() const;
    std::vector<Votes> ascii_ = std::vector<Votes>(4 * shared_ascii * shared_ascii);
    std::map<Context, Votes> others_;
};

}  // namespace pixnar
