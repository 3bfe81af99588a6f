// Builds a docid table from (token sequence, document, spelling) records in any order.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/parallel.hpp"
#include "docids/assembly.hpp"

namespace pixnar {

class DocidBuilder {
  public:
    explicit DocidBuilder(uint32_t vocabulary) : vocabulary_(vocabulary) {}

    // Record i has the tokens ids[offsets[i], offsets[i+1]), and names documents[i]. `spellings` is empty, or has one
    // text a record, texts[i] = bytes[text_offsets[i], text_offsets[i+1]).
    void add(std::span<const uint32_t> ids, std::span<const int64_t> offsets, std::span<const uint32_t> documents,
             std::string_view bytes = {}, std::span<const int64_t> text_offsets = {});
    uint64_t records() const { return records_; }

    // Ends the building: the records are gone afterwards, their spellings (the first of each docid) stay.
    TableStore finish(uint32_t documents, bool index, const Workers& workers);

    // The spellings of rows [from, to), one behind the other, and where each begins.
    std::pair<std::string, std::vector<int64_t>> spellings(uint32_t from, uint32_t to) const;

  private:
    struct Records {  // of one length
        std::vector<uint32_t> tokens;
        std::vector<uint32_t> documents;
        std::vector<uint64_t> spellings;  // where in texts_; empty without spellings
    };
    uint32_t vocabulary_;
    uint64_t records_ = 0;
    std::map<uint32_t, Records> by_length_;
    std::string texts_;                   // length as four bytes, then the text
    std::vector<uint64_t> row_spelling_;  // by row, after finish
    bool spelled_ = false;
};

}  // namespace pixnar
