#include <cstdio>
#include <stdexcept>
#include <vector>

#include "tests/check.hpp"
#include "tests/random.hpp"
#include "tests/sanitized.hpp"
#include "tests/search_spaces.hpp"
#include "tests/table_damage.hpp"

using namespace pixnar;
using namespace pixnar::test;

namespace {

uint64_t refused = 0, used = 0;

// Arrays are either refused, or what they say does no harm.
void use(TableStore& store, const DocidTable* added, Random& random) {
    fit_tightly(store);
    std::optional<DocidTable> table;
    try {
        table.emplace(store.arrays());
    } catch (const std::invalid_argument&) {
        ++refused;
        return;
    }
    ++used;
    CHECK(consistent(*table, random));
    CHECK(decode_all(*table, added, random));
    if (added != nullptr && random.one_in(4)) CHECK(decode_all(*added, &*table, random));
}

// Bytes and words change where they stand; all sizes stay.
template <class T> void scramble(std::vector<T>& array, Random& random) {
    if (array.empty()) return;
    const uint32_t changes = random.one_in(6) ? static_cast<uint32_t>(array.size()) / 2 + 1 : 1 + random.below(6);
    for (uint32_t n = 0; n < changes; ++n) {
        T& at = array[random.below(static_cast<uint32_t>(array.size()))];
        switch (random.below(5)) {
            case 0: at = static_cast<T>(at ^ T{1} << random.below(8 * sizeof(T))); break;
            case 1: at = static_cast<T>(at ^ T{0xff} << 8 * random.below(sizeof(T))); break;
            case 2: at = static_cast<T>(random.next()); break;
            case 3: at = static_cast<T>(at + random.below(5) - 2); break;
            default: at = random.pick(array); break;
        }
    }
}

std::vector<std::unique_ptr<Stock>> stocks() {
    Random random(21);
    std::vector<std::unique_ptr<Stock>> made;
    for (const StockShape& shape : std::vector<StockShape>{{400, 60, 150, 9, true}, {60, 3, 5, 40, true}, {500, 2000, 90, 4, true},
                                                           {3, 1, 1, 2, true}, {300, 300, 300, 3, true}})
        made.push_back(random_stock(random, shape));
    return made;
}

void test_changed_values() {
    Random random(22);
    const auto good = stocks();
    for (uint32_t round = 0; round < (sanitized ? 200u : 400u) * table_arrays; ++round) {
        const Stock& stock = *good[random.below(static_cast<uint32_t>(good.size()))];
        TableStore spoiled = stock.store;
        on_array(spoiled, round % table_arrays, [&](auto& array) { scramble(array, random); });
        if (random.one_in(3))  // and another one
            on_array(spoiled, 1 + random.below(table_arrays - 1), [&](auto& array) { scramble(array, random); });
        use(spoiled, random.one_in(2) ? &*stock.added : nullptr, random);
    }
    CHECK(used > 1000);
}

// The same with arrays that become longer or shorter.
void test_changed_sizes() {
    Random random(23);
    const auto good = stocks();
    for (uint32_t round = 0; round < (sanitized ? 200u : 400u) * table_arrays; ++round) {
        const Stock& stock = *good[random.below(static_cast<uint32_t>(good.size()))];
        TableStore spoiled = random.one_in(3) ? stock.added_store : stock.store;
        for (uint32_t n = random.below(3); n < 3; ++n)
            on_array(spoiled, round % table_arrays, [&](auto& array) {
                spoil(array, random.below(64), random.below(1u << 20), random.below(4), random.next());
            });
        use(spoiled, random.one_in(2) ? &*stock.added : nullptr, random);
    }
    CHECK(refused > 100);
}

// Every number of the shape, with every value at which a check might be off.
void test_shapes() {
    Random random(24);
    for (const auto& stock : stocks()) {
        for (size_t i = 0; i < stock->store.shape.size(); ++i) {
            const uint64_t good = stock->store.shape[i];
            for (const uint64_t value : std::vector<uint64_t>{0, 1, 2, 31, 32, 33, 65536, 65537, 0xfffffffe, 0xffffffff, 1ull << 32,
                                                              (1ull << 40) - 1, 1ull << 40, 1ull << 63, ~0ull, good + 1, good - 1,
                                                              2 * good}) {
                if (sanitized && random.one_in(2)) continue;
                TableStore spoiled = stock->store;
                spoiled.shape[i] = value;
                use(spoiled, &*stock->added, random);
            }
        }
        // Without rows, documents or classes.
        for (const std::vector<uint64_t>& shape : std::vector<std::vector<uint64_t>>{
                 {}, {0}, std::vector<uint64_t>(8), {5, 0, 0, 0, 0, 0, 0, 0}, {5, 0, 9, 0, 0, 0, 0, 0}, {5, 0, 0, 0, 0, 1, 0, 0},
                 {5, 0, 3, 0, 32, 1, 0, 9}, {0, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 0, 1, 1, 1, 1, 1, 1, 1},
                 {1, 1, 1, 0, 1, 0, 1, 0, 1, 1},
                 {0xfffffffe, 0, 0xfffffffe, 0, 0, 0, 0, 0}, {0xfffffffe, 0, 3, 7, 32, 0, 0, 7}}) {
            TableStore spoiled = stock->store;
            spoiled.shape = shape;
            use(spoiled, nullptr, random);
        }
    }
}

}  // namespace

int main() {
    test_changed_values();
    test_changed_sizes();
    test_shapes();
    std::printf("%llu tables used, %llu refused\n", static_cast<unsigned long long>(used),
                static_cast<unsigned long long>(refused));
    return checks_done();
}
