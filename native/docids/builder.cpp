#include "docids/builder.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace pixnar {

namespace {

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
    TableAssembly table(vocabulary_, documents);
    // Sort and deduplicate every class; the first record of a row stands for it.
    for (auto& [of_length, records] : by_length_) {
        const uint32_t length = of_length;  // lambdas cannot capture a binding everywhere
        const auto order = sorted_records(records.tokens, records.documents, length, vocabulary_,
                                          workers.named("sorting docids: " + std::to_string(length) + " tokens"));
        std::vector<uint32_t> rows;
        auto tokens_of = [&, &tokens = records.tokens](uint32_t record) { return tokens.data() + static_cast<size_t>(record) * length; };
        for (const uint32_t record : order) {
            const uint32_t document = records.documents[record];
            if (rows.empty() || !std::equal(tokens_of(record), tokens_of(record) + length, tokens_of(rows.back()))) {
                rows.push_back(record);
                table.add_row(document);
                if (spelled_) row_spelling_.push_back(records.spellings[record]);
                continue;
            }
            if (spelled_) row_spelling_.back() = std::min(row_spelling_.back(), records.spellings[record]);
            if (table.last_document() != document) table.add_document(document);
        }
        table.add_class(length, rows.size(), workers, [&](size_t row) { return tokens_of(rows[row]); });
        records = Records{};
    }
    by_length_.clear();
    return table.finish(index, workers);
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
