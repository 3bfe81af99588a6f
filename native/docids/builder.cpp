#include "docids/builder.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace pixnar {

namespace {

constexpr size_t slice = 1 << 16;  // rows or numbers that one work item handles; a multiple of 8

// Packs values[i] for i in [0, count) on all threads.
template <class At> void pack(std::vector<uint8_t>& into, size_t at, uint64_t count, unsigned width, const Workers& workers, At value) {
    workers.run((count + slice - 1) / slice, [&](size_t item, unsigned) {
        const uint64_t from = item * slice, to = std::min<uint64_t>(count, from + slice);
        PackedWriter writer(into.data() + at + from * width / 8, width);
        for (uint64_t i = from; i < to; ++i) writer.put(value(i));
        writer.finish();
    });
}

struct SortKey {
    uint64_t head;  // the first two tokens
    uint32_t record;
};

// Records sorted by tokens, then document, then arrival.
std::vector<uint32_t> sorted_records(std::span<const uint32_t> tokens, std::span<const uint32_t> documents, uint32_t length,
                                     uint32_t vocabulary, const Workers& workers) {
    const size_t n = documents.size();
    auto less = [&](const SortKey& a, const SortKey& b) {
        if (a.head != b.head) return a.head < b.head;
        const uint32_t* left = tokens.data() + static_cast<size_t>(a.record) * length;
        const uint32_t* right = tokens.data() + static_cast<size_t>(b.record) * length;
        for (uint32_t i = 2; i < length; ++i)
            if (left[i] != right[i]) return left[i] < right[i];
        if (documents[a.record] != documents[b.record]) return documents[a.record] < documents[b.record];
        return a.record < b.record;
    };
    // Buckets by first token, about equally full, are sorted side by side.
    std::vector<uint32_t> counts(vocabulary);
    for (size_t i = 0; i < n; ++i) ++counts[tokens[i * length]];
    const size_t full = std::max<size_t>(n / 64, 1024);
    std::vector<uint32_t> bucket_of(vocabulary);
    std::vector<size_t> begins{0};
    size_t filled = 0;
    for (uint32_t v = 0; v < vocabulary; ++v) {
        if (filled >= full) {
            begins.push_back(begins.back() + filled);
            filled = 0;
        }
        bucket_of[v] = static_cast<uint32_t>(begins.size() - 1);
        filled += counts[v];
    }
    begins.push_back(n);
    std::vector<SortKey> keys(n);
    std::vector<size_t> at(begins);
    for (size_t i = 0; i < n; ++i) {
        const uint32_t* row = tokens.data() + i * length;
        const uint64_t head = static_cast<uint64_t>(row[0]) << 32 | (length > 1 ? row[1] : 0);
        keys[at[bucket_of[row[0]]]++] = {head, static_cast<uint32_t>(i)};
    }
    workers.run(begins.size() - 1, [&](size_t b, unsigned) {
        std::sort(keys.begin() + static_cast<ptrdiff_t>(begins[b]), keys.begin() + static_cast<ptrdiff_t>(begins[b + 1]), less);
    });
    std::vector<uint32_t> order(n);
    for (size_t i = 0; i < n; ++i) order[i] = keys[i].record;
    return order;
}

}  // namespace

TableArrays TableStore::arrays() const {
    return {shape,    tokens,        start_heads,  start_bits, row_docs,      row_doc_heads, row_doc_bits,
            doc_rows, doc_row_heads, doc_row_bits, postings,   posting_heads, posting_bits};
}

