#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "docids/builder.hpp"
#include "tests/check.hpp"
#include "tests/random.hpp"
#include "tests/search_spaces.hpp"

using namespace pixnar;
using namespace pixnar::test;

namespace {

constexpr uint64_t sizes_at_borders[] = {0, 1, 2, 7, 8, 9, 127, 128, 129, 255, 256, 257, 1000};

void test_packed() {
    Random random(1);
    for (unsigned width = 1; width <= 32; ++width) {
        const auto most = static_cast<uint32_t>((uint64_t{1} << width) - 1);
        for (const uint64_t count : sizes_at_borders) {
            std::vector<uint32_t> values(count);
            for (uint32_t& value : values)
                value = random.one_in(4) ? most : random.one_in(4) ? 0 : static_cast<uint32_t>(random.next()) & most;
            // Exactly as many bytes as asked for, so that a read past the end is seen.
            std::vector<uint8_t> bytes(packed_bytes(count, width));
            PackedWriter writer(bytes.data(), width);
            for (const uint32_t value : values) writer.put(value);
            writer.finish();
            const Packed packed(bytes, width, count);
            CHECK_EQ(packed.size(), count);
            bool same = true;
            for (uint64_t i = 0; i < count; ++i) same &= packed[i] == values[i];
            if (!CHECK(same)) std::fprintf(stderr, "  width %u, count %llu\n", width, static_cast<unsigned long long>(count));
            CHECK(std::all_of(bytes.end() - packed_spare, bytes.end(), [](uint8_t byte) { return byte == 0; }));
            CHECK_THROWS(std::invalid_argument, "reach past", Packed(std::span(bytes).first(bytes.size() - 1), width, count));
        }
    }
    CHECK_THROWS(std::invalid_argument, "reach past", Packed({}, 1, 0));
    CHECK_THROWS(std::invalid_argument, "reach past", Packed(std::vector<uint8_t>(100), 33, 1));
    for (const auto& [largest, bits] : {std::pair<uint64_t, unsigned>{0, 1}, {1, 1}, {2, 2}, {255, 8}, {256, 9}, {0xffffffff, 32}})
        CHECK_EQ(bits_for(largest), bits);
}

// Writers at byte borders do not disturb each other: eight numbers of any width end at one.
void test_packed_side_by_side() {
    for (unsigned width = 1; width <= 32; ++width) {
        const auto most = static_cast<uint32_t>((uint64_t{1} << width) - 1);
        std::vector<uint8_t> bytes(packed_bytes(24, width));
        for (const unsigned part : {2u, 0u, 1u}) {
            PackedWriter writer(bytes.data() + part * width, width);
            for (unsigned i = 0; i < 8; ++i) writer.put((part * 8 + i) * 0x9e3779b9u & most);
            writer.finish();
        }
        const Packed packed(bytes, width, 24);
        for (unsigned i = 0; i < 24; ++i) CHECK_EQ(packed[i], i * 0x9e3779b9u & most);
    }
}

std::vector<uint64_t> rising(Random& random, uint64_t count, int kind) {
    std::vector<uint64_t> values;
    uint64_t value = 0;
    for (uint64_t i = 0; i < count; ++i) {
        values.push_back(value);
        switch (kind) {
            case 0: break;                                                                  // all equal
            case 1: value += random.one_in(300); break;                                     // long runs of equal values
            case 2: value += random.below(3); break;
            case 3: value += random.one_in(50) ? random.next() >> 20 : 0; break;            // huge jumps
            case 4: value += (i + 1) % 128 == 0 ? uint64_t{1} << 55 : 1; break;             // jumps between blocks
            case 5: value += i % 128 == 0 ? (uint64_t{1} << 56) - 1 : 0; break;             // the widest block there can be
            default: value += random.next() >> (14 + random.below(50)); break;
        }
    }
    return values;
}

void test_offsets() {
    Random random(2);
    for (int kind = 0; kind < 7; ++kind)
        for (const uint64_t count : sizes_at_borders) {
            if (kind == 5 && count > 257) continue;  // would pass 64 bits
            // Three sequences one behind the other, as tables store them.
            std::vector<std::vector<uint64_t>> sequences;
            OffsetsWriter writer;
            std::vector<size_t> begins{0};
            for (const uint64_t size : {count, uint64_t{130}, count}) {
                sequences.push_back(rising(random, size, size == 130 ? 2 : kind));
                writer.append(size, [&](uint64_t i) { return sequences.back()[i]; });
                begins.push_back(writer.heads.size());
            }
            writer.finish();
            writer.bits.shrink_to_fit();
            for (size_t i = 0; i < sequences.size(); ++i) {
                const auto& wanted = sequences[i];
                const Offsets offsets(std::span(writer.heads).subspan(begins[i], begins[i + 1] - begins[i]), writer.bits,
                                      wanted.size());
                bool same = offsets.size() == wanted.size();
                for (uint64_t j = 0; j < wanted.size(); ++j) same &= offsets[j] == wanted[j];
                if (!CHECK(same)) std::fprintf(stderr, "  kind %d, count %llu\n", kind, static_cast<unsigned long long>(count));
            }
        }
    OffsetsWriter writer;
    writer.append(2, [](uint64_t i) { return i * ((uint64_t{1} << 56) - 1); });
    CHECK_THROWS(std::length_error, "56 bits", writer.append(2, [](uint64_t i) { return i << 56; }));
    const std::vector<uint64_t> heads(4);
    const std::vector<uint8_t> bits(packed_spare), none;
    for (const uint64_t count : {0, 128, 257}) CHECK_THROWS(std::invalid_argument, "reach past", Offsets(heads, bits, count));
    CHECK_THROWS(std::invalid_argument, "reach past", Offsets(heads, none, 200));
    CHECK_EQ(Offsets(heads, bits, 129)[128], 0u);
    CHECK_EQ(Offsets({}, bits, 0).size(), 0u);
    // Heads that point anywhere are read from within.
    for (const uint64_t place : {~uint64_t{0}, uint64_t{1} << 63, uint64_t{63}, uint64_t{9} << 6 | 40}) {
        const std::vector<uint64_t> wild{~uint64_t{0}, place};
        for (const uint64_t i : {0, 1, 127}) (void)Offsets(wild, bits, 128)[i];
    }
}

// Everything a table can be asked, against a plain map.
void check_table(const DocidTable& table, const Docids& docids, uint32_t vocabulary, uint32_t documents, bool index) {
    std::vector<const Tokens*> rows;  // in the order of the table
    for (const auto& docid : docids) rows.push_back(&docid.first);
    std::stable_sort(rows.begin(), rows.end(), [](const Tokens* a, const Tokens* b) { return a->size() < b->size(); });

    CHECK_EQ(table.vocabulary(), vocabulary);
    CHECK_EQ(table.documents(), documents);
    CHECK_EQ(table.indexed(), index);
    if (!CHECK_EQ(table.rows(), rows.size())) return;
    std::map<uint32_t, std::vector<uint32_t>> rows_of;
    uint64_t pairs = 0;
    for (uint32_t row = 0; row < rows.size(); ++row) {
        const Tokens& tokens = *rows[row];
        CHECK_EQ(table.tokens(row), tokens);
        CHECK_EQ(table.class_of(row).length, tokens.size());
        CHECK_EQ(table.find(tokens), row);
        const auto [from, to] = table.pairs_of(row);
        CHECK_EQ(from, pairs);
        std::vector<uint32_t> named;
        for (uint64_t pair = from; pair < to; ++pair) named.push_back(table.pair_document(pair));
        const std::set<uint32_t>& wanted = docids.at(tokens);
        CHECK_EQ(named, std::vector<uint32_t>(wanted.begin(), wanted.end()));
        for (const uint32_t document : wanted) rows_of[document].push_back(row);
        pairs += wanted.size();
        Tokens other = tokens;  // docids that are not there, most of them
        for (int change = 0; change < 4; ++change) {
            if (change == 0) ++other.back();
            if (change == 1) other.push_back(0);
            if (change == 2) other.resize(tokens.size() - 1);
            if (change == 3) other.assign(tokens.size(), vocabulary - 1);
            const auto known = docids.find(other);
            const uint32_t found = table.find(other);
            CHECK(known == docids.end() ? found == table.rows() : found < table.rows() && *rows[found] == other);
        }
    }
    CHECK_EQ(table.pairs(), pairs);
    uint64_t most = 0;
    for (const auto& [document, of_document] : rows_of) most = std::max<uint64_t>(most, of_document.size());
    CHECK_EQ(table.most_docids(), most);

    uint32_t row = 0;
    uint64_t first_token = 0;
    for (const LengthClass& in : table.classes()) {
        CHECK_EQ(in.begin, row);
        CHECK_EQ(in.first_token, first_token);
        while (row < rows.size() && rows[row]->size() == in.length) ++row;
        CHECK_EQ(in.end, row);
        CHECK(in.begin < in.end);
        first_token += uint64_t{in.length} * (in.end - in.begin);
    }
    CHECK_EQ(row, rows.size());
    CHECK_EQ(table.find({}), table.rows());

    if (!index) return;
    for (uint32_t document = 0; document < documents; ++document) {
        std::vector<uint32_t> found;
        const auto [from, to] = table.rows_of(document);
        for (uint64_t i = from; i < to; ++i) found.push_back(table.document_row(i));
        CHECK_EQ(found, rows_of[document]);
    }
    std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> postings;
    uint32_t places = 1;
    for (uint32_t i = 0; i < rows.size(); ++i)
        for (uint32_t place = 1; place < std::min<size_t>(rows[i]->size(), most_slots); ++place) {
            postings[{place, (*rows[i])[place]}].push_back(i);
            places = std::max(places, place + 1);
        }
    CHECK_EQ(table.indexed_places(), places);
    uint64_t listed = 0, wanted = 0;
    for (uint32_t place = 1; place < places; ++place)
        for (uint32_t token = 0; token < vocabulary; ++token) {
            const auto [from, to] = table.occurrences(place, token);
            listed += to - from;
        }
    for (const auto& [key, list] : postings) {
        std::vector<uint32_t> found;
        const auto [from, to] = table.occurrences(key.first, key.second);
        for (uint64_t i = from; i < to; ++i) found.push_back(table.posting(key.first, i));
        CHECK_EQ(found, list);
        wanted += list.size();
    }
    CHECK_EQ(listed, wanted);
    for (const auto& [place, token] : {std::pair{places, 0u}, {places + 7, 0u}, {1u, vocabulary}, {1u, ~0u}})
        CHECK(table.occurrences(place, token) == std::pair(uint64_t{0}, uint64_t{0}));
}

// Goes down the trie of every class by probing and by walking.
void check_trie(Random& random, const DocidTable& table, uint32_t vocabulary) {
    for (const LengthClass& in : table.classes()) {
        std::vector<std::tuple<uint32_t, uint32_t, uint32_t>> open{{in.begin, in.end, 0}};
        for (int steps = 0; !open.empty() && steps < 400; ++steps) {
            const auto [from, to, place] = open.back();
            open.pop_back();
            std::map<uint32_t, std::pair<uint32_t, uint32_t>> children;
            for (uint32_t row = from; row < to; ++row) {
                const uint32_t token = table.token(in, row, place);
                children.try_emplace(token, row, row).first->second.second = row + 1;
            }
            uint32_t row = from;
            for (const auto& [token, range] : children) {
                CHECK_EQ(row, range.first);
                row = table.next_child(in, row, to, place);
                CHECK_EQ(row, range.second);
                CHECK(table.child(in, from, to, place, token) == range);
                if (place + 1 < in.length) open.emplace_back(range.first, range.second, place + 1);
                for (const uint32_t other : {token + 1, token - 1, random.below(vocabulary), vocabulary, ~0u}) {
                    if (children.contains(other)) continue;
                    const auto [a, b] = table.child(in, from, to, place, other);
                    CHECK_EQ(a, b);
                }
            }
            CHECK_EQ(row, to);
            random.shuffle(open);
        }
    }
}

void check_same_bytes(const TableStore& a, const TableStore& b) {
    CHECK(a.shape == b.shape && a.tokens == b.tokens && a.start_heads == b.start_heads && a.start_bits == b.start_bits);
    CHECK(a.row_docs == b.row_docs && a.row_doc_heads == b.row_doc_heads && a.row_doc_bits == b.row_doc_bits);
    CHECK(a.doc_rows == b.doc_rows && a.doc_row_heads == b.doc_row_heads && a.doc_row_bits == b.doc_row_bits);
    CHECK(a.postings == b.postings && a.posting_heads == b.posting_heads && a.posting_bits == b.posting_bits);
}

void check_records(Random& random, std::vector<Record> records, uint32_t vocabulary, uint32_t documents) {
    Docids docids;
    for (const auto& [tokens, document] : records) docids[tokens].insert(document);
    const TableStore store = build_table(records, vocabulary, documents);
    const DocidTable table(store.arrays());
    check_table(table, docids, vocabulary, documents, true);
    check_trie(random, table, vocabulary);
    check_same_bytes(store, build_table(records, vocabulary, documents, true, 2));
    random.shuffle(records);
    check_same_bytes(store, build_table(records, vocabulary, documents, true, 2));
    TableStore bare = build_table(records, vocabulary, documents, false);
    CHECK(bare.postings.empty() && bare.doc_rows.empty() && bare.doc_row_heads.empty() && bare.posting_heads.empty());
    CHECK_EQ(bare.shape[5], 0u);
    check_table(DocidTable(bare.arrays()), docids, vocabulary, documents, false);
    bare.shape[5] = 1;
    if (!records.empty()) CHECK_THROWS(std::invalid_argument, "", DocidTable(bare.arrays()));
}

void test_tables() {
    Random random(3);
    for (const uint32_t vocabulary : {1u, 2u, 13u, 5000u, 100000u})
        for (const uint32_t count : {0u, 1u, 2u, 40u, 129u, 700u}) {
            if (vocabulary == 100000 && count > 2 && count != 129) continue;  // each length has offsets for all tokens
            const SkewedTokens skewed(random, vocabulary);
            const uint32_t documents = 1 + random.below(count + 1), longest = vocabulary == 100000 ? 4 : 40;
            std::vector<Record> records;
            for (const Tokens& docid : random_docids(random, count, skewed, longest))
                for (uint32_t n = random.one_in(3) ? 1 + random.below(5) : 1; n > 0; --n)
                    records.push_back({docid, random.below(documents)});
            if (count > 1) {
                for (int n = 0; n < 5; ++n) records.push_back(random.pick(records));  // the same again
                Tokens very_long(3000);
                for (uint32_t& token : very_long) token = skewed.draw(random);
                records.push_back({very_long, 0});
            }
            check_records(random, records, vocabulary, documents);
        }
}

// More rows than one work item takes, of one length and of several, and one token that has almost all of them.
void test_many_rows() {
    Random random(4);
    std::vector<Record> records;
    constexpr uint32_t documents = 50000;
    for (uint32_t i = 0; i < 160000; ++i)
        records.push_back({{random.one_in(10) ? random.below(3000) : 7, random.below(3000), random.below(3000)},
                           random.below(documents)});
    for (uint32_t i = 0; i < 80000; ++i)
        records.push_back({{random.below(3000), random.below(3000)}, random.below(documents)});
    const TableStore one = build_table(records, 3000, documents, true, 1);
    check_same_bytes(one, build_table(records, 3000, documents, true, 2));
    check_same_bytes(one, build_table(records, 3000, documents, true, 3));
    const DocidTable table(one.arrays());
    Docids docids;
    for (const auto& [tokens, document] : records) docids[tokens].insert(document);
    CHECK_EQ(table.rows(), docids.size());
    for (const LengthClass& in : table.classes()) CHECK(in.end - in.begin > 1 << 16);
    check_trie(random, table, 3000);
    uint32_t row = 0;
    for (const size_t length : {size_t{2}, size_t{3}})
        for (const auto& [tokens, named] : docids) {
            if (tokens.size() != length) continue;
            if (row % 101 == 0 || row % 65536 < 2 || row % 65536 == 65535) {
                CHECK_EQ(table.tokens(row), tokens);
                CHECK_EQ(table.find(tokens), row);
                const auto [from, to] = table.pairs_of(row);
                CHECK_EQ(to - from, named.size());
                CHECK_EQ(table.pair_document(from), *named.begin());
            }
            ++row;
        }
    uint64_t listed = 0;
    for (uint32_t token = 0; token < 3000; ++token) {
        const auto [from, to] = table.occurrences(1, token);
        listed += to - from;
        for (uint64_t i = from; i < to; i += 97) {
            const uint32_t found = table.posting(1, i);
            CHECK_EQ(table.token(table.class_of(found), found, 1), token);
            if (i > from) CHECK(table.posting(1, i - 1) < found);
        }
    }
    CHECK_EQ(listed, table.rows());
    CHECK_EQ(table.occurrences(2, 0).second + 0, table.occurrences(2, 1).first);
}

void test_spellings() {
    Random random(5);
    for (int round = 0; round < 40; ++round) {
        const uint32_t vocabulary = 1 + random.below(20);
        const SkewedTokens skewed(random, vocabulary);
        const std::vector<Tokens> docids = random_docids(random, 1 + random.below(60), skewed, 5);
        std::map<Tokens, std::string> first;
        DocidBuilder builder(vocabulary);
        uint64_t records = 0;
        for (uint32_t batch = 0; batch < 4; ++batch) {
            std::vector<uint32_t> ids, documents;
            std::vector<int64_t> offsets{0}, text_offsets{0};
            std::string texts;
            for (uint32_t n = random.below(80); n > 0; --n) {
                const Tokens& docid = random.pick(docids);
                const std::string text = random_text(random, random.one_in(9) ? 400 : 6);
                first.try_emplace(docid, text);
                ids.insert(ids.end(), docid.begin(), docid.end());
                offsets.push_back(static_cast<int64_t>(ids.size()));
                documents.push_back(random.below(9));
                texts += text;
                text_offsets.push_back(static_cast<int64_t>(texts.size()));
            }
            builder.add(ids, offsets, documents, texts, text_offsets);
            records += documents.size();
        }
        CHECK_EQ(builder.records(), records);
        const TableStore store = builder.finish(9, random.one_in(2), Workers{1 + random.below(2), {}, {}});
        const DocidTable table(store.arrays());
        const auto [bytes, offsets] = builder.spellings(0, table.rows());
        CHECK_EQ(offsets.size(), table.rows() + size_t{1});
        for (uint32_t row = 0; row < table.rows(); ++row) {
            const auto size = static_cast<size_t>(offsets[row + 1] - offsets[row]);
            CHECK_EQ(bytes.substr(static_cast<size_t>(offsets[row]), size), first.at(table.tokens(row)));
            CHECK_EQ(builder.spellings(row, row + 1).first, first.at(table.tokens(row)));
        }
        CHECK_EQ(builder.spellings(table.rows(), table.rows()).first, "");
        CHECK_THROWS(std::out_of_range, "no such rows", builder.spellings(0, table.rows() + 1));
        CHECK_THROWS(std::out_of_range, "no such rows", builder.spellings(1, 0));
    }
}

void test_errors() {
    using Ids = std::vector<uint32_t>;
    using Places = std::vector<int64_t>;
    const auto refused = [](const Ids& ids, const Places& offsets, const Ids& documents, std::string_view texts = {},
                            const Places& text_offsets = {}) {
        DocidBuilder builder(5);
        builder.add(ids, offsets, documents, texts, text_offsets);
    };
    const std::string fit = "offsets do not fit the tokens", spelled = "offsets do not fit the spellings";
    CHECK_THROWS(std::out_of_range, "token id 5 is not below the vocabulary size 5", refused({4, 5}, {0, 2}, {0}));
    CHECK_THROWS(std::out_of_range, "token id 4294967295", refused({~0u}, {0, 1}, {0}));
    CHECK_THROWS(std::invalid_argument, "without tokens", refused({1, 2}, {0, 1, 1}, {0, 0}));
    CHECK_THROWS(std::invalid_argument, fit, refused({1, 2}, {0, 2}, {0, 0}));
    CHECK_THROWS(std::invalid_argument, fit, refused({1, 2}, {}, {}));
    CHECK_THROWS(std::invalid_argument, fit, refused({1, 2}, {-1, 2}, {0}));
    CHECK_THROWS(std::invalid_argument, fit, refused({1, 2}, {0, 3}, {0}));
    CHECK_THROWS(std::invalid_argument, fit, refused({1, 2}, {0, std::numeric_limits<int64_t>::min()}, {0}));
    CHECK_THROWS(std::invalid_argument, "", refused({1, 2}, {2, 1}, {0}));
    CHECK_THROWS(std::invalid_argument, spelled, refused({1, 2}, {0, 2}, {0}, "ab", {0}));
    CHECK_THROWS(std::invalid_argument, spelled, refused({1, 2}, {0, 2}, {0}, "ab", {0, 3}));
    CHECK_THROWS(std::invalid_argument, spelled, refused({1, 2}, {0, 2}, {0}, "ab", {-1, 1}));
    CHECK_THROWS(std::invalid_argument, spelled, refused({1, 2}, {0, 2}, {0}, "ab", {2, 1}));
    CHECK_THROWS(std::invalid_argument, "", refused({1, 2}, {0, 60000, 2}, {0, 0}));  // a border inside is too far
    CHECK_THROWS(std::invalid_argument, spelled, refused({1, 2}, {0, 1, 2}, {0, 0}, "ab", {0, 100000, 2}));
    CHECK_THROWS(std::length_error, "65,536", refused(Ids(longest_docid + 1), {0, longest_docid + 1}, {0}));
    refused({1, 2, 3}, {1, 2}, {0}, "abc", {1, 1});  // neither needs to begin at 0 or reach the end

    DocidBuilder some(5);
    some.add(Ids{1}, Places{0, 1}, Ids{0});
    CHECK_THROWS(std::invalid_argument, "some docids have spellings", some.add(Ids{1}, Places{0, 1}, Ids{0}, "a", Places{0, 1}));
    CHECK_EQ(some.records(), 1u);
    CHECK_THROWS(std::out_of_range, "a docid names document 0 of 0", some.finish(0, true, Workers{}));
    DocidBuilder outside(5);
    outside.add(Ids{1, 2}, Places{0, 1, 2}, Ids{3, 4});
    CHECK_THROWS(std::out_of_range, "a docid names document 4 of 4", outside.finish(4, true, Workers{}));

    // What was refused leaves nothing behind.
    DocidBuilder mended(5);
    CHECK_THROWS(std::invalid_argument, "without tokens", mended.add(Ids{1, 2}, Places{0, 1, 1}, Ids{0, 0}));
    mended.add(Ids{2}, Places{0, 1}, Ids{0}, "two", Places{0, 3});
    CHECK_EQ(mended.records(), 1u);
    const TableStore store = mended.finish(1, true, Workers{});
    CHECK_EQ(DocidTable(store.arrays()).rows(), 1u);
    CHECK_EQ(mended.spellings(0, 1).first, "two");

    // The longest docid there may be.
    DocidBuilder longest(3);
    Ids ids(longest_docid, 2);
    ids.back() = 1;
    longest.add(ids, Places{0, longest_docid}, Ids{0});
    const TableStore long_store = longest.finish(1, true, Workers{});
    const DocidTable long_table(long_store.arrays());
    CHECK_EQ(long_table.tokens(0), ids);
    CHECK_EQ(long_table.find(ids), 0u);
    CHECK_EQ(long_table.indexed_places(), most_slots);
}

}  // namespace

int main() {
    test_packed();
    test_packed_side_by_side();
    test_offsets();
    test_errors();
    test_spellings();
    test_tables();
    test_many_rows();
    return checks_done();
}
