// A query as the engines see it: for every slot its candidates, best first on demand, and a fast look-up.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "docids/table.hpp"

namespace pixnar {

constexpr double nothing = -std::numeric_limits<double>::infinity();

enum class Order { slots, any, assigned };

// Per slot (token, score) pairs: slot t has [offsets[t], offsets[t + 1]). Without tokens, `scores` is dense: one row of
// the vocabulary's size for each slot.
struct SlotScores {
    std::span<const uint32_t> tokens;
    std::span<const float> scores;
    std::span<const int64_t> offsets;
    std::span<const float> ends;  // ends[t] is the end score of slot t (from 0)
    bool dense = false;
};

// The static part of a token's score. Bounds use `base`, which is never below the floor and always finite.
struct Floor {
    std::vector<float> values;  // by token; empty: strict, all of them -inf
    float stand_in = 0;         // base of tokens whose floor is -inf
    float most = 0;             // greatest base
    bool zero = false;          // whether all floors are 0

    Floor() = default;
    explicit Floor(std::vector<float> floors);
    bool strict() const { return values.empty(); }
    float operator()(uint32_t token) const { return values.empty() ? static_cast<float>(nothing) : values[token]; }
    float base(uint32_t token) const {
        if (values.empty()) return 0;
        return values[token] == static_cast<float>(nothing) ? stand_in : values[token];
    }
};

inline float rounded_up(double value) {
    const auto near = static_cast<float>(value);
    return near < value ? std::nextafter(near, std::numeric_limits<float>::infinity()) : near;
}

struct Candidate {
    float gain;   // score - base, rounded up; with any floor never negative
    float score;  // at least the floor
    uint32_t token;
    uint32_t entry;
};

// The candidates of one slot (or, order-free, of all slots together).
class SlotSet {
  public:
    static constexpr uint32_t none = ~uint32_t{0};

    // `scores` may hold a token several times: the largest counts.
    SlotSet(std::vector<std::pair<uint32_t, float>> scores, const Floor& floor, uint32_t vocabulary);

    size_t size() const { return items_.size(); }
    // The k-th best by gain, then by token; k < size(). Sorts no further than it must.
    const Candidate& best(size_t k);
    const Candidate& item(size_t i) const { return items_[i]; }  // in no order
    double most_gain() const { return most_gain_; }
    double missing_gain() const { return missing_; }  // of a token that is no candidate

    uint32_t find(uint32_t token) const {
        if (!direct_.empty()) return direct_[token];
        const uint64_t hash = hash_of(token);
        if (!(seen_[(hash >> 6) & seen_mask_] >> (hash & 63) & 1)) return none;
        for (uint64_t i = hash >> 20;; ++i) {
            const uint32_t entry = table_[i & table_mask_];
            if (entry == none || tokens_[entry] == token) return entry;
        }
    }
    float score(uint32_t entry) const { return scores_[entry]; }
    float gain(uint32_t entry) const { return gains_[entry]; }
    // Where in the order of all lists that of an entry is read; of the inverted search.
    uint32_t place(uint32_t entry) const { return places_[entry]; }
    void set_place(uint32_t entry, uint32_t place) { places_[entry] = place; }

  private:
    static uint64_t hash_of(uint32_t token) { return (token + 1) * 0x9e3779b97f4a7c15ULL >> 12; }
    std::vector<Candidate> items_;  // a heap; the best ones, popped, at its end
    size_t popped_ = 0;
    bool heaped_ = false;
    double missing_, most_gain_;
    std::vector<uint32_t> tokens_;
    std::vector<float> scores_, gains_;
    std::vector<uint32_t> places_;
    std::vector<uint32_t> direct_, table_;
    std::vector<uint64_t> seen_;
    uint64_t table_mask_ = 0, seen_mask_ = 0;
};

class Query {
  public:
    Query(const SlotScores& scores, const Floor& floor, uint32_t vocabulary, Order order, double length_norm);

    uint32_t slots() const { return slots_; }
    Order order() const { return order_; }
    bool shared() const { return order_ != Order::slots; }  // one set for all slots
    SlotSet& set(uint32_t slot) { return sets_[shared() ? 0 : slot]; }
    const SlotSet& set(uint32_t slot) const { return sets_[shared() ? 0 : slot]; }

    uint32_t matched(uint32_t length) const { return length < slots_ ? length : slots_; }  // tokens that count
    double end(uint32_t length) const { return length < slots_ ? ends_[length] : 0.0; }
    double divisor(uint32_t length) const;
    double slack() const { return slack_; }  // more than any sum of bounds can be off by rounding

    // Of order "assigned": what a token scores in one slot of its own.
    double own_score(uint32_t slot, uint32_t token, const Floor& floor) const;

  private:
    uint32_t slots_;
    Order order_;
    double length_norm_, slack_;
    std::vector<float> ends_;
    std::vector<SlotSet> sets_;
    std::vector<SlotSet> own_;  // by slot, of order "assigned"
};

}  // namespace pixnar
