#include "vocab/build/selection.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace pixnar {
namespace {

constexpr uint32_t longest_piece = 32;  // characters
constexpr uint32_t atoms_per_word = 3;  // a phrase of w words may have 3 w atoms: "rock-'n'-roll"
static_assert(most_words * atoms_per_word <= Layer::longest && longest_piece <= Layer::longest);
constexpr uint64_t drop_share = 6;  // a selection round drops at most a sixth of the candidates
constexpr unsigned most_refills = 3;

}  // namespace

uint64_t default_min_count(uint64_t docids) {
    // 2 up to 20 thousand docids, 5 at 400 thousand, 20 (the paper's value) from 20 million on.
    const double n = 2.0 * std::cbrt(static_cast<double>(docids) / 20000.0);
    return static_cast<uint64_t>(std::clamp(std::round(n), 2.0, 20.0));
}

MineLimits piece_limits(uint64_t min_count, const CharUnits& chars) {
    return {min_count, longest_piece, 1, chars.frequent, static_cast<uint32_t>(chars.units.size())};
}

MineLimits phrase_limits(uint64_t min_count, const BuildOptions& options, const AtomCounts& atoms) {
    return {min_count, options.max_words * atoms_per_word, options.max_words, atoms.frequent, atoms.total};
}

Selection::Selection(const BuildOptions& options, uint64_t min_count, SpacingCounts::Rule rule, AtomCounts atoms,
                     CharUnits chars, Grams piece_grams, Grams phrase_grams)
    : phrases(std::move(phrase_grams)),
      pieces(std::move(piece_grams)),
      options_(options),
      min_count_(min_count),
      target_(options.size > fixed_tokens ? options.size - fixed_tokens : 0),
      rule_(std::move(rule)),
      spacing_(rule_.chars, rule_.rule),
      atoms_(std::move(atoms)),
      chars_(std::move(chars)) {
    choose();
    first_left_ = left();
}

void Selection::choose() {
    pieces.choose([](uint32_t) { return true; });
    std::vector<uint8_t> single(atoms_.frequent);
    for (uint32_t a = 0; a < atoms_.frequent; ++a) {
        const std::string_view text = atoms_.text(a);
        single[a] = char_kind(char_at(text.data(), text.data() + text.size()).code_point) == CharKind::single;
    }
    const Grams& grams = phrases.grams();
    std::vector<uint8_t> no_word(grams.grams.size());  // n-grams of punctuation only
    for (uint32_t k = 0; k < grams.grams.size(); ++k) {
        const auto& gram = grams.grams[k];
        no_word[k] = single[gram.last & id_mask] &&
                     (gram.prefix < grams.units ? single[gram.prefix] : no_word[gram.prefix - grams.units]);
    }
    phrases.choose([&](uint32_t id) {
        if (options_.punctuation == Punctuation::anywhere || no_word[id - grams.units]) return true;
        if (single[grams.at(id).last & id_mask]) return false;
        return options_.punctuation == Punctuation::leading || !single[grams.first_unit(id)];
    });
    char_alive_.resize(chars_.units.size());
    for (uint32_t c = 0; c < chars_.frequent; ++c) char_alive_[c] = !chars_.units[c].fixed();
}

bool Selection::off_rule(uint32_t left, bool detached, uint32_t right) const {
    struct Ends { uint32_t first, last; };
    const auto ends = [&](uint32_t atom) -> Ends {
        const std::string_view text = atoms_.text(atom);
        const char* end = text.data() + text.size();
        const char* last = end - 1;
        while (last > text.data() && (*last & 0xc0) == 0x80) --last;
        return {char_at(text.data(), end).code_point, char_at(last, end).code_point};
    };
    SpacingState state;
    state.last = ends(left).last;
    state.detached = detached && char_kind(state.last) == CharKind::single;
    return spacing_.blank_before(state, ends(right & id_mask).first) != ((right & blank_flag) != 0);
}

uint64_t Selection::left() const {
    return phrases.alive_count() + pieces.alive_count() + static_cast<uint64_t>(std::ranges::count(char_alive_, uint8_t{1}));
}

void Selection::refresh() {
    for (uint32_t c = 0; c < chars_.units.size(); ++c) {
        const auto& unit = chars_.units[c];
        const bool one = unit.fixed() || char_alive_[c];
        pieces.unit_costs[c] = one ? token_cost(score_of(unit.count)) : unit.bytes.size() * token_cost(0);
    }
    pieces.refresh();
    phrases.refresh();
}

std::vector<uint64_t> Selection::word_weights() const {
    std::vector<uint64_t> weights(atoms_.total);
    for (uint32_t k = 0; k < atoms_.total; ++k) weights[k] = phrase_uses[atoms_.by_bytes[k]];
    return weights;
}

std::vector<Selection::Candidate> Selection::candidates(const Workers& workers) const {
    std::vector<Candidate> all;
    const Layer::Border border = [this](uint32_t left, bool detached, uint32_t right) {
        return off_rule(left, detached, right);
    };
    for (const uint32_t layer : {0u, 1u}) {
        const Layer& from = layer == 0 ? phrases : pieces;
        const auto& uses = layer == 0 ? phrase_uses : piece_uses;
        const Grams& grams = from.grams();
        const size_t first = all.size();
        for (uint32_t id = grams.units; id < grams.size(); ++id)
            if (from.alive(id)) all.push_back({uses[id] >= min_count_, 0, grams.counts[id - grams.units], layer, id});
        constexpr size_t chunk = 4096;
        workers.silent().run((all.size() - first + chunk - 1) / chunk, [&](size_t part, unsigned) {
            const size_t end = std::min(first + (part + 1) * chunk, all.size());
            for (size_t k = first + part * chunk; k < end; ++k)
                if (const uint64_t n = uses[all[k].id])
                    all[k].cost = n * (from.tokens_without(all[k].id, layer == 0 ? &border : nullptr) - 1);
        });
    }
    for (uint32_t c = 0; c < chars_.frequent; ++c)
        if (char_alive_[c])
            all.push_back({piece_uses[c] >= min_count_, piece_uses[c] * (chars_.units[c].bytes.size() - 1),
                           chars_.units[c].count, 2, c});
    return all;
}

