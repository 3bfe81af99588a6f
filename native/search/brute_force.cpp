// Every docid is scored, but for those that their level rules out. Rows are sorted, so only tokens that differ from the
// row before are looked up.
#include <algorithm>
#include <numeric>

#include "search/engines.hpp"

namespace pixnar {

Field::Field(Query& query_, const Scorer& scorer_, Collector& collector_, uint32_t segment)
    : table(*scorer_.shelf().segments[segment].table), levels(*scorer_.shelf().segments[segment].levels), query(query_),
      scorer(scorer_), collector(collector_), strict(scorer_.floor().strict()), segment_(segment) {
    for (const LengthClass& in : table.classes()) {
        Shape shape{query.matched(in.length), query.end(in.length), query.divisor(in.length), {}};
        shape.rest.resize(shape.matched + 1);
        for (uint32_t t = shape.matched; t-- > 0;) shape.rest[t] = shape.rest[t + 1] + query.set(t).most_gain();
        shapes_.push_back(std::move(shape));
    }
}

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
            effort.leave(field.bound(c) / field.divisor(c));
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
        if (sum < field.wanted(c)) continue;
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
        return field.bound(a) / field.divisor(a) > field.bound(b) / field.divisor(b);
    });
    for (const size_t c : order) {
        if (!field.possible(c) || field.bound(c) < field.wanted(c)) continue;
        if (effort.out()) effort.leave(field.bound(c) / field.divisor(c));
        else sweep(field, c, effort);
    }
}

void enumerate_allowed(const Shelf& shelf, const Scorer& scorer, Collector& collector) {
    std::vector<Place> places;
    for (size_t word = 0; word < shelf.allowed.size(); ++word)
        for (uint64_t bits = shelf.allowed[word]; bits != 0; bits &= bits - 1) {
            const auto document = static_cast<uint32_t>(word * 64 + static_cast<unsigned>(std::countr_zero(bits)));
            if (document < shelf.documents) shelf.each_docid(document, [&](Place place) { places.push_back(place); });
        }
    auto key = [](Place place) { return uint64_t{place.segment} << 32 | place.row; };
    std::sort(places.begin(), places.end(), [&](Place a, Place b) { return key(a) < key(b); });
    places.erase(std::unique(places.begin(), places.end()), places.end());
    for (const Place place : places) collector.offer(place, scorer.score(place));
}

}  // namespace pixnar
