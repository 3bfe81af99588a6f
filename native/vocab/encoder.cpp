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
    size_t i = hash & mask;
    for (size_t seen = 0; seen <= mask && tables_.atom_slots[i]; ++seen, i = (i + 1) & mask) {
        const uint64_t slot = tables_.atom_slots[i];
        if ((slot ^ hash) >> 32) continue;
        const auto atom = static_cast<uint32_t>(slot) - 1;
        if (atom < tables_.atom_tokens.size() && part(tables_.atom_bytes, tables_.atom_offsets, atom) == text) return atom;
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
    // In sound tables every byte has a token; the markers here are for others, so that there is a way back.
    for (size_t i = 1; i <= n; ++i) piece_steps_[i] = {no_cost, static_cast<uint32_t>(i - 1), glue_token};
    piece_steps_[0].cost = 0;
    for (size_t i = 0; i < n; ++i) {
        uint32_t node = i == 0 ? start_root : continuation_root;
        for (size_t j = i; j < n; ++j) {
            const Edge* edge = pieces_.find(edge_key(node, static_cast<uint8_t>(atom[j])));
            if (!edge) break;
            const uint32_t token = known(static_cast<uint32_t>(edge->target));
            const auto child = static_cast<uint32_t>(edge->target >> 32);
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

template <class Visit> void Encoder::each_phrase(size_t i, Visit visit) const {
    uint32_t node = atoms_[i].atom;
    if (node == no_token || !(tables_.atom_tokens[node] & atom_more)) return;
    for (size_t j = i + 1; j < atoms_.size() && atoms_[j].atom != no_token; ++j) {
        const Edge* edge = phrases_.find(edge_key(node, atoms_[j].atom << 1 | uint32_t{atoms_[j].blank}));
        if (!edge) break;
        const uint32_t phrase = known(static_cast<uint32_t>(edge->target));
        const auto child = static_cast<uint32_t>(edge->target >> 32);
        if (phrase != no_token) visit(j + 1, phrase);
        if (!(child & child_more)) break;
        node = child & ~child_more;
    }
}

void Encoder::encode(std::string_view text, std::vector<uint32_t>& out) {
    find_atoms(text);
    segment(out);
}

void Encoder::ngrams(std::string_view text, bool pieces, std::vector<uint32_t>& out) {
    find_atoms(text);
    for (size_t i = 0; i < atoms_.size(); ++i) {
        if (atoms_[i].atom == no_token) continue;
        const uint32_t word = known(tables_.atom_tokens[atoms_[i].atom] & ~atom_more);
        if (word != no_token) out.push_back(word);
        each_phrase(i, [&](size_t, uint32_t phrase) { out.push_back(phrase); });
    }
    if (!pieces) return;
    segmented_.clear();
    segment(segmented_);
    for (size_t i = 0; i < segmented_.size(); ++i) {
        const bool split = i + 1 < segmented_.size() && tables_.tokens.kind(segmented_[i + 1]) == TokenKind::continuation;
        if (tables_.tokens.kind(segmented_[i]) != TokenKind::start || split) out.push_back(segmented_[i]);
    }
}

// The best segmentation of the atoms that were found.
void Encoder::segment(std::vector<uint32_t>& out) {
    const size_t n = atoms_.size();
    if (n == 0) return;
    if (steps_.size() <= n) steps_.resize(n + 1);
    for (size_t i = 1; i <= n; ++i) steps_[i] = {no_cost, static_cast<uint32_t>(i - 1), no_token};
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
        relax(i, i + 1, here + tables_.atom_costs[atom], known(tables_.atom_tokens[atom] & ~atom_more));
        each_phrase(i, [&](size_t end, uint32_t phrase) {
            relax(i, end, here + token_cost(tables_.tokens.scores[phrase]), phrase);
        });
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
