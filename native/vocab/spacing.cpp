#include "vocab/spacing.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace pixnar {
namespace {

enum : uint32_t { letter_class, digit_class, lone_class, other_class };
constexpr size_t most_chars = 124;

bool is_digit(uint32_t c) { return c >= '0' && c <= '9'; }

// A stand-in for all characters of a shared class, so that counts stay small.
uint32_t representative(uint32_t c) {
    switch (char_kind(c)) {
        case CharKind::word: return is_digit(c) ? '0' : 'a';
        case CharKind::lone: return 0x4e00;
        default: return c;
    }
}

// Where the corpus has nothing to say: blanks between words and after punctuation, none before it.
bool usual_blank(uint32_t right) { return right == letter_class || right == digit_class; }

}  // namespace

bool Spacing::valid(std::span<const uint32_t> chars, std::span<const uint8_t> rule) {
    const size_t classes = chars.size() + shared_classes;
    return chars.size() <= most_chars && std::ranges::is_sorted(chars) && rule.size() == 4 * classes * classes;
}

Spacing::Spacing(std::span<const uint32_t> chars, std::span<const uint8_t> rule)
    : classes_(static_cast<uint32_t>(chars.size()) + shared_classes), chars_(chars), rule_(rule) {
    for (uint32_t c = 0; c < 128; ++c) ascii_[c] = static_cast<uint8_t>(class_of_other(c));
}

uint32_t Spacing::class_of_other(uint32_t c) const {
    switch (char_kind(c)) {
        case CharKind::word: return is_digit(c) ? digit_class : letter_class;
        case CharKind::lone: return lone_class;
        default: break;
    }
    const auto found = std::ranges::lower_bound(chars_, c);
    if (found == chars_.end() || *found != c) return other_class;
    return shared_classes + static_cast<uint32_t>(found - chars_.begin());
}

void SpacingCounts::count(const SpacingState& state, const Atom& next) {
    const uint32_t left = representative(state.last), right = representative(next.first);
    const auto bits = static_cast<uint8_t>(state.inside_quotes * 2 + state.detached);
    Votes& votes = votes_of(left, right, bits);
    ++(next.blank_before ? votes.blank : votes.none);
}

std::map<SpacingCounts::Context, SpacingCounts::Votes> SpacingCounts::all() const {
    std::map<Context, Votes> all = others_;
    for (uint32_t i = 0; i < ascii_.size(); ++i)
        if (ascii_[i].blank || ascii_[i].none)
            all[{i / shared_ascii % shared_ascii, i % shared_ascii, static_cast<uint8_t>(i / shared_ascii / shared_ascii)}] =
                ascii_[i];
    return all;
}

std::vector<uint64_t> SpacingCounts::votes() const {
    std::vector<uint64_t> out;
    for (const auto& [context, votes] : all())
        out.insert(out.end(), {context.left, context.right, context.state, votes.blank, votes.none});
    return out;
}

void SpacingCounts::add(std::span<const uint64_t> votes) {
    if (votes.size() % 5 != 0) throw std::invalid_argument("votes come as five numbers each");
    for (size_t i = 0; i < votes.size(); i += 5) {
        if (votes[i] > 0x10ffff || votes[i + 1] > 0x10ffff || votes[i + 2] > 3) throw std::invalid_argument("votes about no character");
        Votes& mine = votes_of(static_cast<uint32_t>(votes[i]), static_cast<uint32_t>(votes[i + 1]), static_cast<uint8_t>(votes[i + 2]));
        mine.blank += votes[i + 3];
        mine.none += votes[i + 4];
    }
}

SpacingCounts::Rule SpacingCounts::settle() const {
    const std::map<Context, Votes> all = this->all();
    std::map<uint32_t, uint64_t> uses;  // of characters that may get a class of their own
    for (const auto& [context, votes] : all)
        for (const uint32_t c : {context.left, context.right})
            if (char_kind(c) == CharKind::single) uses[c] += votes.blank + votes.none;
    std::vector<std::pair<uint64_t, uint32_t>> ranked;
    for (const auto& [c, n] : uses) ranked.emplace_back(n, c);
    std::ranges::sort(ranked, [](auto a, auto b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
    if (ranked.size() > most_chars) ranked.resize(most_chars);

    Rule result;
    for (const auto& [n, c] : ranked) result.chars.push_back(c);
    std::ranges::sort(result.chars);
    const size_t classes = result.chars.size() + Spacing::shared_classes;
    const Spacing spacing(result.chars, {});
    std::vector<Votes> votes(4 * classes * classes);
    for (const auto& [context, v] : all) {
        const size_t row = context.state * classes + spacing.class_of(context.left);
        auto& cell = votes[row * classes + spacing.class_of(context.right)];
        cell.blank += v.blank;
        cell.none += v.none;
    }
    result.rule.resize(votes.size());
    for (size_t i = 0; i < votes.size(); ++i) {
        const auto [blank, none] = votes[i];
        result.rule[i] = blank == none ? usual_blank(static_cast<uint32_t>(i % classes)) : blank > none;
    }
    return result;
}

}  // namespace pixnar
