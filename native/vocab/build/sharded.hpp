// A build whose corpus lies in shards elsewhere: puts together what the shards count and says what they are to count
// next. The vocabulary is the one that `Builder` makes of the same docids, whatever the shards.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "vocab/build/options.hpp"
#include "vocab/build/selection.hpp"
#include "vocab/build/shard.hpp"

namespace pixnar {

// In this order: `add_shard` for all; `number_words`; for words and docids alike, as long as there are `more`, a
// `level` to count in the shards and to `take`; `start`; then rounds as `Selection` has them; `finish`.
class ShardedBuilder {
  public:
    enum LayerName : unsigned { pieces = 0, phrases = 1 };

    explicit ShardedBuilder(const BuildOptions& options);

    // Texts given, and what the reader of a shard found.
    void add_shard(uint64_t rows, uint64_t docids, uint64_t text_bytes, std::span<const uint64_t> spacing_votes);

    struct Words {  // of one shard, in byte order
        std::string_view bytes;
        std::span<const uint64_t> offsets, counts;
    };
    // The number of each word of each shard in the whole corpus. Afterwards the words themselves are there, in byte
    // order, as sequences of characters: blocks of a few MB.
    std::vector<std::vector<uint32_t>> number_words(std::span<const Words> shards);
    const SpacingCounts::Rule& rule() const { return rule_; }
    size_t word_blocks() const { return chars_.blocks(); }
    uint64_t first_word(size_t block) const { return block < chars_.blocks() ? chars_.first_of(block) : chars_.size(); }
    std::vector<uint32_t> words(size_t from, size_t to) const { return chars_.copy(from, to); }

    uint64_t min_count() const { return min_count_; }
    bool more(LayerName layer) const { return miner(layer).more(); }
    Level level(LayerName layer) const { return miner(layer).level(); }
    uint32_t length(LayerName layer) const { return miner(layer).length(); }
    // The pairs of all shards that reach the floor, in any order. Returns those that became candidates, and the id of the
    // first: what the shards are to be extended with.
    std::pair<std::vector<uint64_t>, uint32_t> take(LayerName layer, std::vector<Counted> pairs);

    void start();
    Selection& selection();
    const Selection& selection() const { return const_cast<ShardedBuilder*>(this)->selection(); }
    const Layer& layer(LayerName name) const { return name == pieces ? selection().pieces : selection().phrases; }
    void set_word_costs(uint64_t first, std::span<const Cost> costs);
    void clear_uses();
    void add_uses(LayerName layer, std::span<const uint32_t> ids, std::span<const uint64_t> counts);
    void add_lengths(std::span<const uint64_t> lengths);

    BuiltVocabulary finish();

  private:
    Miner& miner(LayerName layer);
    const Miner& miner(LayerName layer) const { return const_cast<ShardedBuilder*>(this)->miner(layer); }

    BuildOptions options_;
    std::unique_ptr<Scratch> scratch_;
    Sequences chars_;
    SpacingCounts spacing_;
    SpacingCounts::Rule rule_;
    uint64_t rows_ = 0, docids_ = 0, text_bytes_ = 0, min_count_ = 0;
    std::optional<AtomCounts> atoms_;
    std::optional<CharUnits> units_;
    std::optional<Miner> miners_[2];
    std::optional<Selection> selection_;
    std::vector<uint64_t> lengths_{0};
};

}  // namespace pixnar
