// Spoils the arrays of a docid table, and uses what is left of it in every way there is.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "docids/builder.hpp"
#include "search/decode.hpp"
#include "tests/damage.hpp"
#include "tests/random.hpp"

namespace pixnar::test {

constexpr uint32_t table_arrays = 13;

template <class Act> void on_array(TableStore& store, uint32_t number, Act act) {
    switch (number) {
        case 0: act(store.shape); break;
        case 1: act(store.tokens); break;
        case 2: act(store.start_heads); break;
        case 3: act(store.start_bits); break;
        case 4: act(store.row_docs); break;
        case 5: act(store.row_doc_heads); break;
        case 6: act(store.row_doc_bits); break;
        case 7: act(store.doc_rows); break;
        case 8: act(store.doc_row_heads); break;
        case 9: act(store.doc_row_bits); break;
        case 10: act(store.postings); break;
        case 11: act(store.posting_heads); break;
        default: act(store.posting_bits); break;
    }
}

// Memory that ends where its array ends, so that AddressSanitizer sees every read past it.
inline void fit_tightly(TableStore& store) {
    for (uint32_t i = 0; i < table_arrays; ++i) on_array(store, i, [](auto& array) { array.shrink_to_fit(); });
}

// Whether all that the table says of itself lies inside of it.
inline bool consistent(const DocidTable& table, Random& random) {
    bool good = true;
    const uint32_t vocabulary = table.vocabulary(), rows = table.rows();
    const auto some_token = [&] { return random.one_in(8) ? ~0u - random.below(2) : random.below(vocabulary + 2); };
    for (uint32_t row = 0; row < rows; ++row) {
        const LengthClass& in = table.class_of(row);
        good &= in.begin <= row && row < in.end && in.end <= rows;
        const std::vector<uint32_t> tokens = table.tokens(row);
        good &= std::all_of(tokens.begin(), tokens.end(), [&](uint32_t token) { return token < vocabulary; });
        good &= table.find(tokens) <= rows;
        const auto [from, to] = table.pairs_of(row);
        good &= from <= to && to <= table.pairs();
        for (uint64_t pair = from; pair < to && pair < from + 300; ++pair) good &= table.pair_document(pair) < table.documents();
        const uint32_t place = random.below(in.length), end = row + 1 + random.below(in.end - row);
        const uint32_t next = table.next_child(in, row, end, place);
        good &= row < next && next <= end;
    }
    for (const LengthClass& in : table.classes())
        for (int n = 0; n < 60; ++n) {
            const uint32_t place = n % 3 == 0 ? 0 : random.below(in.length);
            const uint32_t from = in.begin + random.below(in.end - in.begin + 1), to = from + random.below(in.end - from + 1);
            const auto [a, b] = table.child(in, from, to, place, some_token());
            good &= a <= b && (place == 0 ? in.begin <= a || a == from : from <= a) && b <= (place == 0 ? in.end : to);
        }
    if (!table.indexed()) return good;
    for (uint32_t n = 0; n < std::min(table.documents(), 300u) && rows > 0; ++n) {
        const auto [from, to] = table.rows_of(table.documents() <= 300 ? n : random.below(table.documents()));
        good &= from <= to && to <= table.pairs();
        for (uint64_t i = from; i < to && i < from + 300; ++i) good &= table.document_row(i) < rows;
    }
    for (uint32_t place = 1; place <= table.indexed_places(); ++place)
        for (uint32_t n = 0; n < std::min(vocabulary, 40u); ++n) {
            const uint32_t token = random.one_in(2) ? random.below(vocabulary) : some_token();
            const auto [from, to] = table.occurrences(place, token);
            good &= from <= to;
            for (uint64_t i = from; i < to && i < from + 300; ++i) good &= table.posting(place, i) < rows;
        }
    return good;
}

// Decodes with every engine; the results may be anything, but lie inside the space. `added` may be null.
inline bool decode_all(const DocidTable& table, const DocidTable* added, Random& random) {
    constexpr uint32_t most_documents = 1 << 16;  // what a filter has a bit for
    const uint32_t slots = 1 + random.below(6);
    bool good = true;
    std::vector<float> floors;
    if (!random.one_in(3) && table.vocabulary() < 1 << 16)
        for (uint32_t v = 0; v < table.vocabulary(); ++v)
            floors.push_back(random.one_in(4) ? static_cast<float>(nothing) : -1.0f - static_cast<float>(random.below(8)));
    const Floor floor(floors);
    std::vector<uint32_t> by_floor(floor.values.size());
    for (uint32_t v = 0; v < by_floor.size(); ++v) by_floor[v] = v;
    std::stable_sort(by_floor.begin(), by_floor.end(), [&](uint32_t a, uint32_t b) { return floor.values[a] > floor.values[b]; });

    SearchSpace space;
    std::vector<std::unique_ptr<Levels>> levels;
    std::vector<uint64_t> dead, keys, allowed;
    std::vector<uint32_t> numbers, twins;
    levels.push_back(std::make_unique<Levels>(table, floor, slots, Workers{}));
    if (random.one_in(2)) {
        dead.resize((table.pairs() + 63) / 64);
        for (uint64_t& word : dead) word = random.next() & random.next();
    }
    space.segments.push_back({&table, levels.back().get(), dead, {}, {}});
    space.documents = table.documents();
    if (added != nullptr && added->vocabulary() == table.vocabulary() && added->documents() < most_documents) {
        keys.resize(added->documents());
        for (uint64_t& key : keys) key = random.next();
        for (uint32_t i = 0; i < added->documents(); ++i) numbers.push_back(space.documents + i);
        for (uint32_t i = 0; i < added->rows(); ++i)
            twins.push_back(table.rows() > 0 && random.one_in(3) ? random.below(table.rows()) : Segment::no_twin);
        space.documents += added->documents();
        levels.push_back(std::make_unique<Levels>(*added, floor, slots, Workers{}));
        space.segments.push_back({added, levels.back().get(), {}, numbers, twins});
        space.keys = keys;
    }
    if (space.documents < most_documents && random.one_in(2)) {
        allowed.resize((uint64_t{space.documents} + 63) / 64);
        for (uint64_t& word : allowed) word = random.next();
        space.filtered = true;
        space.allowed = allowed;
        for (const uint64_t word : allowed) space.allowed_count += static_cast<uint64_t>(std::popcount(word));
    }

    std::vector<uint32_t> tokens;
    std::vector<float> scores, ends;
    std::vector<int64_t> offsets{0};
    const uint32_t most = random.one_in(2) ? 4 : 40;
    for (uint32_t t = 0; t < slots; ++t) {
        for (uint32_t n = random.below(most); n > 0 && table.vocabulary() > 0; --n) {
            tokens.push_back(random.below(table.vocabulary()));
            scores.push_back(-static_cast<float>(random.below(24)) / 8);
        }
        offsets.push_back(static_cast<int64_t>(tokens.size()));
        ends.push_back(-static_cast<float>(random.below(8)) / 8);
    }
    const SlotScores asked{tokens, scores, offsets, ends, false};
    bool indexed = true;
    for (const Segment& in : space.segments) indexed &= in.table->indexed();
    for (const Engine engine : {Engine::automatic, Engine::brute_force, Engine::best_first, Engine::inverted, Engine::enumerate,
                                Engine::beam}) {
        if ((engine == Engine::inverted || engine == Engine::enumerate) && !indexed) continue;
        if (engine == Engine::enumerate && !space.filtered) continue;
        for (const bool documents : {false, true}) {
            DecodeOptions options{1 + size_t{random.below(60)}, static_cast<Order>(random.below(engine == Engine::beam ? 2 : 3)),
                      random.below(3) * 0.5, engine, random.one_in(4) ? 1 + random.below(300) : 0, documents,
                      indexed ? random.below(4) : 1, 1 + size_t{random.below(20)}};
            if (documents && !indexed) options.work_limit = 0;  // refused: true scores need the index
            const Answer answer = decode(space, floor, by_floor, asked, options);
            good &= answer.hits.size() <= options.k;
            for (const Hit& hit : answer.hits) {
                good &= hit.place.segment < space.segments.size();
                good &= hit.place.row < space.segments[hit.place.segment].table->rows();
                good &= !documents || hit.document < space.documents;
                for (const uint32_t document : space.named(hit.place)) good &= document < space.documents;
            }
        }
    }
    return good;
}

}  // namespace pixnar::test
