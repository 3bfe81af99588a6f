// Logits of tokens, and the tokens with the largest ones.
#pragma once
#include <span>
#include <vector>

#include "head/kernels.hpp"
#include "head/rows.hpp"

namespace pixnar::head {

struct Best {
    float logit;
    uint32_t token;

    // Equal logits go by token.
    bool operator<(const Best& other) const { return logit > other.logit || (logit == other.logit && token < other.token); }
};

// Keeps the best n of what it is offered. Most offers end at a comparison with what the n-th best had so far.
class Keeper {
  public:
    // `once`: no token is offered twice.
    Keeper(size_t n, bool once);
    // At most Pass::block logits of tokens[from], …
    void offer(const Kernels& kernels, const float* logits, size_t count, const Tokens& tokens, size_t from);
    void take(const Keeper& other);
    std::vector<Best> best();  // best first, each token once

  private:
    void add(Best one);
    void cut();

    size_t n_;
    bool once_;
    float least_;
    std::vector<Best> kept_;
};

// Slot t's logit of tokens[i] at [t * tokens.size + i].
std::vector<float> logits(const Rows& rows, std::span<const float> x, size_t slots, const Tokens& tokens, unsigned threads);

// The best n tokens of every slot. A token that is listed twice counts once. Logits that are no numbers never win.
std::vector<std::vector<Best>> top(const Rows& rows, std::span<const float> x, size_t slots, const Tokens& tokens, size_t n,
                                   unsigned threads);

// The same, where slot t looks at ids[offsets[t]] … ids[offsets[t + 1] - 1] only.
std::vector<std::vector<Best>> top_each(const Rows& rows, std::span<const float> x, size_t slots, std::span<const uint32_t> ids,
                                        std::span<const int64_t> offsets, size_t n, unsigned threads);

}  // namespace pixnar::head
