// Docids at random, the spaces they make, and queries that find something there.
#pragma once
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "docids/builder.hpp"
#include "tests/decode_twin.hpp"
#include "tests/random.hpp"

namespace pixnar::test {

struct Record {
    Tokens tokens;
    uint32_t document;
};

inline void add_records(DocidBuilder& builder, std::span<const Record> records) {
    std::vector<uint32_t> ids, documents;
    std::vector<int64_t> offsets{0};
    for (const auto& [tokens, document] : records) {
        ids.insert(ids.end(), tokens.begin(), tokens.end());
        offsets.push_back(static_cast<int64_t>(ids.size()));
        documents.push_back(document);
    }
    builder.add(ids, offsets, documents);
}

inline TableStore build_table(std::span<const Record> records, uint32_t vocabulary, uint32_t documents, bool index = true,
                              unsigned threads = 1) {
    DocidBuilder builder(vocabulary);
    add_records(builder, records.first(records.size() / 3));  // in two parts, as it comes in blocks
    add_records(builder, records.subspan(records.size() / 3));
    return builder.finish(documents, index, Workers{threads, {}, {}});
}

inline double unit(Random& random) { return static_cast<double>(random.next() >> 11) * 0x1p-53; }

// A few tokens are everywhere and most are rare, in no order of their ids.
class SkewedTokens {
  public:
    SkewedTokens(Random& random, uint32_t vocabulary) : ids_(vocabulary) {
        std::iota(ids_.begin(), ids_.end(), 0u);
        random.shuffle(ids_);
    }
    uint32_t draw(Random& random) const {
        const double u = unit(random), v = u * u;
        return ids_[static_cast<size_t>(v * v * static_cast<double>(ids_.size()))];
    }

  private:
    std::vector<uint32_t> ids_;
};

struct StockShape {
    uint32_t docids, vocabulary, documents, longest;
    bool changed;  // with dead pairs and a second segment
};

// Everything that a space looks into.
struct Stock {
    TableStore store, added_store;
    std::optional<DocidTable> table, added;
    std::vector<uint64_t> dead, keys;
    std::vector<uint32_t> rank, numbers, twins;
    uint32_t vocabulary = 0, documents = 0;
    std::vector<Tokens> listed;  // docids, to make queries from
    Docids alive;

    Stock() = default;
    Stock(const Stock&) = delete;
};

inline std::vector<Tokens> random_docids(Random& random, uint32_t count, const SkewedTokens& tokens, uint32_t longest) {
    std::vector<Tokens> docids;
    for (uint32_t i = 0; i < count; ++i) {
        Tokens docid;
        if (i > 0 && !random.one_in(3)) {  // many docids begin alike
            docid = random.pick(docids);
            docid.resize(random.below(static_cast<uint32_t>(docid.size()) + 1));
        }
        const uint32_t length = 1 + random.below(random.one_in(4) ? longest : std::min(longest, 6u));
        while (docid.size() < length) docid.push_back(tokens.draw(random));
        docids.push_back(std::move(docid));
    }
    return docids;
}

// Additions and removals as live changes make them: a pair of the first segment is never in the second as well.
inline void change_stock(Stock& stock, Random& random, const SkewedTokens& tokens, uint32_t longest, const Docids& built) {
    const DocidTable& table = *stock.table;
    const uint32_t old = stock.documents;
    stock.dead.assign((table.pairs() + 63) / 64, 0);
    for (uint32_t row = 0; row < table.rows(); ++row) {
        const bool all = random.one_in(20);
        const auto [from, to] = table.pairs_of(row);
        for (uint64_t pair = from; pair < to; ++pair) {
            if (!all && !random.one_in(12)) continue;
            stock.dead[pair / 64] |= uint64_t{1} << (pair % 64);
            stock.alive[table.tokens(row)].erase(table.pair_document(pair));
        }
    }
    const uint32_t fresh = old / 20 + 2;
    stock.documents += fresh;
    std::vector<Record> records;
    std::vector<Tokens> more = random_docids(random, static_cast<uint32_t>(stock.listed.size()) / 20 + 2, tokens, longest);
    for (uint32_t n = static_cast<uint32_t>(stock.listed.size()) / 10 + 2; n > 0; --n) {
        const Tokens& docid = random.pick(random.one_in(2) ? stock.listed : more);
        const uint32_t document = random.one_in(2) ? random.below(stock.documents) : old + random.below(fresh);
        const auto known = built.find(docid);
        if (known != built.end() && known->second.contains(document)) continue;
        records.push_back({docid, document});
        stock.alive[docid].insert(document);
    }
    for (const Record& record : records) stock.numbers.push_back(record.document);
    std::sort(stock.numbers.begin(), stock.numbers.end());
    stock.numbers.erase(std::unique(stock.numbers.begin(), stock.numbers.end()), stock.numbers.end());
    for (Record& record : records)
        record.document = static_cast<uint32_t>(std::lower_bound(stock.numbers.begin(), stock.numbers.end(), record.document) -
                                                stock.numbers.begin());
    stock.added_store = build_table(records, stock.vocabulary, static_cast<uint32_t>(stock.numbers.size()));
    stock.added.emplace(stock.added_store.arrays());
    for (uint32_t row = 0; row < stock.added->rows(); ++row) {
        const uint32_t twin = table.find(stock.added->tokens(row));
        stock.twins.push_back(twin < table.rows() ? twin : Segment::no_twin);
    }
    stock.listed.insert(stock.listed.end(), more.begin(), more.end());
    // New ids lie anywhere between the old ones.
    std::vector<uint32_t> between(fresh), order(fresh);
    for (uint32_t& place : between) place = random.below(old + 1);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return between[a] < between[b]; });
    stock.keys.resize(fresh);
    for (uint32_t i = 0; i < fresh; ++i) stock.keys[order[i]] = (uint64_t{between[order[i]]} << 32) + i + 1;
}

