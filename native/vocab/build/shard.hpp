// A build's passes over one shard of the corpus. Each is a function of the shard and of what it is told, so that shards
// may be worked on anywhere, in any order, and again; what comes out are whole numbers, which add up to the same sums
// however the corpus was cut.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vocab/build/mine.hpp"
#include "vocab/build/scratch.hpp"
#include "vocab/build/select.hpp"
#include "vocab/build/sequences.hpp"
#include "vocab/spacing.hpp"

namespace pixnar {

// Normalised texts, one per line, dealt out so that equal ones come together; empty ones are dropped.
std::vector<std::string> deal_lines(std::string_view lines, unsigned shards);

// The distinct docids of a shard.
struct DistinctDocids {
    std::vector<uint32_t> values;  // in the form of a block: atoms by their place among the shard's own
    std::string word_bytes;        // the shard's atoms in byte order
    std::vector<uint64_t> word_offsets, word_counts;
    std::vector<uint64_t> spacing_votes;
    uint64_t docids = 0, text_bytes = 0;
};

// Texts of one shard in any order, equal ones among them.
class ShardReader {
  public:
    ShardReader(bool weighted, uint64_t max_memory, const std::string& scratch_folder);
    ~ShardReader();
    void add_lines(std::string_view normalised);
    DistinctDocids finish();  // once; a second call throws

  private:
    struct Work;
    std::unique_ptr<Work> work_;
};

// Docids, or words, as sequences of units.
class Shard {
  public:
    explicit Shard(std::vector<uint32_t> values);

    // From the shard's own numbers of words to those of the whole corpus; `words` lie one behind the other.
    void number_words(std::string_view words, std::span<const uint64_t> offsets, std::span<const uint32_t> numbers,
                      const Spacing& spacing);
    void extend(const Level& level, std::span<const uint64_t> keys, uint32_t first);

    // All pairs of neighbours of a level, in buckets by their hash; a bucket is sorted by key.
    struct Pairs {
        std::vector<uint64_t> keys, counts;
        std::vector<uint64_t> borders;  // one more than buckets
    };
    Pairs count(const Level& level, unsigned buckets, uint64_t max_memory);

    // Tokens that occur, ascending, and how often. Sequence i has the weight weights[i] if there are any, else its own.
    struct Uses {
        std::vector<uint32_t> ids;
        std::vector<uint64_t> counts;
        std::vector<Cost> costs;         // of every sequence, if asked for
        std::vector<uint64_t> lengths;   // sequences by number of tokens, if asked for
    };
    Uses segment(const Choices& choices, std::span<const uint64_t> weights, bool costs, bool lengths);

    std::vector<uint32_t> values() const { return sequences_.copy(0, sequences_.blocks()); }
    uint64_t size() const { return sequences_.size(); }

  private:
    std::unique_ptr<Scratch> scratch_;
    Sequences sequences_;
};

// The counts of one bucket from all shards put together; what does not reach the floor is dropped. `lists` are sorted
// by key.
struct PairList {
    std::span<const uint64_t> keys, counts;
};
std::vector<Counted> add_pairs(std::span<const PairList> lists, uint64_t floor);

// The candidates of a layer as a shard needs them: the fixed part, and which of them are in.
std::vector<Up> link(uint32_t units, std::span<const uint32_t> prefixes, std::span<const uint16_t> lengths,
                     std::span<const uint16_t> scores, std::span<const uint8_t> alive);

}  // namespace pixnar
