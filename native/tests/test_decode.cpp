#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "search/decode.hpp"
#include "tests/check.hpp"
#include "tests/decode_twin.hpp"
#include "tests/random.hpp"
#include "tests/sanitized.hpp"
#include "tests/search_spaces.hpp"

using namespace pixnar;
using namespace pixnar::test;

namespace {

constexpr Engine exact_engines[] = {Engine::brute_force, Engine::best_first, Engine::inverted, Engine::automatic};

bool close(double a, double b) { return a == b || std::abs(a - b) <= 1e-9 * std::max({1.0, std::abs(a), std::abs(b)}); }

// One way to ask, with all that is known about the answer.
class Case {
    auto allows() const {
        return [this](uint32_t document) { return ready_.space.allows(document); };
    }

  public:
    Case(const Stock& stock, const Ready& ready, const Asked& asked, Order order, double length_norm, bool dense,
         const std::vector<Found>& ranking, std::string name)
        : stock_(stock), ready_(ready), arrays_(asked, dense ? stock.vocabulary : 0), order_(order), length_norm_(length_norm),
          name_(std::move(name)), found_(allowed_of(ranking, allows())) {}

    const std::vector<Found>& found() const { return found_; }

    Answer ask(Engine engine, size_t k, uint64_t limit = 0) const {
        DecodeOptions options{k, order_, length_norm_, engine, limit, false, 1, 0};
        return decode(ready_.space, ready_.floor, ready_.by_floor, arrays_.view(), options);
    }

    void check_docids(Engine engine, size_t k) const {
        const Answer answer = ask(engine, k);
        says(CHECK(answer.exact && answer.gap == 0 && answer.bound == nothing), engine, k);
        says(CHECK(same_docids(answer, found_, k)), engine, k);
    }

    void check_named(size_t most) const {
        const Answer answer = ask(Engine::brute_force, most);
        for (size_t i = 0; i < answer.hits.size() && i < found_.size(); ++i) {
            std::vector<uint32_t> wanted;
            std::copy_if(found_[i].documents->begin(), found_[i].documents->end(), std::back_inserter(wanted), allows());
            const SearchSpace& space = ready_.space;
            std::sort(wanted.begin(), wanted.end(), [&](uint32_t a, uint32_t b) { return space.key(a) < space.key(b); });
            CHECK_EQ(ready_.space.named(answer.hits[i].place), wanted);
        }
    }

    std::vector<FoundDocument> documents(uint64_t top) const {
        return documents_of(found_, top, allows(), [this](uint32_t document) { return ready_.space.key(document); });
    }
    Answer ask_documents(Engine engine, size_t k, uint64_t top, uint64_t limit = 0) const {
        return decode(ready_.space, ready_.floor, ready_.by_floor, arrays_.view(),
                      {k, order_, length_norm_, engine, limit, true, top, 0});
    }

    void check_documents(Engine engine, size_t k, uint64_t top, const std::vector<FoundDocument>& wanted) const {
        const Answer answer = ask_documents(engine, k, top);
        says(CHECK(answer.exact && answer.gap == 0 && answer.bound == nothing), engine, k);
        says(CHECK(same_documents(answer, wanted, k, top == 1)), engine, k);
    }

    void check_beam(const Twin& twin, size_t width, size_t k) const {
        const Answer answer = decode(ready_.space, ready_.floor, ready_.by_floor, arrays_.view(),
                                     {k, order_, length_norm_, Engine::beam, 0, false, 1, width});
        says(CHECK(!answer.exact), Engine::beam, k);
        says(CHECK(same_docids(answer, allowed_of(twin.beam(stock_.alive, width), allows()), k)), Engine::beam, width);
    }

    // What a search that was cut short says of itself.
    bool check_limited(Engine engine, size_t k, uint64_t limit) const {
        const Answer answer = ask(engine, k, limit);
        if (answer.exact) {
            says(CHECK(same_docids(answer, found_, k)), engine, limit);
            says(CHECK(answer.gap == 0 && answer.bound == nothing), engine, limit);
            return true;
        }
        std::map<Tokens, double> truth;
        for (const Found& found : found_) truth.emplace(*found.tokens, found.score);
        bool good = answer.hits.size() <= k;
        std::set<Tokens> listed;
        for (size_t i = 0; i < answer.hits.size(); ++i) {
            const Tokens tokens = tokens_of(answer.hits[i].place);
            const auto known = truth.find(tokens);
            good &= listed.insert(tokens).second && known != truth.end() && known->second == answer.hits[i].score;
            if (i > 0) good &= in_order(answer.hits[i - 1], answer.hits[i]);
        }
        says(CHECK(good), engine, limit);
        const auto left_out = std::find_if(found_.begin(), found_.end(),
                                           [&](const Found& found) { return !listed.contains(*found.tokens); });
        if (left_out != found_.end()) says(CHECK(within(left_out->score, answer, k)), engine, limit);
        return false;
    }

