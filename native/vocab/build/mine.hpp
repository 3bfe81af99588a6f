// Exact counts of all n-grams that occur often enough, level by level: an n-gram can reach the floor only if both its
// (n-1)-grams do, so memory follows the survivors.
#pragma once
#include <cstdint>
#include <vector>

#include "vocab/build/scratch.hpp"
#include "vocab/build/sequences.hpp"

namespace pixnar {

// Ids below `units` are the units themselves; n-grams are numbered from there, shorter ones first, so that what an
// n-gram is made of always has a smaller id.
struct Grams {
    uint32_t units = 0;
    struct Gram {
        uint32_t prefix, suffix;  // without its last unit, without its first
        uint32_t last;            // unit, with blank_flag if a blank stands before it
        uint16_t length;          // units
        uint16_t words;           // 1 + blanks inside
    };
    std::vector<Gram> grams;
    std::vector<uint64_t> counts;  // of the grams

    uint32_t size() const { return units + static_cast<uint32_t>(grams.size()); }
    const Gram& at(uint32_t id) const { return grams[id - units]; }
    uint32_t length(uint32_t id) const { return id < units ? 1 : at(id).length; }
    uint32_t suffix(uint32_t id) const { return at(id).suffix; }
    uint32_t first_unit(uint32_t id) const {
        while (id >= units) id = at(id).prefix;
        return id;
    }
    // Units from left to right, each with blank_flag if a blank stands before it.
    void spell(uint32_t id, std::vector<uint32_t>& out) const;
};

struct MineLimits {
    uint64_t floor;        // fewest occurrences
    uint32_t most_units;   // longest n-gram
    uint32_t most_words;   // blanks inside + 1
    uint32_t frequent;     // units below this number are frequent enough to be part of an n-gram
    uint32_t units;        // all units
};

// On return every value in `sequences` is the longest surviving n-gram that starts there; the shorter ones are its
// prefixes.
Grams mine(Sequences& sequences, const MineLimits& limits, const Scratch& scratch, const Workers& workers);

}  // namespace pixnar
