#include "docids/merge.hpp"

#include <map>
#include <stdexcept>
#include <vector>

namespace pixnar {

TableStore merge_tables(std::span<const DocidTable* const> parts, bool index, const Workers& workers) {
    if (parts.empty()) throw std::invalid_argument("no tables to merge");
    const uint32_t vocabulary = parts[0]->vocabulary(), documents = parts[0]->documents();
    std::map<uint32_t, std::vector<std::pair<const DocidTable*, const LengthClass*>>> by_length;
    for (const DocidTable* part : parts) {
        if (part->vocabulary() != vocabulary || part->documents() != documents)
            throw std::invalid_argument("tables with different vocabularies or documents cannot be merged");
        for (const LengthClass& in : part->classes()) by_length[in.length].emplace_back(part, &in);
    }
    TableAssembly table(vocabulary, documents);
    size_t done = 0;
    for (const auto& [of_length, sources] : by_length) {
        const uint32_t length = of_length;
        if (workers.progress) workers.progress("merging docids", done++, by_length.size());
        std::vector<uint32_t> tokens;
        for (const auto& [part, in] : sources) {
            const size_t before = tokens.size();
            for (uint64_t i = 0, n = uint64_t{in->end - in->begin} * length; i < n; ++i) {
                const uint32_t token = part->raw_token(in->first_token + i);
                if (token >= vocabulary) throw std::out_of_range("a part of the table is damaged");
                tokens.push_back(token);
            }
            if (before > 0 && before < tokens.size()) {
                const auto at = tokens.begin() + static_cast<std::ptrdiff_t>(before);
                if (!std::lexicographical_compare(at - length, at, at, at + length))
                    throw std::invalid_argument("the parts of the table are not in order");
            }
            for (uint32_t row = in->begin; row < in->end; ++row) {
                const auto [first, last] = part->pairs_of(row);
                for (uint64_t pair = first; pair < last; ++pair)
                    pair == first ? table.add_row(part->pair_document(pair)) : table.add_document(part->pair_document(pair));
            }
        }
        const size_t rows = tokens.size() / length;
        if (rows > 0) table.add_class(length, rows, workers, [&](size_t row) { return tokens.data() + row * length; });
    }
    return table.finish(index, workers);
}

}  // namespace pixnar
