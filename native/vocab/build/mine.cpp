#include "vocab/build/mine.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "common/hash.hpp"

namespace pixnar {
namespace {

struct Record {
    uint64_t key;
    uint32_t weight;
} __attribute__((packed));

constexpr unsigned partition_bits = 8;
constexpr uint32_t partitions = 1u << partition_bits;

unsigned partition_of(uint64_t hash, unsigned slice_bits) {
    return static_cast<unsigned>(hash << slice_bits >> (64 - partition_bits));
}

// Counts one partition's keys in a table of its own.
class LocalCounter {
  public:
    void prepare(size_t keys) {
        const size_t size = power_of_two_above(keys * 2);
        table_.assign(size, Counted{free_key, 0});
    }
    void add(uint64_t key, uint64_t weight) {
        size_t i = hash_key(key) & (table_.size() - 1);
        while (table_[i].key != key && table_[i].key != free_key) i = (i + 1) & (table_.size() - 1);
        table_[i].key = key;
        table_[i].count += weight;
    }
    void collect(uint64_t floor, std::vector<Counted>& out) const {
        for (const Counted& entry : table_)
            if (entry.key != free_key && entry.count >= floor) out.push_back(entry);
    }

  private:
    static constexpr uint64_t free_key = ~uint64_t{0};
    std::vector<Counted> table_;
};

}  // namespace

void Grams::spell(uint32_t id, std::vector<uint32_t>& out) const {
    out.clear();
    for (; id >= units; id = at(id).prefix) out.push_back(at(id).last);
    out.push_back(id);
    std::reverse(out.begin(), out.end());
}

std::vector<Counted> count_pairs(Sequences& sequences, const Level& level, uint64_t floor, uint64_t budget,
                                 const Workers& workers) {
    // How many pairs there are decides in how many slices of the key space they are counted.
    std::vector<uint64_t> found(workers.threads);
    sequences.visit(workers.silent(), false, [&](const auto&, std::span<uint32_t> values, unsigned thread) {
        uint64_t n = 0;
        for (size_t i = 0; i + 1 < values.size(); ++i) {
            if (values[i] == sentinel) ++i;  // its weight is no unit
            else n += level.has(values[i]) && level.has(values[i + 1]);
        }
        found[thread] += n;
    });
    uint64_t pairs = 0;
    for (const uint64_t n : found) pairs += n;
    unsigned slice_bits = 0;
    while (slice_bits < 16 && (pairs * sizeof(Record) * 2 >> slice_bits) > budget) ++slice_bits;

    std::vector<Counted> survivors;
    for (uint64_t slice = 0; slice < uint64_t{1} << slice_bits; ++slice) {
        std::vector<std::vector<std::vector<Record>>> buckets(workers.threads);
        for (auto& own : buckets) own.resize(partitions);
        sequences.visit(workers, false, [&](const auto&, std::span<uint32_t> values, unsigned thread) {
            auto& own = buckets[thread];
            for_each_sequence(values, 0, [&](uint32_t weight, std::span<uint32_t> units, uint64_t) {
                for (size_t i = 0; i + 1 < units.size(); ++i) {
                    if (!level.has(units[i]) || !level.has(units[i + 1])) continue;
                    const uint64_t key = level.key(units[i], units[i + 1]), hash = hash_key(key);
                    if (slice_bits > 0 && hash >> (64 - slice_bits) != slice) continue;
                    own[partition_of(hash, slice_bits)].push_back({key, weight});
                }
            });
        });
        std::vector<std::vector<Counted>> kept(partitions);
        std::vector<LocalCounter> counters(workers.threads);
        workers.silent().run(partitions, [&](size_t p, unsigned thread) {
            size_t keys = 0;
            for (const auto& own : buckets) keys += own[p].size();
            if (keys == 0) return;
            LocalCounter& counter = counters[thread];
            counter.prepare(std::min<size_t>(keys, size_t{1} << 30));
            for (auto& own : buckets) {
                for (const Record& record : own[p]) counter.add(record.key, record.weight);
                own[p] = {};
            }
            counter.collect(floor, kept[p]);
        });
        for (const auto& part : kept) survivors.insert(survivors.end(), part.begin(), part.end());
    }
    std::ranges::sort(survivors, {}, &Counted::key);
    return survivors;
}

void extend(std::span<uint32_t> values, const Level& level, const IdMap& ids) {
    constexpr size_t ahead = 12;
    for (size_t i = 0; i + 1 < values.size(); ++i) {
        if (const size_t j = i + ahead; j + 1 < values.size() && level.has(values[j]) && level.has(values[j + 1]))
            ids.prefetch(level.key(values[j], values[j + 1]));
        if (values[i] == sentinel) {
            ++i;  // its weight is no unit
            continue;
        }
        if (!level.has(values[i]) || !level.has(values[i + 1])) continue;
        if (const uint32_t id = ids.find(level.key(values[i], values[i + 1]))) values[i] = (values[i] & ~id_mask) | id;
    }
}

uint32_t Miner::take(std::vector<Counted>& pairs) {
    const uint32_t first = grams_.size();
    const auto words = [&](uint64_t key) -> uint32_t {
        const auto left = static_cast<uint32_t>(key >> 32), right = static_cast<uint32_t>(key) >> 1;
        const bool blank = length_ == 2 ? key & 1 : (grams_.at(right).last & blank_flag) != 0;
        return (length_ == 2 ? 1 : grams_.at(left).words) + blank;
    };
    std::erase_if(pairs, [&](const Counted& entry) { return words(entry.key) > limits_.most_words; });
    if (uint64_t{first} + pairs.size() >= most_ids)
        throw std::length_error("more than a thousand million candidates; raise min-count");
    for (const Counted& entry : pairs) {
        const auto left = static_cast<uint32_t>(entry.key >> 32), right = static_cast<uint32_t>(entry.key) >> 1;
        const uint32_t last = length_ == 2 ? right | (entry.key & 1 ? blank_flag : 0) : grams_.at(right).last;
        grams_.grams.push_back({left, right, last, static_cast<uint16_t>(length_), static_cast<uint16_t>(words(entry.key))});
        grams_.counts.push_back(entry.count);
    }
    level_ = {first, grams_.size()};
    ++length_;
    return first;
}

Grams mine(Sequences& sequences, const MineLimits& limits, const Scratch& scratch, const Workers& workers) {
    Miner miner(limits);
    while (miner.more()) {
        const uint64_t held = miner.grams().grams.size() * (sizeof(Grams::Gram) + 8);
        const uint64_t budget = std::max<uint64_t>(scratch.left() > held ? (scratch.left() - held) / 2 : 0, 64u << 20);
        const Level level = miner.level();
        const Workers stage = workers.named(workers.stage + ", " + std::to_string(miner.length()) + " units");
        std::vector<Counted> kept = count_pairs(sequences, level, limits.floor, budget, stage);
        const uint32_t first = miner.take(kept);
        if (kept.empty()) break;
        const IdMap ids(kept, first);
        kept = {};
        sequences.visit(workers.silent(), true,
                        [&](const auto&, std::span<uint32_t> values, unsigned) { extend(values, level, ids); });
    }
    return miner.finish();
}

}  // namespace pixnar
