// The encoder's slow twin: one flat dynamic programme over the bytes of a text that tries every token everywhere.
#pragma once
#include <algorithm>
#include <compare>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "vocab/encoder.hpp"
#include "vocab/text.hpp"

namespace pixnar::test {

class Oracle {
  public:
    explicit Oracle(const Tables& tables) : tables_(tables), spacing_(tables.spacing_chars, tables.spacing_rule) {
        for (auto& bytes : first_) std::ranges::fill(bytes, no_token);
        for (uint32_t v = 0; v < tables.tokens.size(); ++v) {
            Atoms atoms(tables.tokens.text(v));
            size_t n = 0;
            for (Atom atom; atoms.next(atom);) ++n;
            one_atom_.push_back(n <= 1);
            next_.push_back(no_token);
            const TokenKind kind = tables.tokens.kind(v);
            if (kind == TokenKind::marker) continue;
            uint32_t& first = first_[kind == TokenKind::start][first_byte(tables.tokens.text(v))];
            next_[v] = std::exchange(first, v);
        }
    }

    std::vector<uint32_t> encode(std::string_view text) const {
        const std::vector<Span> spans = split(text);
        std::vector<Best> best(text.size() + 1);
        best[0].cost = {0, 0};
        for (size_t a = 0; a < spans.size(); ++a) {
            const Span& span = spans[a];
            const Best before = best[a == 0 ? 0 : spans[a - 1].end];
            for (size_t at = span.begin; at < span.end; ++at) {
                const bool start = at == span.begin;
                const Total here = start ? Total{before.cost.tokens + span.marked, before.cost.minus_score} : best[at].cost;
                for (uint32_t v = first_[start][first_byte(text.substr(at))]; v != no_token; v = next_[v]) {
                    const std::string_view token = tables_.tokens.text(v);
                    if (text.substr(at, token.size()) != token || !fits(v, at + token.size(), span, spans)) continue;
                    const Total total{here.tokens + 1, here.minus_score - tables_.tokens.scores[v]};
                    Best& there = best[at + token.size()];
                    // Starts are tried in ascending order, so the first among equals has the longest last token.
                    if (total < there.cost) there = {total, at, a, v};
                }
            }
        }
        std::vector<uint32_t> ids;
        for (size_t at = spans.empty() ? 0 : spans.back().end; at > 0;) {
            const Best& step = best[at];
            const Span& span = spans[step.atom];
            ids.push_back(step.token);
            at = step.from;
            if (at != span.begin) continue;
            if (span.marked) ids.push_back(span.blank ? blank_token : glue_token);
            at = step.atom == 0 ? 0 : spans[step.atom - 1].end;
        }
        std::reverse(ids.begin(), ids.end());
        return ids;
    }

  private:
    struct Total {
        int64_t tokens, minus_score;
        auto operator<=>(const Total&) const = default;
    };
    struct Best {
        Total cost{INT64_MAX / 2, 0};
        size_t from = 0, atom = 0;
        uint32_t token = no_token;
    };
    struct Span {
        size_t begin, end;
        bool blank, marked;
    };

    static uint8_t first_byte(std::string_view text) { return static_cast<uint8_t>(text.front()); }

    // Inside its atom a token is a piece; beyond it, a phrase, which ends where an atom ends.
    bool fits(uint32_t v, size_t end, const Span& span, const std::vector<Span>& spans) const {
        if (end <= span.end) return one_atom_[v];
        return std::ranges::any_of(spans, [&](const Span& other) { return other.end == end; });
    }

    // The rule's state is read off the text before the gap, not carried along.
    std::vector<Span> split(std::string_view text) const {
        std::vector<Span> spans;
        Atoms atoms(text);
        for (Atom atom; atoms.next(atom);) {
            const auto begin = static_cast<size_t>(atom.text.data() - text.data());
            Span span{begin, begin + atom.text.size(), begin > 0 && text[begin - 1] == ' ', false};
            if (!spans.empty()) {
                const Span& left = spans.back();
                const std::string_view read = text.substr(0, left.end);
                SpacingState state;
                state.inside_quotes = std::ranges::count(read, '"') % 2 == 1;
                for (size_t p = left.begin; p < left.end;) {
                    const Char c = char_at(text.data() + p, text.data() + left.end);
                    state.last = c.code_point;
                    p += c.bytes;
                }
                state.detached = char_kind(state.last) == CharKind::single && (left.begin == 0 || text[left.begin - 1] == ' ');
                span.marked = spacing_.blank_before(state, atom.first) != span.blank;
            }
            spans.push_back(span);
        }
        return spans;
    }

    const Tables& tables_;
    Spacing spacing_;
    std::vector<bool> one_atom_;
    // Continuations and starts as lists, one for each first byte.
    uint32_t first_[2][256];
    std::vector<uint32_t> next_;
};

}  // namespace pixnar::test
