// Many short sequences of 32-bit values, walked from left to right by several threads, in memory or on disk.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/parallel.hpp"
#include "vocab/build/scratch.hpp"

namespace pixnar {

// A value is a unit (later: the longest n-gram that starts there) with two flags about the gap before it.
constexpr uint32_t blank_flag = 0x80000000, off_rule_flag = 0x40000000, id_mask = 0x3fffffff;
constexpr uint32_t most_ids = id_mask;  // the largest id is kept for the sentinel

// In a block every sequence is: sentinel, weight, values.
constexpr uint32_t sentinel = 0xffffffff;

class Sequences {
  public:
    explicit Sequences(Scratch& scratch) : scratch_(scratch) {}

    void append(uint32_t weight, std::span<const uint32_t> values);
    void adopt(std::vector<uint32_t> values);  // instead of appending: sequences in the form of a block, as one
    void finish();  // after the last append
    void close_block();

    struct Block {
        std::vector<uint32_t> memory;
        uint64_t offset = 0;  // in the file, when spilled
        uint64_t first = 0;   // index of its first sequence
        uint32_t values = 0;
        uint32_t tag = 0;
        bool spilled = false;
    };
    // Calls visit for every block with its contents; changes are kept if `write`.
    void visit(const Workers& workers, bool write,
               const std::function<void(const Block&, std::span<uint32_t>, unsigned thread)>& visit);

    // What blocks [from, to) hold, and which sequence is the first of a block.
    std::vector<uint32_t> copy(size_t from, size_t to) const;
    uint64_t first_of(size_t block) const { return blocks_[block].first; }

    uint64_t size() const { return size_; }      // sequences
    uint64_t values() const { return values_; }  // without sentinels and weights
    uint64_t longest() const { return longest_; }
    size_t blocks() const { return blocks_.size(); }
    const Scratch& scratch() const { return scratch_; }
    void tag_new_blocks(uint32_t tag);

  private:
    Scratch& scratch_;
    std::unique_ptr<TempFile> file_;
    std::vector<Block> blocks_;
    std::vector<uint32_t> open_;
    uint64_t open_first_ = 0, size_ = 0, values_ = 0, longest_ = 0;
    uint32_t tag_ = 0;
};

// Calls visit(weight, values, index) for each sequence of a block.
template <class Visit> void for_each_sequence(std::span<uint32_t> block, uint64_t first, Visit visit) {
    for (size_t i = 0; i < block.size(); ++first) {
        uint32_t& weight = block[i + 1];
        size_t end = i += 2;
        while (end < block.size() && block[end] != sentinel) ++end;
        visit(weight, block.subspan(i, end - i), first);
        i = end;
    }
}

}  // namespace pixnar
