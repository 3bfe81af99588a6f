// From a query's vectors to the scores that decoding takes, reading every phrase row once.
#pragma once
#include <span>
#include <vector>

#include "head/rows.hpp"

namespace pixnar::head {

enum class Matching : uint8_t { bag, any, slots };

// The settings of a score and what it is corrected by; see docs/scoring.md. The last row is the end of a docid.
struct ScoreRule {
    Matching order = Matching::bag;
    bool normalize = true;
    bool ends = false;
    double copy = 0, prior_weight = 0, scale = 1;
    bool floored = false;
    std::span<const float> floors;        // per token, if floored
    std::span<const float> token_priors;  // per token
    std::span<const float> end_priors;    // per slot
    std::span<const float> log_z;         // of x_0 and of every slot
    std::span<const float> bonus = {};    // per own n-gram of the query: added to its score; empty: nothing is
};

struct Scores {
    std::vector<uint32_t> tokens;
    std::vector<float> scores;
    std::vector<int64_t> offsets;
    std::vector<float> ends;
    bool dense = false;  // scores of all tokens for every slot; tokens and offsets are empty
    std::vector<uint32_t> expansion;
    std::vector<float> gains;
};

// x: x_0, then every slot's vector. `listed`: tokens in order, each once; or all but the end. `own`: the query's n-grams.
// `expansion`: how many tokens that x_0 gains on over their prior are wanted.
Scores score(const Rows& rows, const ScoreRule& rule, std::span<const float> x, const Tokens& listed,
             std::span<const uint32_t> own, size_t expansion, unsigned threads);

}  // namespace pixnar::head
