#include "search/collect.hpp"

#include <algorithm>
#include <cmath>

namespace pixnar {

Scorer::Scorer(const SearchSpace& space, const Query& query, const Floor& floor)
    : space_(space), query_(query), floor_(floor), slack_(query.slack()) {
    // Divisors are at least 1, so a score is off by no more than its sum, times its factor.
    for (const Segment& segment : space.segments)
        if (segment.factors != nullptr) slack_ = std::max(slack_, query.slack() * segment.factors->most());
}

double Scorer::sum(const DocidTable& table, const LengthClass& in, uint32_t row) const {
    if (query_.order() == Order::assigned) return assigned(table, in, row);
    double sum = 0;
    for (uint32_t t = 0, m = query_.matched(in.length); t < m; ++t) sum += token_score(t, table.token(in, row, t));
    return in.length < query_.slots() ? sum + query_.end(in.length) : sum;
}

double Scorer::score(Place place) const {
    const Segment& segment = space_.segments[place.segment];
    const LengthClass& in = segment.table->class_of(place.row);
    return score_of(sum(*segment.table, in, place.row), segment.factor(place.row), query_.divisor(in.length));
}

// Shortest augmenting paths (the Hungarian method) over tokens x slots.
double Scorer::assigned(const DocidTable& table, const LengthClass& in, uint32_t row) const {
    const uint32_t n = query_.matched(in.length), s = query_.slots();
    constexpr double never = 1e300;
    double cost[most_slots][most_slots];
    for (uint32_t i = 0; i < n; ++i)
        for (uint32_t j = 0; j < s; ++j) {
            const double score = query_.own_score(j, table.token(in, row, i), floor_);
            cost[i][j] = score == nothing ? never : -score;
        }
    double of_token[most_slots + 1] = {}, of_slot[most_slots + 1] = {};
    uint32_t taken_by[most_slots + 1] = {}, way[most_slots + 1] = {};  // from 1; 0: nobody
    for (uint32_t i = 1; i <= n; ++i) {
        double least[most_slots + 1];
        bool used[most_slots + 1] = {};
        std::fill(least, least + s + 1, std::numeric_limits<double>::infinity());
        uint32_t j = 0;
        taken_by[0] = i;
        do {
            used[j] = true;
            const uint32_t token = taken_by[j];
            double delta = std::numeric_limits<double>::infinity();
            uint32_t next = 0;
            for (uint32_t k = 1; k <= s; ++k) {
                if (used[k]) continue;
                const double reduced = cost[token - 1][k - 1] - of_token[token] - of_slot[k];
                if (reduced < least[k]) {
                    least[k] = reduced;
                    way[k] = j;
                }
                if (least[k] < delta) {
                    delta = least[k];
                    next = k;
                }
            }
            for (uint32_t k = 0; k <= s; ++k) {
                if (used[k]) {
                    of_token[taken_by[k]] += delta;
                    of_slot[k] -= delta;
                } else {
                    least[k] -= delta;
                }
            }
            j = next;
        } while (taken_by[j] != 0);
        do {
            taken_by[j] = taken_by[way[j]];
            j = way[j];
        } while (j != 0);
    }
    double chosen[most_slots];
    for (uint32_t j = 1; j <= s; ++j)
        if (taken_by[j] != 0) chosen[taken_by[j] - 1] = cost[taken_by[j] - 1][j - 1];
    double sum = 0;
    for (uint32_t i = 0; i < n; ++i) {
        if (chosen[i] == never) return nothing;
        sum -= chosen[i];
    }
    return in.length < s ? sum + query_.end(in.length) : sum;
}

namespace {

class DocidCollector : public Collector {
  public:
    DocidCollector(const SearchSpace& space, size_t k) : space_(space), k_(k) {
        if (k == 0) threshold_ = std::numeric_limits<double>::infinity();
    }
    void offer(Place place, double score) override {
        if (score == nothing || score < threshold_ || k_ == 0) return;
        const Hit hit{place, 0, score};
        if (heap_.size() == k_ && !better(hit, heap_.front())) return;
        if (!wanted(place)) return;
        auto worse_last = [this](const Hit& a, const Hit& b) { return better(a, b); };
        if (heap_.size() == k_) {
            std::pop_heap(heap_.begin(), heap_.end(), worse_last);
            heap_.back() = hit;
        } else {
            heap_.push_back(hit);
        }
        std::push_heap(heap_.begin(), heap_.end(), worse_last);
        if (heap_.size() == k_) threshold_ = heap_.front().score;
    }
    std::vector<Hit> best() const override {
        std::vector<Hit> hits = heap_;
        std::sort(hits.begin(), hits.end(), [this](const Hit& a, const Hit& b) { return better(a, b); });
        return hits;
    }
    double worst() const override { return threshold_; }

