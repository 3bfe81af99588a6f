// A built vocabulary across the border.
#pragma once
#include <utility>

#include "bindings/arrays.hpp"
#include "vocab/build/options.hpp"

namespace pixnar {

inline nb::dict give_built(BuiltVocabulary&& built) {
    nb::dict out;
    out["kinds"] = give(std::move(built.kinds));
    out["offsets"] = give(std::move(built.offsets));
    out["bytes"] = give(std::move(built.bytes));
    out["scores"] = give(std::move(built.scores));
    out["uses"] = give(std::move(built.uses));
    out["spacing_chars"] = give(std::move(built.spacing_chars));
    out["spacing_rule"] = give(std::move(built.spacing_rule));
    out["lengths"] = give(std::move(built.lengths));
    nb::dict facts;
    facts["rows"] = built.rows;
    facts["docids"] = built.docids;
    facts["text_bytes"] = built.text_bytes;
    facts["words"] = built.words;
    facts["frequent_words"] = built.frequent_words;
    facts["min_count"] = built.min_count;
    facts["candidates"] = built.candidates;
    facts["spilled_bytes"] = built.spilled_bytes;
    out["facts"] = facts;
    return out;
}

}  // namespace pixnar
