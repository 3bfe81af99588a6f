#include "docids/table.hpp"

#include <limits>
#include <tuple>

namespace pixnar {

namespace {

constexpr size_t shape_head = 8;

[[noreturn]] void refuse(const char* why) { throw std::invalid_argument(std::string("docid table: ") + why); }

// Damaged offsets may say anything; what they say is brought back into [0, most].
std::pair<uint64_t, uint64_t> within(uint64_t from, uint64_t to, uint64_t most) {
    to = std::min(to, most);
    return {std::min(from, to), to};
}

}  // namespace

DocidTable::DocidTable(const TableArrays& arrays) {
    const auto& shape = arrays.shape;
    if (shape.size() < shape_head || shape[6] > longest_docid || shape.size() != shape_head + 2 * shape[6])
        refuse("its shape is incomplete");
    constexpr uint64_t most = std::numeric_limits<uint32_t>::max();
    if (shape[0] >= most || shape[1] >= most || shape[2] >= most || shape[3] >= (uint64_t{1} << 40))
        refuse("its shape is out of range");
    vocabulary_ = static_cast<uint32_t>(shape[0]);
    rows_ = static_cast<uint32_t>(shape[1]);
    documents_ = static_cast<uint32_t>(shape[2]);
    pairs_ = shape[3];
    indexed_ = shape[5] != 0;
    most_docids_ = static_cast<uint32_t>(std::min<uint64_t>(shape[7], pairs_));
    if (shape[4] > most_slots || (rows_ > 0 && (documents_ == 0 || vocabulary_ == 0))) refuse("its shape is out of range");

    uint64_t token_count = 0, row = 0, longest = 0;
    const uint64_t start_blocks = Offsets::blocks(uint64_t{vocabulary_} + 1) * 2;
    std::vector<uint64_t> at_least(most_slots + 1);  // rows with more than i tokens
    for (size_t c = 0; c < shape[6]; ++c) {
        const uint64_t length = shape[shape_head + 2 * c], rows = shape[shape_head + 2 * c + 1];
        if (length <= longest || length > longest_docid || rows == 0 || row + rows > rows_) refuse("its classes overlap");
        if (arrays.start_heads.size() < start_blocks * (c + 1)) refuse("its classes lack offsets");
        longest = length;
        classes_.push_back({static_cast<uint32_t>(length), static_cast<uint32_t>(row), static_cast<uint32_t>(row + rows),
                            token_count,
                            Offsets(arrays.start_heads.subspan(start_blocks * c, start_blocks), arrays.start_bits,
                                    uint64_t{vocabulary_} + 1)});
        for (uint64_t t = 0; t < std::min<uint64_t>(length, most_slots); ++t) at_least[t] += rows;
        row += rows;
        token_count += length * rows;
    }
    if (row != rows_) refuse("its classes have gaps");
    tokens_ = Packed(arrays.tokens, bits_for(vocabulary_ > 0 ? vocabulary_ - 1 : 0), token_count);
    row_docs_ = Packed(arrays.row_docs, bits_for(documents_ > 0 ? documents_ - 1 : 0), pairs_);
    row_doc_offsets_ = Offsets(arrays.row_doc_heads, arrays.row_doc_bits, uint64_t{rows_} + 1);
    if (!indexed_) return;
    const unsigned row_bits = bits_for(rows_ > 0 ? rows_ - 1 : 0);
    doc_rows_ = Packed(arrays.doc_rows, row_bits, pairs_);
    doc_row_offsets_ = Offsets(arrays.doc_row_heads, arrays.doc_row_bits, uint64_t{documents_} + 1);
    const uint64_t places = std::min<uint64_t>(longest, shape[4]);
    size_t byte = 0, head = 0;
    for (uint64_t place = 1; place < places; ++place) {
        const size_t size = packed_bytes(at_least[place], row_bits);
        if (arrays.postings.size() < byte + size || arrays.posting_heads.size() < head + start_blocks)
            refuse("its postings are incomplete");
        postings_.emplace_back(arrays.postings.subspan(byte, size), row_bits, at_least[place]);
        posting_offsets_.emplace_back(arrays.posting_heads.subspan(head, start_blocks), arrays.posting_bits,
                                      uint64_t{vocabulary_} + 1);
        byte += size;
        head += start_blocks;
    }
}

const LengthClass& DocidTable::class_of(uint32_t row) const {
    size_t c = 0;
    while (c + 1 < classes_.size() && row >= classes_[c].end) ++c;
    return classes_[c];
}

std::vector<uint32_t> DocidTable::tokens(uint32_t row) const {
    const LengthClass& in = class_of(row);
    std::vector<uint32_t> out(in.length);
    for (uint32_t i = 0; i < in.length; ++i) out[i] = token(in, row, i);
    return out;
}

std::pair<uint32_t, uint32_t> DocidTable::child(const LengthClass& in, uint32_t from, uint32_t to, uint32_t place,
                                                uint32_t token) const {
    if (place == 0) {
        if (token >= vocabulary_) return {from, from};
        const auto [a, b] = within(in.starts[token], in.starts[token + 1], in.end - in.begin);
        return {in.begin + static_cast<uint32_t>(a), in.begin + static_cast<uint32_t>(b)};
    }
    uint32_t low = from, high = to;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (this->token(in, middle, place) < token) low = middle + 1;
        else high = middle;
    }
    if (low == to || this->token(in, low, place) != token) return {low, low};
    return {low, next_child(in, low, to, place)};
}

uint32_t DocidTable::next_child(const LengthClass& in, uint32_t from, uint32_t to, uint32_t place) const {
    const uint32_t first = token(in, from, place);
    uint64_t step = 1, low = from;  // the token at low is `first`
    while (low + step < to && token(in, static_cast<uint32_t>(low + step), place) == first) {
        low += step;
        step *= 2;
    }
    uint64_t high = std::min<uint64_t>(low + step, to);
    ++low;
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        if (token(in, static_cast<uint32_t>(middle), place) == first) low = middle + 1;
        else high = middle;
    }
    return static_cast<uint32_t>(low);
}

uint32_t DocidTable::find(std::span<const uint32_t> wanted) const {
    for (const LengthClass& in : classes_) {
        if (in.length != wanted.size()) continue;
        uint32_t from = in.begin, to = in.end;
        for (uint32_t place = 0; place < in.length && from < to; ++place)
            std::tie(from, to) = child(in, from, to, place, wanted[place]);
        return from < to ? from : rows_;
    }
    return rows_;
}

std::pair<uint64_t, uint64_t> DocidTable::pairs_of(uint32_t row) const {
    return within(row_doc_offsets_[row] + row, row_doc_offsets_[row + 1] + row + 1, pairs_);
}

std::pair<uint64_t, uint64_t> DocidTable::rows_of(uint32_t document) const {
    return within(doc_row_offsets_[document], doc_row_offsets_[document + 1], pairs_);
}

std::pair<uint64_t, uint64_t> DocidTable::occurrences(uint32_t place, uint32_t token) const {
    if (token >= vocabulary_ || place >= indexed_places()) return {0, 0};
    const Offsets& offsets = posting_offsets_[place - 1];
    return within(offsets[token], offsets[token + 1], postings_[place - 1].size());
}

}  // namespace pixnar
