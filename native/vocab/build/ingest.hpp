// Docid texts come in; distinct docids as sequences of word numbers go out, with the distinct words and their counts.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "vocab/atom_table.hpp"
#include "vocab/build/atoms.hpp"
#include "vocab/build/scratch.hpp"
#include "vocab/build/sequences.hpp"
#include "vocab/spacing.hpp"

namespace pixnar {

class Ingest {
  public:
    Ingest(Scratch& scratch, bool weighted);
    ~Ingest();

    // Normalised texts, one per line.
    void add_lines(std::string_view lines);
    uint64_t rows() const { return rows_; }          // texts given
    uint64_t distinct() const { return docids_.size(); }
    uint64_t text_bytes() const { return text_bytes_; }  // of the distinct ones

    // Reads back what was put aside. Call once, before the rest.
    void finish(const Workers& workers);

    const SpacingCounts& spacing() const { return spacing_; }
    // Numbers the atoms, rewrites the sequences with those numbers and marks gaps that depart from the rule.
    // `chars` receives the text of each atom as code points, weighted by its count, in byte order.
    AtomCounts number_atoms(const Workers& workers, uint64_t floor, const Spacing& spacing, Sequences& chars);
    Sequences& docids() { return docids_; }

  private:
    class Seen;  // which docids were there before
    struct Epoch;

    void add(std::string_view text);
    void close_epoch();

    Scratch& scratch_;
    bool weighted_;
    Sequences docids_;
    SpacingCounts spacing_;
    std::unique_ptr<Seen> seen_;
    std::unique_ptr<AtomTable> table_;  // atoms of the current epoch
    std::vector<Epoch> epochs_;
    std::vector<uint32_t> weights_, values_;
    std::vector<std::unique_ptr<TempFile>> overflow_;
    std::vector<std::unique_ptr<BufferedWriter>> overflow_writers_;
    unsigned overflow_shift_ = 64;
    uint64_t rows_ = 0, text_bytes_ = 0;
};

}  // namespace pixnar
