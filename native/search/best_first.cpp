// Best-first over the trie: the range with the highest bound is opened next, its children in the order of their gain,
// no further than the bounds ask for.
#include <algorithm>
#include <queue>

#include "search/engines.hpp"

namespace pixnar {

namespace {

constexpr uint32_t few = 48;    // rows that are scored at once rather than searched
constexpr uint32_t scan = 24;   // rows that can be walked in the time of one probe

struct Node {
    double bound;  // as a score
    uint32_t of_class, depth, from, to;
    uint32_t cursor;  // candidates of the next slot that have been probed
    double gains;
    bool operator<(const Node& other) const {
        return bound != other.bound ? bound < other.bound : depth != other.depth ? depth < other.depth : from > other.from;
    }
};

class Search {
  public:
    Search(SegmentView& segment, Effort& effort) : segment_(segment), effort_(effort) {}

    void run() {
        for (size_t c = 0; c < segment_.classes().size(); ++c)
            if (segment_.possible(c))
                push({0, static_cast<uint32_t>(c), 0, segment_.classes()[c].begin, segment_.classes()[c].end, 0, 0.0});
        while (!open_.empty()) {
            const Node node = open_.top();
            if (node.bound < segment_.collector.threshold()) return;
            if (effort_.out()) {
                effort_.leave(node.bound);
                return;
            }
            open_.pop();
            open(node);
        }
    }

  private:
    // The most a docid below the node can sum to, if the next slot adds `gain`.
    double reach(const Node& node, double gain) const {
        const size_t c = node.of_class;
        return segment_.most_base(c) + node.gains + gain + segment_.most_gain(c, node.depth + 1) + segment_.end(c);
    }

    void push(Node node) {
        SlotSet& set = segment_.query.set(node.depth);
        const double gain = node.cursor < set.size() ? double{set.best(node.cursor).gain} : set.missing_gain();
        const double sum = reach(node, gain);
        if (sum == nothing || sum < segment_.wanted(node.of_class)) return;
        node.bound = segment_.most_score(node.of_class, sum);
        open_.push(node);
    }

    void score(const Node& node, uint32_t from, uint32_t to, double gains) {
        const size_t c = node.of_class;
        effort_.spent += to - from;
        unsigned least = 0;
        if (!segment_.levels.empty())
            least = segment_.levels.least(c, segment_.wanted(c) - gains - segment_.most_gain(c, node.depth + 1) - segment_.end(c));
        for (uint32_t row = from; row < to; ++row)
            if (segment_.levels.empty() || segment_.levels[row] >= least) segment_.consider(c, row);
    }

    void child(const Node& node, uint32_t from, uint32_t to, double gain) {
        const bool last = node.depth + 1 == segment_.matched(node.of_class);
        if (last || to - from <= few) {
            if (reach(node, gain) >= segment_.wanted(node.of_class)) score(node, from, to, node.gains + gain);
        } else {
            push({0, node.of_class, node.depth + 1, from, to, 0, node.gains + gain});
        }
    }

    void open(Node node) {
        const LengthClass& in = segment_.classes()[node.of_class];
        SlotSet& set = segment_.query.set(node.depth);
        for (;; ++node.cursor) {
            // Walking costs no more than what was spent on probing, so it is never much worse than the better of both.
            const uint32_t rows = node.to - node.from;
            if (node.cursor == set.size() || (node.depth > 0 && uint64_t{node.cursor} * scan >= rows)) {
                walk(node);
                return;
            }
            const Candidate& next = set.best(node.cursor);
            const double sum = reach(node, next.gain);
            if (sum < segment_.wanted(node.of_class)) return;
            if (effort_.out() || (!open_.empty() && segment_.most_score(node.of_class, sum) < open_.top().bound)) {
                push(node);
                return;
            }
            effort_.spent += 2;
            const auto [from, to] = segment_.table.child(in, node.from, node.to, node.depth, next.token);
            if (from < to) child(node, from, to, next.gain);
        }
    }

    // All children that were not probed.
    void walk(const Node& node) {
        const LengthClass& in = segment_.classes()[node.of_class];
        SlotSet& set = segment_.query.set(node.depth);
        if (node.cursor == set.size() && segment_.strict) return;
        const Candidate* last = node.cursor > 0 ? &set.best(node.cursor - 1) : nullptr;
        auto probed = [&](float gain, uint32_t token) {
            return last != nullptr && (gain != last->gain ? gain > last->gain : token <= last->token);
        };
        for (uint32_t row = node.from; row < node.to;) {
            const uint32_t token = segment_.table.token(in, row, node.depth);
            const uint32_t entry = set.find(token);
            uint32_t next = row + 1;
            if (next < node.to && segment_.table.token(in, next, node.depth) == token)
                next = node.depth == 0 ? std::max(next, segment_.table.child(in, in.begin, in.end, 0, token).second)
                                       : segment_.table.next_child(in, row, node.to, node.depth);
            ++effort_.spent;
            if (entry == SlotSet::none) {
                if (!segment_.strict) child(node, row, next, 0.0);
            } else if (!probed(set.gain(entry), token)) {
                child(node, row, next, set.gain(entry));
            }
            row = next;
        }
    }

    SegmentView& segment_;
    Effort& effort_;
    std::priority_queue<Node> open_;
};

}  // namespace

void best_first(SegmentView& segment, Effort& effort) { Search(segment, effort).run(); }

}  // namespace pixnar
