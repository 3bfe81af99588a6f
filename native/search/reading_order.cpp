#include "search/reading_order.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace pixnar {

namespace {

constexpr double overhead = 16;  // of a list, in rows

uint32_t falling(float value) {  // sorts floats downwards as numbers
    const auto bits = std::bit_cast<uint32_t>(value);
    return bits >> 31 ? bits : ~bits & 0x7fffffffu;
}

// Stable radix sort by falling gain.
void sort_lists(std::vector<List>& lists) {
    struct Key {
        uint32_t key, index;
    };
    const size_t n = lists.size();
    std::vector<Key> keys(n), spare(n);
    for (size_t i = 0; i < n; ++i) keys[i] = {falling(lists[i].gain), static_cast<uint32_t>(i)};
    constexpr unsigned bits = 11;
    for (unsigned shift = 0; shift < 32; shift += bits) {
        size_t starts[(1u << bits) + 1] = {};
        auto digit = [shift](const Key& key) { return key.key >> shift & ((1u << bits) - 1); };
        for (const Key& key : keys) ++starts[digit(key) + 1];
        for (size_t d = 0; d < 1u << bits; ++d) starts[d + 1] += starts[d];
        for (const Key& key : keys) spare[starts[digit(key)]++] = key;
        keys.swap(spare);
    }
    std::vector<List> sorted(n);
    for (size_t i = 0; i < n; ++i) sorted[i] = lists[keys[i].index];
    lists.swap(sorted);
}

// Rows that a list makes us look at; of the first place a guess from the fullest classes.
void measure(const SegmentView& segment, uint32_t longest, std::span<const size_t> fullest, List& list) {
    uint64_t rows = 0;
    for (uint32_t place = list.slot; place < longest; ++place) {
        if (place == 0) {
            for (const size_t c : fullest) {
                const LengthClass& in = segment.classes()[c];
                const auto [from, to] = segment.table.child(in, in.begin, in.end, 0, list.token);
                rows += to - from;
            }
        } else {
            const auto [from, to] = segment.table.occurrences(place, list.token);
            list.from = from;
            rows += to - from;
        }
        if (!segment.query.shared()) break;
    }
    list.rows = static_cast<uint32_t>(std::min<uint64_t>(rows, ~uint32_t{0}));
}

}  // namespace

ReadingOrder::ReadingOrder(SegmentView& segment) {
    const auto& classes = segment.classes();
    for (size_t c = 0; c < classes.size(); ++c) longest = std::max(longest, segment.matched(c));
    sets = segment.query.shared() ? std::min(longest, 1u) : longest;
    // What a token that no list names can score.
    const Floor& floor = segment.scorer.floor();
    const double most_floor = floor.strict() ? nothing : double{floor.most};
    std::vector<size_t> fullest(classes.size());
    std::iota(fullest.begin(), fullest.end(), size_t{0});
    std::stable_sort(fullest.begin(), fullest.end(), [&](size_t a, size_t b) {
        return classes[a].end - classes[a].begin > classes[b].end - classes[b].begin;
    });
    fullest.resize(std::min<size_t>(fullest.size(), 3));

    struct Step {
        double worth;
        uint32_t from, to;
    };
    std::vector<List> sorted;
    for (uint32_t t = 0; t < sets; ++t) {
        const SlotSet& set = segment.query.set(t);
        for (size_t i = 0; i < set.size(); ++i) {
            const Candidate& item = set.item(i);
            sorted.push_back({item.gain, item.score, item.token, item.entry, t, 0, 0});
        }
    }
    sort_lists(sorted);
    for (List& list : sorted) measure(segment, longest, fullest, list);
    // A few short lists with the most gain first: what they find raises the threshold for all others.
    std::vector<std::vector<List>> by_slot(sets);
    for (const List& list : sorted) {
        if (lists.size() < 192 && list.rows < 1024) lists.push_back(list);
        else by_slot[list.slot].push_back(list);
    }
    sorted.clear();
    std::vector<Step> steps;
    std::vector<double> costs;
    std::vector<uint32_t> hull;
    for (const auto& own : by_slot) {
        const auto first = static_cast<uint32_t>(sorted.size()), n = static_cast<uint32_t>(own.size());
        costs.assign(n + 1, 0.0);
        for (uint32_t i = 0; i < n; ++i) costs[i + 1] = costs[i] + overhead + own[i].rows;
        // After k lists the slot still adds at most what list k gains: the lower hull of that over the cost.
        auto left = [&](uint32_t k) { return k < n ? double{own[k].gain} : n > 0 && segment.strict ? own[n - 1].gain - 4.0 : 0.0; };
        auto slope = [&](uint32_t a, uint32_t b) {
            const double drop = left(a) - left(b);
            return std::isnan(drop) ? 0.0 : drop / (costs[b] - costs[a]);  // gains of scores near the largest float
        };
        hull.assign(1, 0);
        for (uint32_t k = 1; k <= n; ++k) {
            while (hull.size() > 1 && slope(hull[hull.size() - 2], hull.back()) <= slope(hull.back(), k)) hull.pop_back();
            hull.push_back(k);
        }
        for (size_t h = 1; h < hull.size(); ++h)
            steps.push_back({slope(hull[h - 1], hull[h]), first + hull[h - 1], first + hull[h]});
        sorted.insert(sorted.end(), own.begin(), own.end());
    }
    std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.worth > b.worth; });
    lists.reserve(lists.size() + sorted.size());
    for (const Step& step : steps) lists.insert(lists.end(), sorted.begin() + step.from, sorted.begin() + step.to);
    for (size_t p = 0; p < lists.size(); ++p)
        segment.query.set(lists[p].slot).set_place(lists[p].entry, static_cast<uint32_t>(p));
    for (size_t end = 0, size = 16; end < lists.size(); size = std::min<size_t>(size * 2, 128)) {
        end = std::min(end + size, lists.size());
        groups.push_back({end, {}, {}});
    }
    double gain[most_slots], score[most_slots];
    for (uint32_t t = 0; t < sets; ++t) {
        gain[t] = segment.query.set(t).missing_gain();
        score[t] = most_floor;
    }
    rest = {lists.size(), {}, {}};
    std::copy_n(gain, sets, rest.gain);
    std::copy_n(score, sets, rest.score);
    size_t p = lists.size();
    for (size_t g = groups.size(); g-- > 0;) {
        for (const size_t begin = g > 0 ? groups[g - 1].end : 0; p > begin; --p) {
            const List& list = lists[p - 1];
            gain[list.slot] = std::max(gain[list.slot], double{list.gain});
            score[list.slot] = std::max(score[list.slot], double{list.score});
        }
        std::copy_n(gain, sets, groups[g].gain);
        std::copy_n(score, sets, groups[g].score);
    }
}

}  // namespace pixnar
