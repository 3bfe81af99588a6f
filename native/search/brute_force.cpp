// Every docid is scored, but for those that their level rules out. Rows are sorted, so only tokens that differ from the
// row before are looked up.
#include <algorithm>
#include <numeric>

#include "search/engines.hpp"

namespace pixnar {

namespace {

void sweep(SegmentView& segment, size_t c, Effort& effort) {
    const LengthClass& in = segment.classes()[c];
    const uint32_t m = segment.matched(c);
    const bool exact_sums = segment.query.order() != Order::assigned;
    const double reach = segment.most_gain(c, 0) + segment.end(c);
    uint32_t before[most_slots];
    double sums[most_slots + 1] = {};
    uint32_t valid = 0;  // tokens of `before` and sums behind them that still hold
    double threshold = segment.collector.threshold();
    unsigned least = segment.levels.empty() ? 0 : segment.levels.least(c, segment.wanted(c) - reach);
    for (uint32_t row = in.begin; row < in.end; ++row) {
        if (!segment.levels.empty() && segment.levels[row] < least) continue;
        if (effort.out()) {
            effort.leave(segment.most_score(c, segment.bound(c)));
            return;
        }
        ++effort.spent;
        uint32_t t = 0;
        while (t < valid && segment.table.token(in, row, t) == before[t]) ++t;
        if (t == valid && valid > 0 && sums[valid] == nothing) continue;
        for (; t < m && (t == 0 || sums[t] != nothing); ++t) {
            before[t] = segment.table.token(in, row, t);
            sums[t + 1] = sums[t] + segment.scorer.token_score(t, before[t]);
        }
        valid = t;
        if (sums[valid] == nothing) {
            if (valid == 1) {  // nothing begins well with this token
                const uint32_t next = segment.table.child(in, in.begin, in.end, 0, before[0]).second;
                row = std::max(row, next > 0 ? next - 1 : 0);
            }
            continue;
        }
        const double sum = in.length < segment.query.slots() ? sums[m] + segment.end(c) : sums[m];
        if (sum < segment.wanted(c, row)) continue;
        if (exact_sums) segment.offer(c, row, sum);
        else segment.consider(c, row);
        if (segment.collector.threshold() != threshold) {
            threshold = segment.collector.threshold();
            if (!segment.levels.empty()) least = segment.levels.least(c, segment.wanted(c) - reach);
        }
    }
}

}  // namespace

void brute_force(SegmentView& segment, Effort& effort) {
    std::vector<size_t> order(segment.classes().size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return segment.most_score(a, segment.bound(a)) > segment.most_score(b, segment.bound(b));
    });
    for (const size_t c : order) {
        if (!segment.possible(c) || segment.bound(c) < segment.wanted(c)) continue;
        if (effort.out()) effort.leave(segment.most_score(c, segment.bound(c)));
        else sweep(segment, c, effort);
    }
}

}  // namespace pixnar
