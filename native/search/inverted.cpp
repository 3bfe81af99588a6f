// From the tokens to the docids. The lists of (slot, token) are read in the order of what the token gains; a docid is
// handled at the first of its lists. One that has not been met yet gains less than the next list in every slot, and
// scores less than the best unread token in every slot, which soon is not enough for any of them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "search/engines.hpp"
#include "search/reading_order.hpp"

namespace pixnar {

namespace {

class Search {
  public:
    Search(SegmentView& segment, Effort& effort)
        : segment_(segment), effort_(effort), shared_(segment.query.shared()), order_(segment), longest_(order_.longest),
          sets_(order_.sets), lists_(order_.lists), groups_(order_.groups), open_(segment.classes().size()),
          wanted_(open_.size()) {
        for (uint32_t t = 0; t < longest_; ++t) least_gain_[t].resize(open_.size());
        for (size_t c = 0; c < open_.size(); ++c) {
            const LengthClass& in = segment.classes()[c];
            const auto& scale = segment.levels.scale(c);
            kinds_.push_back({in.first_token, in.begin, in.length, segment.matched(c), scale.low, scale.step, 0});
        }
        prepare_quick();
        prepare_blocks();
    }

    void run() {
        size_t at = 0;
        for (size_t g = 0; g < groups_.size(); ++g) {
            limits(g);
            if (!close_classes()) return;
            if (effort_.out()) return give_up();
            if (effort_.spent > segment_.table.rows() / 2 + 1024) return sweep(static_cast<uint32_t>(at));
            read(at, groups_[g].end);
            at = groups_[g].end;
        }
        limits(groups_.size());
        if (!close_classes()) return;
        if (effort_.out()) return give_up();
        sweep(static_cast<uint32_t>(at));
    }

  private:
    struct Job {  // docids of a list
        uint64_t from, to;  // postings, or rows of the first place
        uint32_t list;      // position
        uint16_t place, of_class;
    };
    struct Met {
        uint32_t row;
        uint32_t list;  // position
        uint16_t of_class;
        uint8_t place, level;
    };

    // Rows are sorted by their first token, so what the first slot gains is nearly constant over a block of rows: known
    // for a posting of another slot before its row is looked at.
    void prepare_blocks() {
        std::vector<const List*> first;
        for (const List& list : lists_)
            if (list.slot == 0) first.push_back(&list);
        rest_gain_ = segment_.query.set(0).missing_gain();
        if (first.size() > most_marked) {
            std::nth_element(first.begin(), first.begin() + most_marked, first.end(),
                             [](const List* a, const List* b) { return a->gain > b->gain; });
            rest_gain_ = first[most_marked]->gain;
            first.resize(most_marked);
        }
        const uint32_t rows = segment_.table.rows();
        block_shift_ = static_cast<unsigned>(std::max(4, static_cast<int>(std::bit_width(rows)) - 19));
        blocks_.assign((rows >> block_shift_) + 1, 0);
        double most = 0, least = 0;
        for (const List* list : first) {
            most = std::max(most, double{list->gain});
            least = std::min(least, double{list->gain});
        }
        const double unit = (most - least) / 254;
        block_gain_[0] = static_cast<float>(rest_gain_);
        for (int q = 1; q < 256; ++q) block_gain_[q] = rounded_up(std::max(rest_gain_, least + unit * q));
        marked_.assign(open_.size(), 0);
        for (size_t c = 0; c < open_.size(); ++c) {
            const LengthClass& in = segment_.classes()[c];
            marked_[c] = in.length > 1 && segment_.possible(c) && (in.end - in.begin) > rows / 64;
            if (!marked_[c]) continue;
            for (const List* list : first) {
                const auto [from, to] = segment_.table.child(in, in.begin, in.end, 0, list->token);
                if (from == to) continue;
                const double steps = unit > 0 && unit < 1e300 ? std::ceil((list->gain - least) / unit) : 255.0;
                const auto value = static_cast<uint8_t>(std::clamp(steps + 1, 1.0, 255.0));
                for (uint32_t b = from >> block_shift_; b <= (to - 1) >> block_shift_; ++b) blocks_[b] = std::max(blocks_[b], value);
            }
        }
    }

