// Puts a docid table together from rows that are sorted already, and makes its index.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/packed.hpp"
#include "common/parallel.hpp"
#include "docids/table.hpp"

namespace pixnar {

// Owns what TableArrays looks into.
struct TableStore {
    std::vector<uint64_t> shape;
    std::vector<uint8_t> tokens;
    std::vector<uint64_t> start_heads;
    std::vector<uint8_t> start_bits;
    std::vector<uint8_t> row_docs;
    std::vector<uint64_t> row_doc_heads;
    std::vector<uint8_t> row_doc_bits;
    std::vector<uint8_t> doc_rows;
    std::vector<uint64_t> doc_row_heads;
    std::vector<uint8_t> doc_row_bits;
    std::vector<uint8_t> postings;
    std::vector<uint64_t> posting_heads;
    std::vector<uint8_t> posting_bits;

    TableArrays arrays() const;
};

class TableAssembly {
  public:
    TableAssembly(uint32_t vocabulary, uint32_t documents) : vocabulary_(vocabulary), documents_(documents) {}

    // Documents row by row, in the order of the rows: `add_row` with the first, `add_document` with each further one.
    void add_row(uint32_t document) {
        add_pair(document);
        extra_.push_back(extra_.back());
    }
    void add_document(uint32_t document) {
        add_pair(document);
        ++extra_.back();
    }
    uint32_t last_document() const { return pair_docs_.back(); }

    // The tokens of `rows` rows of one length, in order; `tokens_of(row)` points to the tokens of one. Lengths rise.
    template <class TokensOf> void add_class(uint32_t length, size_t rows, const Workers& workers, TokensOf tokens_of) {
        const unsigned width = bits_for(vocabulary_ > 0 ? vocabulary_ - 1 : 0);
        rows_ += rows;
        if (rows_ >= std::numeric_limits<uint32_t>::max() - 1) throw std::length_error("more than 4 billion docids: split the table");
        classes_.emplace_back(length, static_cast<uint32_t>(rows));
        std::vector<uint8_t> packed(packed_bytes(uint64_t{length} * rows, width));
        workers.silent().run((rows + slice - 1) / slice, [&](size_t item, unsigned) {
            const size_t from = item * slice, to = std::min(rows, from + slice);
            PackedWriter writer(packed.data() + from * length * width / 8, width);
            for (size_t row = from; row < to; ++row)
                for (uint32_t t = 0; t < length; ++t) writer.put(tokens_of(row)[t]);
            writer.finish();
        });
        std::vector<uint32_t> before(uint64_t{vocabulary_} + 1);
        for (size_t row = 0; row < rows; ++row) ++before[tokens_of(row)[0] + 1];
        std::partial_sum(before.begin(), before.end(), before.begin());
        starts_.append(before.size(), [&](uint64_t v) { return before[v]; });
        append_bits(packed, uint64_t{length} * rows, width);
    }

    // Ends it. With `index`, the postings of every place and the rows of every document are made, too.
    TableStore finish(bool index, const Workers& workers);

    static constexpr size_t slice = 1 << 16;  // rows or numbers that one work item handles; a multiple of 8

  private:
    void add_pair(uint32_t document) {
        if (document >= documents_)
            throw std::out_of_range("a docid names document " + std::to_string(document) + " of " + std::to_string(documents_));
        pair_docs_.push_back(document);
    }
    void append_bits(const std::vector<uint8_t>& packed, uint64_t tokens, unsigned width);

    uint32_t vocabulary_, documents_;
    TableStore store_;
    std::vector<uint32_t> pair_docs_;
    std::vector<uint32_t> extra_{0};  // by row, one more than there are: pairs before it, less one for each row before it
    std::vector<std::pair<uint32_t, uint32_t>> classes_;
    OffsetsWriter starts_;
    uint64_t token_count_ = 0, rows_ = 0;
};

}  // namespace pixnar
