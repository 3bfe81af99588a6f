// Exact counts of all n-grams that occur often enough, level by level: an n-gram can reach the floor only if both its
// (n-1)-grams do, so memory follows the survivors.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/hash.hpp"
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

// Neighbours that make an n-gram of the next level are n-grams of this one: their ids lie in [lo, hi).
struct Level {
    uint32_t lo, hi;
    bool has(uint32_t value) const { return (value & id_mask) - lo < hi - lo; }
    // Longer n-grams hold their blanks already; only pairs of units need the flag.
    uint64_t key(uint32_t left, uint32_t right) const {
        const uint64_t blank = lo == 0 && (right & blank_flag) ? 1 : 0;
        return (uint64_t{left & id_mask} << 32) | (uint64_t{right & id_mask} << 1) | blank;
    }
};

struct Counted {
    uint64_t key, count;
};

// From the key of an n-gram of one level to its id.
class IdMap {
  public:
    IdMap(std::span<const Counted> keys, uint32_t first_id) : IdMap(keys.size(), first_id, [&](size_t k) { return keys[k].key; }) {}
    IdMap(std::span<const uint64_t> keys, uint32_t first_id) : IdMap(keys.size(), first_id, [&](size_t k) { return keys[k]; }) {}
    uint32_t find(uint64_t key) const {  // 0 = not there: id 0 is a unit
        size_t i = start(key);
        while (slots_[i].id && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
        return slots_[i].id;
    }
    void prefetch(uint64_t key) const { __builtin_prefetch(&slots_[start(key)]); }

  private:
    struct Slot {
        uint64_t key;
        uint32_t id;
    };
    template <class Key> IdMap(size_t size, uint32_t first_id, Key key) {
        slots_.assign(power_of_two_above(size * 2), Slot{0, 0});
        for (size_t k = 0; k < size; ++k) {
            size_t i = start(key(k));
            while (slots_[i].id) i = (i + 1) & (slots_.size() - 1);
            slots_[i] = {key(k), first_id + static_cast<uint32_t>(k)};
        }
    }
    size_t start(uint64_t key) const { return hash_key(key) & (slots_.size() - 1); }
    std::vector<Slot> slots_;
};

// The pairs of neighbours of a level that occur at least `floor` times, sorted by key.
std::vector<Counted> count_pairs(Sequences& sequences, const Level& level, uint64_t floor, uint64_t budget,
                                 const Workers& workers);
// Replaces each value of a block that starts an n-gram of the next level by that n-gram.
void extend(std::span<uint32_t> block, const Level& level, const IdMap& ids);

// Goes from level to level. What it is given are counts, wherever they were made.
class Miner {
  public:
    explicit Miner(const MineLimits& limits) : limits_(limits), level_{0, limits.frequent} { grams_.units = limits.units; }
    bool more() const { return length_ <= limits_.most_units && level_.lo < level_.hi; }
    const Level& level() const { return level_; }
    uint32_t length() const { return length_; }  // units of the n-grams that are counted next
    const Grams& grams() const { return grams_; }
    // Takes the pairs of the level that reached the floor, sorted by key, drops those with too many words from the list,
    // and goes up. The rest are n-grams now, numbered in their order from what is returned.
    uint32_t take(std::vector<Counted>& pairs);
    Grams finish() { return std::move(grams_); }

  private:
    MineLimits limits_;
    Grams grams_;
    Level level_;
    uint32_t length_ = 2;
};

// On return every value in `sequences` is the longest surviving n-gram that starts there; the shorter ones are its
// prefixes.
Grams mine(Sequences& sequences, const MineLimits& limits, const Scratch& scratch, const Workers& workers);

}  // namespace pixnar
