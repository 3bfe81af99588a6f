// A vocabulary from the lines up to the first empty one, a text from the rest: what is encoded must decode to itself,
// and short texts must encode as the slow twin has it.
//
// First line: the spacing rule. Further lines: a byte for kind and score, then the token's text.
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/input.hpp"
#include "tests/oracle.hpp"
#include "tests/random.hpp"
#include "tests/vocabulary.hpp"

using namespace pixnar;
using namespace pixnar::fuzz;
using namespace pixnar::test;

namespace {

// What build_lookup accepts besides the fixed tokens, said in another way.
bool acceptable(const Token& token) {
    if (token.text.size() < 2 || with_single_blanks(token.text) != token.text) return false;
    Atoms atoms(token.text);
    size_t n = 0;
    for (Atom atom; atoms.next(atom);) ++n;
    return token.kind == TokenKind::start || n == 1;
}

void read_spacing(Input line, Vocabulary& vocabulary) {
    std::set<uint32_t> chars;
    for (uint32_t n = line.byte() % 4; n > 0; --n) chars.insert(line.byte());
    vocabulary.spacing_chars.assign(chars.begin(), chars.end());
    Random random(line.number(2));
    const size_t classes = chars.size() + Spacing::shared_classes;
    for (size_t i = 0; i < 4 * classes * classes; ++i)
        vocabulary.spacing_rule.push_back(static_cast<uint8_t>(random.below(2)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Input input(data, size);
    static const Vocabulary fixed = [] {
        Vocabulary made;
        made.add_fixed();
        return made;
    }();
    Vocabulary vocabulary = fixed;
    const std::string_view first = input.line();
    read_spacing({reinterpret_cast<const uint8_t*>(first.data()), first.size()}, vocabulary);
    bool all_acceptable = true;
    std::set<std::pair<TokenKind, std::string>> known;
    for (std::string_view line; !(line = input.line()).empty();) {
        const auto head = static_cast<uint8_t>(line.front());
        const Token token{head & 1 ? TokenKind::continuation : TokenKind::start, std::string(line.substr(1)),
                          static_cast<uint16_t>((head >> 1 & 3) * (head & 8 ? 1 : highest_score / 3))};
        const bool good = acceptable(token) && known.insert({token.kind, token.text}).second;
        // A high bit lets the odd bad token through, to see it rejected.
        if (!good && head < 0xf0) continue;
        all_acceptable &= good;
        vocabulary.add(token);
    }
    try {
        vocabulary.build();
        require(all_acceptable, "a bad token is rejected");
    } catch (const std::invalid_argument&) {
        require(!all_acceptable, "a good token is accepted");
        return 0;
    }
    const Tables tables = vocabulary.tables();
    require(tables.problem().empty(), "a vocabulary that was built has no problem");

    const std::string raw(input.rest()), text = with_single_blanks(raw);
    const std::vector<uint32_t> ids = encode(tables, text);
    // Stronger than what is promised, which is only about valid UTF-8.
    require(decode(tables, ids) == text, "decode(encode(text)) == text");
    require(encode(tables, raw) == ids, "blanks at the ends and double ones do not count");
    if (text.size() <= 48) require(Oracle(tables).encode(text) == ids, "fewest tokens, best scores, longest last token");
    std::vector<uint32_t> any;
    for (const char c : raw) any.push_back(static_cast<uint32_t>(static_cast<uint8_t>(c) * 7 % tables.tokens.size()));
    decode(tables, any);
    return 0;
}
