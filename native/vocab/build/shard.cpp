#include "vocab/build/shard.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "common/hash.hpp"
#include "vocab/build/atoms.hpp"
#include "vocab/build/ingest.hpp"

namespace pixnar {
namespace {

// Which of n equal parts of the hash space.
unsigned part_of(uint64_t hash, unsigned n) { return static_cast<unsigned>((static_cast<unsigned __int128>(hash) * n) >> 64); }

}  // namespace

std::vector<std::string> deal_lines(std::string_view lines, unsigned shards) {
    if (shards == 0) throw std::invalid_argument("no shards to deal lines to");
    std::vector<std::string> out(shards);
    while (!lines.empty()) {
        const size_t end = std::min(lines.find('\n'), lines.size());
        if (end > 0) {
            // Not the hash that tells docids apart within a shard: its upper bits would all be alike there.
            std::string& to = out[part_of(hash_key(hash_bytes(lines.data(), end)), shards)];
            to.append(lines.substr(0, end));
            to += '\n';
        }
        lines.remove_prefix(std::min(end + 1, lines.size()));
    }
    return out;
}

struct ShardReader::Work {
    Scratch scratch;
    Ingest ingest;
    Sequences chars;
    Work(bool weighted, uint64_t max_memory, const std::string& folder)
        : scratch{folder, max_memory}, ingest(scratch, weighted), chars(scratch) {}
};

ShardReader::ShardReader(bool weighted, uint64_t max_memory, const std::string& scratch_folder)
    : work_(std::make_unique<Work>(weighted, max_memory, scratch_folder)) {}
ShardReader::~ShardReader() = default;

void ShardReader::add_lines(std::string_view lines) {
    if (!work_) throw std::logic_error("a shard is read once: make a new reader");
    work_->ingest.add_lines(lines);
}

DistinctDocids ShardReader::finish() {
    if (!work_) throw std::logic_error("a shard is read once: make a new reader");
    const std::unique_ptr<Work> work = std::move(work_);
    Ingest& ingest = work->ingest;
    const Workers alone;
    ingest.finish(alone);
    DistinctDocids out;
    out.docids = ingest.distinct();
    out.text_bytes = ingest.text_bytes();
    out.spacing_votes = ingest.spacing().votes();
    // Without a floor an atom's number is its place in byte order. Which gaps depart from the rule is settled when the
    // whole corpus has settled the rule; until then any rule will do.
    const SpacingCounts::Rule any = SpacingCounts().settle();
    AtomCounts atoms = ingest.number_atoms(alone, 0, Spacing(any.chars, any.rule), work->chars);
    out.word_bytes = std::move(atoms.bytes);
    out.word_offsets = std::move(atoms.offsets);
    out.word_counts = std::move(atoms.counts);
    out.values = ingest.docids().copy(0, ingest.docids().blocks());
    return out;
}

Shard::Shard(std::vector<uint32_t> values)
    : scratch_(std::make_unique<Scratch>(Scratch{"", ~uint64_t{0}})), sequences_(*scratch_) {
    sequences_.adopt(std::move(values));
}

void Shard::number_words(std::string_view words, std::span<const uint64_t> offsets, std::span<const uint32_t> numbers,
                         const Spacing& spacing) {
    if (offsets.size() != numbers.size() + 1 || offsets.back() > words.size() || !std::ranges::is_sorted(offsets))
        throw std::invalid_argument("words and their numbers do not fit");
    std::vector<Numbered> found(numbers.size());
    std::vector<uint32_t> spelled;
    for (size_t i = 0; i < numbers.size(); ++i) {
        spell_chars(words.substr(offsets[i], offsets[i + 1] - offsets[i]), spelled);
        if (spelled.empty()) throw std::invalid_argument("a word without a character");
        found[i] = {numbers[i], ends_of(spelled)};
    }
    sequences_.visit(Workers{}, true, [&](const auto&, std::span<uint32_t> values, unsigned) {
        renumber(values, spacing, [&](uint32_t atom) {
            if (atom >= found.size()) throw std::out_of_range("a docid has a word that is not in the shard's list");
            return found[atom];
        });
    });
}

void Shard::extend(const Level& level, std::span<const uint64_t> keys, uint32_t first) {
    const IdMap ids(keys, first);
    sequences_.visit(Workers{}, true,
                     [&](const auto&, std::span<uint32_t> values, unsigned) { pixnar::extend(values, level, ids); });
}

Shard::Pairs Shard::count(const Level& level, unsigned buckets, uint64_t max_memory) {
    if (buckets == 0) throw std::invalid_argument("no buckets to count in");
    const std::vector<Counted> counted = count_pairs(sequences_, level, 1, max_memory, Workers{});
    Pairs out;
    out.borders.resize(buckets + 1);
    const auto bucket = [&](const Counted& pair) { return part_of(hash_key(pair.key), buckets); };
    for (const Counted& pair : counted) ++out.borders[bucket(pair) + 1];
    for (unsigned b = 0; b < buckets; ++b) out.borders[b + 1] += out.borders[b];
    std::vector<uint64_t> at(out.borders.begin(), out.borders.end() - 1);
    out.keys.resize(counted.size());
    out.counts.resize(counted.size());
    for (const Counted& pair : counted) {
        const uint64_t to = at[bucket(pair)]++;
        out.keys[to] = pair.key;
        out.counts[to] = pair.count;
    }
    return out;
}

Shard::Uses Shard::segment(const Choices& choices, std::span<const uint64_t> weights, bool costs, bool lengths) {
    if (!weights.empty() && weights.size() != sequences_.size()) throw std::invalid_argument("as many weights as sequences, please");
    Segmenter segmenter(choices, sequences_.longest());
    Uses out;
    if (costs) out.costs.reserve(sequences_.size());
    sequences_.visit(Workers{}, false, [&](const auto& block, std::span<uint32_t> values, unsigned) {
        for_each_sequence(values, block.first, [&](uint32_t weight, std::span<uint32_t> sequence, uint64_t number) {
            for (const uint32_t value : sequence)
                if ((value & id_mask) >= choices.size()) throw std::out_of_range("a shard names a candidate that there is not");
            const uint64_t w = weights.empty() ? weight : weights[number];
            const Cost cost = segmenter.segment(sequence, w, false);
            if (costs) out.costs.push_back(cost);
            if (!lengths) return;
            const uint64_t n = tokens_in(cost);
            if (out.lengths.size() <= n) out.lengths.resize(n + 1);
            out.lengths[n] += w;
        });
    });
    const std::vector<uint64_t>& uses = segmenter.uses();
    for (size_t id = 0; id < uses.size(); ++id)
        if (uses[id] > 0) {
            out.ids.push_back(static_cast<uint32_t>(id));
            out.counts.push_back(uses[id]);
        }
    return out;
}

std::vector<Counted> add_pairs(std::span<const PairList> lists, uint64_t floor) {
    std::vector<Counted> all;
    std::vector<size_t> borders{0};
    for (const PairList& list : lists) {
        if (list.keys.size() != list.counts.size()) throw std::invalid_argument("as many keys as counts, please");
        for (size_t k = 0; k < list.keys.size(); ++k) all.push_back({list.keys[k], list.counts[k]});
        borders.push_back(all.size());
    }
    const auto less = [](const Counted& a, const Counted& b) { return a.key < b.key; };
    while (borders.size() > 2) {  // two neighbouring lists become one, until one is left
        std::vector<size_t> wider{0};
        for (size_t i = 0; i + 1 < borders.size(); i += 2) {
            const size_t end = borders[std::min(i + 2, borders.size() - 1)];
            const auto at = [&](size_t k) { return all.begin() + static_cast<std::ptrdiff_t>(k); };
            std::inplace_merge(at(borders[i]), at(borders[i + 1]), at(end), less);
            wider.push_back(end);
        }
        borders = std::move(wider);
    }
    size_t kept = 0;
    for (size_t k = 0; k < all.size();) {
        Counted sum = all[k];
        while (++k < all.size() && all[k].key == sum.key) sum.count += all[k].count;
        if (sum.count >= floor) all[kept++] = sum;
    }
    all.resize(kept);
    return all;
}

std::vector<Up> link(uint32_t units, std::span<const uint32_t> prefixes, std::span<const uint16_t> lengths,
                     std::span<const uint16_t> scores, std::span<const uint8_t> alive) {
    const size_t n = prefixes.size();
    if (lengths.size() != n || scores.size() != n || alive.size() != n) throw std::invalid_argument("lists about different candidates");
    std::vector<Up> up(n);
    for (size_t k = 0; k < n; ++k) {
        const uint32_t prefix = prefixes[k];
        if (prefix >= units + k) throw std::invalid_argument("a candidate that is made of later ones");
        up[k] = {prefix < units || alive[prefix - units] ? prefix : up[prefix - units].next, scores[k], lengths[k]};
    }
    return up;
}

}  // namespace pixnar
