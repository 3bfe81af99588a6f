// A good vocabulary, spoiled as the input says. When its sizes fit together, it must be safe to use.
//
// Each change takes 8 bytes: array and way, position (3), value (4). A change of an array that does not exist ends the
// list; the rest is text.
#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/input.hpp"
#include "tests/damage.hpp"
#include "tests/vocabulary.hpp"

using namespace pixnar;
using namespace pixnar::fuzz;
using namespace pixnar::test;

namespace {

const std::string sample = "new york, ny hotels - \u4e2d\u6587\u4e2d \"a - b\" caf\u00e9s \xff";

const Vocabulary& good_vocabulary() {
    static const Vocabulary vocabulary = [] {
        constexpr auto start = TokenKind::start, continuation = TokenKind::continuation;
        Vocabulary made;
        made.add_fixed();
        for (const Token& token : {Token{start, "new york", 9}, Token{start, "new york, ny", 2}, Token{start, "york", 3},
                                   Token{start, "\u4e2d\u6587", 1}, Token{start, "hotel", 7}, Token{start, "a - b", 3},
                                   Token{continuation, "\u00e9s", 1}, Token{continuation, "ls", 4}})
            made.add(token);
        made.spacing_chars = {'"', ',', '-'};
        for (uint32_t i = 0; i < 4 * 7 * 7; ++i) made.spacing_rule.push_back(i * i % 3 == 1);
        made.build();
        return made;
    }();
    return vocabulary;
}

void use(const Tables& tables, Encoder& encoder, std::string_view text) {
    std::vector<uint32_t> ids;
    encoder.encode(text, ids);
    encoder.ngrams(text, true, ids);
    require(std::ranges::all_of(ids, [&](uint32_t id) { return id < tables.tokens.size(); }), "every id has a token");
    const std::string again = decode(tables, ids);
    encoder.encode(again.substr(0, 4096), ids);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Input input(data, size);
    Vocabulary spoiled = good_vocabulary();
    while (!input.empty()) {
        const uint8_t head = input.byte();
        const uint32_t array = head & 15;
        if (array >= Vocabulary::arrays) break;
        const auto where = static_cast<uint32_t>(input.number(3));
        const uint64_t value = input.number(4);
        // Wide values are made from narrow ones, so that the upper halves of 64-bit entries change too.
        const uint64_t wide = value << (where >> 20 & 31) ^ value;
        bool large = false;
        spoiled.on_array(array, [&](auto& entries) {
            spoil(entries, head >> 4, where & 0xffff, where >> 18, wide);
            large = entries.size() > 1 << 16;
        });
        if (large) return 0;
    }
    const Tables tables = spoiled.tables();
    tables.problem();
    if (!tables.misfit().empty()) return 0;
    Encoder encoder(tables);
    use(tables, encoder, sample);
    use(tables, encoder, input.rest().substr(0, 4096));
    use(tables, encoder, sample.substr(4));
    std::vector<uint32_t> every(tables.tokens.size());
    for (size_t v = 0; v < every.size(); ++v) every[v] = static_cast<uint32_t>(v);
    use(tables, encoder, decode(tables, every).substr(0, 4096));  // meets every atom
    return 0;
}
