// Numbers of a fixed number of bits, side by side. Reading never leaves the array: it ends with eight spare bytes.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace pixnar {

constexpr size_t packed_spare = 8;

inline unsigned bits_for(uint64_t largest) { return std::max<unsigned>(1, static_cast<unsigned>(std::bit_width(largest))); }

inline size_t packed_bytes(uint64_t count, unsigned width) { return (count * width + 7) / 8 + packed_spare; }

class Packed {
  public:
    Packed() = default;
    Packed(std::span<const uint8_t> bytes, unsigned width, uint64_t count)
        : bytes_(bytes.data()), width_(width), mask_((uint64_t{1} << width) - 1), count_(count) {
        if (width > 32 || bytes.size() < packed_bytes(count, width))
            throw std::invalid_argument("packed numbers reach past their array");
    }
    uint64_t size() const { return count_; }
    uint32_t operator[](uint64_t i) const {
        const uint64_t bit = i * width_;
        uint64_t word;
        std::memcpy(&word, bytes_ + (bit >> 3), sizeof word);
        return static_cast<uint32_t>((word >> (bit & 7)) & mask_);
    }
    void prefetch(uint64_t i) const { __builtin_prefetch(bytes_ + (i * width_ >> 3)); }

  private:
    const uint8_t* bytes_ = nullptr;
    unsigned width_ = 1;
    uint64_t mask_ = 1;
    uint64_t count_ = 0;
};

// Appends numbers from a byte border on. Writers that start at different byte borders may work side by side.
class PackedWriter {
  public:
    PackedWriter(uint8_t* at, unsigned width) : at_(at), width_(width) {}
    void put(uint32_t value) {
        pending_ |= static_cast<uint64_t>(value) << filled_;
        filled_ += width_;
        while (filled_ >= 8) {
            *at_++ = static_cast<uint8_t>(pending_);
            pending_ >>= 8;
            filled_ -= 8;
        }
    }
    void finish() {
        if (filled_ > 0) *at_++ = static_cast<uint8_t>(pending_);
        filled_ = 0;
        pending_ = 0;
    }

  private:
    uint8_t* at_;
    unsigned width_;
    uint64_t pending_ = 0;
    unsigned filled_ = 0;
};

// A rising sequence that starts at 0, in blocks of 128: where the block starts, and the rest in as few bits as it needs.
// Any entry is found in two reads.
class Offsets {
  public:
    static constexpr uint64_t block = 128;
    Offsets() = default;
    // `heads` has two numbers for each block: where its values begin, and the bit position of the block << 6 | bits per entry.
    Offsets(std::span<const uint64_t> heads, std::span<const uint8_t> bits, uint64_t count)
        : heads_(heads), bits_(bits), count_(count) {
        if (heads.size() != blocks(count) * 2 || bits.size() < packed_spare)
            throw std::invalid_argument("offsets reach past their array");
    }
    static uint64_t blocks(uint64_t count) { return (count + block - 1) / block; }
    uint64_t size() const { return count_; }

    uint64_t operator[](uint64_t i) const {
        const uint64_t base = heads_[i / block * 2], place = heads_[i / block * 2 + 1];
        const unsigned width = place & 63;
        const uint64_t bit = (place >> 6) + i % block * width;
        const uint64_t byte = std::min<uint64_t>(bit >> 3, bits_.size() - packed_spare);  // damage stays inside
        uint64_t word;
        std::memcpy(&word, bits_.data() + byte, sizeof word);
        return base + ((word >> (bit & 7)) & ((uint64_t{1} << width) - 1));
    }

  private:
    std::span<const uint64_t> heads_;
    std::span<const uint8_t> bits_;
    uint64_t count_ = 0;
};

// Gathers one or more sequences of offsets, one behind the other.
struct OffsetsWriter {
    std::vector<uint64_t> heads;
    std::vector<uint8_t> bits;

    template <class At> void append(uint64_t count, At at) {
        for (uint64_t start = 0; start < count; start += Offsets::block) {
            const uint64_t end = std::min(count, start + Offsets::block), base = at(start);
            const uint64_t reach = at(end - 1) - base;
            const unsigned width = reach == 0 ? 0 : static_cast<unsigned>(std::bit_width(reach));
            if (width > 56) throw std::length_error("offsets span more than 56 bits");
            heads.push_back(base);
            heads.push_back(static_cast<uint64_t>(bits.size()) * 8 << 6 | width);
            if (width == 0) continue;
            const size_t from = bits.size();
            bits.resize(from + ((end - start) * width + 7) / 8);
            uint64_t bit = static_cast<uint64_t>(from) * 8;
            for (uint64_t i = start; i < end; ++i, bit += width) {
                uint64_t value = at(i) - base, byte = bit >> 3;
                unsigned shift = bit & 7;
                for (unsigned left = width; left > 0;) {
                    bits[byte] = static_cast<uint8_t>(bits[byte] | value << shift);
                    const unsigned done = std::min(left, 8 - shift);
                    value >>= done;
                    left -= done;
                    shift = 0;
                    ++byte;
                }
            }
        }
    }
    void finish() { bits.resize(bits.size() + packed_spare); }
};

}  // namespace pixnar