    // An upper bound of every token's gain in every slot, in a byte, by a hash of the token; 0 for no candidate.
    void prepare_quick() {
        double most = 0;
        for (const List& list : lists_) {
            most = std::max(most, double{list.gain});
            low_ = std::min(low_, double{list.gain});
        }
        unit_ = (most - low_) / 253 * (1 + 1e-6);
        const double steps_a_unit = unit_ > 0 && unit_ < 1e30 ? 1 / unit_ : 0.0;
        quick_.assign(sets_ * quick_size, 0);
        for (const List& list : lists_) {
            const double steps = steps_a_unit > 0 ? (list.gain - low_) * steps_a_unit + 1 : 254.0;  // rounded up
            uint8_t& at = quick_[list.slot * quick_size + quick_hash(list.token)];
            at = std::max(at, static_cast<uint8_t>(std::min(steps, 254.0) + 1));
        }
        gain_of_[0] = segment_.strict ? nothing : 0.0;
        for (int q = 1; q < 256; ++q) gain_of_[q] = low_ + unit_ * (q - 1);
    }
    static uint32_t quick_slot(uint16_t hash) { return hash >> (16 - quick_bits); }
    static uint32_t quick_hash(uint32_t token) { return quick_slot(token_hash(token)); }

    // The bounds that hold from a group on.
    void limits(size_t g) {
        const ReadingOrder::Group& group = g < groups_.size() ? groups_[g] : order_.rest;
        auto of = [&](uint32_t t) { return shared_ ? 0 : t; };
        for (uint32_t t = 0; t < longest_; ++t) slot_gain_[t] = group.gain[of(t)];
        first_gain_ = rounded_up(slot_gain_[0]);
        for (uint32_t t = 0; t < longest_; ++t) {
            const uint32_t near = Levels::near_place(t);
            Rest rest;
            for (uint32_t m = 0; m <= longest_; ++m) {
                if (m > t) rest_of_[t][m] = rest;
                if (m == longest_) break;
                if (m == t) continue;
                rest.all += slot_gain_[m];
                if (m != 0) rest.not_first += slot_gain_[m];
                if (m != near) rest.not_near += slot_gain_[m];
                if (m != 0 && m != near) rest.neither += slot_gain_[m];
            }
        }
        double gains = 0, scores = 0;
        for (uint32_t m = 0; m <= longest_; ++m) {
            gains_[m] = gains;
            scores_[m] = scores;
            if (m == longest_) break;
            gains += group.gain[of(m)];
            scores += group.score[of(m)];
        }
        for (uint32_t t = 0; t < longest_; ++t) {
            gains = gains_[t];
            scores = scores_[t];
            for (uint32_t m = t + 1; m <= longest_; ++m) {
                other_scores_[t][m] = scores;
                if (m == longest_) break;
                gains += group.gain[of(m)];
                scores += group.score[of(m)];
            }
        }
    }

    double unmet(size_t c) const {
        const uint32_t m = segment_.matched(c);
        return std::min(segment_.most_base(c) + gains_[m], scores_[m]) + segment_.end(c);
    }

    // Which classes may still hold a docid that matters and has not been met; false if none does.
    bool close_classes() {
        bool any = false;
        std::fill_n(least_score_, most_slots, std::numeric_limits<double>::infinity());
        for (size_t c = 0; c < open_.size(); ++c) {
            wanted_[c] = segment_.wanted(c);
            const double bound = unmet(c);
            kinds_[c].wanted = wanted_[c] - segment_.end(c);
            open_[c] = segment_.possible(c) && bound != nothing && bound >= wanted_[c];
            any |= open_[c];
            if (!open_[c]) continue;
            for (uint32_t t = 0; t < segment_.matched(c); ++t) {
                least_gain_[t][c] = wanted_[c] - rest_of_[t][segment_.matched(c)].all - segment_.end(c);
                least_score_[t] = std::min(least_score_[t], wanted_[c] - other_scores_[t][segment_.matched(c)] - segment_.end(c));
            }
        }
        return any;
    }

    void give_up() {
        for (size_t c = 0; c < open_.size(); ++c)
            if (open_[c]) effort_.leave(segment_.most_score(c, unmet(c)));
    }

    void read(size_t from, size_t to) {
        jobs_.clear();
        for (size_t p = from; p < to; ++p) {
            const List& list = lists_[p];
            for (uint32_t place = list.slot; place < longest_; ++place) {
                if (list.score >= least_score_[place]) find(list, static_cast<uint32_t>(p), place);
                if (!shared_) break;
            }
        }
        for (const Job& job : jobs_) {
            if (job.place == 0) first_place(job);
            else later_place(job);
        }
        flush();
    }

