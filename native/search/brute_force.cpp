// Every docid is scored, but for those that their level rules out. Rows are sorted, so only tokens that differ from the
// row before are looked up.
#include <algorithm>
#include <numeric>

#include "search/engines.hpp"

namespace pixnar {

namespace {

void sweep(Field& field, size_t c, Effort& effort) {
    const LengthClass& in = field.classes()[c];
    const uint32_t m = field.matched(c);
    const bool exact_sums = field.query.order() != Order::assigned;
    const double reach = field.most_gain(c, 0) + field.end(c);
    uint32_t before[most_slots];
    double sums[most_slots + 1] = {};
    uint32_t valid = 0;  // tokens of `before` and sums behind them that still hold
    double threshold = field.collector.threshold();
    unsigned least = field.levels.empty() ? 0 : field.levels.least(c, field.wanted(c) - reach);
    for (uint32_t row = in.begin; row < in.end; ++row) {
        if (!field.levels.empty() && field.levels[row] < least) continue;
        if (effort.out()) {
            effort.leave(field.most_score(c, field.bound(c)));
            return;
        }
        ++effort.spent;
        uint32_t t = 0;
        while (t < valid && field.table.token(in, row, t) == before[t]) ++t;
        if (t == valid && valid > 0 && sums[valid] == nothing) continue;
        for (; t < m && (t == 0 || sums[t] != nothing); ++t) {
            before[t] = field.table.token(in, row, t);
            sums[t + 1] = sums[t] + field.scorer.token_score(t, before[t]);
        }
        valid = t;
        if (sums[valid] == nothing) {
            if (valid == 1) {  // nothing begins well with this token
                const uint32_t next = field.table.child(in, in.begin, in.end, 0, before[0]).second;
                row = std::max(row, next > 0 ? next - 1 : 0);
            }
            continue;
        }
        const double sum = in.length < field.query.slots() ? sums[m] + field.end(c) : sums[m];
        if (sum < field.wanted(c, row)) continue;
        if (exact_sums) field.offer(c, row, sum);
        else field.consider(c, row);
        if (field.collector.threshold() != threshold) {
            threshold = field.collector.threshold();
            if (!field.levels.empty()) least = field.levels.least(c, field.wanted(c) - reach);
        }
    }
}

}  // namespace

void brute_force(Field& field, Effort& effort) {
    std::vector<size_t> order(field.classes().size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return field.most_score(a, field.bound(a)) > field.most_score(b, field.bound(b));
    });
    for (const size_t c : order) {
        if (!field.possible(c) || field.bound(c) < field.wanted(c)) continue;
        if (effort.out()) effort.leave(field.most_score(c, field.bound(c)));
        else sweep(field, c, effort);
    }
}

}  // namespace pixnar
