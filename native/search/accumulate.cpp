// Documents by all their docids at once: token by token, what a docid gains is added up where it lies, then what its
// documents gain. For queries whose other tokens and ends score nothing, and documents by the log of the sum of exp: any of a
// document's docids may tip the scale there, so bounds leave little out, and adding up the named tokens once is cheaper than
// looking at docids one by one. Weights of documents are short floats; whatever may be among the best by them is scored exactly.
#include <algorithm>
#include <bit>
#include <cmath>

#include "search/engines.hpp"

namespace pixnar {

namespace {

struct Met {  // a docid with a named token
    Place place;
    double score;
};

struct Gathered {  // of a document
    float weight = 0;  // Σ exp(score - most) over docids that were met
    double best = 0;
    uint32_t count = 0;
    Place place;
};

// Kept between queries of a thread, all zero in between.
struct Scratch {
    std::vector<double> sums;       // by row
    std::vector<uint64_t> touched;  // a bit for each row
    std::vector<Gathered> documents;
    std::vector<Met> met;
    std::vector<uint32_t> found;  // documents that were met
};

// e^x for x in [-87, 0], to a few parts in ten million; 0 below.
inline float exp_of(float x) {
    if (x < -87.0f) return 0.0f;
    const float t = x * 1.44269504f;
    const float whole = std::nearbyint(t);
    const float f = (t - whole) * 0.693147181f;
    const float p = 1.0f + f * (1.0f + f * (0.5f + f * (0.166666667f + f * (0.0416666667f + f * (0.00833333333f + f * 0.00138888889f)))));
    return p * std::bit_cast<float>((static_cast<int32_t>(whole) + 127) << 23);
}

class Accumulation {
  public:
    Accumulation(const SearchSpace& space, const Scorer& scorer, Collector& collector, Effort& effort, Scratch& scratch)
        : space_(space), scorer_(scorer), query_(scorer.query()), collector_(collector), effort_(effort), scratch_(scratch) {}

    void run(size_t k) {
        for (uint32_t s = 0; s < space_.segments.size(); ++s) docids_of(s);
        gather();
        rank(k);
        others();
        for (const uint32_t document : scratch_.found) scratch_.documents[document] = {};
        scratch_.met.clear();
        scratch_.found.clear();
    }

  private:
    void docids_of(uint32_t s) {
        const DocidTable& table = *space_.segments[s].table;
        if (scratch_.sums.size() < table.rows()) scratch_.sums.resize(table.rows());
        if (scratch_.touched.size() * 64 < table.rows()) scratch_.touched.resize((table.rows() + 63) / 64);
        const SlotSet& set = query_.set(0);
        const uint32_t places = std::min(query_.slots(), table.indexed_places());
        for (size_t i = 0; i < set.size(); ++i) add(table, set.item(i).token, set.item(i).score, places);
        for (const LengthClass& in : table.classes()) take(s, in);
    }

    void add(const DocidTable& table, uint32_t token, float score, uint32_t places) {
        for (const LengthClass& in : table.classes()) {
            if (in.length == 0) continue;
            const auto [from, to] = table.child(in, in.begin, in.end, 0, token);
            for (uint32_t row = from; row < to; ++row) add_to(row, score);
            effort_.spent += to - from;
        }
        for (uint32_t place = 1; place < places; ++place) {
            const auto [from, to] = table.occurrences(place, token);
            for (uint64_t i = from; i < to; ++i) add_to(table.posting(place, i), score);
            effort_.spent += to - from;
        }
    }
    void add_to(uint32_t row, float score) {
        scratch_.sums[row] += score;
        scratch_.touched[row / 64] |= uint64_t{1} << (row % 64);
    }

    // Takes the docids of a class that were met, and leaves zeros behind.
    void take(uint32_t s, const LengthClass& in) {
        if (in.begin == in.end) return;
        const Factors* const factors = space_.segments[s].factors;
        const double per_sum = 1.0 / query_.divisor(in.length);
        for (uint32_t word = in.begin / 64; word <= (in.end - 1) / 64; ++word) {
            uint64_t bits = scratch_.touched[word];
            if (word == in.begin / 64) bits &= ~uint64_t{0} << (in.begin % 64);
            if (word == in.end / 64) bits &= (uint64_t{1} << (in.end % 64)) - 1;
            scratch_.touched[word] &= ~bits;
            for (; bits != 0; bits &= bits - 1) {
                const uint32_t row = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
                double score = scratch_.sums[row] * per_sum;
                if (factors != nullptr) score *= (*factors)[row];
                scratch_.sums[row] = 0;
                most_ = std::max(most_, score);
                scratch_.met.push_back({{s, row}, score});
            }
        }
    }

