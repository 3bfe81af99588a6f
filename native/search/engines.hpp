// The ways to find the best docids of one segment. All but the beam are exact: they leave out only what provably scores
// less than the collector's threshold, unless the work they may do runs out.
#pragma once
#include <cstdint>
#include <vector>

#include "search/collect.hpp"

namespace pixnar {

struct Effort {
    uint64_t limit = 0;       // rows and nodes that may be looked at; 0: as many as it takes
    uint64_t spent = 0;
    double unseen = nothing;  // no docid that was not looked at scores more
    bool out() const { return limit != 0 && spent >= limit; }
    void leave(double bound) { unseen = std::max(unseen, bound); }
};

// One segment as an engine sees it, with what every bound needs.
class SegmentView {
  public:
    SegmentView(Query& query, const Scorer& scorer, Collector& collector, uint32_t segment);

    const DocidTable& table;
    const Levels& levels;
    const Factors* const factors;  // none: all of them are 1
    Query& query;
    const Scorer& scorer;
    Collector& collector;
    const bool strict;

    const std::vector<LengthClass>& classes() const { return table.classes(); }
    uint32_t matched(size_t c) const { return shapes_[c].matched; }
    double end(size_t c) const { return shapes_[c].end; }
    double most_base(size_t c) const { return levels.scale(c).most; }
    // What a sum in class c must reach to matter, whatever the factor of the docid: a positive threshold is reached most
    // easily with the greatest factor, a negative one with the least.
    double wanted(size_t c) const {
        const double threshold = collector.threshold();
        return threshold * (threshold < 0 ? shapes_[c].sum_below_zero : shapes_[c].sum_above_zero) - query.slack();
    }
    // The same for one docid of class c.
    double wanted(size_t c, uint32_t row) const {
        if (factors == nullptr) return wanted(c);
        return collector.threshold() * shapes_[c].divisor * factors->inverse(row) - query.slack();
    }
    // No docid of class c whose sum is at most `sum`, but for rounding, scores more.
    double most_score(size_t c, double sum) const {
        const double most = sum + query.slack();
        return score_of(most, most < 0 ? shapes_[c].factor.least : shapes_[c].factor.most, shapes_[c].divisor);
    }
    // The most that slots [from, matched) of class c can add.
    double most_gain(size_t c, uint32_t from) const { return shapes_[c].rest[from]; }
    double bound(size_t c) const { return most_base(c) + most_gain(c, 0) + end(c); }
    bool possible(size_t c) const { return end(c) != nothing && bound(c) != nothing; }

    void consider(size_t c, uint32_t row) { offer(c, row, scorer.sum(table, classes()[c], row)); }
    void offer(size_t c, uint32_t row, double sum) {
        if (sum == nothing) return;
        collector.offer({segment_, row}, score_of(sum, factors == nullptr ? 1.0 : (*factors)[row], shapes_[c].divisor));
    }

  private:
    struct Shape {
        uint32_t matched;
        double end, divisor;
        Factors::Range factor;
        double sum_above_zero, sum_below_zero;  // by which a threshold of that sign is multiplied to become one of sums
        std::vector<double> rest;
    };
    uint32_t segment_;
    std::vector<Shape> shapes_;
};

void brute_force(SegmentView& segment, Effort& effort);
void best_first(SegmentView& segment, Effort& effort);
void inverted(SegmentView& segment, Effort& effort);  // needs an indexed table
// Every docid of the allowed documents; for filters that leave few. Knows no limit.
void enumerate_allowed(const SearchSpace& space, const Scorer& scorer, Collector& collector, Effort& effort);
// Documents by the log of the sum of exp, over all segments at once, without a limit; for queries that `can_accumulate`.
constexpr uint64_t most_accumulated = uint64_t{1} << 24;  // docids: a thread keeps eight bytes for each
bool can_accumulate(const SearchSpace& space, const Query& query, const Floor& floor);
void accumulate(const SearchSpace& space, const Scorer& scorer, Collector& collector, size_t k, Effort& effort);
// Over all segments at once. `by_floor` holds all tokens by falling floor; strict needs none.
void beam(const SearchSpace& space, Query& query, const Scorer& scorer, Collector& collector, size_t width,
          std::span<const uint32_t> by_floor);

}  // namespace pixnar
