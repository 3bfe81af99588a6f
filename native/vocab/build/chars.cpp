#include "vocab/build/chars.hpp"

#include <span>

#include "vocab/build/atoms.hpp"

namespace pixnar {
namespace {

void append_utf8(uint32_t c, std::string& out) {
    if (c >= stray_byte) {
        out += static_cast<char>(c - stray_byte);
    } else if (c < 0x80) {
        out += static_cast<char>(c);
    } else if (c < 0x800) {
        out += static_cast<char>(0xc0 | c >> 6);
        out += static_cast<char>(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        out += static_cast<char>(0xe0 | c >> 12);
        out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
        out += static_cast<char>(0x80 | (c & 0x3f));
    } else {
        out += static_cast<char>(0xf0 | c >> 18);
        out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
        out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
        out += static_cast<char>(0x80 | (c & 0x3f));
    }
}

}  // namespace

CharUnits number_chars(Sequences& chars, uint64_t floor) {
    constexpr uint32_t codes = stray_byte + 256;
    std::vector<uint64_t> counts(2 * codes);
    chars.visit(Workers{}, false, [&](const auto& block, std::span<uint32_t> values, unsigned) {
        for_each_sequence(values, block.first, [&](uint32_t weight, std::span<uint32_t> units, uint64_t) {
            for (size_t i = 0; i < units.size(); ++i) counts[2 * units[i] + (i == 0)] += weight;
        });
    });
    CharUnits result;
    std::vector<uint32_t> number(2 * codes);
    for (const bool frequent : {true, false}) {
        for (uint32_t k = 0; k < 2 * codes; ++k) {
            if (counts[k] == 0 || (counts[k] >= floor) != frequent) continue;
            number[k] = static_cast<uint32_t>(result.units.size());
            CharUnits::Unit unit{k / 2, k % 2 == 1, counts[k], {}};
            append_utf8(unit.code, unit.bytes);
            result.units.push_back(std::move(unit));
        }
        if (frequent) result.frequent = static_cast<uint32_t>(result.units.size());
    }
    chars.visit(Workers{}, true, [&](const auto& block, std::span<uint32_t> values, unsigned) {
        for_each_sequence(values, block.first, [&](uint32_t, std::span<uint32_t> units, uint64_t) {
            for (size_t i = 0; i < units.size(); ++i) units[i] = number[2 * units[i] + (i == 0)];
        });
    });
    return result;
}

}  // namespace pixnar
