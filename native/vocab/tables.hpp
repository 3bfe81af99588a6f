// What the encoder looks things up in: flat arrays that can be mapped from a file as they are.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/hash.hpp"

namespace pixnar {

enum class TokenKind : uint8_t {
    start,         // begins at the start of an atom: a word, the first piece of one, or a phrase of several atoms
    continuation,  // a piece inside an atom
    marker,        // says whether a blank follows where the spacing rule would have it otherwise
};

constexpr uint32_t no_token = 0xffffffff;
constexpr uint32_t glue_token = 0, blank_token = 1;  // the markers

// A segmentation is as good as its cost is low: fewest tokens first, then the highest sum of log-frequencies. One
// integer holds both, so sums and comparisons are exact and the same everywhere.
using Cost = uint64_t;
constexpr Cost one_token = Cost{1} << 40;
constexpr Cost no_cost = ~Cost{0};
constexpr size_t longest_text = size_t{1} << 24;  // bytes; keeps sums of costs inside 64 bits
constexpr uint16_t highest_score = 64 * 64;
inline Cost token_cost(uint16_t score) { return one_token - score; }
inline uint64_t tokens_in(Cost cost) { return (cost + one_token - 1) / one_token; }
uint16_t score_of(uint64_t count);  // 64 * log2(count + 1)

// Open addressing from (node, symbol) to (child, token). `child_more` marks children that have children themselves,
// which saves the probe that would fail at a leaf.
struct Edge {
    uint64_t key;     // 0 = free
    uint64_t target;  // child << 32 | token
};
constexpr uint32_t child_more = 0x80000000;
inline uint64_t edge_key(uint32_t node, uint32_t symbol) { return (uint64_t{node} << 32) | (symbol + 1); }

class EdgeTable {
  public:
    EdgeTable() = default;
    explicit EdgeTable(std::span<const Edge> edges) : edges_(edges.data()), mask_(edges.size() - 1) {}
    const Edge* find(uint64_t key) const {
        size_t i = hash_key(key) & mask_;
        for (size_t seen = 0; seen <= mask_; ++seen, i = (i + 1) & mask_) {  // damage may have left no free slot
            if (edges_[i].key == key) return &edges_[i];
            if (edges_[i].key == 0) return nullptr;
        }
        return nullptr;
    }
    void prefetch(uint64_t key) const { __builtin_prefetch(&edges_[hash_key(key) & mask_]); }

  private:
    const Edge* edges_ = nullptr;
    size_t mask_ = 0;
};

// Nodes of the piece trie: pieces that start an atom hang below node 0, continuations below node 1.
constexpr uint32_t start_root = 0, continuation_root = 1;

// `atom_tokens`: the token that is the whole atom, or none_short; the top bit says that phrases start with the atom.
constexpr uint32_t atom_more = 0x80000000, none_short = 0x7fffffff;

// Text i of many that lie one behind the other. Damaged offsets may say anything; what they say stays inside.
inline std::string_view part(std::span<const uint8_t> bytes, std::span<const uint64_t> offsets, uint32_t i) {
    const uint64_t end = std::min<uint64_t>(offsets[i + 1], bytes.size()), begin = std::min(offsets[i], end);
    return {reinterpret_cast<const char*>(bytes.data()) + begin, end - begin};
}

struct TokenList {
    std::span<const uint8_t> kinds;
    std::span<const uint64_t> offsets;
    std::span<const uint8_t> bytes;
    std::span<const uint16_t> scores;

    size_t size() const { return kinds.size(); }
    std::string misfit() const;   // as in Tables
    std::string problem() const;  // as in Tables
    TokenKind kind(uint32_t v) const { return static_cast<TokenKind>(kinds[v]); }
    std::string_view text(uint32_t v) const { return part(bytes, offsets, v); }
};

struct Tables {
    TokenList tokens;
    std::span<const uint32_t> spacing_chars;
    std::span<const uint8_t> spacing_rule;
    std::span<const uint64_t> atom_offsets;
    std::span<const uint8_t> atom_bytes;
    std::span<const uint32_t> atom_tokens;
    std::span<const uint64_t> atom_costs;
    std::span<const uint64_t> atom_slots;  // hash table: upper half of the hash << 32 | atom + 1; 0 = free
    std::span<const Edge> phrase_edges;    // symbol = atom << 1 | blank before it; nodes below the atom count are atoms
    std::span<const Edge> piece_edges;     // symbol = byte

    // Empty when the arrays have sizes that fit together; otherwise what does not. Reads next to nothing, and is all
    // that encoding needs to be safe: what the arrays say beyond that is checked where it is used.
    std::string misfit() const;
    // Empty when all that they say holds as well; reads everything.
    std::string problem() const;
};

// Owned arrays behind the lookup part of `Tables`.
struct Lookup {
    std::vector<uint64_t> atom_offsets;
    std::vector<uint8_t> atom_bytes;
    std::vector<uint32_t> atom_tokens;
    std::vector<uint64_t> atom_costs;
    std::vector<uint64_t> atom_slots;
    std::vector<Edge> phrase_edges;
    std::vector<Edge> piece_edges;
};

// Throws std::invalid_argument when a token cannot be part of a vocabulary (empty, no text of its kind, given twice).
Lookup build_lookup(const TokenList& tokens, std::span<const uint32_t> spacing_chars,
                    std::span<const uint8_t> spacing_rule);

}  // namespace pixnar
