#include "vocab/tables.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "vocab/atom_table.hpp"
#include "vocab/encoder.hpp"
#include "vocab/spacing.hpp"
#include "vocab/text.hpp"

namespace pixnar {
namespace {

// Grows an edge table; nodes are numbered as they appear.
class TrieBuilder {
  public:
    explicit TrieBuilder(uint32_t first_free_node) : next_node_(first_free_node) { resize(1024); }

    uint32_t step(uint32_t node, uint32_t symbol) {
        if (++used_ * 5 > edges_.size() * 3) resize(edges_.size() * 2);
        const uint64_t key = edge_key(node, symbol);
        Edge& edge = slot(edges_, key);
        if (edge.key == 0) edge = {key, uint64_t{next_node_++} << 32 | no_token};
        else --used_;
        return static_cast<uint32_t>(edge.target >> 32);
    }
    // False when the edge has a token already.
    bool set_token(uint32_t node, uint32_t symbol, uint32_t token) {
        Edge& edge = slot(edges_, edge_key(node, symbol));
        if (static_cast<uint32_t>(edge.target) != no_token) return false;
        edge.target = (edge.target & ~uint64_t{no_token}) | token;
        return true;
    }
    std::vector<Edge> finish() {
        std::vector<bool> parent(next_node_);
        for (const Edge& edge : edges_)
            if (edge.key) parent[edge.key >> 32] = true;
        for (Edge& edge : edges_)
            if (edge.key && parent[edge.target >> 32]) edge.target |= uint64_t{child_more} << 32;
        return std::move(edges_);
    }
    uint32_t nodes() const { return next_node_; }