void DocidBuilder::add(std::span<const uint32_t> ids, std::span<const int64_t> offsets, std::span<const uint32_t> documents,
                       std::string_view bytes, std::span<const int64_t> text_offsets) {
    const size_t n = documents.size();
    if (offsets.size() != n + 1 || offsets.front() < 0 || static_cast<size_t>(offsets.back()) > ids.size())
        throw std::invalid_argument("offsets do not fit the tokens and documents");
    const bool spelled = !text_offsets.empty();
    if (records_ > 0 && spelled != spelled_) throw std::invalid_argument("some docids have spellings and some have none");
    if (spelled && (text_offsets.size() != n + 1 || text_offsets.front() < 0 ||
                    static_cast<size_t>(text_offsets.back()) > bytes.size()))
        throw std::invalid_argument("offsets do not fit the spellings");
    for (const uint32_t id : ids)
        if (id >= vocabulary_)
            throw std::out_of_range("token id " + std::to_string(id) + " is not below the vocabulary size " +
                                    std::to_string(vocabulary_));
    // All of it is looked at before any of it is taken.
    for (size_t i = 0; i < n; ++i) {
        if (offsets[i + 1] <= offsets[i]) throw std::invalid_argument("a docid without tokens");
        if (offsets[i + 1] - offsets[i] > longest_docid) throw std::length_error("a docid has more than 65,536 tokens: shorten it");
        if (!spelled) continue;
        if (text_offsets[i + 1] < text_offsets[i]) throw std::invalid_argument("offsets do not fit the spellings");
        if (text_offsets[i + 1] - text_offsets[i] > std::numeric_limits<uint32_t>::max())
            throw std::length_error("a spelling has more than 4 GB");
    }
    spelled_ = spelled;
    for (size_t i = 0; i < n; ++i) {
        Records& records = by_length_[static_cast<uint32_t>(offsets[i + 1] - offsets[i])];
        if (records.documents.size() >= std::numeric_limits<uint32_t>::max() - 1)
            throw std::length_error("more than 4 billion docids of one length");
        records.tokens.insert(records.tokens.end(), ids.begin() + offsets[i], ids.begin() + offsets[i + 1]);
        records.documents.push_back(documents[i]);
        if (!spelled) continue;
        const auto size = static_cast<uint32_t>(text_offsets[i + 1] - text_offsets[i]);
        records.spellings.push_back(texts_.size());
        texts_.append(reinterpret_cast<const char*>(&size), sizeof size);
        texts_.append(bytes.substr(static_cast<size_t>(text_offsets[i]), size));
    }
    records_ += n;
}

