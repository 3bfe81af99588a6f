// Normalised text as atoms: maximal runs of word characters, and every other character by itself.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace pixnar {

enum class CharKind : uint8_t {
    single,  // punctuation, symbols, controls: an atom of its own
    word,    // letters, marks, digits of scripts that write blanks: an atom is a run of them
    lone,    // characters of scripts without blanks: an atom of their own
    blank,   // U+0020, never part of an atom
};

CharKind char_kind(uint32_t code_point);

struct Char {
    uint32_t code_point;
    uint32_t bytes;
};

// The character at p < end. A byte that starts no valid sequence is a character of its own, U+FFFD.
Char char_at(const char* p, const char* end);

// Appends an ASCII text in normal form: lower case, runs of white space as one blank, none at the ends. White space is
// what Python's str.split takes for it.
void append_normal_ascii(std::string_view text, std::string& out);

struct Atom {
    std::string_view text;
    uint32_t first, last;  // code points at both ends
    CharKind kind;
    bool blank_before;  // true only between two atoms
};

// Yields the atoms of a normalised text from left to right. Blanks are expected to stand single and inside only; any
// other blank is dropped.
class Atoms {
  public:
    explicit Atoms(std::string_view text) : begin_(text.data()), p_(begin_), end_(p_ + text.size()) {}
    bool next(Atom& atom);

  private:
    const char *begin_, *p_, *end_;
};

}  // namespace pixnar