    bool check_limited_documents(Engine engine, size_t k, uint64_t top, uint64_t limit,
                                 const std::vector<FoundDocument>& wanted) const {
        const Answer answer = ask_documents(engine, k, top, limit);
        if (answer.exact) {
            says(CHECK(same_documents(answer, wanted, k, top == 1)), engine, limit);
            return true;
        }
        std::map<uint32_t, const FoundDocument*> truth;
        for (const FoundDocument& found : wanted) truth.emplace(found.document, &found);
        bool good = answer.hits.size() <= k;
        std::set<uint32_t> listed;
        for (const Hit& hit : answer.hits) {
            const auto known = truth.find(hit.document);
            good &= listed.insert(hit.document).second && known != truth.end() && close(known->second->score, hit.score) &&
                    *known->second->tokens == tokens_of(hit.place);
        }
        says(CHECK(good), engine, limit);
        const auto left_out = std::find_if(wanted.begin(), wanted.end(),
                                           [&](const FoundDocument& found) { return !listed.contains(found.document); });
        if (left_out != wanted.end()) says(CHECK(within(left_out->score, answer, k)), engine, limit);
        return false;
    }

  private:
    Tokens tokens_of(Place place) const { return ready_.space.segments[place.segment].table->tokens(place.row); }
    bool in_order(const Hit& a, const Hit& b) const {
        return a.score != b.score ? a.score > b.score : tokens_of(a.place) < tokens_of(b.place);
    }
    // A true score that was left out, and what the answer says about such.
    static bool within(double score, const Answer& answer, size_t k) {
        const double room = 1e-9 * std::max(1.0, std::abs(score));
        if (answer.hits.size() < k) return score <= answer.bound + room && answer.gap == std::numeric_limits<double>::infinity();
        return score <= answer.bound + room && score <= answer.hits.back().score + answer.gap + room;
    }

    bool same_docids(const Answer& answer, const std::vector<Found>& wanted, size_t k) const {
        if (answer.hits.size() != std::min(k, wanted.size())) return false;
        for (size_t i = 0; i < answer.hits.size(); ++i)
            if (answer.hits[i].score != wanted[i].score || tokens_of(answer.hits[i].place) != *wanted[i].tokens) return false;
        return true;
    }

    // Sums of exponentials may be rounded otherwise; documents that score almost the same may then change places.
    bool same_documents(const Answer& answer, const std::vector<FoundDocument>& wanted, size_t k, bool to_the_bit) const {
        if (answer.hits.size() != std::min(k, wanted.size())) return false;
        std::map<uint32_t, const FoundDocument*> truth;
        if (!to_the_bit)
            for (const FoundDocument& found : wanted) truth.emplace(found.document, &found);
        for (size_t i = 0; i < answer.hits.size(); ++i) {
            const Hit& hit = answer.hits[i];
            const FoundDocument* own = &wanted[i];
            if (to_the_bit) {
                if (hit.document != own->document || hit.score != own->score) return false;
            } else {
                const auto known = truth.find(hit.document);
                if (known == truth.end() || !close(hit.score, known->second->score) || !close(hit.score, own->score)) return false;
                own = known->second;
                truth.erase(known);
            }
            if (tokens_of(hit.place) != *own->tokens) return false;
        }
        return true;
    }

    void says(bool good, Engine engine, uint64_t number) const {
        if (!good && failed <= 20)
            std::fprintf(stderr, "  %s, engine %s, %llu\n", name_.c_str(), name_of(engine),
                         static_cast<unsigned long long>(number));
    }

