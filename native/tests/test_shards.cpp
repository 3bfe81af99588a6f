#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "docids/builder.hpp"
#include "docids/merge.hpp"
#include "tests/check.hpp"
#include "tests/corpus.hpp"
#include "tests/random.hpp"
#include "vocab/build/sharded.hpp"

using namespace pixnar;
using namespace pixnar::test;

namespace {

using LayerName = ShardedBuilder::LayerName;

// Counts in all shards, adds up bucket by bucket, extends, until there are no more levels.
void mine_shards(ShardedBuilder& builder, LayerName layer, std::vector<Shard>& shards, unsigned buckets) {
    while (builder.more(layer)) {
        const Level level = builder.level(layer);
        std::vector<Shard::Pairs> counted;
        for (Shard& shard : shards) counted.push_back(shard.count(level, buckets, 1 << 20));
        std::vector<Counted> all;
        for (unsigned b = 0; b < buckets; ++b) {
            std::vector<PairList> lists;
            for (const Shard::Pairs& pairs : counted) {
                const size_t from = pairs.borders[b], n = pairs.borders[b + 1] - from;
                lists.push_back({std::span(pairs.keys).subspan(from, n), std::span(pairs.counts).subspan(from, n)});
            }
            for (const Counted& pair : add_pairs(lists, builder.min_count())) all.push_back(pair);
        }
        const auto [keys, first] = builder.take(layer, all);
        if (keys.empty()) break;
        for (Shard& shard : shards) shard.extend(level, keys, first);
    }
}

Shard::Uses segment_shard(const ShardedBuilder& builder, LayerName layer, Shard& shard, std::span<const uint64_t> weights,
                          bool costs, bool lengths) {
    const Layer& from = builder.layer(layer);
    std::vector<uint32_t> prefixes;
    std::vector<uint16_t> sizes, scores;
    for (const auto& gram : from.grams().grams) {
        prefixes.push_back(gram.prefix);
        sizes.push_back(gram.length);
    }
    for (const Up& up : from.choices().up) scores.push_back(up.score);
    const std::vector<Up> up = link(from.grams().units, prefixes, sizes, scores, from.alive());
    return shard.segment({from.grams().units, from.alive(), up, from.unit_costs}, weights, costs, lengths);
}

void round_of(ShardedBuilder& builder, std::vector<Shard>& docids, std::vector<Shard>& words, bool lengths) {
    builder.selection().refresh();
    builder.clear_uses();
    uint64_t first = 0;
    for (Shard& shard : words) {
        builder.set_word_costs(first, segment_shard(builder, LayerName::pieces, shard, {}, true, false).costs);
        first += shard.size();
    }
    for (Shard& shard : docids) {
        const Shard::Uses uses = segment_shard(builder, LayerName::phrases, shard, {}, false, lengths);
        builder.add_uses(LayerName::phrases, uses.ids, uses.counts);
        builder.add_lengths(uses.lengths);
    }
    const std::vector<uint64_t> weights = builder.selection().word_weights();
    first = 0;
    for (Shard& shard : words) {
        const auto own = std::span(weights).subspan(first, shard.size());
        const Shard::Uses uses = segment_shard(builder, LayerName::pieces, shard, own, false, false);
        builder.add_uses(LayerName::pieces, uses.ids, uses.counts);
        first += shard.size();
    }
}

BuiltVocabulary build_in_shards(const Lines& lines, const BuildOptions& options, unsigned inputs, unsigned parts, unsigned buckets) {
    std::vector<std::vector<std::string>> dealt;
    for (unsigned i = 0; i < inputs; ++i) {
        std::string text;
        for (size_t k = i; k < lines.size(); k += inputs) text += lines[k] + "\n";
        dealt.push_back(deal_lines(text, parts));
    }
    ShardedBuilder builder(options);
    std::vector<DistinctDocids> found;
    for (unsigned p = 0; p < parts; ++p) {
        ShardReader reader(options.weighted, options.max_memory, options.scratch_folder);
        for (const auto& of_input : dealt) reader.add_lines(of_input[p]);
        found.push_back(reader.finish());
        CHECK_THROWS(std::logic_error, "read once", reader.finish());
        builder.add_shard(p == 0 ? lines.size() : 0, found[p].docids, found[p].text_bytes, found[p].spacing_votes);
    }
    std::vector<ShardedBuilder::Words> lists;
    for (const DistinctDocids& shard : found) lists.push_back({shard.word_bytes, shard.word_offsets, shard.word_counts});
    const auto numbers = builder.number_words(lists);
    std::vector<Shard> docids, words;
    for (unsigned p = 0; p < parts; ++p) {
        docids.emplace_back(found[p].values);
        docids[p].number_words(found[p].word_bytes, found[p].word_offsets, numbers[p], Spacing(builder.rule().chars, builder.rule().rule));
    }
    for (size_t block = 0; block < builder.word_blocks(); ++block) {
        CHECK_EQ(builder.first_word(block) == 0, block == 0);
        words.emplace_back(builder.words(block, block + 1));
    }
    CHECK_THROWS(std::logic_error, "has not started", builder.selection());
    mine_shards(builder, LayerName::pieces, words, buckets);
    mine_shards(builder, LayerName::phrases, docids, buckets);
    builder.start();
    do round_of(builder, docids, words, false);
    while (builder.selection().advance(Workers{}));
    round_of(builder, docids, words, true);
    return builder.finish();
}

void test_same_as_in_one() {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        Random random(seed);
        Lines lines = generated_lines(random, 20 + random.below(1500), 50 + random.below(2000));
        if (random.one_in(3)) lines.push_back("");
        if (random.one_in(2)) lines.insert(lines.end(), {"\xff a \xff", "b\xe4\xb8", "\xff a b\xe4"});
        BuildOptions options;
        options.size = fixed_tokens + random.below(600);
        options.min_count = random.below(5);
        options.max_words = 1 + random.below(8);
        options.weighted = random.one_in(2);
        options.punctuation = static_cast<Punctuation>(random.below(3));
        options.threads = 1;
        const BuiltVocabulary built = build(lines, options);
        for (const unsigned parts : {1u, 2u, 7u}) {
            const BuiltVocabulary sharded = build_in_shards(lines, options, 1 + random.below(4), parts, 1 + random.below(5));
            check_equal(sharded, built);
            CHECK_EQ(sharded.rows, built.rows);
        }
        options.max_memory = 1 << 18;
        check_equal(build_in_shards(lines, options, 3, 2, 2), built);
    }
    check_equal(build_in_shards({}, {}, 1, 3, 2), build({}, {}));
}

