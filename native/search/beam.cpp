// The paper's decoding: slot by slot, the best prefixes so far. Not exact.
#include <algorithm>

#include "search/engines.hpp"

namespace pixnar {

namespace {

struct Range {
    uint32_t segment, of_class, from, to;
};

struct Prefix {
    double sum = 0;
    std::vector<uint32_t> tokens;
    std::vector<Range> ranges;
};

struct Extension {
    double sum;
    uint32_t parent, token;
};

class Beam {
  public:
    Beam(const SearchSpace& space, Query& query, const Scorer& scorer, Collector& collector, size_t width,
         std::span<const uint32_t> by_floor)
        : space_(space), query_(query), scorer_(scorer), collector_(collector), width_(width), by_floor_(by_floor) {}

    void run() {
        if (width_ == 0) return;
        Prefix root;
        for (uint32_t s = 0; s < space_.segments.size(); ++s) {
            const auto& classes = space_.segments[s].table->classes();
            for (uint32_t c = 0; c < classes.size(); ++c) root.ranges.push_back({s, c, classes[c].begin, classes[c].end});
        }
        held_.push_back(std::move(root));
        for (depth_ = 0; depth_ < query_.slots() && !held_.empty(); ++depth_) {
            best_.clear();
            for (uint32_t parent = 0; parent < held_.size(); ++parent) extend(parent);
            std::sort(best_.begin(), best_.end(), [this](const auto& a, const auto& b) { return better(a, b); });
            std::vector<Prefix> next;
            for (const Extension& extension : best_) {
                Prefix prefix{extension.sum, held_[extension.parent].tokens, children(held_[extension.parent], extension.token)};
                prefix.tokens.push_back(extension.token);
                finish(prefix);
                if (!prefix.ranges.empty()) next.push_back(std::move(prefix));
            }
            held_ = std::move(next);
        }
    }

  private:
    const LengthClass& class_of(const Range& range) const {
        return space_.segments[range.segment].table->classes()[range.of_class];
    }

    bool better(const Extension& a, const Extension& b) const {
        if (a.sum != b.sum) return a.sum > b.sum;
        if (a.parent == b.parent) return a.token < b.token;
        return held_[a.parent].tokens < held_[b.parent].tokens;
    }

    std::vector<Range> children(const Prefix& parent, uint32_t token) const {
        std::vector<Range> found;
        for (const Range& range : parent.ranges) {
            const DocidTable& table = *space_.segments[range.segment].table;
            const auto [from, to] = table.child(class_of(range), range.from, range.to, depth_, token);
            if (from < to && alive(range.segment, from, to)) found.push_back({range.segment, range.of_class, from, to});
        }
        return found;
    }

    // Whether any of the rows still names a document. Filters do not matter here.
    bool alive(uint32_t segment, uint32_t from, uint32_t to) const {
        const Segment& in = space_.segments[segment];
        if (in.dead.empty()) return true;
        for (uint32_t row = from; row < to; ++row) {
            const auto [first, last] = in.table->pairs_of(row);
            for (uint64_t pair = first; pair < last; ++pair)
                if (in.alive(pair)) return true;
        }
        return false;
    }

    void extend(uint32_t index) {
        const Prefix& parent = held_[index];
        const SlotSet& set = query_.set(depth_);
        uint64_t rows = 0;
        for (const Range& range : parent.ranges) rows += range.to - range.from;
        if (rows <= 16 * (set.size() + 1)) {
            tokens_.clear();
            for (const Range& range : parent.ranges) {
                const DocidTable& table = *space_.segments[range.segment].table;
                const LengthClass& in = class_of(range);
                for (uint32_t row = range.from; row < range.to;) {
                    const uint32_t token = table.token(in, row, depth_);
                    // The root's rows need not share anything, but equal first tokens still stand together.
                    const uint32_t next = std::max(row + 1, table.next_child(in, row, range.to, depth_));
                    if (alive(range.segment, row, next)) tokens_.push_back(token);
                    row = next;
                }
            }
            std::sort(tokens_.begin(), tokens_.end());
            tokens_.erase(std::unique(tokens_.begin(), tokens_.end()), tokens_.end());
            for (const uint32_t token : tokens_) propose(index, token, scorer_.token_score(depth_, token));
            return;
        }
        for (size_t i = 0; i < set.size(); ++i) {
            const Candidate& candidate = set.item(i);
            if (promising(index, candidate.token, candidate.score) && !children(parent, candidate.token).empty())
                propose(index, candidate.token, candidate.score);
        }
        for (const uint32_t token : by_floor_) {
            const double score = scorer_.floor()(token);
            if (score == nothing || (best_.size() == width_ && parent.sum + score < best_.front().sum)) break;
            if (set.find(token) == SlotSet::none && promising(index, token, score) && !children(parent, token).empty())
                propose(index, token, score);
        }
    }

    bool promising(uint32_t parent, uint32_t token, double score) const {
        return best_.size() < width_ || better({held_[parent].sum + score, parent, token}, best_.front());
    }

    void propose(uint32_t parent, uint32_t token, double score) {
        if (score == nothing || !promising(parent, token, score)) return;
        auto worst_first = [this](const auto& a, const auto& b) { return better(a, b); };
        if (best_.size() == width_) {
            std::pop_heap(best_.begin(), best_.end(), worst_first);
            best_.pop_back();
        }
        best_.push_back({held_[parent].sum + score, parent, token});
        std::push_heap(best_.begin(), best_.end(), worst_first);
    }

    // Docids that end here become results; what remains can be extended.
    void finish(Prefix& prefix) {
        const uint32_t length = depth_ + 1;
        std::erase_if(prefix.ranges, [&](const Range& range) {
            const LengthClass& in = class_of(range);
            if (in.length != length && length != query_.slots()) return false;
            const double sum = in.length < query_.slots() ? prefix.sum + query_.end(in.length) : prefix.sum;
            if (sum != nothing)
                for (uint32_t row = range.from; row < range.to; ++row)
                    collector_.offer({range.segment, row},
                                     score_of(sum, space_.segments[range.segment].factor(row), query_.divisor(in.length)));
            return true;
        });
    }

    const SearchSpace& space_;
    Query& query_;
    const Scorer& scorer_;
    Collector& collector_;
    size_t width_;
    std::span<const uint32_t> by_floor_;
    uint32_t depth_ = 0;
    std::vector<Prefix> held_;
    std::vector<Extension> best_;  // a heap with the worst in front
    std::vector<uint32_t> tokens_;
};

}  // namespace

void beam(const SearchSpace& space, Query& query, const Scorer& scorer, Collector& collector, size_t width,
          std::span<const uint32_t> by_floor) {
    Beam(space, query, scorer, collector, width, by_floor).run();
}

}  // namespace pixnar