    const Stock& stock_;
    const Ready& ready_;
    AskedArrays arrays_;
    Order order_;
    double length_norm_;
    std::string name_;
    std::vector<Found> found_;
};

uint64_t results = 0, cut_short = 0, exact_within_limit = 0;

void check_query(Random& random, const Stock& stock, const AskedShape& shape, Order order, const std::string& where) {
    const Asked asked = random_query(random, stock, shape);
    const double length_norm = random.pick(std::vector<double>{0, 0.5, 1});
    const Scaling scaling = random_scaling(random, shape.coarse);
    const Twin twin(asked, order, length_norm, scaling);
    const std::vector<Found> ranking = twin.ranking(stock.alive);
    Ready ready(stock, asked.floor, shape.slots, scaling);
    const bool dense = stock.vocabulary <= 2000 && random.one_in(8);
    const std::vector<double> fractions{0.001, 0.01, 0.1, 0.5, 1.0};
    for (const double fraction : {-1.0, random.pick(fractions)}) {
        if (fraction < 0) {
            ready.no_filter();
        } else {
            const uint64_t salt = random.next();
            ready.filter([&](uint32_t document) {
                return static_cast<double>(hash_key(salt ^ document) >> 11) * 0x1p-53 < fraction;
            });
        }
        const Case asking(stock, ready, asked, order, length_norm, dense, ranking,
                          where + " order " + shown(order) + " slots " + shown(shape.slots) + " candidates " +
                              shown(shape.candidates) + " floor " + shown(shape.floor) + " coarse " + shown(shape.coarse) +
                              " norm " + shown(length_norm) + " factors " + shown(!scaling.values.empty()) + " allowed " + shown(fraction));
        results += asking.found().size();
        std::vector<Engine> engines(std::begin(exact_engines), std::end(exact_engines));
        if (ready.space.filtered) engines.push_back(Engine::enumerate);
        const size_t k = random.pick(std::vector<size_t>{1, 10, 100, 5000}), other_k = random.below(40);
        for (const Engine engine : engines) {
            asking.check_docids(engine, k);
            asking.check_docids(engine, other_k);
        }
        asking.check_named(5);
        const uint64_t top = random.pick(std::vector<uint64_t>{1, 3, 0});
        const std::vector<FoundDocument> documents = asking.documents(top);
        for (const Engine engine : engines) asking.check_documents(engine, k, top, documents);
        if (order == Order::any && shape.floor == FloorKind::zero && top != 1)
            asking.check_documents(Engine::accumulate, k, top, documents);
        if (order != Order::assigned && stock.alive.size() <= 10000)
            asking.check_beam(twin, random.pick(std::vector<size_t>{1, 5, 60}), k);
        for (const Engine engine : {Engine::brute_force, Engine::best_first, Engine::inverted}) {
            const uint64_t rows = stock.table->rows();
            const uint64_t limit = random.pick(std::vector<uint64_t>{1, 7, 50, 400, rows / 3 + 1, rows * 3});
            const bool exact = asking.check_limited(engine, k, limit);
            ++(exact ? exact_within_limit : cut_short);
            asking.check_limited_documents(engine, std::min<size_t>(k, 100), top, limit, documents);
        }
    }
}

void test_against_twin() {
    Random random(11);
    struct Plan {
        StockShape stock;
        uint32_t queries;
    };
    const Plan plans[] = {
        {{300, 50, 120, 12, true}, 30},         {{300, 3000, 400, 8, false}, 20},   {{1000, 400, 30, 40, true}, 24},
        {{1000, 50000, 500, 6, true}, 8},       {{3000, 200, 2000, 10, false}, 18}, {{3000, 5000, 1000, 10, true}, 18},
        {{6000, 50, 3000, 7, true}, 12},        {{10000, 2000, 8000, 16, true}, 9}, {{10000, 20000, 900, 6, true}, 6},
        {{30000, 1000, 20000, 10, true}, 6},    {{30000, 50000, 10000, 5, true}, 6}, {{30000, 10000, 30000, 9, false}, 6},
    };
    for (const auto& [shape, queries] : plans) {
        const auto stock = random_stock(random, shape);
        for (uint32_t q = 0; q < (sanitized ? queries : 3 * queries); ++q) {
            const auto order = static_cast<Order>(q % 3);
            // The twin goes through all sets of slots.
            uint32_t slots = 1 + random.below(order == Order::assigned ? 6 : 10);
            if (order != Order::assigned && shape.longest > 20 && random.one_in(3)) slots = most_slots;
            AskedShape asked{slots, 0, static_cast<FloorKind>(random.below(4)), order == Order::assigned || random.one_in(2)};
            // Mostly few candidates, whose look-up is hashed; at times so many that it is direct.
            const uint32_t few = std::max(1u, shape.vocabulary / (order == Order::slots ? 12 : 12 * slots));
            asked.candidates = std::min(600u, random.one_in(4) ? shape.vocabulary : 1 + random.below(few));
            check_query(random, *stock, asked, order,
                        "docids " + shown(shape.docids) + " vocabulary " + shown(shape.vocabulary) + " query " + shown(q));
        }
    }
    std::printf("%llu docids found; with a limit %llu exact, %llu not\n", static_cast<unsigned long long>(results),
                static_cast<unsigned long long>(exact_within_limit), static_cast<unsigned long long>(cut_short));
    CHECK(results > 10000);
    CHECK(cut_short > 20);
    CHECK(exact_within_limit > 20);
}

void test_empty_tables() {
    for (const uint32_t vocabulary : {1u, 3u, 1000u})
        for (const FloorKind kind : {FloorKind::strict, FloorKind::finite}) {
            Stock stock;
            stock.vocabulary = vocabulary;
            stock.documents = 3;
            stock.store = build_table({}, vocabulary, 3);
            stock.table.emplace(stock.store.arrays());
            stock.rank = {2, 0, 1};
            Asked asked;
            asked.slots = {{{0, -1.0f}}, {}};
            asked.ends = {0, 0};
            if (kind == FloorKind::finite) asked.floor.assign(vocabulary, -3);
            Ready ready(stock, asked.floor, 2);
            ready.filter([](uint32_t) { return true; });
            const AskedArrays arrays(asked);
            for (const Order order : {Order::slots, Order::any, Order::assigned})
                for (const Engine engine : {Engine::brute_force, Engine::best_first, Engine::inverted, Engine::enumerate,
                                            Engine::beam})
                    for (const bool documents : {false, true}) {
                        if (engine == Engine::beam && order == Order::assigned) continue;
                        const Answer answer = decode(ready.space, ready.floor, ready.by_floor, arrays.view(),
                                                     {10, order, 0, engine, 0, documents, 0, 4});
                        CHECK(answer.hits.empty());
                        CHECK_EQ(answer.exact, engine != Engine::beam);
                    }
        }
}

void test_errors() {
    Random random(12);
    const auto stock = random_stock(random, {50, 20, 30, 4, false});
    Asked asked = random_query(random, *stock, {3, 5, FloorKind::strict, true});
    const Ready ready(*stock, {}, 3);
    const AskedArrays arrays(asked);
    const auto with = [&](auto change, DecodeOptions options = {}) {
        SlotScores scores = arrays.view();
        change(scores);
        return decode(ready.space, ready.floor, ready.by_floor, scores, options);
    };
    const auto same = [](SlotScores&) {};
    with(same);
    const std::string fit = "do not fit the number of slots";
    using S = SlotScores&;
    CHECK_THROWS(std::invalid_argument, "0 slots", with([](S s) { s.ends = {}; }));
    const std::vector<float> many(most_slots + 1);
    CHECK_THROWS(std::invalid_argument, "33 slots", with([&](S s) { s.ends = many; }));
    CHECK_THROWS(std::invalid_argument, fit, with([](S s) { s.ends = s.ends.first(2); }));
    CHECK_THROWS(std::invalid_argument, fit, with([](S s) { s.offsets = s.offsets.first(3); }));
    CHECK_THROWS(std::invalid_argument, fit, with([](S s) { s.scores = s.scores.first(s.scores.size() - 1); }));
    CHECK_THROWS(std::invalid_argument, fit, with([](S s) { s.dense = true; }));
    const auto all = static_cast<int64_t>(arrays.view().tokens.size());
    const std::vector<std::vector<int64_t>> wrong{{-1, 1, 2, 3}, {0, 2, 1, 3}, {0, 1, 2, all + 1}, {0, all + 1, all + 1, all + 1}};
    for (const std::vector<int64_t>& offsets : wrong)
        CHECK_THROWS(std::invalid_argument, fit, with([&](S s) { s.offsets = offsets; }));
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        const std::vector<float> scores(arrays.view().scores.size(), bad), ends{0, bad, 0}, dense(3 * 20, bad);
        CHECK_THROWS(std::invalid_argument, "a score is", with([&](S s) { s.scores = scores; }));
        CHECK_THROWS(std::invalid_argument, "an end score is", with([&](S s) { s.ends = ends; }));
        CHECK_THROWS(std::invalid_argument, "a score is", with([&](S s) { s.scores = dense, s.dense = true; }));
        CHECK_THROWS(std::invalid_argument, "a floor is", Floor(std::vector<float>{0, bad}));
        CHECK_THROWS(std::invalid_argument, "length_norm", with(same, {10, Order::slots, double{bad}}));
    }
    const std::vector<uint32_t> tokens(arrays.view().tokens.size(), 20);
    CHECK_THROWS(std::out_of_range, "token id 20", with([&](S s) { s.tokens = tokens; }));
    CHECK_THROWS(std::invalid_argument, "length_norm", with(same, {10, Order::slots, -0.5}));
    CHECK_THROWS(std::invalid_argument, "give a filter", with(same, {10, Order::slots, 0, Engine::enumerate}));
    CHECK_THROWS(std::invalid_argument, "the beam knows", with(same, {10, Order::assigned, 0, Engine::beam}));
    CHECK_THROWS(std::invalid_argument, "the floor has 3 values",
                 decode(ready.space, Floor({1, 2, 3}), {}, arrays.view(), DecodeOptions{}));