void test_equal_lines_come_together() {
    Random random(7);
    const Lines lines = generated_lines(random, 3000);
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    const std::vector<std::string> dealt = deal_lines(text, 4);
    std::map<std::string, size_t> where;
    size_t count = 0;
    for (size_t part = 0; part < dealt.size(); ++part) {
        CHECK(dealt[part].size() > text.size() / 8);
        for (std::string_view rest = dealt[part]; !rest.empty(); ++count) {
            const std::string line(rest.substr(0, rest.find('\n')));
            rest.remove_prefix(line.size() + 1);
            CHECK_EQ(where.emplace(line, part).first->second, part);
        }
    }
    CHECK_EQ(count, static_cast<size_t>(std::ranges::count_if(lines, [](const auto& line) { return !line.empty(); })));
    CHECK_THROWS(std::invalid_argument, "no shards", deal_lines("a", 0));
}

void test_what_does_not_fit() {
    CHECK_THROWS(std::invalid_argument, "no sequences", Shard({1, 2, 3}));
    CHECK_THROWS(std::invalid_argument, "no sequences", Shard({sentinel, 1, 5, sentinel}));
    CHECK_EQ(Shard({}).size(), 0u);
    Shard shard({sentinel, 1, 0, 1, sentinel, 2, 1});
    CHECK_EQ(shard.size(), 2u);
    const std::vector<uint64_t> offsets{0, 1};
    const std::vector<uint32_t> numbers{5};
    const SpacingCounts::Rule rule = SpacingCounts().settle();
    CHECK_THROWS(std::out_of_range, "not in the shard's list", shard.number_words("a", offsets, numbers, Spacing(rule.chars, rule.rule)));
    CHECK_THROWS(std::invalid_argument, "do not fit", shard.number_words("", offsets, numbers, Spacing(rule.chars, rule.rule)));
    const std::vector<Cost> costs{1, 1};
    Shard other({sentinel, 1, 2});
    CHECK_THROWS(std::out_of_range, "there is not", other.segment({2, {}, {}, costs}, {}, false, false));
    const std::vector<uint64_t> weights{1, 2};
    CHECK_THROWS(std::invalid_argument, "as many weights", other.segment({2, {}, {}, costs}, weights, false, false));
    const std::vector<uint32_t> later{3};
    const std::vector<uint16_t> one{1};
    const std::vector<uint8_t> in{1};
    CHECK_THROWS(std::invalid_argument, "made of later", link(2, later, one, one, in));
    SpacingCounts counts;
    CHECK_THROWS(std::invalid_argument, "five numbers", counts.add(weights));
}