  private:
    static Edge& slot(std::vector<Edge>& edges, uint64_t key) {
        size_t i = hash_key(key) & (edges.size() - 1);
        while (edges[i].key != 0 && edges[i].key != key) i = (i + 1) & (edges.size() - 1);
        return edges[i];
    }
    void resize(size_t size) {
        std::vector<Edge> larger(size, Edge{0, 0});
        for (const Edge& edge : edges_)
            if (edge.key) slot(larger, edge.key) = edge;
        edges_ = std::move(larger);
    }
    std::vector<Edge> edges_;
    uint32_t next_node_;
    size_t used_ = 0;
};

bool spans(std::span<const uint64_t> offsets, size_t n, size_t end) {
    return offsets.size() == n + 1 && offsets.front() == 0 && offsets.back() == end;
}

[[noreturn]] void reject(uint32_t v, const char* why) {
    throw std::invalid_argument("token " + std::to_string(v) + " " + why);
}

}  // namespace

uint16_t score_of(uint64_t count) {
    const double score = std::round(64.0 * std::log2(static_cast<double>(count) + 1.0));
    return static_cast<uint16_t>(std::min<double>(score, highest_score));
}

Lookup build_lookup(const TokenList& tokens, std::span<const uint32_t> spacing_chars,
                    std::span<const uint8_t> spacing_rule) {
    if (const std::string problem = tokens.problem(); !problem.empty()) throw std::invalid_argument(problem);
    Lookup out;
    AtomTable table;
    TrieBuilder pieces(continuation_root + 1);
    const auto add_piece = [&](uint32_t root, uint32_t v) {
        const std::string_view text = tokens.text(v);
        uint32_t node = root, from = root;
        for (const char c : text) {
            from = node;
            node = pieces.step(node, static_cast<uint8_t>(c));
        }
        if (!pieces.set_token(from, static_cast<uint8_t>(text.back()), v)) reject(v, "is given twice");
    };

    // Atoms first: phrase nodes are numbered after them.
    struct Symbol {
        uint32_t atom;
        bool blank;
    };
    std::vector<Symbol> path;
    const auto split = [&](uint32_t v) {
        path.clear();
        Atoms atoms(tokens.text(v));
        for (Atom atom; atoms.next(atom);) path.push_back({table.number(atom.text), atom.blank_before});
        out.atom_tokens.resize(table.size(), none_short);
    };
    for (uint32_t v = 0; v < tokens.size(); ++v) {
        if (tokens.kind(v) == TokenKind::marker) continue;
        if (tokens.text(v).empty()) reject(v, "is empty");
        if (tokens.kind(v) == TokenKind::continuation) {
            Atoms atoms(tokens.text(v));
            Atom atom;
            const bool whole = atoms.next(atom) && atom.text.size() == tokens.text(v).size();
            if (!whole && tokens.text(v).size() > 1) reject(v, "is a continuation of more than one atom");
            add_piece(continuation_root, v);
            continue;
        }
        split(v);
        size_t covered = 0;
        for (const Symbol& s : path) covered += s.blank + table.text(s.atom).size();
        if (tokens.text(v).size() == 1) add_piece(start_root, v);  // single bytes need not be text
        else if (covered != tokens.text(v).size()) reject(v, "starts or ends with a blank, or has two in a row");
        else if (path.size() == 1) add_piece(start_root, v);
        if (path.size() == 1 && covered == tokens.text(v).size()) {
            uint32_t& token = out.atom_tokens[path[0].atom];
            token = (token & atom_more) | v;
        }
    }
    TrieBuilder phrases(static_cast<uint32_t>(out.atom_tokens.size()));
    for (uint32_t v = 0; v < tokens.size(); ++v) {
        if (tokens.kind(v) != TokenKind::start) continue;
        split(v);
        if (path.size() < 2) continue;
        uint32_t node = path[0].atom, from = node;
        out.atom_tokens[node] |= atom_more;
        const auto symbol = [](const Symbol& s) { return s.atom << 1 | uint32_t{s.blank}; };
        for (size_t i = 1; i < path.size(); ++i) {
            from = node;
            node = phrases.step(node, symbol(path[i]));
        }
        if (!phrases.set_token(from, symbol(path.back()), v)) reject(v, "is given twice");
    }
    if (phrases.nodes() >= child_more || pieces.nodes() >= child_more)
        throw std::invalid_argument("too many tokens: a vocabulary holds at most two thousand million trie nodes");
    out.phrase_edges = phrases.finish();
    out.piece_edges = pieces.finish();

    out.atom_offsets = table.offsets();
    out.atom_bytes.assign(table.bytes().begin(), table.bytes().end());
    out.atom_slots = table.slots();

    // What an atom costs when no phrase covers it needs the piece trie, so it comes last.
    out.atom_costs.assign(out.atom_tokens.size(), one_token);
    const Tables tables{tokens,          spacing_chars,  spacing_rule,   out.atom_offsets, out.atom_bytes,
                        out.atom_tokens, out.atom_costs, out.atom_slots, out.phrase_edges, out.piece_edges};
    if (const std::string problem = tables.problem(); !problem.empty()) throw std::invalid_argument(problem);
    Encoder encoder(tables);
    for (uint32_t a = 0; a < table.size(); ++a) out.atom_costs[a] = encoder.piece_cost(table.text(a));
    return out;
}

std::string TokenList::misfit() const {
    if (size() >= none_short) return "too many tokens";
    if (!spans(offsets, size(), bytes.size())) return "token offsets are inconsistent";
    if (scores.size() != size()) return "scores are missing";
    if (size() < 2) return "the first two tokens are not the markers";
    return {};
}

std::string TokenList::problem() const {
    if (std::string misfit = this->misfit(); !misfit.empty()) return misfit;
    if (!std::ranges::is_sorted(offsets)) return "token offsets are inconsistent";
    for (const uint16_t score : scores)
        if (score > highest_score) return "a score is out of range";
    for (const uint8_t kind : kinds)
        if (kind > static_cast<uint8_t>(TokenKind::marker)) return "a token kind is unknown";
    if (kind(glue_token) != TokenKind::marker || kind(blank_token) != TokenKind::marker)
        return "the first two tokens are not the markers";
    return {};
}

std::string Tables::misfit() const {
    if (std::string misfit = tokens.misfit(); !misfit.empty()) return misfit;
    const size_t a_count = atom_tokens.size();
    if (a_count >= none_short) return "too many atoms";
    if (!Spacing::valid(spacing_chars, spacing_rule)) return "the spacing rule is inconsistent";
    if (!spans(atom_offsets, a_count, atom_bytes.size())) return "atom offsets are inconsistent";
    if (atom_costs.size() != a_count) return "atom costs are missing";
    if (!std::has_single_bit(atom_slots.size())) return "the atom table has a wrong size";
    if (!std::has_single_bit(phrase_edges.size())) return "the phrase table has a wrong size";
    if (!std::has_single_bit(piece_edges.size())) return "the piece table has a wrong size";
    return {};
}

std::string Tables::problem() const {
    if (std::string misfit = this->misfit(); !misfit.empty()) return misfit;
    if (std::string problem = tokens.problem(); !problem.empty()) return problem;
    const size_t v_count = tokens.size(), a_count = atom_tokens.size();
    for (const uint8_t flag : spacing_rule)
        if (flag > 1) return "the spacing rule is out of range";
    if (!std::ranges::is_sorted(atom_offsets)) return "atom offsets are inconsistent";
    for (const uint64_t cost : atom_costs)
        if (cost < one_token - highest_score || cost > one_token * (longest_text - 1)) return "an atom cost is out of range";
    for (const uint32_t token : atom_tokens)
        if ((token & ~atom_more) != none_short && (token & ~atom_more) >= v_count) return "an atom token is out of range";

    size_t free = 0;
    for (const uint64_t slot : atom_slots) {
        free += slot == 0;
        if (slot != 0 && (static_cast<uint32_t>(slot) == 0 || static_cast<uint32_t>(slot) > a_count))
            return "the atom table is out of range";
    }
    if (free == 0) return "the atom table is full";
    for (const auto& [edges, what] : {std::pair{phrase_edges, "phrase"}, std::pair{piece_edges, "piece"}}) {
        free = 0;
        for (const Edge& edge : edges) {
            free += edge.key == 0;
            const auto token = static_cast<uint32_t>(edge.target);
            if (edge.key != 0 && token != no_token && token >= v_count)
                return std::string("the ") + what + " table is out of range";
        }
        if (free == 0) return std::string("the ") + what + " table is full";
    }
    const EdgeTable pieces(piece_edges);
    for (const uint32_t root : {start_root, continuation_root})
        for (uint32_t byte = 0; byte < 256; ++byte) {
            const Edge* edge = pieces.find(edge_key(root, byte));
            if (!edge || static_cast<uint32_t>(edge->target) == no_token) return "a byte has no token";
        }
    return {};
}

}  // namespace pixnar
