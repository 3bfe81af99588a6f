#include "vocab/text.hpp"

#include <array>
#include <memory>

namespace pixnar {
namespace {

struct Range {
    uint32_t first, last;
    CharKind kind;
};
constexpr Range ranges[] = {
#include "vocab/unicode_kinds.inc"
};

constexpr uint32_t code_points = 0x110000;

constexpr auto ascii_kinds = [] {
    std::array<CharKind, 128> kinds{};
    for (int c = 0; c < 128; ++c) {
        const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        kinds[c] = c == ' ' ? CharKind::blank : word ? CharKind::word : CharKind::single;
    }
    return kinds;
}();

const CharKind* kind_table() {
    static const auto table = [] {
        auto kinds = std::make_unique<CharKind[]>(code_points);  // zero = single
        for (int c = 0; c < 128; ++c) kinds[c] = ascii_kinds[c];
        for (const Range& range : ranges)
            for (uint32_t c = range.first; c <= range.last; ++c) kinds[c] = range.kind;
        return kinds;
    }();
    return table.get();
}

}  // namespace

CharKind char_kind(uint32_t c) {
    if (c < 128) return ascii_kinds[c];
    return c < code_points ? kind_table()[c] : CharKind::single;
}

Char char_at(const char* p, const char* end) {
    const auto byte = [&](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(p[i])); };
    const auto continues = [&](int i) { return p + i < end && (byte(i) & 0xc0) == 0x80; };
    const uint32_t lead = byte(0);
    if (lead < 0x80) return {lead, 1};
    if (lead >= 0xc2 && lead < 0xe0 && continues(1)) return {(lead & 0x1f) << 6 | (byte(1) & 0x3f), 2};
    if (lead >= 0xe0 && lead < 0xf0 && continues(1) && continues(2)) {
        const uint32_t c = (lead & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
        if (c >= 0x800 && (c < 0xd800 || c > 0xdfff)) return {c, 3};
    }
    if (lead >= 0xf0 && lead < 0xf5 && continues(1) && continues(2) && continues(3)) {
        const uint32_t c = (lead & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
        if (c >= 0x10000 && c < code_points) return {c, 4};
    }
    return {0xfffd, 1};
}

void append_normal_ascii(std::string_view text, std::string& out) {
    const size_t start = out.size();
    out.resize(start + text.size());
    char* to = out.data() + start;
    bool blank = true;  // at the start, or after a blank
    for (const char c : text) {
        const bool white = c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
        if (white) {
            if (!blank) *to++ = ' ';
        } else {
            *to++ = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
        }
        blank = white;
    }
    if (blank && to != out.data() + start) --to;
    out.resize(static_cast<size_t>(to - out.data()));
}

bool Atoms::next(Atom& atom) {
    const char* p = p_;
    while (p < end_ && *p == ' ') ++p;
    if (p == end_) return false;
    atom.blank_before = p != p_ && p_ != begin_;
    const char* start = p;
    Char c = char_at(p, end_);
    atom.kind = char_kind(c.code_point);
    atom.first = atom.last = c.code_point;
    p += c.bytes;
    if (atom.kind == CharKind::word) {
        while (p < end_) {
            const auto byte = static_cast<uint8_t>(*p);
            if (byte < 128) {
                if (ascii_kinds[byte] != CharKind::word) break;
                atom.last = byte;
                ++p;
                continue;
            }
            c = char_at(p, end_);
            if (char_kind(c.code_point) != CharKind::word) break;
            atom.last = c.code_point;
            p += c.bytes;
        }
    }
    atom.text = {start, static_cast<size_t>(p - start)};
    p_ = p;
    return true;
}

}  // namespace pixnar
