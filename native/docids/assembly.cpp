#include "docids/assembly.hpp"

namespace pixnar {

namespace {

constexpr size_t slice = TableAssembly::slice;

// Packs values[i] for i in [0, count) on all threads.
template <class At> void pack(std::vector<uint8_t>& into, size_t at, uint64_t count, unsigned width, const Workers& workers, At value) {
    workers.run((count + slice - 1) / slice, [&](size_t item, unsigned) {
        const uint64_t from = item * slice, to = std::min<uint64_t>(count, from + slice);
        PackedWriter writer(into.data() + at + from * width / 8, width);
        for (uint64_t i = from; i < to; ++i) writer.put(value(i));
        writer.finish();
    });
}

}  // namespace

TableArrays TableStore::arrays() const {
    return {shape,    tokens,        start_heads,  start_bits, row_docs,      row_doc_heads, row_doc_bits,
            doc_rows, doc_row_heads, doc_row_bits, postings,   posting_heads, posting_bits};
}

// The classes follow each other bit by bit: puts one behind the ones before.
void TableAssembly::append_bits(const std::vector<uint8_t>& packed, uint64_t tokens, unsigned width) {
    const uint64_t bit = token_count_ * width;
    token_count_ += tokens;
    store_.tokens.resize(packed_bytes(token_count_, width));
    const unsigned shift = bit & 7;
    const size_t bytes = (tokens * width + 7) / 8;
    uint8_t* out = store_.tokens.data() + (bit >> 3);
    if (shift == 0) {
        std::memcpy(out, packed.data(), bytes);
    } else {
        for (size_t i = 0; i < bytes; ++i) {
            out[i] = static_cast<uint8_t>(out[i] | packed[i] << shift);
            out[i + 1] = static_cast<uint8_t>(packed[i] >> (8 - shift));
        }
    }
}

TableStore TableAssembly::finish(bool index, const Workers& workers) {
    starts_.finish();
    store_.start_heads = std::move(starts_.heads);
    store_.start_bits = std::move(starts_.bits);
    if (store_.tokens.empty()) store_.tokens.resize(packed_spare);

    const uint64_t rows = rows_, pairs = pair_docs_.size();
    if (pairs >= std::numeric_limits<uint32_t>::max()) throw std::length_error("more than 4 billion pairs of docid and document: split the table");
    const unsigned doc_bits = bits_for(documents_ > 0 ? documents_ - 1 : 0), row_bits = bits_for(rows > 0 ? rows - 1 : 0);
    store_.row_docs.resize(packed_bytes(pairs, doc_bits));
    pack(store_.row_docs, 0, pairs, doc_bits, workers.silent(), [&](uint64_t i) { return pair_docs_[i]; });
    // extra_[i + 1] counts the pairs of rows 0..i beyond one each.
    OffsetsWriter row_offsets;
    row_offsets.append(rows + 1, [&](uint64_t i) { return extra_[i]; });
    row_offsets.finish();
    store_.row_doc_heads = std::move(row_offsets.heads);
    store_.row_doc_bits = std::move(row_offsets.bits);

    uint64_t most_docids = 0;
    std::vector<uint32_t> of_document(uint64_t{documents_} + 1);
    for (const uint32_t document : pair_docs_) ++of_document[document + 1];
    for (const uint32_t count : of_document) most_docids = std::max<uint64_t>(most_docids, count);
    const uint64_t places = std::min<uint64_t>(classes_.empty() ? 0 : classes_.back().first, most_slots);
    store_.shape = {vocabulary_, rows, documents_, pairs, places, index, classes_.size(), most_docids};
    for (const auto& [length, count] : classes_) store_.shape.insert(store_.shape.end(), {length, count});
    if (!index) return std::move(store_);

    {
        std::partial_sum(of_document.begin(), of_document.end(), of_document.begin());
        OffsetsWriter offsets;
        offsets.append(of_document.size(), [&](uint64_t i) { return of_document[i]; });
        offsets.finish();
        store_.doc_row_heads = std::move(offsets.heads);
        store_.doc_row_bits = std::move(offsets.bits);
        std::vector<uint32_t> rows_by_doc(pairs), at(of_document.begin(), of_document.end() - 1);
        for (uint64_t row = 0, pair = 0; row < rows; ++row)
            for (const uint64_t end = extra_[row + 1] + row + 1; pair < end; ++pair)
                rows_by_doc[at[pair_docs_[pair]]++] = static_cast<uint32_t>(row);
        store_.doc_rows.resize(packed_bytes(pairs, row_bits));
        pack(store_.doc_rows, 0, pairs, row_bits, workers.silent(), [&](uint64_t i) { return rows_by_doc[i]; });
    }
    pair_docs_ = {};
    extra_ = {};

    const Packed tokens(store_.tokens, bits_for(vocabulary_ > 0 ? vocabulary_ - 1 : 0), token_count_);
    const size_t inner = places > 0 ? places - 1 : 0;
    std::vector<std::vector<uint8_t>> packed(inner);
    std::vector<OffsetsWriter> offsets(inner);
    const Workers quiet{};
    workers.named("indexing places").run(inner, [&](size_t item, unsigned) {
        const uint32_t place = static_cast<uint32_t>(item) + 1;
        std::vector<uint32_t> before(uint64_t{vocabulary_} + 1);
        uint64_t count = 0;
        auto each = [&](auto&& visit) {
            uint64_t at = 0, row = 0;
            for (const auto& [length, n] : classes_) {
                if (length > place)
                    for (uint64_t i = 0; i < n; ++i) visit(tokens[at + i * length + place], static_cast<uint32_t>(row + i));
                at += uint64_t{length} * n;
                row += n;
            }
        };
        each([&](uint32_t token, uint32_t) {
            ++before[token + 1];
            ++count;
        });
        std::partial_sum(before.begin(), before.end(), before.begin());
        offsets[item].append(before.size(), [&](uint64_t v) { return before[v]; });
        std::vector<uint32_t> listed(count);
        each([&](uint32_t token, uint32_t row) { listed[before[token]++] = row; });
        packed[item].resize(packed_bytes(count, row_bits));
        pack(packed[item], 0, count, row_bits, quiet, [&](uint64_t i) { return listed[i]; });
    });
    for (size_t i = 0; i < inner; ++i) {
        store_.postings.insert(store_.postings.end(), packed[i].begin(), packed[i].end());
        packed[i] = {};
        // The blocks of a place follow those of the places before: move where they point.
        const uint64_t shift = static_cast<uint64_t>(store_.posting_bits.size()) * 8;
        for (size_t h = 1; h < offsets[i].heads.size(); h += 2) offsets[i].heads[h] += shift << 6;
        store_.posting_heads.insert(store_.posting_heads.end(), offsets[i].heads.begin(), offsets[i].heads.end());
        store_.posting_bits.insert(store_.posting_bits.end(), offsets[i].bits.begin(), offsets[i].bits.end());
    }
    store_.posting_bits.resize(store_.posting_bits.size() + packed_spare);
    return std::move(store_);
}

}  // namespace pixnar
