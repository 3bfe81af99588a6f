// The best so far: docids, or documents by their docids.
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <set>
#include <vector>

#include "search/segment.hpp"

namespace pixnar {

// The exact score of a docid.
class Scorer {
  public:
    Scorer(const SearchSpace& space, const Query& query, const Floor& floor);
    const Query& query() const { return query_; }
    const SearchSpace& space() const { return space_; }
    const Floor& floor() const { return floor_; }

    double token_score(uint32_t slot, uint32_t token) const {
        const SlotSet& set = query_.set(slot);
        const uint32_t entry = set.find(token);
        return entry == SlotSet::none ? floor_(token) : set.score(entry);
    }
    // Sum of the tokens and the end; no score yet.
    double sum(const DocidTable& table, const LengthClass& in, uint32_t row) const;
    double score(Place place) const;
    double slack() const { return slack_; }  // more than any bound of a score can be off by rounding

  private:
    double assigned(const DocidTable& table, const LengthClass& in, uint32_t row) const;
    const SearchSpace& space_;
    const Query& query_;
    const Floor& floor_;
    double slack_;
};

struct Hit {
    Place place;
    uint32_t document = 0;  // when documents are collected
    double score = 0;
};

// Takes docids in any order, each at most once, and keeps the k best results they make.
class Collector {
  public:
    virtual ~Collector() = default;
    // Docids that score less can be left out; less by more than rounding. -inf until k results are there.
    double threshold() const { return threshold_; }
    virtual void offer(Place place, double score) = 0;
    // After a search that was cut short: results get the scores they would have had.
    virtual void complete() {}
    virtual std::vector<Hit> best() const = 0;  // best first
    virtual double worst() const = 0;           // score of the k-th result, -inf if there are fewer
    virtual double head_room() const { return 0; }  // how much better than its best docid a result can be

  protected:
    double threshold_ = nothing;
};

std::unique_ptr<Collector> collect_docids(const SearchSpace& space, size_t k);
// By the log of the sum of exp(score) over a document's `top` best docids; top = 0: all of them.
std::unique_ptr<Collector> collect_documents(const SearchSpace& space, const Scorer& scorer, size_t k, uint64_t top);

}  // namespace pixnar
