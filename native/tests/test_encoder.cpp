#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/check.hpp"
#include "tests/damage.hpp"
#include "tests/oracle.hpp"
#include "tests/random.hpp"
#include "tests/vocabulary.hpp"

using namespace pixnar;
using namespace pixnar::test;

namespace {

constexpr auto start = TokenKind::start, continuation = TokenKind::continuation, marker = TokenKind::marker;

// A piece of a text: a run of whole atoms, or of characters inside one.
Token cut(Random& random, const std::string& text) {
    std::vector<Atom> atoms;
    Atoms reader(text);
    for (Atom atom; reader.next(atom);) atoms.push_back(atom);
    if (atoms.empty()) return {start, ""};
    const auto size = static_cast<uint32_t>(atoms.size());
    const Atom& first = random.pick(atoms);
    if (random.one_in(2)) {
        std::vector<size_t> borders{0};
        const char *begin = first.text.data(), *end = begin + first.text.size();
        while (borders.back() < first.text.size()) borders.push_back(borders.back() + char_at(begin + borders.back(), end).bytes);
        const size_t from = random.pick(borders), to = random.pick(borders);
        return {from == 0 ? start : continuation, std::string(first.text.substr(from, to > from ? to - from : 0))};
    }
    const auto at = static_cast<uint32_t>(&first - atoms.data());
    const Atom& last = atoms[at + random.below(std::min(5u, size - at))];
    return {start, std::string(first.text.data(), last.text.data() + last.text.size())};
}

// Tokens are cut from the texts, or random; scores come from few values: many ways to split, many of the same cost.
Vocabulary random_vocabulary(Random& random, const std::vector<std::string>& texts) {
    Vocabulary vocabulary;
    vocabulary.add_fixed();
    const uint32_t scores = 1 + random.below(3);
    for (uint16_t& score : vocabulary.scores) score = static_cast<uint16_t>(random.below(scores));
    std::set<std::pair<TokenKind, std::string>> known;
    for (uint32_t n = random.below(80); n > 0; --n) {
        Token token = cut(random, random.one_in(5) ? random_text(random, 6) : random.pick(texts));
        if (token.text.size() < 2 || !known.insert({token.kind, token.text}).second) continue;
        token.score = static_cast<uint16_t>(random.one_in(20) ? highest_score : random.below(scores));
        vocabulary.add(token);
    }
    std::set<uint32_t> chars;
    for (const uint32_t c : {0x22u, 0x27u, 0x2cu, 0x2du, 0x2eu, 0xbfu, 0xfffdu, 0x1f600u})
        if (random.one_in(2)) chars.insert(c);
    vocabulary.spacing_chars.assign(chars.begin(), chars.end());
    const size_t classes = chars.size() + Spacing::shared_classes;
    for (size_t i = 0; i < 4 * classes * classes; ++i)
        vocabulary.spacing_rule.push_back(static_cast<uint8_t>(random.below(2)));
    vocabulary.build();
    return vocabulary;
}

std::vector<std::string> random_texts(Random& random) {
    std::vector<std::string> texts;
    for (const uint32_t most_chars : {0, 6, 12, 20, 40}) texts.push_back(random_text(random, most_chars));
    texts.push_back(random_text(random, 30, {"a", "b", "\u00e9", "a", "b", " "}));  // long words
    return texts;
}

void test_against_oracle() {
    Random random(2);
    for (int round = 0; round < 1500; ++round) {
        const std::vector<std::string> texts = random_texts(random);
        const Vocabulary vocabulary = random_vocabulary(random, texts);
        const Tables tables = vocabulary.tables();
        CHECK_EQ(tables.problem(), "");
        const Oracle oracle(tables);
        Encoder encoder(tables);  // one for all texts: what is left from the text before must not show
        for (const std::string& text : texts) {
            std::vector<uint32_t> ids;
            encoder.encode(text, ids);
            if (!CHECK_EQ(ids, oracle.encode(text))) std::fprintf(stderr, "  text: %s\n", shown(text).c_str());
            CHECK_EQ(decode(tables, ids), text);
        }
    }
}

void test_arbitrary_ids() {
    Random random(3);
    for (int round = 0; round < 300; ++round) {
        const Vocabulary vocabulary = random_vocabulary(random, random_texts(random));
        const Tables tables = vocabulary.tables();
        const auto size = static_cast<uint32_t>(tables.tokens.size());
        for (int n = 0; n < 20; ++n) {
            std::vector<uint32_t> ids(random.below(20));
            for (uint32_t& id : ids) id = random.one_in(3) ? random.below(2) : random.below(size);
            const std::string text = decode(tables, ids);
            CHECK(text.empty() || (text.front() != ' ' && text.back() != ' '));
            CHECK_EQ(decode(tables, encode(tables, text)), with_single_blanks(text));
        }
    }
}

void test_small_cases() {
    const Vocabulary vocabulary = make_vocabulary({{start, "new york", 9}, {start, "york hotels", 5}, {start, "new", 1},
                                                   {start, "hotels", 7}, {continuation, "ab", 1}, {start, "\u00e9t\u00e9", 1},
                                                   {start, "a, b", 1}, {start, "a,b", 1}});
    const Tables tables = vocabulary.tables();
    const auto words = [&](std::string_view text) {
        std::string out;
        for (const uint32_t id : encode(tables, text)) {
            out += tables.tokens.kind(id) == marker ? (id == glue_token ? "<glue>" : "<blank>")
                                                    : (tables.tokens.kind(id) == continuation ? "##" : "");
            (out += tables.tokens.text(id)) += '|';
        }
        return out;
    };
    CHECK_EQ(words(""), "");
    CHECK_EQ(words("new york hotels"), "new york|hotels|");  // two tokens either way; the scores decide
    CHECK_EQ(words("new yorkhotels"), "new|y|##o|##r|##k|##h|##o|##t|##e|##l|##s|");
    CHECK_EQ(words("\u00e9t\u00e9 xab"), "\u00e9t\u00e9|x|##ab|");
    CHECK_EQ(words("a, b"), "a, b|");
    CHECK_EQ(words("a,b"), "a,b|");
    CHECK_EQ(words("a ,b"), "a|<blank>|,|<glue>|b|");
    CHECK_EQ(words("new york,new"), "new york|,|<glue>|new|");
    CHECK_EQ(words("\u00e8"), "\xc3|##\xa8|");

    std::vector<uint32_t> appended{42};
    Encoder(tables).encode("hotels", appended);
    CHECK_EQ(appended.size(), 2u);
    CHECK_EQ(appended[0], 42u);

    // Text that is not normalised loses its odd blanks and nothing else.
    for (const std::string text : {"  a  b ", " ", "\xff\xc3 \xa9\xe4\xb8", "\xf0\x9f", "a\xed\xa0\x80z"})
        CHECK_EQ(decode(tables, encode(tables, text)), with_single_blanks(text));
}

void test_scores() {
    CHECK_EQ(score_of(0), 0);
    CHECK_EQ(score_of(1), 64);
    CHECK_EQ(score_of(1023), 640);
    CHECK_EQ(score_of(~uint64_t{0}), highest_score);
    CHECK_EQ(tokens_in(0), 0u);
    CHECK_EQ(tokens_in(token_cost(highest_score)), 1u);
    CHECK_EQ(tokens_in(3 * token_cost(7)), 3u);
}

// Sums of costs stay inside their 64 bits up to the longest text, and nothing is quadratic.
void test_long_texts() {
    const Vocabulary vocabulary = make_vocabulary({{continuation, "aaaaaaaa", highest_score}, {start, ", ,", highest_score}});
    const Tables tables = vocabulary.tables();
    const std::string word(longest_text / 8, 'a');
    CHECK_EQ(encode(tables, word).size(), word.size() / 8 + 7);  // the start byte leaves seven to single bytes
    std::string commas(longest_text / 8, ',');
    for (size_t i = 1; i < commas.size(); i += 2) commas[i] = ' ';
    const std::vector<uint32_t> ids = encode(tables, commas.substr(0, commas.size() - 1));
    CHECK_EQ(ids.size(), commas.size() / 4 * 2 - 1);
    CHECK_EQ(decode(tables, ids), commas.substr(0, commas.size() - 1));
}

void test_rejections() {
    const auto reject = [](std::vector<Token> tokens, const char* message) {
        CHECK_THROWS(std::invalid_argument, message, make_vocabulary(tokens));
    };
    reject({{start, ""}}, "token 514 is empty");
    reject({{start, "ok"}, {continuation, ""}}, "token 515 is empty");
    reject({{start, "ab"}, {start, "ab"}}, "token 515 is given twice");
    reject({{start, "a b"}, {start, "a b"}}, "token 515 is given twice");
    reject({{continuation, "ab"}, {continuation, "ab"}}, "token 515 is given twice");
    reject({{start, "a"}}, "token 514 is given twice");
    reject({{start, "ab"}, {continuation, "a b"}}, "token 515 is a continuation of more than one atom");
    for (const char* text : {"a,", "ab cd", " a", "a ", "  ", "\u4e2d\u6587", "\xc3\xc3"})
        reject({{continuation, text}}, "is a continuation of more than one atom");
    for (const char* text : {" a", "a ", "a  b", "  ", " , "}) reject({{start, text}}, "starts or ends with a blank");
    make_vocabulary({{start, "ab"}, {continuation, "ab"}, {start, "a b"}, {start, "a,b"}, {start, "a, b"}});

    Vocabulary bare;
    bare.plain_spacing();
    CHECK_THROWS(std::invalid_argument, "markers", bare.build());
    bare.add({marker, ""});
    bare.add({marker, ""});
    CHECK_THROWS(std::invalid_argument, "a byte has no token", bare.build());
    Vocabulary torn = make_vocabulary({});
    torn.offsets[100] = uint64_t{1} << 40;
    CHECK_THROWS(std::invalid_argument, "offsets", torn.build());
    Vocabulary no_rule;
    no_rule.add_fixed();
    CHECK_THROWS(std::invalid_argument, "spacing rule", no_rule.build());
}

// Every run of atoms that is a token, found one by one.
std::vector<uint32_t> slow_ngrams(const Tables& tables, const std::string& text) {
    std::vector<uint32_t> found;
    std::vector<Atom> atoms;
    Atoms reader(text);
    for (Atom atom; reader.next(atom);) atoms.push_back(atom);
    for (size_t i = 0; i < atoms.size(); ++i)
        for (size_t j = i; j < atoms.size(); ++j) {
            const std::string_view run(atoms[i].text.data(), atoms[j].text.data() + atoms[j].text.size());
            for (uint32_t v = 0; v < tables.tokens.size(); ++v)
                if (tables.tokens.kind(v) == start && tables.tokens.text(v) == run) found.push_back(v);
        }
    return found;
}

void test_ngrams() {
    Random random(5);
    for (int round = 0; round < 200; ++round) {
        const std::vector<std::string> texts = random_texts(random);
        const Vocabulary vocabulary = random_vocabulary(random, texts);
        const Tables tables = vocabulary.tables();
        Encoder encoder(tables);
        for (const std::string& text : texts) {
            std::vector<uint32_t> spans, all, expected = slow_ngrams(tables, text);
            encoder.ngrams(text, false, spans);
            if (!CHECK_EQ(spans, expected)) std::fprintf(stderr, "  text: %s\n", shown(text).c_str());
            const std::vector<uint32_t> ids = encode(tables, text);
            for (size_t i = 0; i < ids.size(); ++i)
                if (tables.tokens.kind(ids[i]) != start || (i + 1 < ids.size() && tables.tokens.kind(ids[i + 1]) == continuation))
                    expected.push_back(ids[i]);
            encoder.ngrams(text, true, all);
            CHECK_EQ(all, expected);
        }
    }
}

Vocabulary good_vocabulary() {
    return make_vocabulary({{start, "new york", 9}, {start, "new york, ny", 2}, {start, "york", 3}, {start, "\u4e2d\u6587", 1},
                            {start, "hotel", 7}, {continuation, "ls", 0}, {continuation, "\u00e9s", 1}, {start, "a - b", 3}});
}

void test_problems() {
    const auto problem = [](auto damage) {
        Vocabulary vocabulary = good_vocabulary();
        damage(vocabulary);
        return vocabulary.tables().problem();
    };
    const auto first_edge = [](std::vector<Edge>& edges) -> Edge& {
        return *std::ranges::find_if(edges, [](const Edge& edge) { return edge.key != 0; });
    };
    using V = Vocabulary&;
    CHECK_EQ(problem([](V) {}), "");
    const std::string tokens = "token offsets are inconsistent", atoms = "atom offsets are inconsistent";
    CHECK_EQ(problem([](V v) { v.kinds.pop_back(); }), tokens);
    CHECK_EQ(problem([](V v) { v.offsets.clear(); }), tokens);
    CHECK_EQ(problem([](V v) { v.offsets[0] = 1; }), tokens);
    CHECK_EQ(problem([](V v) { ++v.offsets.back(); }), tokens);
    CHECK_EQ(problem([](V v) { v.offsets[300] = ~uint64_t{0}; }), tokens);
    CHECK_EQ(problem([](V v) { v.bytes.pop_back(); }), tokens);
    CHECK_EQ(problem([](V v) { v.scores.pop_back(); }), "scores are missing");
    CHECK_EQ(problem([](V v) { v.scores[9] = highest_score + 1; }), "a score is out of range");
    CHECK_EQ(problem([](V v) { v.kinds[9] = 3; }), "a token kind is unknown");
    CHECK_EQ(problem([](V v) { v.kinds[0] = 0; }), "the first two tokens are not the markers");
    CHECK_EQ(problem([](V v) { v.kinds[1] = 1; }), "the first two tokens are not the markers");
    CHECK_EQ(problem([](V v) { v.spacing_rule[5] = 2; }), "the spacing rule is out of range");
    CHECK_EQ(problem([](V v) { v.spacing_rule.pop_back(); }), "the spacing rule is inconsistent");
    CHECK_EQ(problem([](V v) { v.spacing_chars.push_back('!'); }), "the spacing rule is inconsistent");
    CHECK_EQ(problem([](V v) { v.lookup.atom_offsets.pop_back(); }), atoms);
    CHECK_EQ(problem([](V v) { v.lookup.atom_offsets[1] = ~uint64_t{0}; }), atoms);
    CHECK_EQ(problem([](V v) { v.lookup.atom_bytes.push_back(0); }), atoms);
    CHECK_EQ(problem([](V v) { v.lookup.atom_tokens.push_back(0); }), atoms);
    CHECK_EQ(problem([](V v) { v.lookup.atom_tokens[0] = static_cast<uint32_t>(v.kinds.size()); }), "an atom token is out of range");
    CHECK_EQ(problem([](V v) { v.lookup.atom_costs.pop_back(); }), "atom costs are missing");
    CHECK_EQ(problem([](V v) { v.lookup.atom_costs[0] = 0; }), "an atom cost is out of range");
    CHECK_EQ(problem([](V v) { v.lookup.atom_costs[0] = no_cost; }), "an atom cost is out of range");
    CHECK_EQ(problem([](V v) { v.lookup.atom_slots.clear(); }), "the atom table has a wrong size");
    CHECK_EQ(problem([](V v) { v.lookup.atom_slots.pop_back(); }), "the atom table has a wrong size");
    CHECK_EQ(problem([](V v) { v.lookup.atom_slots[0] = v.lookup.atom_tokens.size() + 1; }), "the atom table is out of range");
    CHECK_EQ(problem([](V v) { v.lookup.atom_slots[0] = uint64_t{1} << 32; }), "the atom table is out of range");
    CHECK_EQ(problem([](V v) { std::ranges::fill(v.lookup.atom_slots, 1u); }), "the atom table is full");
    CHECK_EQ(problem([](V v) { v.lookup.phrase_edges.clear(); }), "the phrase table has a wrong size");
    CHECK_EQ(problem([](V v) { v.lookup.piece_edges.pop_back(); }), "the piece table has a wrong size");
    CHECK_EQ(problem([&](V v) { first_edge(v.lookup.phrase_edges).target = v.kinds.size(); }), "the phrase table is out of range");
    CHECK_EQ(problem([&](V v) { first_edge(v.lookup.piece_edges).target = no_token - 1; }), "the piece table is out of range");
    CHECK_EQ(problem([](V v) { std::ranges::fill(v.lookup.phrase_edges, Edge{1, 1}); }), "the phrase table is full");
    CHECK_EQ(problem([](V v) { std::ranges::fill(v.lookup.piece_edges, Edge{1, 1}); }), "the piece table is full");
    CHECK_EQ(problem([](V v) { std::ranges::fill(v.lookup.piece_edges, Edge{0, 0}); }), "a byte has no token");
    CHECK_EQ(Tables{}.problem(), tokens);
}

// Whatever the arrays say once their sizes fit, tokens may be others, and there is never a crash or an endless loop.
void test_damaged_tables() {
    const Vocabulary good = good_vocabulary();
    const std::string text = "new york, ny hotels - \u4e2d\u6587\u4e2d \"a - b\" caf\u00e9s \xff";
    Random random(4);
    uint32_t silent = 0, unsound = 0;
    for (uint32_t round = 0; round < 400 * Vocabulary::arrays; ++round) {
        Vocabulary spoiled = good;
        for (uint32_t n = random.below(3); n < 3; ++n)
            spoiled.on_array(round % Vocabulary::arrays, [&](auto& array) {
                spoil(array, random.below(64), random.below(1u << 20), random.below(4), random.next());
            });
        const Tables tables = spoiled.tables();
        if (!tables.misfit().empty()) {
            CHECK(!tables.problem().empty());
            continue;
        }
        ++silent;
        unsound += !tables.problem().empty();
        Encoder encoder(tables);
        for (const std::string& part : {text, text.substr(4), std::string("hotels"), text + text}) {
            std::vector<uint32_t> ids;
            encoder.encode(part, ids);
            encoder.ngrams(part, true, ids);
            CHECK(std::ranges::all_of(ids, [&](uint32_t id) { return id < tables.tokens.size(); }));
            decode(tables, ids);
        }
    }
    CHECK(silent > 1000);
    CHECK(unsound > 500);
}

}  // namespace

int main() {
    test_small_cases();
    test_scores();
    test_rejections();
    test_problems();
    test_damaged_tables();
    test_against_oracle();
    test_ngrams();
    test_arbitrary_ids();
    test_long_texts();
    return checks_done();
}