    // Where the docids of a list are. Their first bytes are on the way while the other lists are found.
    void find(const List& list, uint32_t position, uint32_t place) {
        ++effort_.spent;
        if (place > 0) {
            const auto [from, to] = shared_ ? segment_.table.occurrences(place, list.token)
                                            : std::pair<uint64_t, uint64_t>{list.from, list.from + list.rows};
            if (from == to) return;
            jobs_.push_back({from, to, position, static_cast<uint16_t>(place), 0});
            segment_.table.prefetch_postings(place, from);
            if (!segment_.levels.empty()) __builtin_prefetch(segment_.levels.posted(place) + from);
            return;
        }
        for (size_t c = 0; c < open_.size(); ++c) {
            if (!matters(c, list, 0)) continue;
            const LengthClass& in = segment_.classes()[c];
            const auto [from, to] = segment_.table.child(in, in.begin, in.end, 0, list.token);
            if (from == to) continue;
            jobs_.push_back({from, to, position, 0, static_cast<uint16_t>(c)});
            if (!segment_.levels.empty()) __builtin_prefetch(segment_.levels.data() + from);
        }
    }

    // Whether a docid of class c that is first met in this list can matter.
    bool matters(size_t c, const List& list, uint32_t place) const {
        return open_[c] && list.score + other_scores_[place][segment_.matched(c)] + segment_.end(c) >= wanted_[c];
    }

    void first_place(const Job& job) {
        const uint8_t* levels = segment_.levels.empty() ? nullptr : segment_.levels.data() + job.from;
        const uint16_t* near = segment_.levels.knows_near() ? segment_.levels.near(0) + job.from : nullptr;
        sieve(job.of_class, lists_[job.list], job.list, 0, levels, near, job.to - job.from,
              [&](uint64_t i) { return static_cast<uint32_t>(job.from + i); });
    }

    void later_place(const Job& job) {
        uint64_t from = job.from;
        const uint64_t to = job.to;
        const uint32_t position = job.list, place = job.place;
        const List& list = lists_[position];
        const auto& classes = segment_.classes();
        const uint8_t* levels = segment_.levels.empty() ? nullptr : segment_.levels.posted(place);
        const uint16_t* near = segment_.levels.knows_near() ? segment_.levels.near(place) : nullptr;
        size_t c = 0;
        if (to - from <= 24) {  // row by row: runs would cost more than they save
            for (; from < to; ++from) {
                const uint32_t row = segment_.table.posting(place, from);
                while (c + 1 < classes.size() && row >= classes[c].end) ++c;
                if (!open_[c] || row < classes[c].begin || classes[c].length <= place) continue;
                const uint8_t level = levels ? levels[from] : uint8_t{0};
                if (least_gain_[place][c] > list.gain + segment_.levels.at(c, level) || !matters(c, list, place)) continue;
                const Near known = near_of(c, place);
                if (near && known.quick && hopeless(c, list, known, level, near[from])) continue;
                touch({row, position, static_cast<uint16_t>(c), static_cast<uint8_t>(place), level}, known, near ? near[from] : uint16_t{0});
            }
            return;
        }
        while (from < to) {
            const uint32_t row = segment_.table.posting(place, from);
            while (c + 1 < classes.size() && row >= classes[c].end) ++c;
            const uint64_t run = std::max(from + 1, end_of_run(place, from, to, classes[c].end));
            if (classes[c].length > place && matters(c, list, place))  // the class is too short only in a damaged table
                sieve(c, list, position, place, levels ? levels + from : nullptr, near ? near + from : nullptr, run - from, [&, first = from](uint64_t i) {
                    return std::clamp(segment_.table.posting(place, first + i), classes[c].begin, classes[c].end - 1);
                });
            from = run;
        }
    }

