// One layer of candidates (phrases made of atoms, or pieces made of characters): which of them are still in, how the
// corpus is segmented with those, and what removing each would cost.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "vocab/build/mine.hpp"
#include "vocab/build/sequences.hpp"
#include "vocab/tables.hpp"

namespace pixnar {

// Candidates as a segmentation sees them.
struct Up {
    uint32_t next;    // the longest proper prefix that is alive, or the first unit
    uint16_t score;
    uint16_t length;
};
struct Choices {
    uint32_t units;
    std::span<const uint8_t> alive;       // by n-gram, as `up`
    std::span<const Up> up;
    std::span<const Cost> unit_costs;

    uint32_t size() const { return units + static_cast<uint32_t>(up.size()); }
    uint32_t longest_alive(uint32_t id) const { return id < units || alive[id - units] ? id : up[id - units].next; }
};

// Segments sequences one after the other, each with the fewest tokens, and counts the tokens.
class Segmenter {
  public:
    Segmenter(const Choices& choices, uint64_t longest) : choices_(choices), steps_(longest + 1), uses_(choices.size() + 2) {}

    // What the sequence costs. `compact` leaves the longest candidate that is alive in place of each value.
    Cost segment(std::span<uint32_t> sequence, uint64_t weight, bool compact) {
        const size_t n = sequence.size();
        const uint32_t units = choices_.units;
        const Up* const up = choices_.up.data();
        Step* const steps = steps_.data();
        steps[0].cost = 0;
        for (size_t i = 1; i <= n; ++i) steps[i].cost = no_cost;
        for (size_t i = 0; i < n; ++i) {
            const uint32_t value = sequence[i];
            const Cost here = steps[i].cost + (value & off_rule_flag ? one_token : 0);
            uint32_t id = choices_.longest_alive(value & id_mask);
            if (compact) sequence[i] = (value & ~id_mask) | id;
            const auto relax = [&](size_t to, Cost cost) {
                if (cost < steps[to].cost) steps[to] = {cost, static_cast<uint32_t>(i), id};
            };
            for (; id >= units; id = up[id - units].next)
                relax(i + up[id - units].length, here + token_cost(up[id - units].score));
            relax(i + 1, here + choices_.unit_costs[id]);
        }
        if (weight > 0)
            for (size_t i = n; i > 0; i = steps[i].from) {
                uses_[steps[i].id] += weight;
                const uint32_t first = sequence[steps[i].from];
                if (first & off_rule_flag) uses_[choices_.size() + (first & blank_flag ? blank_token : glue_token)] += weight;
            }
        return n > 0 ? steps[n].cost : 0;
    }
    // How often each unit or n-gram was a token, and in the last two entries how often each marker (glue, blank) was.
    std::vector<uint64_t>& uses() { return uses_; }

  private:
    struct Step {
        Cost cost;
        uint32_t from, id;
    };
    Choices choices_;
    std::vector<Step> steps_;
    std::vector<uint64_t> uses_;
};

class Layer {
  public:
    // `border(left, right)`: does a token border between two neighbouring units usually need a marker? `right` carries
    // blank_flag; `left_detached` as in SpacingState.
    using Border = std::function<bool(uint32_t left, bool left_detached, uint32_t right)>;
    explicit Layer(Grams grams) : grams_(std::move(grams)) {
        alive_.assign(grams_.grams.size(), false);
        up_.resize(grams_.grams.size());
        unit_costs.resize(grams_.units);
    }

    // Drops every candidate that always stands inside the same larger one, then keeps those that `allowed` likes.
    void choose(const std::function<bool(uint32_t id)>& allowed);

    std::vector<Cost> unit_costs;  // what each unit costs as a token of its own; set before segmenting

    bool alive(uint32_t id) const { return alive_[id - grams_.units]; }
    void set_alive(uint32_t id, bool alive) { alive_[id - grams_.units] = alive; }
    uint64_t alive_count() const;
    void refresh();  // after changes to alive

    // Segments every sequence; the answer is what `Segmenter::uses` says. Weights come from `weights[number]` if given,
    // else from the sequences. `each` (optional) receives number, weight and cost.
    // `compact` makes later passes faster by forgetting candidates that are out: they cannot come back.
    using Each = std::function<void(uint64_t number, uint64_t weight, Cost cost, unsigned thread)>;
    std::vector<uint64_t> segment(Sequences& sequences, const Workers& workers, const std::vector<uint64_t>* weights,
                                  const Each& each, bool compact) const;

    static constexpr uint32_t longest = 64;  // units in an n-gram
    // Tokens that the text of `id` takes when `id` itself is out.
    uint64_t tokens_without(uint32_t id, const Border* border) const;

    const Grams& grams() const { return grams_; }
    std::span<const uint8_t> alive() const { return alive_; }
    Choices choices() const { return {grams_.units, alive_, up_, unit_costs}; }

  private:
    uint32_t longest_alive(uint32_t id) const { return choices().longest_alive(id); }
    Grams grams_;
    std::vector<uint8_t> alive_;
    std::vector<Up> up_;
};

}  // namespace pixnar
