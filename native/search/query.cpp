#include "search/query.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "common/hash.hpp"

namespace pixnar {

namespace {

constexpr float no_score = -std::numeric_limits<float>::infinity();

bool behind(const Candidate& a, const Candidate& b) {
    return a.gain != b.gain ? a.gain < b.gain : a.token > b.token;
}

void check(float score, const char* what) {
    if (std::isnan(score) || score == std::numeric_limits<float>::infinity())
        throw std::invalid_argument(std::string(what) + (std::isnan(score) ? " is NaN" : " is +inf") +
                                    ": give finite scores, or -inf");
}

}  // namespace

Floor::Floor(std::vector<float> floors) : values(std::move(floors)) {
    float least = 0;
    bool any = false;
    for (const float value : values) {
        check(value, "a floor");
        if (value == no_score) continue;
        least = any ? std::min(least, value) : value;
        most = any ? std::max(most, value) : value;
        any = true;
    }
    zero = any && std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
    if (!any) values.clear();
    stand_in = least;
}

SlotSet::SlotSet(std::vector<std::pair<uint32_t, float>> scores, const Floor& floor, uint32_t vocabulary)
    : missing_(floor.strict() ? nothing : 0.0), most_gain_(missing_) {
    const size_t n = scores.size();
    tokens_.reserve(n);
    scores_.reserve(n);
    const bool direct = n * 8 >= vocabulary;
    if (direct) {
        direct_.assign(vocabulary, none);
    } else {
        table_.assign(power_of_two_above(2 * n), none);
        table_mask_ = table_.size() - 1;
        seen_.assign(power_of_two_above(n / 4), 0);  // at least 16 bits a token
        seen_mask_ = seen_.size() - 1;
    }
    for (const auto& [token, given] : scores) {
        check(given, "a score");
        if (token >= vocabulary)
            throw std::out_of_range("token id " + std::to_string(token) + " is not below the vocabulary size " +
                                    std::to_string(vocabulary));
        const float least = floor(token);
        if (given <= least) continue;  // the floor alone says it
        uint32_t* place;
        if (direct) {
            place = &direct_[token];
        } else {
            const uint64_t hash = hash_of(token);
            seen_[(hash >> 6) & seen_mask_] |= uint64_t{1} << (hash & 63);
            uint64_t i = hash >> 20;
            while (table_[i & table_mask_] != none && tokens_[table_[i & table_mask_]] != token) ++i;
            place = &table_[i & table_mask_];
        }
        if (*place == none) {
            *place = static_cast<uint32_t>(tokens_.size());
            tokens_.push_back(token);
            scores_.push_back(given);
        } else {
            scores_[*place] = std::max(scores_[*place], given);
        }
    }
    items_.reserve(tokens_.size());
    gains_.reserve(tokens_.size());
    for (uint32_t i = 0; i < tokens_.size(); ++i) {
        const double gain = double{scores_[i]} - double{floor.base(tokens_[i])};
        gains_.push_back(rounded_up(floor.strict() ? gain : std::max(gain, 0.0)));
        items_.push_back({gains_[i], scores_[i], tokens_[i], i});
        most_gain_ = std::max(most_gain_, double{gains_[i]});
    }
    places_.resize(tokens_.size());
}

const Candidate& SlotSet::best(size_t k) {
    if (!heaped_) std::make_heap(items_.begin(), items_.end(), behind);
    heaped_ = true;
    for (; popped_ <= k; ++popped_)
        std::pop_heap(items_.begin(), items_.end() - static_cast<ptrdiff_t>(popped_), behind);
    return items_[items_.size() - 1 - k];
}

Query::Query(const SlotScores& scores, const Floor& floor, uint32_t vocabulary, Order order, double length_norm)
    : slots_(static_cast<uint32_t>(scores.ends.size())), order_(order), length_norm_(length_norm),
      ends_(scores.ends.begin(), scores.ends.end()) {
    if (slots_ == 0 || slots_ > most_slots)
        throw std::invalid_argument("a query has " + std::to_string(scores.ends.size()) + " slots: give 1 to " +
                                    std::to_string(most_slots));
    if (!(length_norm >= 0) || length_norm > 10) throw std::invalid_argument("length_norm must be between 0 and 10");
    if (scores.dense ? scores.scores.size() != size_t{slots_} * vocabulary
                     : scores.offsets.size() != slots_ + 1 || scores.tokens.size() != scores.scores.size())
        throw std::invalid_argument("the scores do not fit the number of slots");
    double magnitude = 1.0;
    for (const float end : ends_) {
        check(end, "an end score");
        if (end != no_score) magnitude += std::abs(end);
    }
    if (!floor.strict()) magnitude += double{std::max(std::abs(floor.most), std::abs(floor.stand_in))} * slots_;

    using Scores = std::vector<std::pair<uint32_t, float>>;
    Scores all;
    for (uint32_t slot = 0; slot < slots_; ++slot) {
        Scores own;
        if (scores.dense) {
            const auto row = scores.scores.subspan(size_t{slot} * vocabulary, vocabulary);
            for (uint32_t v = 0; v < vocabulary; ++v)
                if (!(row[v] <= floor(v))) own.emplace_back(v, row[v]);
        } else {
            const int64_t from = scores.offsets[slot], to = scores.offsets[slot + 1];
            if (from < 0 || to < from || static_cast<size_t>(to) > scores.tokens.size())
                throw std::invalid_argument("the scores do not fit the number of slots");
            own.reserve(static_cast<size_t>(to - from));
            for (int64_t i = from; i < to; ++i) own.emplace_back(scores.tokens[i], scores.scores[i]);
        }
        float widest = 0;
        for (const auto& [token, score] : own)
            if (score != no_score) widest = std::max(widest, std::abs(score));
        magnitude += widest;
        if (order == Order::slots) {
            sets_.emplace_back(std::move(own), floor, vocabulary);
            continue;
        }
        all.insert(all.end(), own.begin(), own.end());
        if (order == Order::assigned) own_.emplace_back(std::move(own), floor, vocabulary);
    }
    if (order != Order::slots) sets_.emplace_back(std::move(all), floor, vocabulary);
    slack_ = 1e-12 * magnitude;
}

double Query::divisor(uint32_t length) const {
    if (length_norm_ == 0) return 1.0;
    return std::pow(static_cast<double>(length < slots_ ? length + 1 : slots_), length_norm_);
}

double Query::own_score(uint32_t slot, uint32_t token, const Floor& floor) const {
    const uint32_t entry = own_[slot].find(token);
    return entry == SlotSet::none ? floor(token) : own_[slot].score(entry);
}

}  // namespace pixnar