    // One more slot whose gain is known for a posting.
    struct Near {
        const uint8_t* quick = nullptr;  // none: unknown
        double most = 0;                 // what unread lists of the slot gain
        double rest = 0;                 // what all other slots can gain
    };
    Near near_of(size_t c, uint32_t place) const {
        const uint32_t m = segment_.matched(c), slot = Levels::near_place(place);
        if (!segment_.levels.knows_near() || slot >= m) return {nullptr, 0, rest_of_[place][m].all};
        return {quick_.data() + (shared_ ? 0 : slot) * quick_size, slot_gain_[slot], rest_of_[place][m].not_near};
    }
    bool hopeless(size_t c, const List& list, const Near& known, uint8_t level, uint16_t near) const {
        const double gain = std::min(gain_of_[known.quick[quick_slot(near)]], known.most);
        return segment_.levels.at(c, level) + list.gain + gain + known.rest + segment_.end(c) < wanted_[c];
    }

    // Docids of class c that are in a list; only those whose level and near token allow it are looked at.
    template <class At>
    void sieve(size_t c, const List& list, uint32_t position, uint32_t place, const uint8_t* levels, const uint16_t* near,
               uint64_t count, At row) {
        const Near known = near_of(c, place);
        auto pass = [&](uint64_t i) {
            const uint8_t level = levels ? levels[i] : uint8_t{0};
            const uint16_t hash = near ? near[i] : uint16_t{0};
            if (known.quick && hopeless(c, list, known, level, hash)) return;
            touch({row(i), position, static_cast<uint16_t>(c), static_cast<uint8_t>(place), level}, known, hash);
        };
        effort_.spent += count / 16;
        unsigned least = 0;
        if (levels != nullptr) {
            least = segment_.levels.least(c, least_gain_[place][c] - list.gain);
            if (least > 255) return;
        }
        uint64_t i = 0;
#if defined(__SSE2__)
        const __m128i wanted = _mm_set1_epi8(static_cast<char>(least));
        for (; least > 0 && i + 16 <= count; i += 16) {
            const __m128i here = _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels + i));
            auto found = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_max_epu8(here, wanted), here)));
            for (; found != 0; found &= found - 1) pass(i + static_cast<unsigned>(std::countr_zero(found)));
        }