    void gather() {
        if (scratch_.documents.size() < space_.documents) scratch_.documents.resize(space_.documents);
        for (const Met& met : scratch_.met) {
            const float weight = exp_of(static_cast<float>(met.score - most_));
            const Segment& in = space_.segments[met.place.segment];
            const auto [from, to] = in.table->pairs_of(met.place.row);
            for (uint64_t pair = from; pair < to; ++pair) {
                const uint32_t document = in.document(pair);
                if (!in.alive(pair) || !space_.allows(document)) continue;
                Gathered& of = scratch_.documents[document];
                if (of.count++ == 0) scratch_.found.push_back(document);
                of.weight += weight;
                if (of.count == 1 || met.score > of.best) {
                    of.best = met.score;
                    of.place = met.place;
                }
            }
        }
    }

    // The docids of a document; those that were removed may be counted.
    double docids(uint32_t document) const {
        uint64_t count = 0;
        for (const Segment& in : space_.segments) {
            uint32_t local;
            const auto [from, to] = in.rows_of(document, local);
            count += to - from;
        }
        return static_cast<double>(count);
    }

    void rank(size_t k) {
        // No less than e^(score - most) of each document: docids that were not met count e^(0 - most).
        const double of_none = std::exp(-most_);
        std::vector<std::pair<double, uint32_t>> order;
        order.reserve(scratch_.found.size());
        for (const uint32_t document : scratch_.found) {
            const Gathered& of = scratch_.documents[document];
            const double count = docids(document);
            // Short floats end at some e^-87: what is near that or below is bounded by the document's best docid instead.
            const double weight = of.weight < 1e-30f ? count * std::exp(of.best - most_)
                                                     : of.weight + std::max(0.0, count - of.count) * of_none;
            order.emplace_back(weight, document);
        }
        const auto falling = [](const auto& a, const auto& b) { return a.first > b.first; };
        const size_t first = std::min(order.size(), k + 32);
        std::nth_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(first), order.end(), falling);
        std::sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(first), falling);
        for (const auto& [weight, document] : order) {  // not below the worst by more than short floats can be off
            const double least = collector_.worst() - most_ - slack();
            if (least < -690 || weight >= std::exp(least)) offer(scratch_.documents[document].place);  // e^-690: no double ends yet
        }
    }

    // Documents without any named token score the log of how many docids they have.
    void others() {
        uint64_t most = 0;
        for (const Segment& in : space_.segments) most += in.table->most_docids();
        if (std::log(static_cast<double>(std::max<uint64_t>(most, 1))) < collector_.worst() - slack()) return;
        for (uint32_t document = 0; document < space_.documents; ++document) {
            if (scratch_.documents[document].count != 0 || !space_.allows(document)) continue;
            if (std::log(std::max(docids(document), 1.0)) < collector_.worst() - slack()) continue;
            bool offered = false;
            space_.each_docid(document, [&](Place place) {
                if (!offered) offer(place);
                offered = true;
            });
        }
    }

    void offer(Place place) {
        ++effort_.spent;
        collector_.offer(place, scorer_.score(place));
    }
    double slack() const { return 1e-5 * (1.0 + most_) + scorer_.slack(); }

    const SearchSpace& space_;
    const Scorer& scorer_;
    const Query& query_;
    Collector& collector_;
    Effort& effort_;
    Scratch& scratch_;
    double most_ = 0;
};

}  // namespace

bool can_accumulate(const SearchSpace& space, const Query& query, const Floor& floor) {
    if (query.order() != Order::any || !floor.zero) return false;
    for (uint32_t length = 0; length < query.slots(); ++length)
        if (query.end(length) != 0) return false;
    uint64_t rows = 0;
    for (const Segment& segment : space.segments) {
        if (!segment.table->indexed()) return false;
        rows = std::max<uint64_t>(rows, segment.table->rows());
    }
    return rows <= most_accumulated;
}

void accumulate(const SearchSpace& space, const Scorer& scorer, Collector& collector, size_t k, Effort& effort) {
    thread_local Scratch scratch;
    Accumulation(space, scorer, collector, effort, scratch).run(k);
}

}  // namespace pixnar