TableStore DocidBuilder::finish(uint32_t documents, bool index, const Workers& workers) {
    TableStore store;
    std::vector<uint32_t> pair_docs;
    std::vector<uint32_t> extra{0};  // by row, one more than there are: pairs before it, less one for each row before it
    std::vector<std::pair<uint32_t, uint32_t>> classes;
    OffsetsWriter starts;
    const unsigned width = bits_for(vocabulary_ > 0 ? vocabulary_ - 1 : 0);
    uint64_t token_count = 0;

    // Sort and deduplicate every class; the first record of a row stands for it.
    uint64_t row_count = 0;
    for (auto& [of_length, records] : by_length_) {
        const uint32_t length = of_length;  // lambdas cannot capture a binding everywhere
        const auto order = sorted_records(records.tokens, records.documents, length, vocabulary_,
                                          workers.named("sorting docids: " + std::to_string(length) + " tokens"));
        std::vector<uint32_t> rows;
        auto tokens_of = [&, &tokens = records.tokens](uint32_t record) { return tokens.data() + static_cast<size_t>(record) * length; };
        for (size_t i = 0; i < order.size(); ++i) {
            const uint32_t record = order[i];
            const uint32_t document = records.documents[record];
            if (document >= documents) throw std::out_of_range("a docid names document " + std::to_string(document) + " of " + std::to_string(documents));
            const bool same = !rows.empty() && std::equal(tokens_of(record), tokens_of(record) + length, tokens_of(rows.back()));
            if (!same) {
                rows.push_back(record);
                pair_docs.push_back(document);
                extra.push_back(extra.back());
                if (spelled_) row_spelling_.push_back(records.spellings[record]);
                continue;
            }
            if (spelled_) row_spelling_.back() = std::min(row_spelling_.back(), records.spellings[record]);
            if (pair_docs.back() == document) continue;
            pair_docs.push_back(document);
            ++extra.back();
        }
        row_count += rows.size();
        if (row_count >= std::numeric_limits<uint32_t>::max() - 1) throw std::length_error("more than 4 billion docids: split the table");
        classes.emplace_back(length, static_cast<uint32_t>(rows.size()));
        token_count += uint64_t{length} * rows.size();
        // Keep the tokens in row order, packed; the records themselves can go.
        std::vector<uint8_t> packed(packed_bytes(uint64_t{length} * rows.size(), width));
        const Workers packing = workers.silent();
        packing.run((rows.size() + slice - 1) / slice, [&](size_t item, unsigned) {
            const size_t from = item * slice, to = std::min(rows.size(), from + slice);
            PackedWriter writer(packed.data() + from * length * width / 8, width);
            for (size_t row = from; row < to; ++row)
                for (uint32_t t = 0; t < length; ++t) writer.put(tokens_of(rows[row])[t]);
            writer.finish();
        });
        std::vector<uint32_t> before(uint64_t{vocabulary_} + 1);
        for (const uint32_t record : rows) ++before[tokens_of(record)[0] + 1];
        std::partial_sum(before.begin(), before.end(), before.begin());
        starts.append(before.size(), [&](uint64_t v) { return before[v]; });
        records = Records{};
        // The classes follow each other bit by bit: put this one behind the ones before.
        const uint64_t bit = (token_count - uint64_t{length} * rows.size()) * width;
        store.tokens.resize(packed_bytes(token_count, width));
        const unsigned shift = bit & 7;
        const size_t bytes = (uint64_t{length} * rows.size() * width + 7) / 8;
        uint8_t* out = store.tokens.data() + (bit >> 3);
        if (shift == 0) {
            std::memcpy(out, packed.data(), bytes);
        } else {
            for (size_t i = 0; i < bytes; ++i) {
                out[i] = static_cast<uint8_t>(out[i] | packed[i] << shift);
                out[i + 1] = static_cast<uint8_t>(packed[i] >> (8 - shift));
            }
        }
    }
    by_length_.clear();
    starts.finish();
    store.start_heads = std::move(starts.heads);
    store.start_bits = std::move(starts.bits);
    if (store.tokens.empty()) store.tokens.resize(packed_spare);

    const uint64_t rows = row_count, pairs = pair_docs.size();
    if (pairs >= std::numeric_limits<uint32_t>::max()) throw std::length_error("more than 4 billion pairs of docid and document: split the table");
    const unsigned doc_bits = bits_for(documents > 0 ? documents - 1 : 0), row_bits = bits_for(rows > 0 ? rows - 1 : 0);
    store.row_docs.resize(packed_bytes(pairs, doc_bits));
    pack(store.row_docs, 0, pairs, doc_bits, workers.silent(), [&](uint64_t i) { return pair_docs[i]; });
    // extra[i + 1] counts the pairs of rows 0..i beyond one each.
    OffsetsWriter row_offsets;
    row_offsets.append(rows + 1, [&](uint64_t i) { return extra[i]; });
    row_offsets.finish();
    store.row_doc_heads = std::move(row_offsets.heads);
    store.row_doc_bits = std::move(row_offsets.bits);

    uint64_t most_docids = 0;
    std::vector<uint32_t> of_document(uint64_t{documents} + 1);
    for (const uint32_t document : pair_docs) ++of_document[document + 1];
    for (const uint32_t count : of_document) most_docids = std::max<uint64_t>(most_docids, count);
    const uint64_t places = std::min<uint64_t>(classes.empty() ? 0 : classes.back().first, most_slots);
    store.shape = {vocabulary_, rows, documents, pairs, places, index, classes.size(), most_docids};
    for (const auto& [length, count] : classes) store.shape.insert(store.shape.end(), {length, count});
    if (!index) return store;

    {
        std::partial_sum(of_document.begin(), of_document.end(), of_document.begin());
        OffsetsWriter offsets;
        offsets.append(of_document.size(), [&](uint64_t i) { return of_document[i]; });
        offsets.finish();
        store.doc_row_heads = std::move(offsets.heads);
        store.doc_row_bits = std::move(offsets.bits);
        std::vector<uint32_t> rows_by_doc(pairs), at(of_document.begin(), of_document.end() - 1);
        for (uint64_t row = 0, pair = 0; row < rows; ++row)
            for (const uint64_t end = extra[row + 1] + row + 1; pair < end; ++pair)
                rows_by_doc[at[pair_docs[pair]]++] = static_cast<uint32_t>(row);
        store.doc_rows.resize(packed_bytes(pairs, row_bits));
        pack(store.doc_rows, 0, pairs, row_bits, workers.silent(), [&](uint64_t i) { return rows_by_doc[i]; });
    }
    pair_docs = {};
    extra = {};

    const Packed tokens(store.tokens, width, token_count);
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
            for (const auto& [length, n] : classes) {
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
        store.postings.insert(store.postings.end(), packed[i].begin(), packed[i].end());
        packed[i] = {};
        // The blocks of a place follow those of the places before: move where they point.
        const uint64_t shift = static_cast<uint64_t>(store.posting_bits.size()) * 8;
        for (size_t h = 1; h < offsets[i].heads.size(); h += 2) offsets[i].heads[h] += shift << 6;
        store.posting_heads.insert(store.posting_heads.end(), offsets[i].heads.begin(), offsets[i].heads.end());
        store.posting_bits.insert(store.posting_bits.end(), offsets[i].bits.begin(), offsets[i].bits.end());
    }
    store.posting_bits.resize(store.posting_bits.size() + packed_spare);
    return store;
}

std::pair<std::string, std::vector<int64_t>> DocidBuilder::spellings(uint32_t from, uint32_t to) const {
    if (from > to || to > row_spelling_.size()) throw std::out_of_range("no such rows");
    std::string bytes;
    std::vector<int64_t> offsets{0};
    for (uint32_t row = from; row < to; ++row) {
        uint32_t size;
        std::memcpy(&size, texts_.data() + row_spelling_[row], sizeof size);
        bytes.append(texts_, row_spelling_[row] + sizeof size, size);
        offsets.push_back(static_cast<int64_t>(bytes.size()));
    }
    return {std::move(bytes), std::move(offsets)};
}

}  // namespace pixnar
