// The slow twin of decoding: docs/decoding.md as it is written, over a plain map of docids.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/hash.hpp"
#include "search/decode.hpp"

namespace pixnar::test {

using Tokens = std::vector<uint32_t>;
using Docids = std::map<Tokens, std::set<uint32_t>>;  // tokens of a docid -> the documents it names

// A query before anything is made of it.
struct Asked {
    std::vector<std::vector<std::pair<uint32_t, float>>> slots;  // a token may stand in a slot more than once
    std::vector<float> ends;
    std::vector<float> floor;  // by token; empty: strict
};

// The factors of docids, by a hash of their tokens.
struct Scaling {
    std::vector<float> values;  // of the classes; empty: all factors are 1
    uint64_t salt = 0;

    uint8_t class_of(const Tokens& tokens) const {
        uint64_t hash = salt;
        for (const uint32_t token : tokens) hash = hash_key(hash ^ token);
        return static_cast<uint8_t>(hash >> 32);
    }
    double factor(const Tokens& tokens) const { return values.empty() ? 1.0 : values[class_of(tokens)]; }
};

// The same as the decoder takes it.
class AskedArrays {
  public:
    explicit AskedArrays(const Asked& asked, uint32_t dense_vocabulary = 0) : ends_(asked.ends), dense_(dense_vocabulary > 0) {
        if (dense_) {
            scores_.assign(asked.slots.size() * dense_vocabulary, -std::numeric_limits<float>::infinity());
            for (size_t t = 0; t < asked.slots.size(); ++t)
                for (const auto& [token, score] : asked.slots[t]) {
                    float& place = scores_[t * dense_vocabulary + token];
                    place = std::max(place, score);
                }
            return;
        }
        for (const auto& slot : asked.slots) {
            for (const auto& [token, score] : slot) {
                tokens_.push_back(token);
                scores_.push_back(score);
            }
            offsets_.push_back(static_cast<int64_t>(tokens_.size()));
        }
    }
    SlotScores view() const {
        if (dense_) return {{}, scores_, {}, ends_, true};
        return {tokens_, scores_, offsets_, ends_, false};
    }

  private:
    std::vector<uint32_t> tokens_;
    std::vector<float> scores_, ends_;
    std::vector<int64_t> offsets_{0};
    bool dense_;
};

struct Found {
    const Tokens* tokens;
    double score;
    const std::set<uint32_t>* documents;
};

struct FoundDocument {
    uint32_t document;
    double score;
    const Tokens* tokens;
};

class Twin {
  public:
    Twin(const Asked& asked, Order order, double length_norm, const Scaling& scaling)
        : asked_(asked), order_(order), length_norm_(length_norm), scaling_(scaling) {
        for (const auto& slot : asked.slots) {
            auto& of_slot = slots_.emplace_back();
            for (const auto& [token, score] : slot) {
                raise(of_slot, token, score);
                raise(any_, token, score);
            }
        }
    }

    double score(const Tokens& tokens) const {
        const size_t n = tokens.size(), s = asked_.slots.size();
        double sum = 0;
        if (order_ == Order::assigned) {
            sum = best_assignment(tokens);
        } else {
            for (size_t t = 0; t < n && t < s; ++t) sum += x(order_ == Order::any ? any_ : slots_[t], tokens[t]);
        }
        if (n < s) sum += asked_.ends[n];
        return sum * scaling_.factor(tokens) / std::pow(static_cast<double>(n < s ? n + 1 : s), length_norm_);
    }

