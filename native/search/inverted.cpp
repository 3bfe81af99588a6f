// From the tokens to the docids. Lists of (slot, token) are read in the order of what the token gains; a docid that has
// not been met yet gains less than the next list in every slot, which soon is not enough for any of them.
#include <algorithm>

#include "search/engines.hpp"

namespace pixnar {

namespace {

class Search {
  public:
    Search(Field& field, Effort& effort) : field_(field), effort_(effort) {
        for (size_t c = 0; c < field.classes().size(); ++c) longest_ = std::max(longest_, field.matched(c));
        sets_ = field.query.shared() ? 1 : longest_;
        next_.assign(sets_, 0);
        open_.assign(field.classes().size(), false);
    }

    void run() {
        if (field_.strict && !field_.query.shared()) return strict();
        while (close_classes()) {
            if (effort_.out()) return give_up();
            uint32_t slot = 0;
            for (uint32_t t = 1; t < sets_; ++t)
                if (left(t) > left(slot)) slot = t;
            SlotSet& set = field_.query.set(slot);
            const bool exhausted = next_[slot] >= set.size();
            if (exhausted || effort_.spent > field_.table.rows() / 2 + 1024) return sweep();
            const Candidate candidate = set.best(next_[slot]);
            set.set_done(candidate.entry);
            if (field_.query.shared()) {
                for (uint32_t t = 0; t < longest_; ++t) list(t, candidate);
                ++next_[0];
            } else {
                ++next_[slot];
                list(slot, candidate);
            }
        }
    }

  private:
    // The most a token can gain in a slot if its list has not been read.
    double left(uint32_t slot) {
        const uint32_t s = field_.query.shared() ? 0 : slot;
        SlotSet& set = field_.query.set(s);
        return next_[s] < set.size() ? double{set.best(next_[s]).gain} : set.missing_gain();
    }

    // Which classes may still hold a docid that matters and has not been met; false if none does.
    bool close_classes() {
        double sums[most_slots + 1] = {};
        for (uint32_t t = 0; t < longest_; ++t) sums[t + 1] = sums[t] + left(t);
        bool any = false;
        for (size_t c = 0; c < open_.size(); ++c) {
            open_[c] = field_.possible(c) && unmet(c, sums) >= field_.wanted(c) && unmet(c, sums) != nothing;
            any |= open_[c];
        }
        return any;
    }
    double unmet(size_t c, const double* sums) const { return field_.most_base(c) + sums[field_.matched(c)] + field_.end(c); }

    void give_up() {
        double sums[most_slots + 1] = {};
        for (uint32_t t = 0; t < longest_; ++t) sums[t + 1] = sums[t] + left(t);
        for (size_t c = 0; c < open_.size(); ++c)
            if (open_[c]) effort_.leave(unmet(c, sums) / field_.divisor(c));
    }

    // Docids with the candidate's token in a slot.
    void list(uint32_t slot, const Candidate& candidate) {
        const bool shared = field_.query.shared();
        double others[most_slots + 1] = {};  // the most that the first m slots but this one can add
        for (uint32_t t = 0; t < longest_; ++t)
            others[t + 1] = others[t] + (t == slot ? 0.0 : shared ? double{candidate.gain} : left(t));
        slot_ = slot;
        token_ = candidate.token;
        auto room = [&](size_t c) { return candidate.gain + others[field_.matched(c)] + field_.end(c); };
        if (slot == 0) {
            for (size_t c = 0; c < open_.size(); ++c) {
                if (!open_[c]) continue;
                const LengthClass& in = field_.classes()[c];
                const auto [from, to] = field_.table.child(in, in.begin, in.end, 0, candidate.token);
                rows(c, room(c), to - from, [from = from](uint64_t i) { return from + static_cast<uint32_t>(i); });
            }
            return;
        }
        auto [from, to] = field_.table.occurrences(slot, candidate.token);
        auto posting = [&](uint64_t i) { return field_.table.posting(slot, i); };
        for (size_t c = 0; c < open_.size() && from < to; ++c) {
            const LengthClass& in = field_.classes()[c];
            if (in.length <= slot) continue;
            const uint64_t run = end_of_run(from, to, in.end, posting);
            if (open_[c] && run > from)
                rows(c, room(c), run - from, [&, first = from](uint64_t i) { return posting(first + i); });
            from = run;
        }
    }

    // The first of [from, to) whose row is not below `row`.
    template <class Posting> static uint64_t end_of_run(uint64_t from, uint64_t to, uint32_t row, Posting posting) {
        if (from == to || posting(to - 1) < row) return to;
        while (from < to) {
            const uint64_t middle = (from + to) / 2;
            if (posting(middle) < row) from = middle + 1;
            else to = middle;
        }
        return from;
    }

    template <class At> void rows(size_t c, double room, uint64_t count, At at) {
        constexpr uint64_t chunk = 64;
        const LengthClass& in = field_.classes()[c];
        uint32_t waiting[chunk];
        for (uint64_t start = 0; start < count; start += chunk) {
            const uint64_t n = std::min(chunk, count - start);
            effort_.spent += n;
            const double wanted = field_.wanted(c);
            uint64_t kept = 0;
            if (field_.levels.empty()) {
                if (room < wanted) return;
                for (; kept < n; ++kept) waiting[kept] = std::clamp(at(start + kept), in.begin, in.end - 1);
            } else {
                const unsigned least = field_.levels.least(c, wanted - room);
                if (least > 255) return;
                uint32_t all[chunk];
                for (uint64_t i = 0; i < n; ++i) {
                    all[i] = std::clamp(at(start + i), in.begin, in.end - 1);
                    __builtin_prefetch(field_.levels.data() + all[i]);
                }
                for (uint64_t i = 0; i < n; ++i) {
                    waiting[kept] = all[i];
                    kept += field_.levels[all[i]] >= least;
                }
            }
            for (uint64_t i = 0; i < kept; ++i) field_.table.prefetch_tokens(in, waiting[i]);
            for (uint64_t i = 0; i < kept; ++i) meet(c, in, waiting[i]);
        }
    }