  private:
    bool better(const Hit& a, const Hit& b) const {
        return a.score != b.score ? a.score > b.score : space_.compare(a.place, b.place) < 0;
    }
    bool wanted(Place place) const {
        if (!space_.names_any(place)) return false;
        if (place.segment == 0) return true;
        // The same docid in the first segment speaks for both.
        const uint32_t twin = space_.segments[place.segment].twins[place.row];
        return twin == Segment::no_twin || !space_.names_any({0, twin});
    }
    const SearchSpace& space_;
    size_t k_;
    std::vector<Hit> heap_;
};

class DocumentCollector : public Collector {
  public:
    DocumentCollector(const SearchSpace& space, const Scorer& scorer, size_t k, uint64_t top)
        : space_(space), scorer_(scorer), k_(k), top_(top), ranked_(Better{&space}) {
        if (k == 0) threshold_ = worst_ = std::numeric_limits<double>::infinity();
        uint64_t most = 0;
        for (const Segment& segment : space.segments) most += segment.table->most_docids();
        if (top_ == 0) top_ = std::max<uint64_t>(most, 1);
        most = std::min(most, top_);
        margin_ = 1e-9 + scorer.slack();
        head_room_ = most > 1 ? std::log(static_cast<double>(most)) + margin_ : 0.0;
    }
    void offer(Place place, double score) override {
        if (score == nothing || score < threshold_ || k_ == 0) return;
        const Segment& in = space_.segments[place.segment];
        const auto [from, to] = in.table->pairs_of(place.row);
        for (uint64_t pair = from; pair < to; ++pair) {
            const uint32_t document = in.document(pair);
            if (!in.alive(pair) || !space_.allows(document)) continue;
            if (top_ == 1) raise({place, document, score});
            else finish(document, score);
        }
    }
    void complete() override {
        if (top_ != 1) return;  // done when a document is first met
        for (const Hit& hit : best())
            space_.each_docid(hit.document, [&](Place place) { raise({place, hit.document, scorer_.score(place)}); });
    }
    std::vector<Hit> best() const override { return {ranked_.begin(), ranked_.end()}; }
    double worst() const override { return worst_; }
    double head_room() const override { return head_room_; }

  private:
    struct Better {
        const SearchSpace* space;
        bool operator()(const Hit& a, const Hit& b) const {
            if (a.score != b.score) return a.score > b.score;
            if (const int order = space->compare(a.place, b.place); order != 0) return order < 0;
            return space->key(a.document) < space->key(b.document);
        }
    };

    void raise(const Hit& hit) {
        const auto known = held_.find(hit.document);
        if (known != held_.end()) {
            if (!ranked_.key_comp()(hit, known->second)) return;
            ranked_.erase(known->second);
            known->second = hit;
            ranked_.insert(hit);
        } else {
            if (ranked_.size() == k_) {
                const auto last = std::prev(ranked_.end());
                if (!ranked_.key_comp()(hit, *last)) return;
                held_.erase(last->document);
                ranked_.erase(last);
            }
            held_.emplace(hit.document, hit);
            ranked_.insert(hit);
        }
        if (ranked_.size() == k_) {
            worst_ = std::prev(ranked_.end())->score;
            threshold_ = worst_ - head_room_;
        }
    }

    // Scores a document by all its docids, once.
    void finish(uint32_t document, double seen) {
        if (finished_.contains(document)) return;
        scores_.clear();
        Hit hit{{}, document, nothing};
        uint64_t docids = 0;
        if (worst_ != nothing) {
            space_.each_docid(document, [&](Place) { ++docids; });
            // Its best docid is yet to come if this one is not enough.
            if (seen + std::log(static_cast<double>(std::min(docids, top_))) + margin_ < worst_) return;
        }
        finished_.insert(document);
        double best = nothing;
        space_.each_docid(document, [&](Place place) {
            const double score = scorer_.score(place);
            if (score == nothing) return;
            scores_.push_back(score);
            if (score > best || (score == best && space_.compare(place, hit.place) < 0)) {
                best = score;
                hit.place = place;
            }
        });
        if (scores_.empty()) return;
        const size_t n = std::min<size_t>(top_, scores_.size());
        std::partial_sort(scores_.begin(), scores_.begin() + static_cast<ptrdiff_t>(n), scores_.end(), std::greater<>());
        double sum = 0;
        for (size_t i = 0; i < n; ++i) sum += std::exp(scores_[i] - best);
        hit.score = best + std::log(sum);
        raise(hit);
    }

    const SearchSpace& space_;
    const Scorer& scorer_;
    size_t k_;
    uint64_t top_;
    double head_room_ = 0, margin_ = 0, worst_ = nothing;
    std::set<Hit, Better> ranked_;
    std::unordered_map<uint32_t, Hit> held_;
    std::unordered_set<uint32_t> finished_;
    std::vector<double> scores_;
};

}  // namespace

std::unique_ptr<Collector> collect_docids(const SearchSpace& space, size_t k) {
    return std::make_unique<DocidCollector>(space, k);
}

std::unique_ptr<Collector> collect_documents(const SearchSpace& space, const Scorer& scorer, size_t k, uint64_t top) {
    return std::make_unique<DocumentCollector>(space, scorer, k, top);
}

}  // namespace pixnar
