#include "head/score.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "common/parallel.hpp"
#include "head/dispatch.hpp"
#include "head/pass.hpp"
#include "head/top.hpp"

namespace pixnar::head {

namespace {

constexpr float nothing = -std::numeric_limits<float>::infinity();

void check(const Rows& rows, const ScoreRule& rule, const Tokens& listed, std::span<const uint32_t> own) {
    if (rows.count == 0) throw std::invalid_argument("there is no row for the end of a docid");
    const uint32_t tokens = rows.count - 1;
    if (rule.log_z.size() < 2 || rule.end_priors.size() != rule.log_z.size() - 1)
        throw std::invalid_argument(std::to_string(rule.end_priors.size()) + " priors of the end, and log Z of " +
                                    std::to_string(rule.log_z.size()) + " vectors: give one for each slot, and one more");
    if (rule.token_priors.size() != tokens || (rule.floored && rule.floors.size() != tokens))
        throw std::invalid_argument(std::to_string(rule.token_priors.size()) + " priors and " +
                                    std::to_string(rule.floors.size()) + " floors for " + std::to_string(tokens) + " tokens");
    if (!(rule.copy >= 0 && rule.copy < 1)) throw std::invalid_argument("copy: give a share of at least 0 and less than 1");
    listed.check(tokens);
    if (!listed.rising()) throw std::invalid_argument("the tokens to score must be in order, each once");
    Tokens{own.data(), own.size()}.check(tokens);
    if (!rule.bonus.empty() && rule.bonus.size() != own.size())
        throw std::invalid_argument(std::to_string(rule.bonus.size()) + " bonuses for " + std::to_string(own.size()) + " n-grams");
}

// Room for logits that is kept from query to query: fresh memory costs more than what is written to it.
thread_local std::vector<float> room;

// The logits of all vectors that are used, and how their exponentials add up. Pieces are cut by the place in the list, so
// that sums do not depend on the number of threads.
class Logits {
  public:
    Logits(const Rows& rows, std::span<const float> x, size_t vectors, const Tokens& listed, bool normalize, unsigned threads)
        : size(listed.size), pieces_((size + piece - 1) / piece), ends_(vectors), largest_(vectors * pieces_),
          sums_(vectors * pieces_) {
        const Pass pass(rows, x, vectors);
        if (room.size() < vectors * size) room.resize(vectors * size);
        all_ = room.data();
        const auto used = static_cast<unsigned>(std::clamp<size_t>(pieces_, 1, std::max(threads, 1u)));
        Workers{used, {}, {}}.run(pieces_, [&](size_t p, unsigned) {
            const size_t end = std::min(size, (p + 1) * piece);
            std::vector<float> out(vectors * Pass::block);
            for (size_t from = p * piece; from < end; from += Pass::block) {
                const size_t count = std::min(Pass::block, end - from);
                pass.run(listed, from, count, out.data());
                for (size_t t = 0; t < vectors; ++t) std::copy_n(&out[t * Pass::block], count, all_ + t * size + from);
            }
            for (size_t t = 0; normalize && t < vectors; ++t)
                pass.kernels().log_sum(of(t) + p * piece, end - p * piece, &largest_[t * pieces_ + p], &sums_[t * pieces_ + p]);
        });
        const uint32_t last = rows.count - 1;
        std::vector<float> out(vectors * Pass::block);
        pass.run({&last, 1}, 0, 1, out.data());
        for (size_t t = 0; t < vectors; ++t) ends_[t] = out[t * Pass::block];
    }
    ~Logits() {
        if (room.size() > most_kept) std::vector<float>().swap(room);
    }
    Logits(const Logits&) = delete;
    Logits& operator=(const Logits&) = delete;

    const float* of(size_t vector) const { return all_ + vector * size; }
    float end(size_t vector) const { return ends_[vector]; }

