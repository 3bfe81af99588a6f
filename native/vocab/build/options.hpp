// What a build is asked for, and what comes out of it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace pixnar {

// Where punctuation may stand in a phrase besides inside it. A phrase that ends with a word keeps "times" and "times,"
// from becoming two ids; one that begins with punctuation (", he") saves a token at most commas and quotes.
enum class Punctuation : uint8_t { inside, leading, anywhere };

struct BuildOptions {
    uint64_t size = 131072;   // tokens wanted, bytes and markers included
    uint64_t min_count = 0;   // fewest uses of a token; 0 = by the number of docids
    uint32_t max_words = 8;   // words in a phrase
    bool weighted = false;    // a docid counts as often as it is given, instead of once
    Punctuation punctuation = Punctuation::leading;
    unsigned threads = 0;
    uint64_t max_memory = uint64_t{8} << 30;
    std::string scratch_folder = "/tmp";
};

constexpr uint64_t fixed_tokens = 2 + 2 * 256;  // markers, and every byte in both kinds

struct BuiltVocabulary {
    std::vector<uint8_t> kinds;
    std::vector<uint64_t> offsets;
    std::vector<uint8_t> bytes;
    std::vector<uint16_t> scores;
    std::vector<uint64_t> uses;
    std::vector<uint32_t> spacing_chars;
    std::vector<uint8_t> spacing_rule;

    uint64_t rows = 0, docids = 0, text_bytes = 0, words = 0, frequent_words = 0;
    uint64_t min_count = 0, candidates = 0, spilled_bytes = 0;
    uint64_t total_weight = 0;
    std::vector<uint64_t> lengths;  // docids by number of tokens (weighted if the build is)
};

uint64_t default_min_count(uint64_t docids);

}  // namespace pixnar
