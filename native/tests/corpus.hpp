// Small generated corpora, and what a built vocabulary must be true to.
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/check.hpp"
#include "tests/random.hpp"
#include "tests/vocabulary.hpp"
#include "vocab/build/builder.hpp"

namespace pixnar::test {

using Lines = std::vector<std::string>;

// Frequent words, set phrases, punctuation of all sorts, scripts with and without blanks; some lines more than once.
inline Lines generated_lines(Random& random, uint32_t rows, uint32_t words = 150) {
    std::vector<std::string> lexicon;
    for (uint32_t i = 0; i < words; ++i) {
        std::string word;
        for (uint32_t n = 1 + random.below(9); n > 0; --n)
            word += random.one_in(25) ? (random.one_in(2) ? "\u00e9" : "\u03bb") : std::string(1, "etaoinshr"[random.below(9)]);
        if (random.one_in(15)) word = std::to_string(random.below(3000));
        if (random.one_in(30)) word = random.one_in(2) ? "\u4e2d\u6587" : "\U0001f600";
        lexicon.push_back(word);
    }
    std::vector<std::string> phrases;
    for (int i = 0; i < 25; ++i) {
        std::string phrase = random.pick(lexicon);
        for (uint32_t n = 1 + random.below(4); n > 0; --n) phrase += (random.one_in(5) ? "-" : " ") + random.pick(lexicon);
        phrases.push_back(phrase);
    }
    const auto word = [&] { return lexicon[random.below(1 + random.below(words))]; };
    const std::vector<std::string> joints{" ", " ", " ", " ", " ", ", ", ". ", " - ", "'", " (", ") ", ": ", "...", " \"", "\" "};
    Lines lines;
    for (uint32_t i = 0; i < rows; ++i) {
        if (i > 0 && random.one_in(8)) {
            lines.push_back(random.pick(lines));
            continue;
        }
        std::string line;
        for (uint32_t n = 1 + random.below(7); n > 0; --n)
            line += (random.one_in(4) ? random.pick(phrases) : word()) + random.pick(joints);
        lines.push_back(with_single_blanks(line));
    }
    return lines;
}

// What a token is made of.
struct Shape {
    size_t atoms = 0;
    bool only_single = true, single_first = false, single_last = false;
};

inline Shape shape_of(std::string_view text) {
    Shape shape;
    Atoms atoms(text);
    for (Atom atom; atoms.next(atom); ++shape.atoms) {
        shape.single_last = atom.kind == CharKind::single;
        shape.only_single &= shape.single_last;
        if (shape.atoms == 0) shape.single_first = shape.single_last;
    }
    return shape;
}

inline BuiltVocabulary build(const Lines& lines, const BuildOptions& options, const Progress& progress = {}) {
    Builder builder(options);
    // In several calls of several lines, as a reader would.
    std::string chunk;
    for (size_t i = 0; i < lines.size(); ++i) {
        chunk += lines[i] + "\n";
        if (i % 97 != 96 && i + 1 < lines.size()) continue;
        builder.add_lines(chunk);
        chunk.clear();
    }
    CHECK_EQ(builder.rows(), lines.size());
    return builder.build(progress);
}

inline std::map<std::string, uint64_t> weights_of(const Lines& lines, bool weighted) {
    std::map<std::string, uint64_t> weights;
    for (const std::string& line : lines)
        if (!line.empty()) weights[line] = weighted ? weights[line] + 1 : 1;
    return weights;
}

inline Vocabulary vocabulary_of(const BuiltVocabulary& built) {
    Vocabulary vocabulary{built.kinds, built.offsets, built.bytes, built.scores, built.spacing_chars, built.spacing_rule, {}};
    vocabulary.build();
    return vocabulary;
}

inline void check_equal(const BuiltVocabulary& a, const BuiltVocabulary& b) {
    CHECK_EQ(a.kinds, b.kinds);
    CHECK_EQ(a.offsets, b.offsets);
    CHECK(a.bytes == b.bytes);
    CHECK_EQ(a.scores, b.scores);
    CHECK_EQ(a.uses, b.uses);
    CHECK_EQ(a.spacing_chars, b.spacing_chars);
    CHECK(a.spacing_rule == b.spacing_rule);
    CHECK_EQ(a.lengths, b.lengths);
    CHECK_EQ(a.docids, b.docids);
    CHECK_EQ(a.text_bytes, b.text_bytes);
    CHECK_EQ(a.words, b.words);
    CHECK_EQ(a.frequent_words, b.frequent_words);
    CHECK_EQ(a.min_count, b.min_count);
    CHECK_EQ(a.candidates, b.candidates);
    CHECK_EQ(a.total_weight, b.total_weight);
}

// The builder segments with tables of its own; the encoder must come to the same tokens.
inline void check_true_to(const BuiltVocabulary& built, const Lines& lines, const BuildOptions& options) {
    const Vocabulary vocabulary = vocabulary_of(built);
    const Tables tables = vocabulary.tables();
    std::vector<uint64_t> uses(tables.tokens.size()), lengths(1);
    uint64_t text_bytes = 0, total = 0, distinct = 0;
    Encoder encoder(tables);
    for (const auto& [text, weight] : weights_of(lines, options.weighted)) {
        std::vector<uint32_t> ids;
        encoder.encode(text, ids);
        for (const uint32_t id : ids) uses[id] += weight;
        if (lengths.size() <= ids.size()) lengths.resize(ids.size() + 1);
        lengths[ids.size()] += weight;
        text_bytes += text.size();
        total += weight;
        ++distinct;
        CHECK_EQ(decode(tables, ids), text);
    }
    while (lengths.size() > 1 && lengths.back() == 0) lengths.pop_back();
    CHECK_EQ(built.lengths, lengths);
    CHECK_EQ(built.docids, distinct);
    CHECK_EQ(built.text_bytes, text_bytes);
    CHECK_EQ(built.total_weight, total);
    CHECK_EQ(built.uses.size(), uses.size());
    for (size_t v = 0; v < uses.size(); ++v) {
        if (!CHECK_EQ(built.uses[v], uses[v]))
            std::fprintf(stderr, "  token %zu %s\n", v, shown(tables.tokens.text(static_cast<uint32_t>(v))).c_str());
        if (v >= fixed_tokens) CHECK(uses[v] >= built.min_count);
    }
    CHECK(tables.tokens.size() <= std::max(options.size, fixed_tokens));
}

}  // namespace pixnar::test