    // log Z over the tokens, and the end if wanted.
    float log_sum(size_t vector, bool with_end) const {
        const std::span largest(largest_.data() + vector * pieces_, pieces_), sums(sums_.data() + vector * pieces_, pieces_);
        float top = with_end ? ends_[vector] : nothing;
        for (const float one : largest) top = std::max(top, one);
        double sum = with_end ? std::exp(static_cast<double>(ends_[vector]) - top) : 0;
        for (size_t p = 0; p < pieces_; ++p) sum += sums[p] * std::exp(static_cast<double>(largest[p]) - top);
        return static_cast<float>(top + std::log(sum));
    }

    const size_t size;

  private:
    static constexpr size_t piece = 16 * Pass::block;
    static constexpr size_t most_kept = size_t{1} << 22;  // floats

    size_t pieces_;
    float* all_ = nullptr;
    std::vector<float> ends_, largest_, sums_;
};

// Places of the query's own n-grams in the list, rising.
std::vector<size_t> own_places(const Tokens& listed, std::span<const uint32_t> own) {
    std::vector<size_t> places;
    for (const uint32_t token : own) {
        size_t place = token;
        if (listed.ids) place = static_cast<size_t>(std::lower_bound(listed.ids, listed.ids + listed.size, token) - listed.ids);
        if (place < listed.size && listed[place] == token) places.push_back(place);
    }
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    return places;
}

float log_add(float a, float b) {
    if (a == nothing) return b;
    const float high = std::max(a, b), low = std::min(a, b);
    return high + std::log1p(std::exp(low - high));
}

// Makes scores of the log probabilities of tokens [from, to), as scoring/rule.py does.
class Scorer {
  public:
    Scorer(const ScoreRule& rule, const Tokens& listed, std::span<const uint32_t> own)
        : rule_(rule), listed_(listed), weight_(static_cast<float>(rule.prior_weight)), scale_(static_cast<float>(rule.scale)) {
        for (size_t i = 0; i < rule.bonus.size(); ++i)
            for (const size_t place : own_places(listed, own.subspan(i, 1))) bonus_.emplace_back(place, rule.bonus[i]);
        if (rule.copy == 0 || own.empty() || listed.size == 0) return;
        places_ = own_places(listed, own);
        kept_ = static_cast<float>(std::log1p(-rule.copy));
        copied_ = -std::log(static_cast<float>(own.size())) + static_cast<float>(std::log(rule.copy));
    }

    void score(float* values, size_t from, size_t to) const {
        auto next = std::lower_bound(places_.begin(), places_.end(), from);
        for (; next != places_.end() && *next < to; ++next)
            values[*next - from] = log_add(values[*next - from] + kept_, copied_) - kept_;
        for (size_t i = from; i < to; ++i)
            values[i - from] = ((values[i - from] + kept_) - weight_ * rule_.token_priors[listed_[i]]) * scale_;
        for (const auto& [place, bonus] : bonus_)
            if (place >= from && place < to) values[place - from] += bonus * scale_;
    }

