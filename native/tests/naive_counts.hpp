// The miner's slow twin: every run of atoms in every docid, every run of characters in every word.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "vocab/text.hpp"

namespace pixnar::test {

struct NaiveCounts {
    using Counts = std::map<std::string, uint64_t>;
    Counts phrases, words, starts, continuations;

    explicit NaiveCounts(const Counts& docids) {
        for (const auto& [text, weight] : docids) {
            std::vector<Atom> atoms;
            Atoms reader(text);
            for (Atom atom; reader.next(atom);) atoms.push_back(atom);
            for (size_t i = 0; i < atoms.size(); ++i) {
                std::string phrase(atoms[i].text);
                words[phrase] += weight;
                for (size_t j = i + 1; j < atoms.size(); ++j) {
                    if (atoms[j].blank_before) phrase += ' ';
                    phrases[phrase += atoms[j].text] += weight;
                }
            }
        }
        for (const auto& [word, weight] : words) {
            std::vector<size_t> borders{0};
            while (borders.back() < word.size())
                borders.push_back(borders.back() + char_at(word.data() + borders.back(), word.data() + word.size()).bytes);
            for (size_t i = 0; i < borders.size(); ++i)
                for (size_t j = i + 1; j < borders.size(); ++j)
                    (i == 0 ? starts : continuations)[word.substr(borders[i], borders[j] - borders[i])] += weight;
        }
    }

    static uint64_t of(const Counts& counts, const std::string& text) {
        const auto found = counts.find(text);
        return found == counts.end() ? 0 : found->second;
    }
};

}  // namespace pixnar::test
