#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <stdexcept>
#include <vector>

#include "head/dispatch.hpp"
#include "head/lists.hpp"
#include "head/score.hpp"
#include "head/top.hpp"
#include "tests/check.hpp"
#include "tests/random.hpp"
#include "tests/sanitized.hpp"

using namespace pixnar;
using namespace pixnar::head;
using namespace pixnar::test;

namespace {

float number(Random& random) { return static_cast<float>(static_cast<int>(random.below(2001)) - 1000) / 500.0f; }

std::vector<float> numbers(Random& random, size_t count) {
    std::vector<float> out(count);
    for (float& value : out) value = number(random);
    return out;
}

// Rows with exactly as many bytes as they need, so that a read past the end is seen.
struct Store {
    std::vector<uint8_t> data;
    std::vector<float> scales, bias;
    std::vector<uint32_t> places;
    Rows rows;

    Store(Random& random, RowFormat format, uint32_t count, uint32_t dim) {
        const size_t stride = stride_for(format, dim);
        data.resize(count * stride);
        for (uint32_t row = 0; row < count; ++row) {
            uint8_t* at = data.data() + row * stride;
            for (uint32_t j = 0; j < dim; ++j) {
                const float value = number(random);
                const auto small = static_cast<uint16_t>(0x3800 | (random.next() & 0x83ff));  // a half between 0.5 and 1
                uint32_t bits;
                std::memcpy(&bits, &value, 4);
                const auto top = static_cast<uint16_t>(bits >> 16);
                if (format == RowFormat::int8) at[j] = static_cast<uint8_t>(static_cast<int>(random.below(255)) - 127);
                else if (format == RowFormat::float32) std::memcpy(at + 4 * j, &value, 4);
                else if (format == RowFormat::float16) std::memcpy(at + 2 * j, &small, 2);
                else if (format == RowFormat::bfloat16) std::memcpy(at + 2 * j, &top, 2);
                else at[j / 128 * 64 + j % 64] |= static_cast<uint8_t>(random.below(16) << (j % 128 < 64 ? 0 : 4));
            }
        }
        if (has_scales(format)) scales = numbers(random, count);
        if (random.one_in(2)) bias = numbers(random, count);
        if (random.one_in(2)) {
            for (uint32_t i = 0; i < count; ++i) places.push_back(i);
            random.shuffle(places);
        }
        rows = {data, format, count, dim, stride, scales, bias, places};
        rows.check();
    }
};

std::vector<uint32_t> some_ids(Random& random, uint32_t count, size_t size) {
    std::vector<uint32_t> ids(size);
    for (uint32_t& id : ids) id = random.below(count);
    return ids;
}

constexpr RowFormat all_formats[] = {RowFormat::int8, RowFormat::float32, RowFormat::float16, RowFormat::bfloat16,
                                     RowFormat::int4};

// Every path gives the same bits as the portable one; so do other numbers of threads.
void test_paths_agree() {
    Random random(1);
    for (const RowFormat format : all_formats)
        for (const uint32_t dim : {1u, 31u, 32u, 64u, 65u, 129u, 384u})
            for (int round = 0; round < (sanitized ? 2 : 6); ++round) {
                const uint32_t count = 1 + random.below(round == 0 ? 9000 : 600);
                const size_t slots = 1 + random.below(11);
                const Store store(random, format, count, dim);
                const auto x = numbers(random, slots * dim);
                const auto ids = some_ids(random, count, 1 + random.below(round == 0 ? 9000 : 600));
                const Tokens listed{ids.data(), ids.size()}, all{nullptr, count};
                use_path("portable");
                const auto wanted = logits(store.rows, x, slots, listed, 1), whole = logits(store.rows, x, slots, all, 1);
                for (size_t t = 0; t < slots; ++t)
                    CHECK_EQ(wanted[t * ids.size()], whole[t * count + ids[0]]);
                for (const Kernels* path : runnable()) {
                    use_path(path->name);
                    for (const unsigned threads : {1u, 3u}) {
                        const auto found = logits(store.rows, x, slots, listed, threads);
                        CHECK(std::memcmp(found.data(), wanted.data(), 4 * wanted.size()) == 0);
                        CHECK(logits(store.rows, x, slots, all, threads) == whole);
                    }
                }
            }
    use_path("");
}

void test_int8_by_hand() {
    Random random(2);
    for (int round = 0; round < 30; ++round) {
        const uint32_t count = 1 + random.below(50), dim = 1 + random.below(200);
        const Store store(random, RowFormat::int8, count, dim);
        std::vector<float> x(dim);
        for (float& value : x) value = static_cast<float>(static_cast<int>(random.below(255)) - 127);
        x[0] = 127;  // so that the scale is 1
        const auto found = logits(store.rows, x, 1, {nullptr, count}, 1);
        for (uint32_t token = 0; token < count; ++token) {
            const size_t place = store.rows.place(token);
            int32_t dot = 0;
            for (uint32_t j = 0; j < dim; ++j)
                dot += static_cast<int8_t>(store.data[place * store.rows.stride + j]) * static_cast<int>(x[j]);
            float wanted = static_cast<float>(dot) * store.scales[place];
            if (!store.bias.empty()) wanted += store.bias[place];
            CHECK_EQ(found[token], wanted);
        }
    }
}

void test_top() {
    Random random(3);
    for (int round = 0; round < (sanitized ? 20 : 100); ++round) {
        const uint32_t count = 1 + random.below(3000);
        const size_t slots = 1 + random.below(4), n = random.below(900);
        Store store(random, RowFormat::int8, count, 1 + random.below(5));
        if (!store.bias.empty() && random.one_in(2)) store.bias[0] = std::numeric_limits<float>::quiet_NaN();
        const auto x = numbers(random, slots * store.rows.dim);
        const auto ids = some_ids(random, count, random.below(5000));
        const Tokens listed{ids.data(), ids.size()};
        const auto values = logits(store.rows, x, slots, listed, 1);
        std::vector<std::vector<Best>> wanted(slots);
        for (size_t t = 0; t < slots; ++t) {
            std::set<Best> best;
            for (size_t i = 0; i < ids.size(); ++i)
                if (!std::isnan(values[t * ids.size() + i])) best.insert({values[t * ids.size() + i], ids[i]});
            for (auto one = best.begin(); one != best.end() && wanted[t].size() < n; ++one) wanted[t].push_back(*one);
        }
        const auto same = [&](const std::vector<std::vector<Best>>& found) {
            for (size_t t = 0; t < slots; ++t)
                CHECK(std::equal(found[t].begin(), found[t].end(), wanted[t].begin(), wanted[t].end(),
                                 [](const Best& a, const Best& b) { return a.logit == b.logit && a.token == b.token; }));
        };
        std::vector<uint32_t> each;
        std::vector<int64_t> offsets{0};
        for (size_t t = 0; t < slots; ++t) {
            each.insert(each.end(), ids.begin(), ids.end());
            offsets.push_back(static_cast<int64_t>(each.size()));
        }
        for (const unsigned threads : {1u, 2u, 7u}) {
            if (!ids.empty()) same(top(store.rows, x, slots, listed, n, threads));
            same(top_each(store.rows, x, slots, each, offsets, n, threads));
        }
    }
}

// log Z is that of doubles, whatever the path and the number of threads.
void test_scores() {
    Random random(4);
    for (int round = 0; round < 40; ++round) {
        const uint32_t count = 2 + random.below(9000);
        Store store(random, RowFormat::int8, count, 7);
        for (float& scale : store.scales) scale /= 200;  // exponentials of the logits are doubles
        const auto x = numbers(random, 3 * 7), priors = numbers(random, count - 1), ends = numbers(random, 2);
        const std::vector<float> log_z(3);
        const ScoreRule rule{Matching::slots, true, true, 0.3, 0.5, 2.0, false, {}, priors, ends, log_z};
        const std::vector<uint32_t> own{random.below(count - 1)};
        const auto values = logits(store.rows, x, 3, {nullptr, count}, 1);
        std::vector<float> first;
        for (const Kernels* path : runnable()) {
            use_path(path->name);
            for (const unsigned threads : {1u, 2u}) {
                const Scores found = score(store.rows, rule, x, {nullptr, count - 1}, own, 5, threads);
                CHECK(found.dense && found.scores.size() == 2 * (count - 1) && found.expansion.size() <= 5);
                if (first.empty()) first = found.scores;
                CHECK(std::memcmp(first.data(), found.scores.data(), 4 * first.size()) == 0);
            }
        }
        use_path("");
        double sum = 0;
        for (uint32_t v = 0; v < count; ++v) sum += std::exp(static_cast<double>(values[count + v]));
        for (uint32_t v = 0; v + 1 < count; ++v) {
            double p = 0.7 * std::exp(static_cast<double>(values[count + v])) / sum;
            if (v == own[0]) p += 0.3;
            const double wanted = 2 * (std::log(p) - 0.5 * priors[v]);
            CHECK(std::fabs(first[v] - wanted) < 1e-4 * std::max(1.0, std::fabs(wanted)));
        }
    }
}

void test_union() {
    Random random(5);
    for (int round = 0; round < 100; ++round) {
        const uint32_t vocabulary = 1 + random.below(random.one_in(2) ? 100 : 100000);
        const size_t m = 1 + random.below(9);
        std::vector<int64_t> offsets{0};  // lists of any length, some of them empty
        for (size_t i = 0; i < m; ++i) offsets.push_back(offsets.back() + random.below(200));
        const auto lists = some_ids(random, vocabulary, static_cast<size_t>(offsets.back()));
        const auto extra = some_ids(random, vocabulary, random.below(5));
        std::vector<int64_t> chosen;
        std::set<uint32_t> wanted(extra.begin(), extra.end());
        for (uint32_t n = random.below(5); n > 0; --n) {
            const size_t i = random.below(static_cast<uint32_t>(m));
            chosen.push_back(static_cast<int64_t>(i));
            wanted.insert(lists.begin() + offsets[i], lists.begin() + offsets[i + 1]);
        }
        CHECK_EQ(union_of(lists, offsets, chosen, extra, vocabulary), std::vector<uint32_t>(wanted.begin(), wanted.end()));
    }
    const std::vector<uint32_t> lists{1, 2, 3, 4};
    const std::vector<int64_t> offsets{0, 2, 4}, wrong{0, 5, 4};
    CHECK_THROWS(std::invalid_argument, "no list 2", union_of(lists, offsets, std::vector<int64_t>{2}, {}, 9));
    CHECK_THROWS(std::invalid_argument, "no list -1", union_of(lists, offsets, std::vector<int64_t>{-1}, {}, 9));
    CHECK_THROWS(std::invalid_argument, "token 4", union_of(lists, offsets, std::vector<int64_t>{1}, {}, 4));
    CHECK_THROWS(std::invalid_argument, "among 4 tokens", union_of(lists, wrong, std::vector<int64_t>{0}, {}, 9));
    CHECK_THROWS(std::invalid_argument, "among 4 tokens", union_of(lists, wrong, std::vector<int64_t>{1}, {}, 9));
}

void test_errors() {
    Random random(6);
    const Store store(random, RowFormat::int8, 9, 5);
    const auto x = numbers(random, 5);
    const uint32_t nine = 9;
    CHECK_THROWS(std::invalid_argument, "not among 9", logits(store.rows, x, 1, {&nine, 1}, 1));
    CHECK_THROWS(std::invalid_argument, "not 2 vectors", logits(store.rows, x, 2, {nullptr, 9}, 1));
    CHECK_THROWS(std::invalid_argument, "does not run", use_path("abacus"));
    CHECK_THROWS(std::invalid_argument, "no format", format_named("int7"));
    Rows wrong = store.rows;
    wrong.stride = 100;
    CHECK_THROWS(std::invalid_argument, "stride", (wrong.check(), 0));
    wrong = store.rows;
    wrong.count = 10;
    CHECK_THROWS(std::invalid_argument, "10 rows need", (wrong.check(), 0));
}

}  // namespace

int main() {
    test_paths_agree();
    test_int8_by_hand();
    test_top();
    test_scores();
    test_union();
    test_errors();
    return checks_done();
}
