// A docid table whose arrays Python holds.
#pragma once
#include <algorithm>
#include <memory>

#include "bindings/arrays.hpp"
#include "docids/table.hpp"

namespace pixnar {

class HeldTable {
  public:
    explicit HeldTable(const nb::dict& arrays) {
        TableArrays views{holder_.get<uint64_t>(arrays, "shape"),         holder_.get<uint8_t>(arrays, "tokens"),
                          holder_.get<uint64_t>(arrays, "start_heads"),   holder_.get<uint8_t>(arrays, "start_bits"),
                          holder_.get<uint8_t>(arrays, "row_docs"),       holder_.get<uint64_t>(arrays, "row_doc_heads"),
                          holder_.get<uint8_t>(arrays, "row_doc_bits"),   holder_.get<uint8_t>(arrays, "doc_rows"),
                          holder_.get<uint64_t>(arrays, "doc_row_heads"), holder_.get<uint8_t>(arrays, "doc_row_bits"),
                          holder_.get<uint8_t>(arrays, "postings"),       holder_.get<uint64_t>(arrays, "posting_heads"),
                          holder_.get<uint8_t>(arrays, "posting_bits")};
        table = std::make_unique<DocidTable>(views);
        packed_tokens = views.tokens;
    }
    void check_row(uint32_t row) const {
        if (row >= table->rows()) throw nb::index_error(("no row " + std::to_string(row)).c_str());
    }

    std::unique_ptr<DocidTable> table;
    std::span<const uint8_t> packed_tokens;  // of all rows, as they are stored

  private:
    Holder holder_;
};

}  // namespace pixnar
