#include "vocab/build/sharded.hpp"

#include <algorithm>
#include <queue>
#include <stdexcept>
#include <string>

namespace pixnar {

ShardedBuilder::ShardedBuilder(const BuildOptions& options)
    : options_(options),
      scratch_(std::make_unique<Scratch>(Scratch{options.scratch_folder, options.max_memory})),
      chars_(*scratch_) {
    if (options.max_words < 1 || options.max_words > most_words)
        throw std::invalid_argument("max_words must be between 1 and " + std::to_string(most_words));
    options_.threads = usable_threads(options.threads);
}

void ShardedBuilder::add_shard(uint64_t rows, uint64_t docids, uint64_t text_bytes, std::span<const uint64_t> spacing_votes) {
    if (atoms_) throw std::logic_error("words are numbered already");
    spacing_.add(spacing_votes);
    rows_ += rows;
    docids_ += docids;
    text_bytes_ += text_bytes;
}

std::vector<std::vector<uint32_t>> ShardedBuilder::number_words(std::span<const Words> shards) {
    if (atoms_) throw std::logic_error("words are numbered already");
    if (docids_ >= 0xffffffff) throw std::length_error("more than four thousand million distinct docids");
    rule_ = spacing_.settle();
    min_count_ = options_.min_count ? options_.min_count : default_min_count(docids_);
    struct Head {
        std::string_view text;
        size_t shard, word;
        bool operator<(const Head& other) const { return text != other.text ? text > other.text : shard > other.shard; }
    };
    std::priority_queue<Head> heads;
    const auto push = [&](size_t shard, size_t word) {
        const Words& words = shards[shard];
        if (word >= words.counts.size()) return;
        const uint64_t begin = words.offsets[word], end = words.offsets[word + 1];
        if (end <= begin || end > words.bytes.size()) throw std::invalid_argument("words do not fit their offsets");
        heads.push({words.bytes.substr(begin, end - begin), shard, word});
    };
    std::vector<std::vector<uint32_t>> numbers(shards.size());
    for (size_t s = 0; s < shards.size(); ++s) {
        if (shards[s].offsets.size() != shards[s].counts.size() + 1) throw std::invalid_argument("words do not fit their counts");
        numbers[s].resize(shards[s].counts.size());
        push(s, 0);
    }
    AtomNumbering numbering(min_count_, chars_);
    std::vector<Head> same;
    std::string_view last;
    while (!heads.empty()) {
        const std::string_view text = heads.top().text;
        if (text < last) throw std::invalid_argument("words are not in byte order");
        uint64_t count = 0;
        same.clear();
        while (!heads.empty() && heads.top().text == text) {
            same.push_back(heads.top());
            heads.pop();
            count += shards[same.back().shard].counts[same.back().word];
            push(same.back().shard, same.back().word + 1);
        }
        const uint32_t number = numbering.add(text, count);
        for (const Head& head : same) numbers[head.shard][head.word] = number;
        last = text;
    }
    atoms_ = numbering.finish();
    for (auto& of_shard : numbers)
        for (uint32_t& number : of_shard) number = numbering.settled(number);
    units_ = number_chars(chars_, min_count_);
    miners_[pieces].emplace(piece_limits(min_count_, *units_));
    miners_[phrases].emplace(phrase_limits(min_count_, options_, *atoms_));
    return numbers;
}

Miner& ShardedBuilder::miner(LayerName layer) {
    if (!miners_[layer]) throw std::logic_error("nothing is being counted now");
    return *miners_[layer];
}

std::pair<std::vector<uint64_t>, uint32_t> ShardedBuilder::take(LayerName layer, std::vector<Counted> pairs) {
    std::erase_if(pairs, [&](const Counted& pair) { return pair.count < min_count_; });
    std::ranges::sort(pairs, {}, &Counted::key);
    const Level level = miner(layer).level();
    for (const Counted& pair : pairs)
        if (!level.has(static_cast<uint32_t>(pair.key >> 32)) || !level.has(static_cast<uint32_t>(pair.key) >> 1))
            throw std::invalid_argument("a pair of another level");
    const uint32_t first = miner(layer).take(pairs);
    std::vector<uint64_t> keys;
    keys.reserve(pairs.size());
    for (const Counted& pair : pairs) keys.push_back(pair.key);
    return {std::move(keys), first};
}

void ShardedBuilder::start() {
    if (more(pieces) || more(phrases)) throw std::logic_error("there is more to count");
    selection_.emplace(options_, min_count_, rule_, std::move(*atoms_), std::move(*units_), miner(pieces).finish(),
                       miner(phrases).finish());
    miners_[pieces].reset();
    miners_[phrases].reset();
}

Selection& ShardedBuilder::selection() {
    if (!selection_) throw std::logic_error("the selection has not started");
    return *selection_;
}

void ShardedBuilder::set_word_costs(uint64_t first, std::span<const Cost> costs) {
    Selection& to = selection();
    if (first + costs.size() > to.atoms().total) throw std::out_of_range("costs of words that there are not");
    for (size_t k = 0; k < costs.size(); ++k) to.set_word_cost(first + k, costs[k]);
}

void ShardedBuilder::clear_uses() {
    selection().phrase_uses.assign(layer(phrases).grams().size() + 2, 0);
    selection().piece_uses.assign(layer(pieces).grams().size() + 2, 0);
    lengths_.assign(1, 0);
}

void ShardedBuilder::add_uses(LayerName layer, std::span<const uint32_t> ids, std::span<const uint64_t> counts) {
    std::vector<uint64_t>& uses = layer == pieces ? selection().piece_uses : selection().phrase_uses;
    if (ids.size() != counts.size()) throw std::invalid_argument("as many tokens as counts, please");
    for (size_t k = 0; k < ids.size(); ++k) {
        if (ids[k] >= uses.size()) throw std::out_of_range("uses of a token that there is not");
        uses[ids[k]] += counts[k];
    }
}

void ShardedBuilder::add_lengths(std::span<const uint64_t> lengths) {
    if (lengths_.size() < lengths.size()) lengths_.resize(lengths.size());
    for (size_t n = 0; n < lengths.size(); ++n) lengths_[n] += lengths[n];
}

BuiltVocabulary ShardedBuilder::finish() {
    BuiltVocabulary out = selection().tokens();
    out.rows = rows_;
    out.docids = docids_;
    out.text_bytes = text_bytes_;
    out.lengths = lengths_;
    out.spilled_bytes = scratch_->spilled;
    for (const uint64_t n : out.lengths) out.total_weight += n;
    return out;
}

}  // namespace pixnar
