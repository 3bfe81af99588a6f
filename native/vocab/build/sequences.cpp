#include "vocab/build/sequences.hpp"

#include <algorithm>
#include <stdexcept>

namespace pixnar {
namespace {
constexpr size_t block_values = size_t{1} << 19;
}

void Sequences::append(uint32_t weight, std::span<const uint32_t> values) {
    open_.push_back(sentinel);
    open_.push_back(weight);
    open_.insert(open_.end(), values.begin(), values.end());
    ++size_;
    values_ += values.size();
    longest_ = std::max<uint64_t>(longest_, values.size());
    if (open_.size() >= block_values) close_block();
}

void Sequences::close_block() {
    if (open_.empty()) return;
    Block block;
    block.first = open_first_;
    block.values = static_cast<uint32_t>(open_.size());
    block.tag = tag_;
    const uint64_t bytes = open_.size() * sizeof(uint32_t);
    // Half of the budget may hold sequences; the rest is for the candidates.
    if (scratch_.take(bytes, scratch_.max_memory / 2)) {
        block.memory.assign(open_.begin(), open_.end());
    } else {
        if (!file_) file_ = std::make_unique<TempFile>(scratch_.folder);
        block.offset = file_->append(open_.data(), bytes);
        block.spilled = true;
        scratch_.spilled += bytes;
    }
    open_.clear();
    open_first_ = size_;
    blocks_.push_back(std::move(block));
}

void Sequences::adopt(std::vector<uint32_t> values) {
    if (!values.empty() && (values.front() != sentinel || values.back() == sentinel)) throw std::invalid_argument("these are no sequences");
    if (values.size() >= sentinel) throw std::length_error("a shard has four thousand million values or more: make more shards");
    for_each_sequence(values, 0, [&](uint32_t, std::span<uint32_t> units, uint64_t) {
        ++size_;
        values_ += units.size();
        longest_ = std::max<uint64_t>(longest_, units.size());
    });
    Block block;
    block.values = static_cast<uint32_t>(values.size());
    block.memory = std::move(values);
    if (block.values > 0) blocks_.push_back(std::move(block));
}

std::vector<uint32_t> Sequences::copy(size_t from, size_t to) const {
    std::vector<uint32_t> out;
    for (size_t i = from; i < to; ++i) {
        const Block& block = blocks_.at(i);
        const size_t at = out.size();
        out.resize(at + block.values);
        if (block.spilled) file_->read(block.offset, out.data() + at, block.values * sizeof(uint32_t));
        else std::ranges::copy(block.memory, out.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return out;
}

void Sequences::finish() {
    close_block();
    open_ = {};
}

void Sequences::tag_new_blocks(uint32_t tag) {
    close_block();
    tag_ = tag;
}

void Sequences::visit(const Workers& workers, bool write,
                      const std::function<void(const Block&, std::span<uint32_t>, unsigned)>& visit) {
    std::vector<std::vector<uint32_t>> buffers(workers.threads);
    workers.run(blocks_.size(), [&](size_t i, unsigned thread) {
        Block& block = blocks_[i];
        if (!block.spilled) {
            visit(block, block.memory, thread);
            return;
        }
        auto& buffer = buffers[thread];
        buffer.resize(block.values);
        file_->read(block.offset, buffer.data(), buffer.size() * sizeof(uint32_t));
        visit(block, buffer, thread);
        if (write) file_->write(block.offset, buffer.data(), buffer.size() * sizeof(uint32_t));
    });
}

}  // namespace pixnar
