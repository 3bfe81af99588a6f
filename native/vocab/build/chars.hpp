// The characters of all atoms as units of the piece layer.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "vocab/build/sequences.hpp"

namespace pixnar {

// A character that starts an atom and the same one inside an atom are two units, as the tokens they become are.
struct CharUnits {
    struct Unit {
        uint32_t code;
        bool start;
        uint64_t count;
        std::string bytes;
        bool fixed() const { return bytes.size() == 1; }  // a byte token that is always there
    };
    std::vector<Unit> units;  // frequent ones first
    uint32_t frequent = 0;
};

// Numbers the characters of atoms, and rewrites the atoms with those numbers.
CharUnits number_chars(Sequences& chars, uint64_t floor);

}  // namespace pixnar
