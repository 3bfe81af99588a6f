// Numbers atoms in the order in which they appear.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/hash.hpp"

namespace pixnar {

class AtomTable {
  public:
    // Slots of the hash table: upper half of the hash, atom + 1; 0 = free. Stored in files.
    static uint64_t slot(uint64_t hash, uint32_t atom) { return (hash & 0xffffffff00000000ULL) | (atom + 1); }

    uint32_t number(std::string_view text) {
        const uint64_t hash = hash_bytes(text.data(), text.size());
        size_t i = hash & (slots_.size() - 1);
        for (; slots_[i]; i = (i + 1) & (slots_.size() - 1)) {
            if ((slots_[i] ^ hash) >> 32) continue;
            const auto atom = static_cast<uint32_t>(slots_[i]) - 1;
            if (this->text(atom) == text) return atom;
        }
        const uint32_t atom = size();
        bytes_.append(text);
        offsets_.push_back(bytes_.size());
        slots_[i] = slot(hash, atom);
        if (size() * 2 > slots_.size()) grow();
        return atom;
    }
    uint32_t size() const { return static_cast<uint32_t>(offsets_.size() - 1); }
    std::string_view text(uint32_t atom) const {
        return std::string_view(bytes_).substr(offsets_[atom], offsets_[atom + 1] - offsets_[atom]);
    }
    uint64_t memory() const { return bytes_.capacity() + offsets_.capacity() * 8 + slots_.capacity() * 8; }

    const std::string& bytes() const { return bytes_; }
    const std::vector<uint64_t>& offsets() const { return offsets_; }
    const std::vector<uint64_t>& slots() const { return slots_; }

  private:
    void grow() {
        std::vector<uint64_t> larger(slots_.size() * 2, 0);
        for (uint32_t atom = 0; atom < size(); ++atom) {
            const uint64_t hash = hash_bytes(text(atom).data(), text(atom).size());
            size_t i = hash & (larger.size() - 1);
            while (larger[i]) i = (i + 1) & (larger.size() - 1);
            larger[i] = slot(hash, atom);
        }
        slots_ = std::move(larger);
    }
    std::string bytes_;
    std::vector<uint64_t> offsets_{0};
    std::vector<uint64_t> slots_ = std::vector<uint64_t>(1024, 0);
};

}  // namespace pixnar
