// Which candidates become tokens. Knows how often each is used, not where: docids and words are segmented elsewhere, in
// one place or in many.
#pragma once
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "common/parallel.hpp"
#include "vocab/build/atoms.hpp"
#include "vocab/build/chars.hpp"
#include "vocab/build/mine.hpp"
#include "vocab/build/options.hpp"
#include "vocab/build/select.hpp"
#include "vocab/spacing.hpp"

namespace pixnar {

constexpr uint32_t most_words = 16;
MineLimits piece_limits(uint64_t min_count, const CharUnits& chars);
MineLimits phrase_limits(uint64_t min_count, const BuildOptions& options, const AtomCounts& atoms);

// A round: `refresh`; segment all words into pieces and tell `set_word_cost`; segment all docids into phrases and set
// `phrase_uses`; segment the words again, weighted by `word_weights`, and set `piece_uses`; `advance`. When that says no
// more, one last round follows for the uses that are written down, with the lengths of the docids.
class Selection {
  public:
    Selection(const BuildOptions& options, uint64_t min_count, SpacingCounts::Rule rule, AtomCounts atoms, CharUnits chars,
              Grams pieces, Grams phrases);
    Selection(const Selection&) = delete;
    Selection& operator=(const Selection&) = delete;

    uint64_t left() const;  // candidates that are still in
    // What is out after the step to the wanted size may come back, so the rounds behind it forget nothing.
    bool forgets() const { return left() > target_; }
    void refresh();
    void set_word_cost(uint64_t number, Cost cost) { phrases.unit_costs[atoms_.by_bytes[number]] = cost; }
    std::vector<uint64_t> word_weights() const;  // as words come: in byte order
    bool advance(const Workers& workers);

    Layer phrases, pieces;
    std::vector<uint64_t> phrase_uses, piece_uses;
    const AtomCounts& atoms() const { return atoms_; }

    // Tokens, rule and figures; what the ingest and the last round know is for the caller to add.
    BuiltVocabulary tokens() const;

  private:
    struct Candidate {
        bool enough;  // used at least min_count times
        uint64_t cost, count;
        uint32_t layer, id;  // layer 0: phrases, 1: pieces, 2: single characters
        auto key() const { return std::tie(enough, cost, count, layer, id); }
    };
    std::vector<Candidate> candidates(const Workers& workers) const;
    void set_alive(std::span<const Candidate> which, bool in);
    void choose();
    bool off_rule(uint32_t left, bool detached, uint32_t right) const;

    BuildOptions options_;
    uint64_t min_count_, target_, first_left_ = 0;
    SpacingCounts::Rule rule_;
    Spacing spacing_;
    AtomCounts atoms_;
    CharUnits chars_;
    std::vector<uint8_t> char_alive_;
    std::vector<Candidate> last_out_;  // what the step to the wanted size dropped
    unsigned refills_ = 0;
};

}  // namespace pixnar