    const std::vector<uint8_t> classes(stock->table->rows(), 7);
    std::vector<float> values(Factors::kinds, 2.0f);
    const auto factors = [&](size_t less) { return Factors(*stock->table, std::span(classes).subspan(less), values); };
    CHECK_EQ(factors(0).most(), 2.0);
    CHECK_THROWS(std::invalid_argument, "give a class for each docid", factors(1));
    for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        values[3] = bad;  // no docid has it
        CHECK_THROWS(std::invalid_argument, "above 0", factors(0));
    }
    values.pop_back();
    CHECK_THROWS(std::invalid_argument, "and 255 values", factors(0));

    Stock bare;
    bare.vocabulary = stock->vocabulary;
    bare.documents = 1;
    const std::vector<Record> records{{{1, 2}, 0}, {{3}, 0}};
    bare.store = build_table(records, bare.vocabulary, 1, false);
    bare.table.emplace(bare.store.arrays());
    const Ready unindexed(bare, {}, 3);
    const auto ask = [&](Engine engine, bool documents, uint64_t top) {
        return decode(unindexed.space, unindexed.floor, {}, arrays.view(), {10, Order::slots, 0, engine, 0, documents, top, 5});
    };
    CHECK_THROWS(std::invalid_argument, "without its index", ask(Engine::inverted, false, 1));
    CHECK_THROWS(std::invalid_argument, "without its index", ask(Engine::automatic, true, 3));
    for (const Engine engine : {Engine::automatic, Engine::brute_force, Engine::best_first, Engine::beam}) ask(engine, true, 1);
}

