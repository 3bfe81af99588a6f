#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/hash.hpp"
#include "tests/check.hpp"
#include "tests/random.hpp"
#include "vocab/spacing.hpp"
#include "vocab/text.hpp"

using namespace pixnar;
using namespace pixnar::test;
using namespace std::string_literals;

namespace {

// On the heap and of exact size, so that AddressSanitizer sees a read past the end.
struct Exact {
    explicit Exact(std::string_view text) : size(text.size()), data(new char[text.size()]) {
        if (size > 0) std::memcpy(data.get(), text.data(), size);
    }
    std::string_view view() const { return {data.get(), size}; }
    size_t size;
    std::unique_ptr<char[]> data;
};

std::string utf8(uint32_t c) {
    const auto byte = [](uint32_t b) { return static_cast<char>(b); };
    if (c < 0x80) return {byte(c)};
    if (c < 0x800) return {byte(0xc0 | c >> 6), byte(0x80 | (c & 0x3f))};
    if (c < 0x10000) return {byte(0xe0 | c >> 12), byte(0x80 | (c >> 6 & 0x3f)), byte(0x80 | (c & 0x3f))};
    return {byte(0xf0 | c >> 18), byte(0x80 | (c >> 12 & 0x3f)), byte(0x80 | (c >> 6 & 0x3f)), byte(0x80 | (c & 0x3f))};
}

void test_valid_characters() {
    uint64_t wrong = 0;
    for (uint32_t c = 0; c < 0x110000; ++c) {
        if (c >= 0xd800 && c <= 0xdfff) continue;
        const std::string text = utf8(c);
        const Char found = char_at(text.data(), text.data() + text.size());
        wrong += found.code_point != c || found.bytes != text.size();
    }
    CHECK_EQ(wrong, 0u);
    for (const uint32_t c : {0x0u, 0x7fu, 0x80u, 0x7ffu, 0x800u, 0xd7ffu, 0xe000u, 0xffffu, 0x10000u, 0x10ffffu}) {
        const Exact text(utf8(c));
        const Char found = char_at(text.view().data(), text.view().data() + text.size);
        CHECK_EQ(found.code_point, c);
        CHECK_EQ(found.bytes, text.size);
    }
}

void test_malformed_characters() {
    const std::vector<std::string> malformed{
        "\x80", "\xbf", "\xa9z",                                               // lone continuations
        "\xc3", "\xe4\xb8", "\xe4", "\xf0\x9f\x98", "\xf0\x9f", "\xf0",        // cut short
        "\xc3z", "\xe4\xb8z", "\xe4zz", "\xf0\x9f\x98z", "\xf0\x9fzz", "\xc3\xc3",  // continued by something else
        "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf",  // overlong
        "\xed\xa0\x80", "\xed\xbf\xbf",                                        // surrogates
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf8\x88\x80\x80\x80", "\xfe", "\xff",  // beyond U+10FFFF
    };
    for (const std::string& bytes : malformed) {
        const Exact text(bytes);
        const Char found = char_at(text.view().data(), text.view().data() + text.size);
        CHECK_EQ(found.code_point, 0xfffdu);
        CHECK_EQ(found.bytes, 1u);
    }
}

void test_kinds() {
    const auto kind = [](uint32_t c) { return char_kind(c); };
    CHECK_EQ(kind(' '), CharKind::blank);
    for (const uint32_t c : {uint32_t{'a'}, uint32_t{'z'}, uint32_t{'A'}, uint32_t{'0'}, uint32_t{'9'}, 0xe9u, 0x301u,
                             0x3b1u, 0x5d0u, 0x661u, 0xac00u, 0x10400u})
        CHECK_EQ(kind(c), CharKind::word);
    for (const uint32_t c : {uint32_t{','}, uint32_t{'"'}, uint32_t{'_'}, uint32_t{'\n'}, uint32_t{'\t'}, 0u, 0x7fu,
                             0xa0u, 0xbfu, 0x20acu, 0xfffdu, 0x1f600u, 0x10ffffu, 0x110000u, 0xffffffffu})
        CHECK_EQ(kind(c), CharKind::single);
    for (const uint32_t c : {0x4e2du, 0x3042u, 0x30a2u, 0x20000u}) CHECK_EQ(kind(c), CharKind::lone);
}

// Atoms in brackets, with a dot in front where a blank stands before.
std::string split(std::string_view text) {
    const Exact exact(text);
    Atoms atoms(exact.view());
    std::string out;
    for (Atom atom; atoms.next(atom);) {
        out += (atom.blank_before ? ".[" : "[") + std::string(atom.text) + "]";
        const char* end = atom.text.data() + atom.text.size();
        CHECK_EQ(atom.first, char_at(atom.text.data(), end).code_point);
        CHECK_EQ(atom.kind, char_kind(atom.first));
        uint32_t last = 0;
        for (const char* p = atom.text.data(); p < end;) {
            const Char c = char_at(p, end);
            last = c.code_point;
            p += c.bytes;
        }
        CHECK_EQ(atom.last, last);
    }
    return out;
}

void test_atoms() {
    CHECK_EQ(split(""), "");
    CHECK_EQ(split("   "), "");
    CHECK_EQ(split("new york"), "[new].[york]");
    CHECK_EQ(split("  new   york "), "[new].[york]");
    CHECK_EQ(split(" a"), "[a]");
    CHECK_EQ(split("rock-'n'-roll"), "[rock][-]['][n]['][-][roll]");
    CHECK_EQ(split("... , -"), "[.][.][.].[,].[-]");
    CHECK_EQ(split("mp3 2024 3.5"), "[mp3].[2024].[3][.][5]");
    CHECK_EQ(split("a_b"), "[a][_][b]");
    CHECK_EQ(split("a\tb\nc"), "[a][\t][b][\n][c]");
    CHECK_EQ(split("caf\u00e9 \u00bfqu\u00e9?"), "[caf\u00e9].[\u00bf][qu\u00e9][?]");
    CHECK_EQ(split("e\u0301a \u0301b"), "[e\u0301a].[\u0301b]");
    CHECK_EQ(split("\u4e2d\u6587abc\u4e2d 1"), "[\u4e2d][\u6587][abc][\u4e2d].[1]");
    CHECK_EQ(split("a\U0001f600b"), "[a][\U0001f600][b]");
    CHECK_EQ(split("a\xff""b\xe4\xb8"), "[a][\xff][b][\xe4][\xb8]");
    CHECK_EQ(split("\xc3 \xa9"), "[\xc3].[\xa9]");
    CHECK_EQ(split("a\0b"s), "[a][\0][b]"s);

    Random random(1);
    for (int round = 0; round < 2000; ++round) {
        const std::string text = random_text(random, 20);
        Atoms atoms(text);
        std::string again;
        for (Atom atom; atoms.next(atom);) (again += atom.blank_before ? " " : "") += atom.text;
        CHECK_EQ(again, text);
    }
}

void test_normal_ascii() {
    const auto normal = [](std::string_view text, std::string out = {}) {
        append_normal_ascii(Exact(text).view(), out);
        return out;
    };
    CHECK_EQ(normal(""), "");
    CHECK_EQ(normal(" \t\n\v\f\r\x1c\x1d\x1e\x1f"), "");
    CHECK_EQ(normal("Az09@[`{"), "az09@[`{");
    CHECK_EQ(normal("  The\t\r\nFirst   FLIGHT "), "the first flight");
    CHECK_EQ(normal("a\x1f""b\x1b""c\x7f\0d"s), "a b\x1b""c\x7f\0d"s);
    CHECK_EQ(normal(" B ", "a"), "ab");
    CHECK_EQ(normal("  ", "a "), "a ");
}

// Counts the blanks of some texts and settles the rule.
SpacingCounts::Rule learn(const std::vector<std::string>& texts) {
    SpacingCounts counts;
    for (const std::string& text : texts) {
        Atoms atoms(text);
        SpacingState state;
        bool first = true;
        for (Atom atom; atoms.next(atom); first = false) {
            if (!first) counts.count(state, atom);
            state.read(atom, first);
        }
    }
    return counts.settle();
}

// The text with the blanks that the rule would give it, following the text's own history.
std::string respaced(const SpacingCounts::Rule& rule, std::string_view text) {
    CHECK(Spacing::valid(rule.chars, rule.rule));
    const Spacing spacing(rule.chars, rule.rule);
    Atoms atoms(text);
    SpacingState state;
    std::string out;
    for (Atom atom; atoms.next(atom);) {
        const bool first = out.empty();
        if (!first && spacing.blank_before(state, atom.first)) out += ' ';
        out += atom.text;
        state.read(atom, first);
    }
    return out;
}

void test_spacing() {
    const auto nothing = learn({});
    CHECK(nothing.chars.empty());
    CHECK_EQ(nothing.rule.size(), 64u);
    CHECK_EQ(respaced(nothing, "new york , 3 \u4e2d"), "new york, 3\u4e2d");

    const auto prose = learn({"a, b. c", "x (y) z", "he said \"no\" and \"yes\" today", "1.5 km, 2.5 km", "\u4e2d\u6587\u4e2d"});
    CHECK_EQ(respaced(prose, "u , v . w"), "u, v. w");
    CHECK_EQ(respaced(prose, "u ( v ) w"), "u (v) w");
    CHECK_EQ(respaced(prose, "7. 25"), "7.25");
    CHECK_EQ(respaced(prose, "\u6587 \u6587"), "\u6587\u6587");
    // One and the same character pair, told apart by the quotes that were open.
    CHECK_EQ(respaced(prose, "they \" so \" then \" so \" then"), "they \"so\" then \"so\" then");

    // A mark that stands apart is followed by a blank, one that is attached is not: "a - b", "a-b".
    const auto dashes = learn({"a - b", "c - d", "e-f", "g-h", "i-j"});
    CHECK_EQ(respaced(dashes, "x - y"), "x- y");
    CHECK_EQ(respaced(dashes, "x-y"), "x-y");
    const auto leading = learn({"#a b", "#c", "# d", "#e"});
    CHECK_EQ(respaced(leading, "# z"), "#z");

    // Ties follow prose: a blank before words, none before anything else.
    CHECK_EQ(respaced(learn({"a!b", "a! b"}), "q!w"), "q! w");
    CHECK_EQ(respaced(learn({"a!b", "a !b"}), "q !w"), "q!w");

    // Only so many characters get a class of their own; the most frequent ones win, and the rest share one.
    std::vector<std::string> many;
    for (uint32_t c = 0; c < 200; ++c)
        for (uint32_t n = 0; n <= c; ++n) many.push_back("x" + utf8(0x2190 + c) + "y");
    const auto capped = learn(many);
    CHECK_EQ(capped.chars.size(), 124u);
    CHECK_EQ(capped.chars.front(), 0x2190u + 200 - 124);
    CHECK_EQ(respaced(capped, "x" + utf8(0x2190) + " y"), "x" + utf8(0x2190) + "y");

    const std::vector<uint32_t> unsorted{'b', 'a'}, two{'!', '?'};
    CHECK(!Spacing::valid(unsorted, std::vector<uint8_t>(4 * 6 * 6)));
    CHECK(!Spacing::valid(two, std::vector<uint8_t>(4 * 6 * 6 - 1)));
    CHECK(Spacing::valid(two, std::vector<uint8_t>(4 * 6 * 6)));
    CHECK(!Spacing::valid(std::vector<uint32_t>(125, '!'), std::vector<uint8_t>(4 * 129 * 129)));
}

void test_hash() {
    const auto hash = [](std::string_view text) {
        const Exact exact(text);
        return hash_bytes(exact.view().data(), exact.size);
    };
    // Vocabulary files hold these values.
    CHECK_EQ(hash(""), 0xe27b68e9f3d7fc01ULL);
    CHECK_EQ(hash("a"), 0xc7d43b42a85caccaULL);
    CHECK_EQ(hash("ab"), 0x7227bb37af1d723dULL);
    CHECK_EQ(hash("york"), 0xeddf34b8cb62d7fdULL);
    CHECK_EQ(hash("hotels"), 0x871d35324e6cc06eULL);
    CHECK_EQ(hash("breakfast"), 0x8db1e4c44179ae86ULL);
    CHECK_EQ(hash("sixteen bytes ok"), 0xfe394aa230f6e1eeULL);
    CHECK_EQ(hash("seventeen bytes ok"), 0x0e0eea3f4a1f2e82ULL);
    CHECK_EQ(hash("a text of more than thirty-two bytes"), 0x011ebe71c013ee8dULL);
    CHECK_EQ(hash_key(0), 0x7a7f4014f9e08e15ULL);
    CHECK_EQ(hash_key(0x123456789abcdefULL), 0xba808f55ed4d869dULL);

    std::map<uint64_t, size_t> seen;
    std::string text;
    for (size_t n = 0; n < 200; ++n, text += static_cast<char>(n)) ++seen[hash(text)];
    for (size_t n = 1; n < 200; ++n) ++seen[hash(std::string(n, '\0'))];
    CHECK_EQ(seen.size(), 399u);
    CHECK_EQ(power_of_two_above(0), 8u);
    CHECK_EQ(power_of_two_above(9), 16u);
    CHECK_EQ(power_of_two_above(16), 16u);
}

}  // namespace

int main() {
    test_valid_characters();
    test_malformed_characters();
    test_kinds();
    test_atoms();
    test_normal_ascii();
    test_spacing();
    test_hash();
    return checks_done();
}