  private:
    const ScoreRule& rule_;
    const Tokens& listed_;
    float weight_, scale_, kept_ = 0, copied_ = 0;
    std::vector<size_t> places_;
    std::vector<std::pair<size_t, float>> bonus_;  // place in the list, and what is added there
};

void keep_above(const ScoreRule& rule, const Tokens& listed, const float* values, size_t from, size_t to, Scores& found) {
    const size_t had = found.tokens.size();
    found.tokens.resize(had + to - from);
    found.scores.resize(had + to - from);
    size_t at = had;
    for (size_t i = from; i < to; ++i) {
        found.tokens[at] = listed[i];
        found.scores[at] = values[i - from];
        at += !rule.floored || values[i - from] > rule.floors[listed[i]];
    }
    found.tokens.resize(at);
    found.scores.resize(at);
}

void expand(const Logits& logits, const ScoreRule& rule, const Tokens& listed, size_t most, Scores& found) {
    if (listed.size == 0 || most == 0) return;
    const float log_z = logits.log_sum(0, false);
    Keeper keeper(std::min(most, listed.size), true);
    std::vector<float> gains(Pass::block);
    for (size_t from = 0; from < listed.size; from += Pass::block) {
        const size_t count = std::min(Pass::block, listed.size - from);
        for (size_t i = 0; i < count; ++i) gains[i] = logits.of(0)[from + i] - log_z - rule.token_priors[listed[from + i]];
        keeper.offer(kernels(), gains.data(), count, listed, from);
    }
    std::vector<Best> best = keeper.best();
    std::erase_if(best, [](const Best& one) { return !(one.logit > 0); });
    std::sort(best.begin(), best.end(), [](const Best& a, const Best& b) { return a.token < b.token; });
    for (const Best& one : best) {
        found.expansion.push_back(one.token);
        found.gains.push_back(one.logit);
    }
}

}  // namespace

Scores score(const Rows& rows, const ScoreRule& rule, std::span<const float> x, const Tokens& listed,
             std::span<const uint32_t> own, size_t expansion, unsigned threads) {
    check(rows, rule, listed, own);
    const size_t slots = rule.end_priors.size();
    if (x.size() != (slots + 1) * rows.dim)
        throw std::invalid_argument(std::to_string(x.size()) + " numbers are not " + std::to_string(slots + 1) + " vectors of " +
                                    std::to_string(rows.dim));
    const bool bag = rule.order == Matching::bag, first_used = bag || expansion > 0;
    const size_t begin = first_used ? 0 : 1, end = bag ? 1 : slots + 1;
    const Logits logits(rows, x.subspan(begin * rows.dim, (end - begin) * rows.dim), end - begin, listed,
                        rule.normalize || expansion > 0, threads);
    Scores found;
    found.ends.resize(slots);
    if (expansion > 0) expand(logits, rule, listed, expansion, found);

    const size_t first = bag ? 0 : 1;  // of the vectors that the rule scores with
    std::vector<float> log_z;
    for (size_t t = first; t < end; ++t) log_z.push_back(rule.normalize ? logits.log_sum(t - begin, true) : rule.log_z[t]);
    const Scorer scorer(rule, listed, own);
    found.dense = !listed.ids && !rule.floored && rule.order == Matching::slots;
    if (found.dense) found.scores.resize(slots * listed.size);
    else found.offsets.push_back(0);
    const size_t lines = rule.order == Matching::slots ? slots : std::min<size_t>(1, log_z.size());
    std::vector<float> values(Pass::block);
    for (size_t line = 0; line < lines; ++line) {
        for (size_t from = 0; from < listed.size; from += Pass::block) {
            const size_t to = std::min(listed.size, from + Pass::block);
            const float* some = logits.of(first + line - begin) + from;
            for (size_t i = 0; i < to - from; ++i) values[i] = some[i] - log_z[line];
            if (rule.order == Matching::any)
                for (size_t t = 1; t < slots; ++t) {
                    const float* other = logits.of(first + t - begin) + from;
                    for (size_t i = 0; i < to - from; ++i) values[i] = std::max(values[i], other[i] - log_z[t]);
                }
            scorer.score(values.data(), from, to);
            if (found.dense) std::copy_n(values.data(), to - from, &found.scores[line * listed.size + from]);
            else keep_above(rule, listed, values.data(), from, to, found);
        }
        if (!found.dense) found.offsets.push_back(static_cast<int64_t>(found.tokens.size()));
        if (rule.ends && rule.order == Matching::slots)
            found.ends[line] = ((logits.end(first + line - begin) - log_z[line]) -
                                static_cast<float>(rule.prior_weight) * rule.end_priors[line]) * static_cast<float>(rule.scale);
    }
    if (!found.dense) found.offsets.resize(slots + 1, static_cast<int64_t>(found.tokens.size()));
    return found;
}

}  // namespace pixnar::head
