#include "vocab/build/atoms.hpp"

#include <algorithm>
#include <stdexcept>

namespace pixnar {

void spell_chars(std::string_view text, std::vector<uint32_t>& out) {
    out.clear();
    for (const char *p = text.data(), *end = p + text.size(); p < end;) {
        const Char c = char_at(p, end);
        // A byte that is no character is kept apart from U+FFFD, which encodes to three bytes.
        out.push_back(c.code_point == 0xfffd && c.bytes == 1 ? stray_byte + static_cast<uint8_t>(*p) : c.code_point);
        p += c.bytes;
    }
}

AtomEnds ends_of(std::span<const uint32_t> chars) {
    const auto plain = [](uint32_t code) { return code >= stray_byte ? 0xfffd : code; };
    return {plain(chars.front()), plain(chars.back())};
}

uint32_t AtomNumbering::add(std::string_view text, uint64_t count) {
    spell_chars(text, spelled_);
    chars_.append(static_cast<uint32_t>(std::min<uint64_t>(count, sentinel - 1)), spelled_);
    uint32_t number;
    if (count >= floor_) {
        number = static_cast<uint32_t>(atoms_.counts.size());
        atoms_.counts.push_back(count);
        atoms_.bytes += text;
        atoms_.offsets.push_back(atoms_.bytes.size());
    } else {
        number = static_cast<uint32_t>(rare_counts_.size()) | rare_flag;
        rare_counts_.push_back(count);
    }
    atoms_.by_bytes.push_back(number);
    return number;
}

AtomCounts AtomNumbering::finish() {
    chars_.finish();
    frequent_ = static_cast<uint32_t>(atoms_.counts.size());
    if (uint64_t{frequent_} + rare_counts_.size() >= most_ids)
        throw std::length_error("more than a thousand million distinct words");
    for (uint32_t& number : atoms_.by_bytes) number = settled(number);
    atoms_.frequent = frequent_;
    atoms_.counts.insert(atoms_.counts.end(), rare_counts_.begin(), rare_counts_.end());
    atoms_.total = static_cast<uint32_t>(atoms_.counts.size());
    return std::move(atoms_);
}

}  // namespace pixnar