inline std::unique_ptr<Stock> random_stock(Random& random, const StockShape& shape) {
    auto stock = std::make_unique<Stock>();
    const SkewedTokens tokens(random, shape.vocabulary);
    stock->vocabulary = shape.vocabulary;
    stock->documents = shape.documents;
    stock->listed = random_docids(random, shape.docids, tokens, shape.longest);
    std::vector<Record> records;
    for (const Tokens& docid : stock->listed) {
        uint32_t names = random.one_in(4) ? 1 + random.below(4) : 1;
        if (random.one_in(500)) names = 100;
        while (names-- > 0) records.push_back({docid, random.below(shape.documents)});
    }
    random.shuffle(records);
    for (const auto& [docid, document] : records) stock->alive[docid].insert(document);
    stock->store = build_table(records, shape.vocabulary, shape.documents);
    stock->table.emplace(stock->store.arrays());
    stock->rank.resize(shape.documents);
    std::iota(stock->rank.begin(), stock->rank.end(), 0u);
    random.shuffle(stock->rank);
    if (shape.changed) {
        const Docids built = stock->alive;
        change_stock(*stock, random, tokens, shape.longest, built);
    }
    return stock;
}

// A stock made ready for queries of some number of slots with some floor.
struct Ready {
    Floor floor;
    std::vector<uint32_t> by_floor;
    std::vector<std::unique_ptr<Levels>> levels;
    std::vector<std::vector<uint8_t>> classes;
    std::vector<std::unique_ptr<Factors>> factors;
    std::vector<uint64_t> allowed;
    SearchSpace space;

    Ready(const Ready&) = delete;
    Ready(const Stock& stock, const std::vector<float>& floors, uint32_t slots, const Scaling& scaling = {}) : floor(floors) {
        const Workers one{};
        by_floor.resize(floor.values.size());
        std::iota(by_floor.begin(), by_floor.end(), 0u);
        std::stable_sort(by_floor.begin(), by_floor.end(),
                         [this](uint32_t a, uint32_t b) { return floor.values[a] > floor.values[b]; });
        levels.push_back(std::make_unique<Levels>(*stock.table, floor, slots, one));
        space.segments.push_back({&*stock.table, levels.back().get(), stock.dead, {}, {}, scaled(*stock.table, scaling)});
        space.rank = stock.rank;
        space.documents = stock.documents;
        if (!stock.added) return;
        levels.push_back(std::make_unique<Levels>(*stock.added, floor, slots, one));
        space.segments.push_back(
            {&*stock.added, levels.back().get(), {}, stock.numbers, stock.twins, scaled(*stock.added, scaling)});
        space.keys = stock.keys;
    }
    template <class Allows> void filter(Allows allows) {
        allowed.assign((uint64_t{space.documents} + 63) / 64, 0);
        space.allowed_count = 0;
        for (uint32_t document = 0; document < space.documents; ++document) {
            if (!allows(document)) continue;
            allowed[document / 64] |= uint64_t{1} << (document % 64);
            ++space.allowed_count;
        }
        space.filtered = true;
        space.allowed = allowed;
    }
    void no_filter() {
        space.filtered = false;
        space.allowed = {};
        space.allowed_count = 0;
    }

