// A vocabulary that owns its arrays: made from tokens, or damaged on purpose.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vocab/encoder.hpp"
#include "vocab/tables.hpp"

namespace pixnar::test {

struct Token {
    TokenKind kind;
    std::string text;
    uint16_t score = 0;
};

struct Vocabulary {
    std::vector<uint8_t> kinds;
    std::vector<uint64_t> offsets{0};
    std::vector<uint8_t> bytes;
    std::vector<uint16_t> scores;
    std::vector<uint32_t> spacing_chars;
    std::vector<uint8_t> spacing_rule;
    Lookup lookup;

    void add(const Token& token) {
        kinds.push_back(static_cast<uint8_t>(token.kind));
        bytes.insert(bytes.end(), token.text.begin(), token.text.end());
        offsets.push_back(bytes.size());
        scores.push_back(token.score);
    }
    // Both markers, and every byte in both kinds.
    void add_fixed() {
        for (int i = 0; i < 2; ++i) add({TokenKind::marker, "", 0});
        for (const TokenKind kind : {TokenKind::start, TokenKind::continuation})
            for (int byte = 0; byte < 256; ++byte) add({kind, std::string(1, static_cast<char>(byte)), 0});
    }
    // The rule of prose: a blank before every word.
    void plain_spacing() {
        spacing_chars.clear();
        spacing_rule.clear();
        for (int i = 0; i < 16; ++i) spacing_rule.insert(spacing_rule.end(), {1, 1, 0, 0});
    }
    void build() { lookup = build_lookup(tokens(), spacing_chars, spacing_rule); }

    TokenList tokens() const { return {kinds, offsets, bytes, scores}; }
    Tables tables() const {
        return {tokens(),           spacing_chars,     spacing_rule,      lookup.atom_offsets, lookup.atom_bytes,
                lookup.atom_tokens, lookup.atom_costs, lookup.atom_slots, lookup.phrase_edges, lookup.piece_edges};
    }

    // Calls change(array) for one of the arrays that a file holds.
    static constexpr uint32_t arrays = 13;
    template <class Change> void on_array(uint32_t number, Change change) {
        switch (number) {
            case 0: return change(kinds);
            case 1: return change(offsets);
            case 2: return change(bytes);
            case 3: return change(scores);
            case 4: return change(spacing_chars);
            case 5: return change(spacing_rule);
            case 6: return change(lookup.atom_offsets);
            case 7: return change(lookup.atom_bytes);
            case 8: return change(lookup.atom_tokens);
            case 9: return change(lookup.atom_costs);
            case 10: return change(lookup.atom_slots);
            case 11: return change(lookup.phrase_edges);
            default: return change(lookup.piece_edges);
        }
    }
};

inline Vocabulary make_vocabulary(const std::vector<Token>& tokens) {
    Vocabulary vocabulary;
    vocabulary.add_fixed();
    for (const Token& token : tokens) vocabulary.add(token);
    vocabulary.plain_spacing();
    vocabulary.build();
    return vocabulary;
}

inline std::vector<uint32_t> encode(const Tables& tables, std::string_view text) {
    std::vector<uint32_t> ids;
    Encoder(tables).encode(text, ids);
    return ids;
}

}  // namespace pixnar::test
