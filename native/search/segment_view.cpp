#include "search/engines.hpp"

namespace pixnar {

SegmentView::SegmentView(Query& query_, const Scorer& scorer_, Collector& collector_, uint32_t segment)
    : table(*scorer_.space().segments[segment].table), levels(*scorer_.space().segments[segment].levels),
      factors(scorer_.space().segments[segment].factors), query(query_), scorer(scorer_), collector(collector_), strict(scorer_.floor().strict()), segment_(segment) {
    for (size_t c = 0; c < table.classes().size(); ++c) {
        const LengthClass& in = table.classes()[c];
        Shape shape{query.matched(in.length), query.end(in.length), query.divisor(in.length), {}, 0, 0, {}};
        if (factors != nullptr) shape.factor = factors->range(c);
        shape.sum_above_zero = shape.divisor / shape.factor.most;
        shape.sum_below_zero = shape.divisor / shape.factor.least;
        shape.rest.resize(shape.matched + 1);
        for (uint32_t t = shape.matched; t-- > 0;) shape.rest[t] = shape.rest[t + 1] + query.set(t).most_gain();
        shapes_.push_back(std::move(shape));
    }
}

}  // namespace pixnar
