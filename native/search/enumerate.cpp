// Through the documents instead of the docids: for filters that leave few of them.
#include <algorithm>
#include <bit>

#include "search/engines.hpp"

namespace pixnar {

void enumerate_allowed(const SearchSpace& space, const Scorer& scorer, Collector& collector, Effort& effort) {
    std::vector<Place> places;
    for (size_t word = 0; word < space.allowed.size(); ++word)
        for (uint64_t bits = space.allowed[word]; bits != 0; bits &= bits - 1) {
            const auto document = static_cast<uint32_t>(word * 64 + static_cast<unsigned>(std::countr_zero(bits)));
            if (document < space.documents) space.each_docid(document, [&](Place place) { places.push_back(place); });
        }
    auto key = [](Place place) { return uint64_t{place.segment} << 32 | place.row; };
    std::sort(places.begin(), places.end(), [&](Place a, Place b) { return key(a) < key(b); });
    places.erase(std::unique(places.begin(), places.end()), places.end());
    effort.spent += places.size();
    for (const Place place : places) collector.offer(place, scorer.score(place));
}

}  // namespace pixnar