void Selection::set_alive(std::span<const Candidate> which, bool in) {
    for (const Candidate& c : which) {
        if (c.layer == 2) char_alive_[c.id] = in;
        else (c.layer == 0 ? phrases : pieces).set_alive(c.id, in);
    }
}

bool Selection::advance(const Workers& workers) {
    const uint64_t left = this->left();
    std::vector<Candidate> all = candidates(workers);
    const auto weak = static_cast<uint64_t>(std::ranges::count(all, false, &Candidate::enough));
    uint64_t n;
    if (left > target_) {
        n = std::min(left - target_, std::max<uint64_t>(left / drop_share, 64));
    } else if (weak > 0) {
        // Tokens that are used too little often compete with each other: when half of them go, others gain.
        n = weak > std::max<uint64_t>(256, left / 1000) ? weak / 2 : weak;
    } else if (left < target_ && !last_out_.empty() && refills_ < most_refills) {
        ++refills_;
        const auto end = last_out_.begin() + static_cast<std::ptrdiff_t>(std::min<uint64_t>(target_ - left, last_out_.size()));
        set_alive({last_out_.begin(), end}, true);
        last_out_.erase(last_out_.begin(), end);
        return true;
    } else {
        return false;
    }
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(n);
    std::ranges::nth_element(all, middle, {}, &Candidate::key);
    all.erase(middle, all.end());
    set_alive(all, false);
    if (left > target_ && left - n == target_) {
        last_out_ = std::move(all);
        std::erase_if(last_out_, [](const Candidate& c) { return !c.enough; });
        std::ranges::sort(last_out_, [](const Candidate& a, const Candidate& b) { return a.key() > b.key(); });
    }
    return true;
}

BuiltVocabulary Selection::tokens() const {
    BuiltVocabulary out;
    struct Token {
        TokenKind kind;
        std::string text;
        uint64_t count, uses;
    };
    std::vector<Token> tokens;
    const auto& grams = phrases.grams();
    std::vector<uint32_t> spelled;
    for (uint32_t id = grams.units; id < grams.size(); ++id) {
        if (!phrases.alive(id)) continue;
        grams.spell(id, spelled);
        std::string text;
        for (size_t i = 0; i < spelled.size(); ++i) {
            if (i > 0 && spelled[i] & blank_flag) text += ' ';
            text += atoms_.text(spelled[i] & id_mask);
        }
        tokens.push_back({TokenKind::start, std::move(text), grams.counts[id - grams.units], phrase_uses[id]});
    }
    std::vector<std::pair<uint64_t, uint64_t>> byte_counts(512);  // count, uses; starts first
    const auto kind_of = [](const CharUnits::Unit& unit) {
        return unit.start ? TokenKind::start : TokenKind::continuation;
    };
    for (uint32_t c = 0; c < chars_.units.size(); ++c) {
        const auto& unit = chars_.units[c];
        if (unit.fixed() || !char_alive_[c]) {
            for (size_t i = 0; i < unit.bytes.size(); ++i) {
                auto& cell = byte_counts[(unit.start && i == 0 ? 0 : 256) + static_cast<uint8_t>(unit.bytes[i])];
                if (unit.fixed()) cell.first += unit.count;
                cell.second += piece_uses[c];
            }
        } else {
            tokens.push_back({kind_of(unit), unit.bytes, unit.count, piece_uses[c]});
        }
    }
    const auto& piece_grams = pieces.grams();
    for (uint32_t id = piece_grams.units; id < piece_grams.size(); ++id) {
        if (!pieces.alive(id)) continue;
        piece_grams.spell(id, spelled);
        std::string text;
        for (const uint32_t c : spelled) text += chars_.units[c].bytes;
        tokens.push_back({kind_of(chars_.units[spelled[0]]), std::move(text), piece_grams.counts[id - piece_grams.units],
                          piece_uses[id]});
    }
    std::ranges::sort(tokens, [](const Token& a, const Token& b) {
        if (a.uses != b.uses) return a.uses > b.uses;
        return a.kind != b.kind ? a.kind < b.kind : a.text < b.text;
    });

    out.offsets.push_back(0);
    const auto put = [&](TokenKind kind, std::string_view text, uint64_t count, uint64_t uses) {
        out.kinds.push_back(static_cast<uint8_t>(kind));
        out.bytes.insert(out.bytes.end(), text.begin(), text.end());
        out.offsets.push_back(out.bytes.size());
        out.scores.push_back(score_of(count));
        out.uses.push_back(uses);
    };
    put(TokenKind::marker, "", 0, phrase_uses[grams.size() + glue_token]);
    put(TokenKind::marker, "", 0, phrase_uses[grams.size() + blank_token]);
    for (int i = 0; i < 512; ++i) {
        const char byte = static_cast<char>(i % 256);
        put(i < 256 ? TokenKind::start : TokenKind::continuation, {&byte, 1}, byte_counts[i].first, byte_counts[i].second);
    }
    for (const Token& token : tokens) put(token.kind, token.text, token.count, token.uses);
    out.spacing_chars = rule_.chars;
    out.spacing_rule = rule_.rule;
    out.min_count = min_count_;
    out.words = atoms_.total;
    out.frequent_words = atoms_.frequent;
    out.candidates = first_left_;
    return out;
}

}  // namespace pixnar
