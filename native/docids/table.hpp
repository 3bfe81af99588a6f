// The docid table: token sequences sorted by length, then lexicographically; who they name; where a token occurs.
//
// Docids of one length form a *class*: rows of a fixed number of tokens, so a row needs no offset, a trie node is a
// range of rows, and everything that depends on the length alone (end score, length norm) is one constant.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/packed.hpp"

namespace pixnar {

constexpr uint32_t most_slots = 32;           // positions that are indexed, and so the most slots a query may have
constexpr uint32_t longest_docid = 1u << 16;  // tokens

struct LengthClass {
    uint32_t length;
    uint32_t begin, end;    // rows
    uint64_t first_token;   // where in the packed tokens the class begins
    Offsets starts;         // by token: how many rows of the class begin with a smaller one
};

// As stored: plain arrays.
struct TableArrays {
    std::span<const uint64_t> shape;  // vocabulary, rows, documents, pairs, indexed places, has index, classes, docids
                                      // of the document that has most; then
                                      // (length, rows) of each class
    std::span<const uint8_t> tokens;
    std::span<const uint64_t> start_heads;
    std::span<const uint8_t> start_bits;
    std::span<const uint8_t> row_docs;
    std::span<const uint64_t> row_doc_heads;  // pairs before row i, less i
    std::span<const uint8_t> row_doc_bits;
    std::span<const uint8_t> doc_rows;
    std::span<const uint64_t> doc_row_heads;
    std::span<const uint8_t> doc_row_bits;
    std::span<const uint8_t> postings;
    std::span<const uint64_t> posting_heads;
    std::span<const uint8_t> posting_bits;
};

class DocidTable {
  public:
    explicit DocidTable(const TableArrays& arrays);  // throws std::invalid_argument if the arrays do not fit together

    uint32_t vocabulary() const { return vocabulary_; }
    uint32_t rows() const { return rows_; }
    uint32_t documents() const { return documents_; }
    uint64_t pairs() const { return pairs_; }
    bool indexed() const { return indexed_; }  // has postings and the way from documents to docids
    const std::vector<LengthClass>& classes() const { return classes_; }
    const LengthClass& class_of(uint32_t row) const;

    uint32_t token(const LengthClass& in, uint32_t row, uint32_t place) const {
        // Damaged tokens may be out of range; what they index must not be.
        return std::min(tokens_[in.first_token + static_cast<uint64_t>(row - in.begin) * in.length + place], vocabulary_ - 1);
    }
    // Token i of all tokens, one row after the other; of a damaged table it may be out of range.
    uint32_t raw_token(uint64_t i) const { return tokens_[i]; }
    void prefetch_tokens(const LengthClass& in, uint32_t row) const {
        tokens_.prefetch(in.first_token + static_cast<uint64_t>(row - in.begin) * in.length);
    }
    std::vector<uint32_t> tokens(uint32_t row) const;
    // Rows of [from, to), which share their first `place` tokens, that have `token` next.
    std::pair<uint32_t, uint32_t> child(const LengthClass& in, uint32_t from, uint32_t to, uint32_t place,
                                        uint32_t token) const;
    // The first row of [from, to) whose token at `place` is greater than the one of `from`.
    uint32_t next_child(const LengthClass& in, uint32_t from, uint32_t to, uint32_t place) const;
    // The row with exactly these tokens, or rows() if there is none.
    uint32_t find(std::span<const uint32_t> tokens) const;

    // Pairs (docid, document) of a row: [first, last) indexes `pair_document`.
    std::pair<uint64_t, uint64_t> pairs_of(uint32_t row) const;
    uint32_t pair_document(uint64_t pair) const { return std::min(row_docs_[pair], documents_ - 1); }
    // Entries of a document: [first, last) indexes `document_row`.
    std::pair<uint64_t, uint64_t> rows_of(uint32_t document) const;
    uint32_t document_row(uint64_t entry) const { return std::min(doc_rows_[entry], rows_ - 1); }

    // Rows with `token` at `place` >= 1 (counted from 0), ascending: [first, last) indexes `posting`.
    uint32_t indexed_places() const { return static_cast<uint32_t>(postings_.size()) + 1; }
    std::pair<uint64_t, uint64_t> occurrences(uint32_t place, uint32_t token) const;
    uint64_t postings(uint32_t place) const { return postings_[place - 1].size(); }
    uint32_t posting(uint32_t place, uint64_t i) const { return std::min(postings_[place - 1][i], rows_ - 1); }
    void prefetch_postings(uint32_t place, uint64_t i) const { postings_[place - 1].prefetch(i); }

    uint32_t most_docids() const { return most_docids_; }  // of one document

  private:
    uint32_t vocabulary_ = 0, rows_ = 0, documents_ = 0, most_docids_ = 0;
    uint64_t pairs_ = 0;
    bool indexed_ = false;
    std::vector<LengthClass> classes_;
    Packed tokens_, row_docs_, doc_rows_;
    Offsets row_doc_offsets_, doc_row_offsets_;
    std::vector<Packed> postings_;
    std::vector<Offsets> posting_offsets_;
};

}  // namespace pixnar