    // A docid with token_ in slot_. If another of its lists has been read, it was met there.
    void meet(size_t c, const LengthClass& in, uint32_t row) {
        const bool shared = field_.query.shared();
        double gains = 0;
        for (uint32_t t = 0, m = field_.matched(c); t < m; ++t) {
            const uint32_t token = field_.table.token(in, row, t);
            const SlotSet& set = field_.query.set(t);
            const uint32_t entry = set.find(token);
            if (entry == SlotSet::none) {
                gains += set.missing_gain();
                if (field_.strict) return;
                continue;
            }
            if (shared ? (token == token_ ? t < slot_ : set.done(entry)) : (t != slot_ && set.done(entry))) return;
            gains += set.gain(entry);
        }
        if (field_.levels.base(c, row) + gains + field_.end(c) >= field_.wanted(c)) field_.consider(c, row);
    }

    // What no list has met: every docid of the open classes.
    void sweep() {
        double sums[most_slots + 1] = {};
        for (uint32_t t = 0; t < longest_; ++t) sums[t + 1] = sums[t] + left(t);
        for (size_t c = 0; c < open_.size(); ++c) {
            if (!open_[c]) continue;
            const LengthClass& in = field_.classes()[c];
            const double room = sums[field_.matched(c)] + field_.end(c);
            for (uint32_t row = in.begin; row < in.end; ++row) {
                if (effort_.out()) {
                    effort_.leave((field_.most_base(c) + room) / field_.divisor(c));
                    break;
                }
                if (!field_.levels.empty() && field_.levels.base(c, row) + room < field_.wanted(c)) continue;
                ++effort_.spent;
                bool met = false;
                double gains = 0;
                for (uint32_t t = 0, m = field_.matched(c); t < m && !met; ++t) {
                    const SlotSet& set = field_.query.set(t);
                    const uint32_t entry = set.find(field_.table.token(in, row, t));
                    met = entry == SlotSet::none ? field_.strict : set.done(entry);
                    if (entry != SlotSet::none) gains += set.gain(entry);
                }
                if (!met && field_.levels.base(c, row) + gains + field_.end(c) >= field_.wanted(c)) field_.consider(c, row);
            }
        }
    }

    // Without a floor every slot must match, so the lists of one slot hold all that can be found: of the cheapest one.
    void strict() {
        std::vector<uint64_t> total(longest_);
        for (uint32_t t = 0; t < longest_; ++t) {
            SlotSet& set = field_.query.set(t);
            for (size_t i = 0; i < set.size(); ++i) {
                const uint32_t token = set.best(i).token;
                if (t > 0) {
                    const auto [from, to] = field_.table.occurrences(t, token);
                    total[t] += to - from;
                    continue;
                }
                for (const LengthClass& in : field_.classes()) {
                    const auto [from, to] = field_.table.child(in, in.begin, in.end, 0, token);
                    total[t] += to - from;
                }
            }
        }
        std::vector<uint32_t> through(open_.size());
        for (size_t c = 0; c < open_.size(); ++c)
            through[c] = static_cast<uint32_t>(std::min_element(total.begin(), total.begin() + field_.matched(c)) - total.begin());
        for (uint32_t t = 0; t < longest_; ++t) {
            SlotSet& set = field_.query.set(t);
            for (size_t i = 0; i < set.size(); ++i) {
                const Candidate candidate = set.best(i);
                double best = nothing;
                for (size_t c = 0; c < open_.size(); ++c) {
                    const double reach = field_.bound(c) - set.most_gain() + candidate.gain;
                    open_[c] = through[c] == t && field_.possible(c) && reach >= field_.wanted(c);
                    if (open_[c]) best = std::max(best, reach / field_.divisor(c));
                }
                if (best == nothing) break;
                if (effort_.out()) {
                    effort_.leave(best);
                    break;
                }
                strict_list(t, candidate);
            }
        }
    }

    void strict_list(uint32_t slot, const Candidate& candidate) {
        slot_ = slot;
        token_ = candidate.token;
        auto room = [&](size_t c) { return field_.bound(c) - field_.query.set(slot).most_gain() + candidate.gain; };
        auto [from, to] = slot > 0 ? field_.table.occurrences(slot, candidate.token) : std::pair<uint64_t, uint64_t>{0, 0};
        for (size_t c = 0; c < open_.size(); ++c) {
            const LengthClass& in = field_.classes()[c];
            if (in.length <= slot) continue;
            if (slot == 0) {
                if (!open_[c]) continue;
                const auto [first, last] = field_.table.child(in, in.begin, in.end, 0, candidate.token);
                rows(c, room(c), last - first, [first = first](uint64_t i) { return first + static_cast<uint32_t>(i); });
                continue;
            }
            auto posting = [&](uint64_t i) { return field_.table.posting(slot, i); };
            const uint64_t run = end_of_run(from, to, in.end, posting);
            if (open_[c] && run > from)
                rows(c, room(c), run - from, [&, first = from](uint64_t i) { return posting(first + i); });
            from = run;
        }
    }

    Field& field_;
    Effort& effort_;
    uint32_t longest_ = 0, sets_ = 0;
    uint32_t slot_ = 0, token_ = 0;
    std::vector<size_t> next_;  // by set: lists that have been read
    std::vector<bool> open_;
};

}  // namespace

void inverted(Field& field, Effort& effort) { Search(field, effort).run(); }

}  // namespace pixnar
