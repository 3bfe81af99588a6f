// The distinct atoms of a corpus, numbered; and docids rewritten with those numbers.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vocab/build/sequences.hpp"
#include "vocab/spacing.hpp"

namespace pixnar {

// Those seen at least `floor` times come first; each part is in byte order.
struct AtomCounts {
    std::string bytes;                  // of the frequent atoms
    std::vector<uint64_t> offsets{0};   // frequent + 1
    std::vector<uint64_t> counts;       // all
    std::vector<uint32_t> by_bytes;     // all, in byte order
    uint32_t frequent = 0, total = 0;

    std::string_view text(uint32_t atom) const {
        return std::string_view(bytes).substr(offsets[atom], offsets[atom + 1] - offsets[atom]);
    }
};

constexpr uint32_t stray_byte = 0x110000;  // + byte: stands for a byte that is no character

// The characters of a text, bytes that are none among them.
void spell_chars(std::string_view text, std::vector<uint32_t>& out);

// What the spacing rule needs to know of an atom: its characters at both ends.
struct AtomEnds {
    uint32_t first, last;
};
AtomEnds ends_of(std::span<const uint32_t> chars);

// Numbers atoms that are given in byte order, each once. `chars` receives the text of each as code points, weighted by
// its count.
class AtomNumbering {
  public:
    AtomNumbering(uint64_t floor, Sequences& chars) : floor_(floor), chars_(chars) {}
    uint32_t add(std::string_view text, uint64_t count);  // a number that `settled` makes final after `finish`
    AtomCounts finish();
    uint32_t settled(uint32_t number) const { return number & rare_flag ? (number & ~rare_flag) + frequent_ : number; }

  private:
    static constexpr uint32_t rare_flag = 0x80000000;
    uint64_t floor_;
    Sequences& chars_;
    AtomCounts atoms_;
    std::vector<uint64_t> rare_counts_;
    std::vector<uint32_t> spelled_;
    uint32_t frequent_ = 0;
};

struct Numbered {
    uint32_t number;
    AtomEnds ends;
};

// Rewrites a block of docids: every atom gets the number that `find(atom)` says, and gaps that depart from the rule are
// marked.
template <class Find> void renumber(std::span<uint32_t> block, const Spacing& spacing, Find find) {
    for_each_sequence(block, 0, [&](uint32_t, std::span<uint32_t> units, uint64_t) {
        SpacingState state;
        bool first = true;
        for (uint32_t& unit : units) {
            const Numbered found = find(unit & id_mask);
            const Atom atom{{}, found.ends.first, found.ends.last, char_kind(found.ends.first), (unit & blank_flag) != 0};
            const bool off = !first && spacing.blank_before(state, atom.first) != atom.blank_before;
            state.read(atom, first);
            first = false;
            unit = found.number | (unit & blank_flag) | (off ? off_rule_flag : 0);
        }
    });
}

}  // namespace pixnar
