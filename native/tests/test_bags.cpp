#include <stdexcept>
#include <vector>

#include "head/bags.hpp"
#include "tests/check.hpp"
#include "tests/random.hpp"

using namespace pixnar;
using namespace pixnar::head;
using namespace pixnar::test;

namespace {

// Whole numbers, so that every sum is exact in any order.
std::vector<float> numbers(Random& random, size_t count) {
    std::vector<float> out(count);
    for (float& value : out) value = static_cast<float>(static_cast<int>(random.below(19)) - 9);
    return out;
}

struct Case {
    std::vector<uint32_t> ids;
    std::vector<int64_t> offsets{0};
    size_t rows;

    Case(Random& random, size_t bags, size_t rows) : rows(rows) {
        for (size_t i = 0; i < bags; ++i) {
            for (uint32_t n = random.below(6); n > 0; --n) ids.push_back(random.below(static_cast<uint32_t>(rows)));
            offsets.push_back(static_cast<int64_t>(ids.size()));
        }
    }
    Bags bags() const { return {ids, offsets}; }

    // A · dense, [bags, width], straight from the definition.
    std::vector<float> sums(const std::vector<float>& dense, size_t width) const {
        std::vector<float> out((offsets.size() - 1) * width);
        for (size_t i = 0; i + 1 < offsets.size(); ++i)
            for (int64_t j = offsets[i]; j < offsets[i + 1]; ++j)
                for (size_t c = 0; c < width; ++c) out[i * width + c] += dense[ids[j] * width + c];
        return out;
    }

    // out + Aᵀ · values.
    std::vector<float> scattered(std::vector<float> out, const std::vector<float>& values, size_t width) const {
        for (size_t i = 0; i + 1 < offsets.size(); ++i)
            for (int64_t j = offsets[i]; j < offsets[i + 1]; ++j)
                for (size_t c = 0; c < width; ++c) out[ids[j] * width + c] += values[i * width + c];
        return out;
    }
};

void test_products() {
    Random random(1);
    for (const size_t bags : {0, 1, 7, 200})
        for (const size_t width : {1, 63, 64, 65, 200})
            for (const unsigned threads : {1u, 2u, 4u}) {
                const Case made(random, bags, 1 + random.below(30));
                made.bags().check(made.rows);
                const Workers workers{threads, {}, {}};
                const auto dense = numbers(random, made.rows * width), values = numbers(random, bags * width);
                const auto start = numbers(random, made.rows * width);
                std::vector<float> sums(bags * width, 5.0f);  // what was there before does not count
                bag_sums(made.bags(), dense.data(), width, sums.data(), workers);
                CHECK_EQ(sums, made.sums(dense, width));
                auto out = start;
                bag_scatter(made.bags(), values.data(), width, out.data(), workers);
                CHECK_EQ(out, made.scattered(start, values, width));
                out = start;
                bag_gram(made.bags(), dense.data(), width, out.data(), workers);
                CHECK_EQ(out, made.scattered(start, sums, width));
            }
}

void test_bad_bags() {
    const std::vector<uint32_t> ids{0, 2, 1};
    const auto check = [&](std::vector<int64_t> offsets, size_t rows) { Bags{ids, offsets}.check(rows); };
    check({0, 1, 1, 3}, 3);
    CHECK_THROWS(std::invalid_argument, "token id 2 is not below 2", check({0, 1, 1, 3}, 2));
    for (const std::vector<int64_t>& wrong : std::vector<std::vector<int64_t>>{
             {}, {3}, {0}, {0, 2}, {0, 4}, {1, 3}, {0, 2, 1, 3}, {0, -1, 3}, {0, 4, 3}})
        CHECK_THROWS(std::invalid_argument, "offsets do not fit", check(wrong, 3));
}

}  // namespace

int main() {
    test_products();
    test_bad_bags();
    return checks_done();
}
