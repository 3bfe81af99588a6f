// Docids, documents and a query from the input: all engines must agree with the slow twin. If the input says so, the
// arrays are spoiled before they are used, and then must do no harm.
//
// Head: flags, vocabulary, documents, slots, seed (2). Docids follow, a byte for length and document each; a zero ends
// them. Then candidates, slot by slot; then the damage, 8 bytes a change as in fuzz_load.
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "fuzz/input.hpp"
#include "tests/decode_twin.hpp"
#include "tests/random.hpp"
#include "tests/search_spaces.hpp"
#include "tests/table_damage.hpp"

using namespace pixnar;
using namespace pixnar::fuzz;
using namespace pixnar::test;

namespace {

float score_from(uint8_t byte) {
    return byte == 255 ? -std::numeric_limits<float>::infinity() : static_cast<float>(byte % 40) / -8 + (byte >= 200 ? 2.0f : 0.0f);
}

std::vector<Record> read_records(Input& input, uint32_t vocabulary, uint32_t documents) {
    std::vector<Record> records;
    while (!input.empty() && records.size() < 300) {
        const uint8_t head = input.byte();
        if (head == 0) break;
        Record record{{}, (head >> 4) % documents};
        if (head & 8 && !records.empty()) record.tokens = records.back().tokens;  // begins as the one before
        record.tokens.resize(std::min<size_t>(record.tokens.size(), input.byte() % 8));
        for (uint32_t n = 1 + (head & 7); n > 0; --n) record.tokens.push_back(input.byte() % vocabulary);
        records.push_back(std::move(record));
    }
    return records;
}

Asked read_query(Input& input, uint32_t vocabulary, uint32_t slots, bool floors) {
    Asked asked;
    asked.slots.resize(slots);
    for (auto& slot : asked.slots) {
        for (uint32_t n = input.byte() % 12; n > 0; --n) {
            const uint32_t token = input.byte() % vocabulary;
            slot.emplace_back(token, score_from(input.byte()));
        }
        asked.ends.push_back(score_from(input.byte()));
    }
    if (!floors) return asked;
    const Input again = input;
    for (uint32_t v = 0; v < vocabulary; ++v) asked.floor.push_back(score_from(input.byte()) - 3);
    input = again;  // the same bytes may be damage
    return asked;
}

// Every exact engine, against the twin. Sums of eighths are exact, so that all orders can be held to the bit.
void compare(const Stock& stock, const Asked& asked, Random& random) {
    const auto slots = static_cast<uint32_t>(asked.slots.size());
    Ready ready(stock, asked.floor, slots);
    if (random.one_in(2)) ready.filter([&](uint32_t document) { return (random.next() ^ document) % 3 != 0; });
    const auto allows = [&](uint32_t document) { return ready.space.allows(document); };
    const AskedArrays arrays(asked);
    const size_t k = random.below(30);
    const double length_norm = random.below(3) * 0.5;
    for (const Order order : {Order::slots, Order::any, Order::assigned}) {
        const Twin twin(asked, order, length_norm);
        const std::vector<Found> found = allowed_of(twin.ranking(stock.alive), allows);
        const auto ask = [&](Engine engine, bool documents, uint64_t limit, size_t width = 0) {
            return decode(ready.space, ready.floor, ready.by_floor, arrays.view(),
                          {k, order, length_norm, engine, limit, documents, 1, width});
        };
        const auto tokens_of = [&](const Hit& hit) { return ready.space.segments[hit.place.segment].table->tokens(hit.place.row); };
        const auto same = [&](const Answer& answer, const std::vector<Found>& wanted) {
            require(answer.hits.size() == std::min(k, wanted.size()), "as many docids as the twin finds");
            for (size_t i = 0; i < answer.hits.size(); ++i)
                require(answer.hits[i].score == wanted[i].score && tokens_of(answer.hits[i]) == *wanted[i].tokens,
                        "the twin's docids");
        };
        const auto documents = documents_of(found, 1, allows, [&](uint32_t document) { return ready.space.key(document); });
        for (const Engine engine : {Engine::brute_force, Engine::best_first, Engine::inverted, Engine::enumerate}) {
            if (engine == Engine::enumerate && !ready.space.filtered) continue;
            const Answer answer = ask(engine, false, 0);
            require(answer.exact, "an exact answer");
            same(answer, found);
            const Answer named = ask(engine, true, 0);
            require(named.exact && named.hits.size() == std::min(k, documents.size()), "as many documents as the twin finds");
            for (size_t i = 0; i < named.hits.size(); ++i)
                require(named.hits[i].document == documents[i].document && named.hits[i].score == documents[i].score,
                        "the twin's documents");
            const Answer limited = ask(engine, false, 1 + random.below(60));
            if (limited.exact) same(limited, found);
        }
        if (order != Order::assigned) {
            const size_t width = 1 + random.below(12);
            same(ask(Engine::beam, false, 0, width), allowed_of(twin.beam(stock.alive, width), allows));
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Input input(data, size);
    const uint8_t flags = input.byte();
    Stock stock;
    stock.vocabulary = 1 + input.byte() % (flags & 1 ? 200 : 12);
    stock.documents = 1 + input.byte() % 20;
    const uint32_t slots = 1 + input.byte() % 5;
    Random random(input.number(2));
    std::vector<Record> records = read_records(input, stock.vocabulary, stock.documents);
    const Asked asked = read_query(input, stock.vocabulary, slots, flags & 2);
    for (const auto& [tokens, document] : records) {
        stock.alive[tokens].insert(document);
        stock.listed.push_back(tokens);
    }
    const Docids built = stock.alive;
    stock.store = build_table(records, stock.vocabulary, stock.documents, true, 1);
    stock.table.emplace(stock.store.arrays());
    for (uint32_t i = 0; i < stock.documents; ++i) stock.rank.push_back((i * 7 + 3) % stock.documents);
    if (stock.documents % 7 == 0) std::iota(stock.rank.begin(), stock.rank.end(), 0u);
    if (flags & 4 && !records.empty()) {
        const SkewedTokens tokens(random, stock.vocabulary);
        change_stock(stock, random, tokens, 6, built);
    }
    if (!(flags & 8)) {
        compare(stock, asked, random);
        return 0;
    }

    TableStore spoiled = stock.store;
    while (!input.empty()) {
        const uint8_t head = input.byte();
        const uint32_t array = (head & 15) % table_arrays;
        const auto where = static_cast<uint32_t>(input.number(3));
        const uint64_t value = input.number(4), wide = value << (where >> 20 & 31) ^ value;
        bool large = false;
        on_array(spoiled, array, [&](auto& entries) {
            spoil(entries, head >> 4, where & 0xffff, where >> 18, wide);
            large = entries.size() > 1 << 16;
        });
        if (large) return 0;
    }
    fit_tightly(spoiled);
    std::optional<DocidTable> table;
    try {
        table.emplace(spoiled.arrays());
    } catch (const std::invalid_argument&) {
        return 0;
    }
    require(consistent(*table, random), "what a table says lies inside of it");
    const DocidTable* added = stock.added ? &*stock.added : nullptr;
    require(decode_all(*table, added, random), "what is found lies inside the space");
    if (added != nullptr) require(decode_all(*added, &*table, random), "what is found lies inside the space");
    return 0;
}
