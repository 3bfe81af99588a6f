// In which order the inverted search reads the lists of (slot, token).
#pragma once
#include <cstdint>
#include <vector>

#include "search/engines.hpp"

namespace pixnar {

struct List {
    float gain, score;
    uint32_t token, entry;
    uint32_t slot;
    uint32_t rows;  // how many it makes us look at, roughly
    uint64_t from;  // its first posting; not of the first place, nor of lists that all places share
};

// In groups, between which bounds are looked at again. Within a slot the gains fall, but for the first few; between slots
// those lists come first that lower the bounds most for the rows they make us look at. Every candidate learns the place of
// its list.
struct ReadingOrder {
    explicit ReadingOrder(SegmentView& segment);

    struct Group {
        size_t end;
        double gain[most_slots], score[most_slots];  // by set: the most of any list from the group on
    };
    uint32_t longest = 0;  // most slots that any docid uses
    uint32_t sets = 0;     // of candidates: one for each of those slots, or one for all
    std::vector<List> lists;
    std::vector<Group> groups;
    Group rest{};  // behind the last
};

}  // namespace pixnar