  private:
    const Factors* scaled(const DocidTable& table, const Scaling& scaling) {
        if (scaling.values.empty()) return nullptr;
        auto& own = classes.emplace_back();
        for (uint32_t row = 0; row < table.rows(); ++row) own.push_back(scaling.class_of(table.tokens(row)));
        return factors.emplace_back(std::make_unique<Factors>(table, own, scaling.values)).get();
    }
};

// None, all near 1, or far apart; coarse ones are powers of two, so that products are exact and many are equal.
inline Scaling random_scaling(Random& random, bool coarse) {
    Scaling scaling{{}, random.next()};
    if (random.one_in(3)) return scaling;
    const double wide = random.pick(std::vector<double>{0.2, 1, 8});
    for (size_t i = 0; i < Factors::kinds; ++i) {
        const double power = wide * (2 * unit(random) - 1);
        scaling.values.push_back(static_cast<float>(std::exp2(coarse ? std::round(power) : power)));
    }
    return scaling;
}

enum class FloorKind { strict, finite, mixed, zero };  // zero: ends are 0, too

struct AskedShape {
    uint32_t slots, candidates;  // candidates of a slot, about
    FloorKind floor;
    bool coarse;  // multiples of 1/8: sums are exact whatever their order, and many are equal
};

inline Asked random_query(Random& random, const Stock& stock, const AskedShape& shape) {
    constexpr auto never = -std::numeric_limits<float>::infinity();
    const double scale = random.one_in(5) ? (random.one_in(2) ? 1e5 : 1e-5) : 1;
    const double shift = random.pick(std::vector<double>{0, 0, 6, 14});  // sums below zero, around it and above
    const auto value = [&](double least, double most) {
        const double drawn = shift + least + (most - least) * unit(random);
        return static_cast<float>(shape.coarse ? std::round(drawn * 8) / 8 : drawn * scale);
    };
    Asked asked;
    if (shape.floor != FloorKind::strict) {
        asked.floor.resize(stock.vocabulary);
        for (float& floor : asked.floor) floor = value(-16, -7);
        if (shape.floor == FloorKind::mixed)
            for (float& floor : asked.floor)
                if (random.one_in(3)) floor = never;
    }
    if (shape.floor == FloorKind::zero) std::fill(asked.floor.begin(), asked.floor.end(), 0.0f);
    asked.slots.resize(shape.slots);
    for (auto& slot : asked.slots) {
        if (random.one_in(60)) continue;
        slot.reserve(shape.candidates + 2);
        if (random.one_in(4)) slot.emplace_back(random.below(stock.vocabulary), never);
    }
    // Docids that fit in some of their places, so that the tokens of the table come as often as they do there.
    for (uint32_t n = 0; n < shape.candidates; ++n) {
        const Tokens& docid = random.pick(stock.listed);
        const double good = random.one_in(10) ? -2 : -9;
        for (uint32_t t = 0; t < shape.slots && t < docid.size(); ++t) {
            if (random.one_in(6)) asked.slots[t].emplace_back(random.below(stock.vocabulary), value(-12, -6));
            asked.slots[t].emplace_back(docid[t], value(good, 0.5));
        }
    }
    for (uint32_t t = 0; t < shape.slots; ++t) asked.ends.push_back(random.one_in(30) ? never : value(-4, 0));
    if (shape.floor == FloorKind::zero) std::fill(asked.ends.begin(), asked.ends.end(), 0.0f);
    return asked;
}

}  // namespace pixnar::test
