#include "search/decode.hpp"

#include <algorithm>
#include <stdexcept>

namespace pixnar {

const char* name_of(Engine engine) {
    switch (engine) {
        case Engine::automatic: return "auto";
        case Engine::brute_force: return "brute";
        case Engine::best_first: return "best-first";
        case Engine::inverted: return "inverted";
        case Engine::enumerate: return "enumerate";
        case Engine::beam: return "beam";
        case Engine::accumulate: return "accumulate";
    }
    return "";
}

namespace {

// A sweep looks at every row; the inverted search has to sort its lists first, and is worth that when there are more rows
// than it takes to pay for it.
Engine choose(const DocidTable& table, const Query& query) {
    uint64_t candidates = 0;
    for (uint32_t t = 0; t < (query.shared() ? 1 : query.slots()); ++t) candidates += query.set(t).size();
    if (table.rows() <= 2048 + 8 * candidates) return Engine::brute_force;
    return table.indexed() ? Engine::inverted : Engine::best_first;
}

}  // namespace

Answer decode(const SearchSpace& space, const Floor& floor, std::span<const uint32_t> by_floor, const SlotScores& scores,
              const DecodeOptions& options) {
    const uint32_t vocabulary = space.segments.front().table->vocabulary();
    if (!floor.strict() && floor.values.size() != vocabulary)
        throw std::invalid_argument("the floor has " + std::to_string(floor.values.size()) + " values, the vocabulary " +
                                    std::to_string(vocabulary) + " tokens");
    Query query(scores, floor, vocabulary, options.order, options.length_norm);
    const Scorer scorer(space, query, floor);
    const auto collector = options.documents ? collect_documents(space, scorer, options.k, options.top) : collect_docids(space, options.k);
    Answer answer;
    Effort effort{options.work_limit};
    const bool indexed = std::all_of(space.segments.begin(), space.segments.end(),
                                     [](const Segment& segment) { return segment.table->indexed(); });
    if (!indexed && (options.engine == Engine::inverted || (options.documents && (options.top != 1 || options.work_limit != 0))))
        throw std::invalid_argument("this table was built without its index: build it again with one");
    if (options.engine == Engine::enumerate && (!space.filtered || !indexed))
        throw std::invalid_argument("enumerate goes through the documents a filter allows: give a filter, and a table with its index");
    answer.engine = options.engine;
    const bool few_allowed = space.filtered && indexed && space.allowed_count <= space.documents / 64 + 16;
    if (options.engine == Engine::beam) {
        if (options.order == Order::assigned) throw std::invalid_argument("the beam knows the orders slots and any");
        beam(space, query, scorer, *collector, options.beam_width, by_floor);
        answer.exact = false;
        answer.bound = answer.gap = std::numeric_limits<double>::infinity();
    } else if (options.engine == Engine::enumerate || (options.engine == Engine::automatic && few_allowed)) {
        answer.engine = Engine::enumerate;
        enumerate_allowed(space, scorer, *collector, effort);
    } else if (options.engine == Engine::accumulate || (options.engine == Engine::automatic && options.documents && options.top != 1 &&
                                                     options.work_limit == 0 && can_accumulate(space, query, floor))) {
        if (!options.documents || options.top == 1 || options.work_limit != 0 || !can_accumulate(space, query, floor))
            throw std::invalid_argument("accumulate is for documents by several docids, in any order, with floors and ends "
                                        "of 0, without a work limit");
        answer.engine = Engine::accumulate;
        accumulate(space, scorer, *collector, options.k, effort);
    } else {
        for (uint32_t s = 0; s < space.segments.size(); ++s) {
            const Engine engine = options.engine == Engine::automatic ? choose(*space.segments[s].table, query) : options.engine;
            if (s == 0) answer.engine = engine;
            SegmentView segment(query, scorer, *collector, s);
            if (engine == Engine::brute_force) brute_force(segment, effort);
            else if (engine == Engine::best_first) best_first(segment, effort);
            else inverted(segment, effort);
        }
    }
    if (effort.unseen != nothing) collector->complete();
    answer.hits = collector->best();
    answer.work = effort.spent;
    const double unseen = effort.unseen == nothing ? nothing : effort.unseen + collector->head_room();
    if (unseen != nothing && unseen >= collector->worst()) {
        answer.exact = false;
        answer.bound = unseen;
        answer.gap = std::max(0.0, unseen - collector->worst());
    }
    return answer;
}

}  // namespace pixnar
