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
    // The tables must have no problem() and must outlive the encoder.
    explicit Encoder(const Tables& tables);

    // Appends the tokens of a normalised text shorter than `longest_text`.
    void encode(std::string_view text, std::vector<uint32_t>& out);

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

    const Tables& tables_;
    Spacing spacing_;
    EdgeTable phrases_, pieces_;
    std::vector<Found> atoms_;
    std::vector<uint64_t> hashes_;
    std::vector<Step> steps_, piece_steps_;
};

// The text of any token sequence; for one that `encode` made, the normalised text it was made from.
std::string decode(const Tables& tables, std::span<const uint32_t> ids);

}  // namespace pixnar
