// Exact fewest-token segmentation of normalised text, and its inverse.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vocab/spacing.hpp"
#include "vocab/tables.hpp"

namespace pixnar {

// Reads shared tables, keeps its own scratch memory: one Encoder per thread.
//
// Among all segmentations the one with the lowest cost is chosen; among equals the one whose last token is longest,
// then the one before it, and so on.
class Encoder {
  public:
    // The tables must have no misfit() and must outlive the encoder. Where they have a problem() the tokens are any.
    explicit Encoder(const Tables& tables);

    // Appends the tokens of a normalised text shorter than `longest_text`.
    void encode(std::string_view text, std::vector<uint32_t>& out);

    // Appends every token that stands in a normalised text as whole atoms, overlaps included: by where they begin, then
    // by length. With `pieces`, what `encode` needs for the rest comes last: pieces, bytes and markers; the text must
    // then be shorter than `longest_text`.
    void ngrams(std::string_view text, bool pieces, std::vector<uint32_t>& out);

    // What the text of one atom costs without phrases.
    Cost piece_cost(std::string_view atom);

  private:
    struct Step {
        Cost cost;
        uint32_t from;
        uint32_t token;  // no_token = the atom's pieces
    };
    struct Found {
        std::string_view text;
        uint32_t atom;  // no_token = not in the table
        bool blank, off_rule;
    };
    uint32_t find_atom(std::string_view text, uint64_t hash) const;
    void split_pieces(std::string_view atom);
    void find_atoms(std::string_view text);
    void segment(std::vector<uint32_t>& out);
    // Calls visit(end, token) for every phrase of two or more atoms that begins with atom i.
    template <class Visit> void each_phrase(size_t i, Visit visit) const;
    uint32_t known(uint32_t token) const { return token < tables_.tokens.size() ? token : no_token; }

    const Tables& tables_;
    Spacing spacing_;
    EdgeTable phrases_, pieces_;
    std::vector<Found> atoms_;
    std::vector<uint64_t> hashes_;
    std::vector<Step> steps_, piece_steps_;
    std::vector<uint32_t> segmented_;
};

// The text of any token sequence; for one that `encode` made, the normalised text it was made from.
std::string decode(const Tables& tables, std::span<const uint32_t> ids);

}  // namespace pixnar
