#include "head/top.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "common/parallel.hpp"
#include "head/pass.hpp"

namespace pixnar::head {

namespace {

constexpr size_t blocks_at_least = 8;  // for each thread; less is not worth starting one

size_t blocks_of(size_t size) { return (size + Pass::block - 1) / Pass::block; }

unsigned worth(unsigned threads, size_t blocks) {
    return static_cast<unsigned>(std::clamp<size_t>(blocks / blocks_at_least, 1, std::max(threads, 1u)));
}

void offer_all(const Pass& pass, const Tokens& tokens, size_t first_block, size_t last_block, std::span<Keeper> keepers) {
    std::vector<float> out(pass.slots() * Pass::block);
    for (size_t block = first_block; block < last_block; ++block) {
        const size_t from = block * Pass::block, count = std::min(Pass::block, tokens.size - from);
        pass.run(tokens, from, count, out.data());
        for (size_t t = 0; t < pass.slots(); ++t) keepers[t].offer(pass.kernels(), &out[t * Pass::block], count, tokens, from);
    }
}

}  // namespace

Keeper::Keeper(size_t n, bool once) : n_(n), once_(once), least_(-std::numeric_limits<float>::infinity()) {}

void Keeper::offer(const Kernels& kernels, const float* logits, size_t count, const Tokens& tokens, size_t from) {
    if (n_ == 0) return;
    uint32_t places[Pass::block];
    const size_t found = kernels.above(logits, count, least_, places);
    for (size_t i = 0; i < found; ++i)
        if (logits[places[i]] >= least_) add({logits[places[i]], tokens[from + places[i]]});
}

void Keeper::take(const Keeper& other) {
    for (const Best& one : other.kept_) add(one);
}

void Keeper::add(Best one) {
    kept_.push_back(one);
    if (kept_.size() >= n_ + std::max<size_t>(n_, 128)) cut();
}

void Keeper::cut() {
    if (!once_) {
        std::sort(kept_.begin(), kept_.end());
        kept_.erase(std::unique(kept_.begin(), kept_.end(), [](const Best& a, const Best& b) { return a.token == b.token; }),
                    kept_.end());
    } else if (kept_.size() > n_) {
        std::nth_element(kept_.begin(), kept_.begin() + static_cast<ptrdiff_t>(n_ - 1), kept_.end());
    }
    if (kept_.size() < n_) return;
    kept_.resize(n_);
    least_ = kept_.back().logit;
}

std::vector<Best> Keeper::best() {
    if (n_ == 0) return {};
    cut();
    std::sort(kept_.begin(), kept_.end());
    return kept_;
}

std::vector<float> logits(const Rows& rows, std::span<const float> x, size_t slots, const Tokens& tokens, unsigned threads) {
    tokens.check(rows.count);
    const Pass pass(rows, x, slots);
    std::vector<float> all(slots * tokens.size);
    const size_t blocks = blocks_of(tokens.size);
    const unsigned used = worth(threads, blocks);
    Workers{used, {}, {}}.run(used, [&](size_t part, unsigned) {
        std::vector<float> out(slots * Pass::block);
        for (size_t block = blocks * part / used; block < blocks * (part + 1) / used; ++block) {
            const size_t from = block * Pass::block, count = std::min(Pass::block, tokens.size - from);
            pass.run(tokens, from, count, out.data());
            for (size_t t = 0; t < slots; ++t) std::copy_n(&out[t * Pass::block], count, &all[t * tokens.size + from]);
        }
    });
    return all;
}

std::vector<std::vector<Best>> top(const Rows& rows, std::span<const float> x, size_t slots, const Tokens& tokens, size_t n,
                                   unsigned threads) {
    tokens.check(rows.count);
    const Pass pass(rows, x, slots);
    const size_t blocks = blocks_of(tokens.size);
    const unsigned used = worth(threads, blocks);
    std::vector<std::vector<Keeper>> keepers(used, std::vector<Keeper>(slots, Keeper(std::min(n, tokens.size), tokens.rising())));
    Workers{used, {}, {}}.run(used, [&](size_t part, unsigned) {
        offer_all(pass, tokens, blocks * part / used, blocks * (part + 1) / used, keepers[part]);
    });
    std::vector<std::vector<Best>> found(slots);
    for (size_t t = 0; t < slots; ++t) {
        for (size_t part = 1; part < used; ++part) keepers[0][t].take(keepers[part][t]);
        found[t] = keepers[0][t].best();
    }
    return found;
}

std::vector<std::vector<Best>> top_each(const Rows& rows, std::span<const float> x, size_t slots, std::span<const uint32_t> ids,
                                        std::span<const int64_t> offsets, size_t n, unsigned threads) {
    bool good = offsets.size() == slots + 1 && offsets.front() == 0 && offsets.back() == static_cast<int64_t>(ids.size());
    for (size_t t = 0; good && t < slots; ++t) good = offsets[t] <= offsets[t + 1];
    if (!good) throw std::invalid_argument("the offsets of the slots' ids must rise from 0 to their number, one more than slots");
    Tokens{ids.data(), ids.size()}.check(rows.count);
    if (x.size() != slots * rows.dim) Pass(rows, x, slots);  // says what is wrong
    std::vector<std::vector<Best>> found(slots);
    const unsigned used = worth(threads, blocks_of(ids.size()));
    const unsigned each = slots == 0 ? 1 : static_cast<unsigned>((used + slots - 1) / slots);
    Workers{each > 1 ? 1 : used, {}, {}}.run(slots, [&](size_t t, unsigned) {
        const auto mine = ids.subspan(static_cast<size_t>(offsets[t]), static_cast<size_t>(offsets[t + 1] - offsets[t]));
        found[t] = top(rows, x.subspan(t * rows.dim, rows.dim), 1, {mine.data(), mine.size()}, n, each > 1 ? used : 1).front();
    });
    return found;
}

}  // namespace pixnar::head