void test_threads() {
    Random random(13);
    const auto stock = random_stock(random, {4000, 800, 1500, 8, true});
    const Asked asked = random_query(random, *stock, {5, 60, FloorKind::mixed, false});
    Scaling scaling{std::vector<float>(Factors::kinds, 0.75f), 5};
    for (size_t i = 0; i < scaling.values.size(); i += 3) scaling.values[i] = 2.5f;
    Ready ready(*stock, asked.floor, 5, scaling);
    ready.filter([](uint32_t document) { return document % 3 != 0; });
    const AskedArrays arrays(asked);
    std::vector<DecodeOptions> choices;
    for (const Engine engine : {Engine::brute_force, Engine::best_first, Engine::inverted, Engine::enumerate, Engine::beam})
        for (const Order order : {Order::slots, Order::any})
            for (const bool documents : {false, true}) choices.push_back({25, order, 0.5, engine, 0, documents, 3, 10});
    const auto ask = [&](const DecodeOptions& options) {
        std::vector<std::tuple<uint32_t, uint32_t, uint32_t, double>> hits;
        for (const Hit& hit : decode(ready.space, ready.floor, ready.by_floor, arrays.view(), options).hits)
            hits.emplace_back(hit.place.segment, hit.place.row, hit.document, hit.score);
        return hits;
    };
    std::vector<decltype(ask(choices[0]))> alone;
    for (const DecodeOptions& options : choices) alone.push_back(ask(options));
    CHECK(!alone[0].empty());
    std::atomic<uint32_t> wrong{0};
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < 4; ++thread)
        threads.emplace_back([&, thread] {
            for (size_t i = 0; i < 2 * choices.size(); ++i) {
                const size_t w = (i * 7 + thread * 5) % choices.size();
                wrong += ask(choices[w]) != alone[w];
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK_EQ(wrong.load(), 0u);
}

}  // namespace

int main() {
    test_errors();
    test_empty_tables();
    test_threads();
    test_against_twin();
    return checks_done();
}