struct Record {
    std::vector<uint32_t> tokens;
    uint32_t document;
};

TableStore table_of(const std::vector<Record>& records, uint32_t vocabulary, uint32_t documents, bool index) {
    DocidBuilder builder(vocabulary);
    for (const Record& record : records) {
        const std::vector<int64_t> offsets{0, static_cast<int64_t>(record.tokens.size())};
        builder.add(record.tokens, offsets, std::span(&record.document, 1));
    }
    return builder.finish(documents, index, Workers{});
}

void test_tables_by_first_token() {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        Random random(seed);
        const uint32_t vocabulary = 2 + random.below(300), documents = 1 + random.below(50);
        std::vector<Record> records(random.below(2000));
        for (Record& record : records) {
            for (uint32_t n = 1 + random.below(random.one_in(10) ? 40 : 5); n > 0; --n) record.tokens.push_back(random.below(1 + random.below(vocabulary)));
            record.document = random.below(documents);
        }
        const bool index = random.one_in(2);
        const TableStore whole = table_of(records, vocabulary, documents, index);
        std::vector<uint32_t> borders{0, vocabulary};
        for (uint32_t n = random.below(6); n > 0; --n) borders.push_back(random.below(vocabulary));
        std::ranges::sort(borders);
        std::vector<TableStore> stores;
        for (size_t r = 0; r + 1 < borders.size(); ++r) {
            std::vector<Record> own;
            for (const Record& record : records)
                if (record.tokens[0] >= borders[r] && record.tokens[0] < borders[r + 1]) own.push_back(record);
            stores.push_back(table_of(own, vocabulary, documents, false));
        }
        std::vector<DocidTable> tables;
        for (const TableStore& store : stores) tables.emplace_back(store.arrays());
        std::vector<const DocidTable*> parts;
        for (const DocidTable& table : tables) parts.push_back(&table);
        const TableStore merged = merge_tables(parts, index, Workers{});
        CHECK_EQ(merged.shape, whole.shape);
        CHECK(merged.tokens == whole.tokens);
        CHECK_EQ(merged.start_heads, whole.start_heads);
        CHECK(merged.start_bits == whole.start_bits);
        CHECK(merged.row_docs == whole.row_docs);
        CHECK_EQ(merged.row_doc_heads, whole.row_doc_heads);
        CHECK(merged.row_doc_bits == whole.row_doc_bits);
        CHECK(merged.doc_rows == whole.doc_rows);
        CHECK(merged.doc_row_bits == whole.doc_row_bits);
        CHECK(merged.postings == whole.postings);
        CHECK_EQ(merged.posting_heads, whole.posting_heads);
        CHECK(merged.posting_bits == whole.posting_bits);
        if (tables.size() > 1 && tables.front().rows() && tables.back().rows()) {
            std::ranges::reverse(parts);
            const uint32_t shortest = tables.front().classes()[0].length;
            if (std::ranges::any_of(tables.back().classes(), [&](const auto& in) { return in.length == shortest; }))
                CHECK_THROWS(std::invalid_argument, "not in order", merge_tables(parts, index, Workers{}));
        }
    }
    CHECK_THROWS(std::invalid_argument, "no tables", merge_tables({}, true, Workers{}));
    const TableStore one = table_of({}, 5, 1, false), two = table_of({}, 6, 1, false);
    const DocidTable first(one.arrays()), second(two.arrays());
    const std::vector<const DocidTable*> unlike{&first, &second};
    CHECK_THROWS(std::invalid_argument, "different vocabularies", merge_tables(unlike, true, Workers{}));
}

}  // namespace

int main() {
    test_same_as_in_one();
    test_equal_lines_come_together();
    test_what_does_not_fit();
    test_tables_by_first_token();
    return checks_done();
}
