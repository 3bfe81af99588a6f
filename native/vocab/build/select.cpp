#include "vocab/build/select.hpp"

#include <algorithm>
#include <array>

namespace pixnar {

void Layer::choose(const std::function<bool(uint32_t)>& allowed) {
    // From long to short: an n-gram is dominated by an allowed (or itself dominated) extension that occurs just as often.
    std::vector<uint8_t> dominated(grams_.grams.size(), false);
    for (uint32_t k = static_cast<uint32_t>(grams_.grams.size()); k-- > 0;) {
        const uint32_t id = grams_.units + k;
        const bool in = allowed(id);
        alive_[k] = in && !dominated[k];
        if (!in && !dominated[k]) continue;
        for (const uint32_t part : {grams_.grams[k].prefix, grams_.grams[k].suffix})
            if (part >= grams_.units && grams_.counts[part - grams_.units] == grams_.counts[k])
                dominated[part - grams_.units] = true;
    }
    for (uint32_t k = 0; k < grams_.grams.size(); ++k)
        up_[k] = {0, score_of(grams_.counts[k]), grams_.grams[k].length};
    refresh();
}

uint64_t Layer::alive_count() const {
    return static_cast<uint64_t>(std::ranges::count(alive_, uint8_t{1}));
}

void Layer::refresh() {
    for (uint32_t k = 0; k < grams_.grams.size(); ++k) up_[k].next = longest_alive(grams_.grams[k].prefix);
}

std::vector<uint64_t> Layer::segment(Sequences& sequences, const Workers& all, const std::vector<uint64_t>* weights,
                                     const Each& each, bool compact) const {
    // Every thread counts in an array of its own; they get a quarter of the budget, and no thread without a block.
    const uint64_t array = (grams_.size() + 2) * sizeof(uint64_t);
    const uint64_t most = std::min<uint64_t>(sequences.scratch().max_memory / 4 / array, sequences.blocks());
    Workers workers = all;
    workers.threads = static_cast<unsigned>(std::clamp<uint64_t>(most, 1, all.threads));
    std::vector<Segmenter> threads;
    for (unsigned t = 0; t < workers.threads; ++t) threads.emplace_back(choices(), sequences.longest());
    sequences.visit(workers, compact, [&](const Sequences::Block& block, std::span<uint32_t> values, unsigned thread) {
        Segmenter& segmenter = threads[thread];
        for_each_sequence(values, block.first, [&](uint32_t weight, std::span<uint32_t> sequence, uint64_t number) {
            const uint64_t w = weights ? (*weights)[number] : weight;
            const Cost cost = segmenter.segment(sequence, w, compact);
            if (each) each(number, w, cost, thread);
        });
    });
    std::vector<uint64_t> total = std::move(threads[0].uses());
    for (size_t t = 1; t < threads.size(); ++t)
        for (size_t k = 0; k < total.size(); ++k) total[k] += threads[t].uses()[k];
    return total;
}

uint64_t Layer::tokens_without(uint32_t id, const Border* border) const {
    const uint32_t n = grams_.length(id);
    std::array<Cost, longest + 1> steps;
    std::array<uint8_t, longest> marked{};
    if (border) {
        thread_local std::vector<uint32_t> spelled;
        grams_.spell(id, spelled);
        for (uint32_t i = 1; i < n; ++i)
            marked[i] = (*border)(spelled[i - 1] & id_mask, i > 1 && (spelled[i - 1] & blank_flag), spelled[i]);
    }
    std::fill_n(steps.begin() + 1, n, no_cost);
    steps[0] = 0;
    uint32_t rest = id;  // what is left of the n-gram from position i on
    for (uint32_t i = 0; i < n; ++i) {
        const Cost here = steps[i] + (marked[i] ? one_token : 0);
        uint32_t part = i == 0 ? up_[id - grams_.units].next : longest_alive(rest);
        for (; part >= grams_.units; part = up_[part - grams_.units].next) {
            const uint32_t to = i + up_[part - grams_.units].length;
            steps[to] = std::min(steps[to], here + token_cost(up_[part - grams_.units].score));
        }
        steps[i + 1] = std::min(steps[i + 1], here + unit_costs[part]);
        if (rest >= grams_.units) rest = grams_.suffix(rest);
    }
    return tokens_in(steps[n]);
}

}  // namespace pixnar