#endif
        for (; i < count; ++i)
            if (least == 0 || levels[i] >= least) pass(i);
    }

    // The first of [from, to) whose row is not below `row`.
    uint64_t end_of_run(uint32_t place, uint64_t from, uint64_t to, uint32_t row) const {
        if (segment_.table.posting(place, to - 1) < row) return to;
        for (const uint64_t near = std::min(to, from + 8); from < near; ++from)
            if (segment_.table.posting(place, from) >= row) return from;
        while (from < to) {
            const uint64_t middle = (from + to) / 2;
            if (segment_.table.posting(place, middle) < row) from = middle + 1;
            else to = middle;
        }
        return from;
    }

    void touch(const Met& met, const Near& known, uint16_t near) {
        const size_t c = met.of_class;
        if (met.place > 0 && marked_[c]) {
            const Rest& rest = rest_of_[met.place][segment_.matched(c)];
            double bound = segment_.levels.at(c, met.level) + lists_[met.list].gain + segment_.end(c);
            bound += std::min(block_gain_[blocks_[met.row >> block_shift_]], first_gain_);
            bound += known.quick ? rest.neither + std::min(gain_of_[known.quick[quick_slot(near)]], known.most) : rest.not_first;
            if (bound < wanted_[c]) return;
        }
        segment_.table.prefetch_tokens(segment_.classes()[met.of_class], met.row);
        waiting_[waiting_count_++] = met;
        if (waiting_count_ == waiting_most) flush();
    }

    // A quick look at all tokens of those that wait; few pass. All sums first: nothing to decide, nothing to wait for.
    void flush() {
        effort_.spent += waiting_count_;
        const size_t stride = shared_ ? 0 : quick_size;
        double bounds[waiting_most];
        for (size_t i = 0; i < waiting_count_; ++i) {
            const Met& met = waiting_[i];
            const Kind& kind = kinds_[met.of_class];
            uint64_t at = kind.first_token + static_cast<uint64_t>(met.row - kind.begin) * kind.length;
            const uint8_t* quick = quick_.data();
            double sum = kind.low + kind.step * met.level;
            for (uint32_t t = 0; t < kind.matched; ++t, ++at, quick += stride)
                sum += gain_of_[quick[quick_hash(segment_.table.raw_token(at))]];
            bounds[i] = sum;
        }
        for (size_t i = 0; i < waiting_count_; ++i) {
            const Met& met = waiting_[i];
            if (bounds[i] < kinds_[met.of_class].wanted) continue;
            if (segment_.factors && bounds[i] + segment_.end(met.of_class) < segment_.wanted(met.of_class, met.row)) continue;
            meet(met);
        }
        waiting_count_ = 0;
    }

    // A docid in one of its lists: nothing to do if it is in an earlier one.
    void meet(const Met& met) {
        const size_t c = met.of_class;
        const LengthClass& in = segment_.classes()[c];
        const uint32_t token_here = lists_[met.list].token;
        double gains = 0;
        for (uint32_t t = 0, m = segment_.matched(c); t < m; ++t) {
            const uint32_t token = segment_.table.token(in, met.row, t);
            if (t == met.place) {
                gains += lists_[met.list].gain;
                continue;
            }
            const SlotSet& set = segment_.query.set(t);
            const uint32_t entry = set.find(token);
            if (entry == SlotSet::none) {
                if (segment_.strict) return;
                continue;
            }
            if (set.place(entry) < met.list || (shared_ && token == token_here && t < met.place)) return;
            gains += set.gain(entry);
        }
        if (segment_.levels.base(c, met.row) + gains + segment_.end(c) >= segment_.wanted(c, met.row)) segment_.consider(c, met.row);
    }

    // What the first `read` lists have not met: every docid of the open classes.
    void sweep(uint32_t read) {
        for (size_t c = 0; c < open_.size(); ++c) {
            if (!open_[c]) continue;
            const LengthClass& in = segment_.classes()[c];
            const double room = gains_[segment_.matched(c)] + segment_.end(c);
            for (uint32_t row = in.begin; row < in.end; ++row) {
                if (effort_.out()) {
                    effort_.leave(segment_.most_score(c, unmet(c)));
                    break;
                }
                if (!segment_.levels.empty() && segment_.levels.base(c, row) + room < segment_.wanted(c, row)) continue;
                ++effort_.spent;
                bool met = false;
                double gains = 0;
                for (uint32_t t = 0, m = segment_.matched(c); t < m && !met; ++t) {
                    const SlotSet& set = segment_.query.set(t);
                    const uint32_t entry = set.find(segment_.table.token(in, row, t));
                    met = entry == SlotSet::none ? segment_.strict : set.place(entry) < read;
                    if (entry != SlotSet::none) gains += set.gain(entry);
                }
                if (!met && segment_.levels.base(c, row) + gains + segment_.end(c) >= segment_.wanted(c, row)) segment_.consider(c, row);
            }
        }
    }

    static constexpr size_t waiting_most = 256;
    SegmentView& segment_;
    Effort& effort_;
    const bool shared_;
    const ReadingOrder order_;
    const uint32_t longest_, sets_;
    const std::vector<List>& lists_;
    const std::vector<ReadingOrder::Group>& groups_;
    std::vector<uint8_t> open_;
    std::vector<double> wanted_;
    // Of docids not met before the group: what the first m slots gain and score at most, all of them and all but one.
    double gains_[most_slots + 1] = {}, scores_[most_slots + 1] = {};
    double other_scores_[most_slots][most_slots + 1];
    double least_score_[most_slots] = {};  // by slot: lists with less matter to no class
    double slot_gain_[most_slots] = {};
    float first_gain_ = 0;
    struct Rest {  // what the slots below m can gain without this one: all others, not the first, not the near one, neither
        double all = 0, not_first = 0, not_near = 0, neither = 0;
    };
    Rest rest_of_[most_slots][most_slots + 1];
    static constexpr size_t most_marked = 1024;
    std::vector<uint8_t> blocks_, marked_;
    unsigned block_shift_ = 0;
    float block_gain_[256];
    double rest_gain_ = 0;
    std::vector<double> least_gain_[most_slots];  // by slot and class: what base and gain of a docid must sum to
    static constexpr unsigned quick_bits = 15;
    static constexpr size_t quick_size = size_t{1} << quick_bits;
    std::vector<uint8_t> quick_;
    double unit_ = 0, low_ = 0, gain_of_[256];  // by quick value: what a token gains at most
    struct Kind {  // what the quick look needs of a class
        uint64_t first_token;
        uint32_t begin, length, matched;
        double low, step, wanted;
    };
    std::vector<Kind> kinds_;
    std::vector<Job> jobs_;
    Met waiting_[waiting_most];
    size_t waiting_count_ = 0;
};

}  // namespace

void inverted(SegmentView& segment, Effort& effort) { Search(segment, effort).run(); }

}  // namespace pixnar
