// One query against everything that can be found.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "search/engines.hpp"

namespace pixnar {

enum class Engine { automatic, brute_force, best_first, inverted, enumerate, accumulate, beam };

const char* name_of(Engine engine);

struct DecodeOptions {
    size_t k = 10;
    Order order = Order::slots;
    double length_norm = 0;
    Engine engine = Engine::automatic;
    uint64_t work_limit = 0;
    bool documents = false;
    uint64_t top = 1;       // docids of a document that count; 0: all
    size_t beam_width = 0;  // of Engine::beam
};

struct Answer {
    std::vector<Hit> hits;
    bool exact = true;
    double bound = nothing;  // nothing that was left out scores more; -inf if nothing that matters was
    double gap = 0;          // how much better than the last result something left out can be
    Engine engine = Engine::automatic;
    uint64_t work = 0;
};

Answer decode(const SearchSpace& space, const Floor& floor, std::span<const uint32_t> by_floor, const SlotScores& scores,
              const DecodeOptions& options);

}  // namespace pixnar