    // All docids that are found, best first.
    std::vector<Found> ranking(const Docids& docids) const {
        std::vector<Found> found;
        for (const auto& [tokens, documents] : docids)
            if (const double score = this->score(tokens); score != nothing && !documents.empty())
                found.push_back({&tokens, score, &documents});
        // The map is in the order of the token sequences, so equal scores are in theirs.
        std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.score > b.score; });
        return found;
    }

    // The docids that a beam reaches, best first.
    std::vector<Found> beam(const Docids& docids, size_t width) const {
        const size_t s = asked_.slots.size();
        std::map<Tokens, double> held{{Tokens{}, 0.0}};
        Docids reached;
        for (size_t t = 0; t < s; ++t) {
            std::map<Tokens, double> sums;
            for (const auto& [tokens, documents] : docids) {
                if (tokens.size() <= t || documents.empty()) continue;
                const auto parent = held.find(beginning(tokens, t));
                if (parent == held.end()) continue;
                const double sum = parent->second + x(order_ == Order::any ? any_ : slots_[t], tokens[t]);
                if (sum != nothing) sums.emplace(beginning(tokens, t + 1), sum);
            }
            std::vector<std::pair<Tokens, double>> best(sums.begin(), sums.end());
            std::stable_sort(best.begin(), best.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
            if (best.size() > width) best.resize(width);
            held = {best.begin(), best.end()};
            for (const auto& [tokens, sum] : held)
                if (const auto docid = docids.find(tokens); docid != docids.end()) reached.insert(*docid);
        }
        for (const auto& docid : docids)
            if (docid.first.size() >= s && held.contains(beginning(docid.first, s))) reached.insert(docid);
        std::vector<Found> found;
        for (Found& one : ranking(docids))
            if (reached.contains(*one.tokens)) found.push_back(one);
        return found;
    }

  private:
    using Scores = std::unordered_map<uint32_t, double>;
    static Tokens beginning(const Tokens& tokens, size_t n) { return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n)}; }
    static void raise(Scores& scores, uint32_t token, double score) {
        const auto [place, fresh] = scores.emplace(token, score);
        if (!fresh) place->second = std::max(place->second, score);
    }
    double x(const Scores& scores, uint32_t token) const {
        const double floor = asked_.floor.empty() ? nothing : asked_.floor[token];
        const auto given = scores.find(token);
        return given == scores.end() ? floor : std::max(floor, given->second);
    }
    // Over all sets of slots that the tokens so far may have taken.
    double best_assignment(const Tokens& tokens) const {
        const size_t s = asked_.slots.size();
        std::vector<double> sums(size_t{1} << s, nothing), longer;
        sums[0] = 0;
        for (size_t i = 0; i < tokens.size() && i < s; ++i) {
            longer.assign(sums.size(), nothing);
            for (size_t t = 0; t < s; ++t) {
                const double own = x(slots_[t], tokens[i]);
                if (own == nothing) continue;
                for (size_t taken = 0; taken < sums.size(); ++taken)
                    if (!(taken >> t & 1)) {
                        double& sum = longer[taken | size_t{1} << t];
                        sum = std::max(sum, sums[taken] + own);
                    }
            }
            sums.swap(longer);
        }
        return *std::max_element(sums.begin(), sums.end());
    }

    const Asked& asked_;
    Order order_;
    double length_norm_;
    const Scaling& scaling_;
    std::vector<Scores> slots_;
    Scores any_;
};

// What a filter leaves of a ranking; `allows` says whether a document is allowed.
template <class Allows> std::vector<Found> allowed_of(const std::vector<Found>& ranking, Allows allows) {
    std::vector<Found> left;
    for (const Found& found : ranking)
        if (std::any_of(found.documents->begin(), found.documents->end(), allows)) left.push_back(found);
    return left;
}

// Documents by their `top` best docids (0: by all), best first. `key` orders documents as their ids are ordered.
template <class Allows, class Key>
std::vector<FoundDocument> documents_of(const std::vector<Found>& ranking, uint64_t top, Allows allows, Key key) {
    std::map<uint32_t, std::vector<const Found*>> by_document;
    for (const Found& found : ranking)
        for (const uint32_t document : *found.documents)
            if (allows(document)) by_document[document].push_back(&found);
    std::vector<FoundDocument> documents;
    for (const auto& [document, found] : by_document) {
        double sum = 0;
        for (size_t i = 0; i < found.size() && (top == 0 || i < top); ++i) sum += std::exp(found[i]->score - found[0]->score);
        documents.push_back({document, found[0]->score + std::log(sum), found[0]->tokens});
    }
    std::sort(documents.begin(), documents.end(), [&](const FoundDocument& a, const FoundDocument& b) {
        if (a.score != b.score) return a.score > b.score;
        if (*a.tokens != *b.tokens) return *a.tokens < *b.tokens;
        return key(a.document) < key(b.document);
    });
    return documents;
}

}  // namespace pixnar::test
