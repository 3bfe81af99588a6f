// One layer of candidates (phrases made of atoms, or pieces made of characters): which of them are still in, how the
// corpus is segmented with those, and what removing each would cost.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "vocab/build/mine.hpp"
#include "vocab/build/sequences.hpp"
#include "vocab/tables.hpp"

namespace pixnar {

class Layer {
  public:
    // `border(left, right)`: does a token border between two neighbouring units usually need a marker? `right` carries
    // blank_flag; `left_detached` as in SpacingState.
    using Border = std::function<bool(uint32_t left, bool left_detached, uint32_t right)>;
    Layer(Sequences& sequences, Grams grams) : sequences_(sequences), grams_(std::move(grams)) {
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

    // Segments every sequence. `uses[id]` counts how often each unit or n-gram is a token, and the last two entries how
    // often each marker is needed (glue, blank); weights come from
    // `weights[number]` if given, else from the sequences. `each` (optional) receives number, weight and cost.
    // `compact` makes later passes faster by forgetting candidates that are out: they cannot come back.
    using Each = std::function<void(uint64_t number, uint64_t weight, Cost cost, unsigned thread)>;
    std::vector<uint64_t> segment(const Workers& workers, const std::vector<uint64_t>* weights, const Each& each, bool compact);

    static constexpr uint32_t longest = 64;  // units in an n-gram
    // Tokens that the text of `id` takes when `id` itself is out.
    uint64_t tokens_without(uint32_t id, const Border* border) const;

    const Grams& grams() const { return grams_; }
    uint16_t score(uint32_t id) const { return up_[id - grams_.units].score; }

  private:
    struct Up {
        uint32_t next;    // the longest proper prefix that is alive, or the first unit
        uint16_t score;
        uint16_t length;
    };
    uint32_t longest_alive(uint32_t id) const {
        return id < grams_.units || alive_[id - grams_.units] ? id : up_[id - grams_.units].next;
    }
    Sequences& sequences_;
    Grams grams_;
    std::vector<uint8_t> alive_;
    std::vector<Up> up_;
};

}  // namespace pixnar
