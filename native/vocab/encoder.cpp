#include "vocab/encoder.hpp"

#include <algorithm>

namespace pixnar {

Encoder::Encoder(const Tables& tables)
    : tables_(tables),
      spacing_(tables.spacing_chars, tables.spacing_rule),
      phrases_(tables.phrase_edges),
      pieces_(tables.piece_edges) {}

uint32_t Encoder::find_atom(std::string_view text, uint64_t hash) const {
    const size_t mask = tables_.atom_slots.size() - 1;
    for (size_t i = hash & mask; tables_.atom_slots[i]; i = (i + 1) & mask) {
        const uint64_t slot = tables_.atom_slots[i];
        if ((slot ^ hash) >> 32) continue;
        const auto atom = static_cast<uint32_t>(slot) - 1;
        const uint64_t begin = tables_.atom_offsets[atom], end = tables_.atom_offsets[atom + 1];
        if (std::string_view(reinterpret_cast<const char*>(tables_.atom_bytes.data()) + begin, end - begin) == text)
            return atom;
    }
    return no_token;
}

// Three sweeps, so that the cache misses of one text overlap instead of waiting for each other.
void Encoder::find_atoms(std::string_view text) {
    atoms_.clear();
    hashes_.clear();
    Atoms reader(text);
    SpacingState state;
    const size_t mask = tables_.atom_slots.size() - 1;
    for (Atom atom; reader.next(atom);) {
        const bool first = atoms_.empty();
        const bool off_rule = !first && spacing_.blank_before(state, atom.first) != atom.blank_before;
        state.read(atom, first);
        const uint64_t hash = hash_bytes(atom.text.data(), atom.text.size());
        __builtin_prefetch(&tables_.atom_slots[hash & mask]);
        hashes_.push_back(hash);
        atoms_.push_back({atom.text, no_token, atom.blank_before, off_rule});
    }
    for (size_t i = 0; i < atoms_.size(); ++i) {
        atoms_[i].atom = find_atom(atoms_[i].text, hashes_[i]);
        if (i > 0 && atoms_[i].atom != no_token && atoms_[i - 1].atom != no_token)
            phrases_.prefetch(edge_key(atoms_[i - 1].atom, atoms_[i].atom << 1 | uint32_t{atoms_[i].blank}));
    }
}

// Fills piece_steps_ for the pieces of one atom.
void Encoder::split_pieces(std::string_view atom) {
    const size_t n = atom.size();
    if (piece_steps_.size() <= n) piece_steps_.resize(n + 1);
    for (size_t i = 1; i <= n; ++i) piece_steps_[i].cost = no_cost;
    piece_steps_[0].cost = 0;
    for (size_t i = 0; i < n; ++i) {
        uint32_t node = i == 0 ? start_root : continuation_root;
        for (size_t j = i; j < n; ++j) {
            const Edge* edge = pieces_.find(edge_key(node, static_cast<uint8_t>(atom[j])));
            if (!edge) break;
            const auto token = static_cast<uint32_t>(edge->target), child = static_cast<uint32_t>(edge->target >> 32);
            if (token != no_token) {
                const Cost cost = piece_steps_[i].cost + token_cost(tables_.tokens.scores[token]);
                if (cost < piece_steps_[j + 1].cost) piece_steps_[j + 1] = {cost, static_cast<uint32_t>(i), token};
            }
            if (!(child & child_more)) break;
            node = child & ~child_more;
        }
    }
}

Cost Encoder::piece_cost(std::string_view atom) {
    split_pieces(atom);
    return piece_steps_[atom.size()].cost;
}

void Encoder::encode(std::string_view text, std::vector<uint32_t>& out) {
    find_atoms(text);
    const size_t n = atoms_.size();
    if (n == 0) return;
    if (steps_.size() <= n) steps_.resize(n + 1);
    for (size_t i = 1; i <= n; ++i) steps_[i].cost = no_cost;
    steps_[0].cost = 0;
    const auto relax = [&](size_t from, size_t to, Cost cost, uint32_t token) {
        if (cost < steps_[to].cost) steps_[to] = {cost, static_cast<uint32_t>(from), token};
    };
    for (size_t i = 0; i < n; ++i) {
        const Cost here = steps_[i].cost + (atoms_[i].off_rule ? one_token : 0);
        const uint32_t atom = atoms_[i].atom;
        if (atom == no_token) {
            relax(i, i + 1, here + piece_cost(atoms_[i].text), no_token);
            continue;
        }
        const uint32_t token = tables_.atom_tokens[atom];
        relax(i, i + 1, here + tables_.atom_costs[atom], (token & ~atom_more) == none_short ? no_token : token & ~atom_more);
        if (!(token & atom_more)) continue;
        uint32_t node = atom;
        for (size_t j = i + 1; j < n && atoms_[j].atom != no_token; ++j) {
            const Edge* edge = phrases_.find(edge_key(node, atoms_[j].atom << 1 | uint32_t{atoms_[j].blank}));
            if (!edge) break;
            const auto phrase = static_cast<uint32_t>(edge->target), child = static_cast<uint32_t>(edge->target >> 32);
            if (phrase != no_token) relax(i, j + 1, here + token_cost(tables_.tokens.scores[phrase]), phrase);
            if (!(child & child_more)) break;
            node = child & ~child_more;
        }
    }
    const size_t start = out.size();
    for (size_t i = n; i > 0;) {
        const size_t from = steps_[i].from;
        if (steps_[i].token != no_token) {
            out.push_back(steps_[i].token);
        } else {
            split_pieces(atoms_[from].text);
            for (size_t j = atoms_[from].text.size(); j > 0; j = piece_steps_[j].from) out.push_back(piece_steps_[j].token);
        }
        if (atoms_[from].off_rule) out.push_back(atoms_[from].blank ? blank_token : glue_token);
        i = from;
    }
    std::reverse(out.begin() + static_cast<std::ptrdiff_t>(start), out.end());
}

std::string decode(const Tables& tables, std::span<const uint32_t> ids) {
    const Spacing spacing(tables.spacing_chars, tables.spacing_rule);
    std::string text, group;
    SpacingState state;
    uint32_t marker = no_token;
    for (size_t i = 0; i < ids.size();) {
        if (tables.tokens.kind(ids[i]) == TokenKind::marker) {
            marker = ids[i++];
            continue;
        }
        // A start token and the continuations behind it belong together; only whole characters have a spacing class.
        group = tables.tokens.text(ids[i++]);
        while (i < ids.size() && tables.tokens.kind(ids[i]) == TokenKind::continuation) group += tables.tokens.text(ids[i++]);
        Atoms atoms(group);
        bool first_of_group = true;
        for (Atom atom; atoms.next(atom); first_of_group = false) {
            const bool first = text.empty();
            if (first_of_group && !first)
                atom.blank_before = marker == no_token ? spacing.blank_before(state, atom.first) : marker == blank_token;
            if (atom.blank_before) text += ' ';
            text += atom.text;
            state.read(atom, first);
        }
        marker = no_token;
    }
    return text;
}

}  // namespace pixnar
