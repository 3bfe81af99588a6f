#include "vocab/build/builder.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>

#include "vocab/build/ingest.hpp"
#include "vocab/build/mine.hpp"
#include "vocab/build/select.hpp"
#include "vocab/spacing.hpp"

namespace pixnar {
namespace {

constexpr uint32_t longest_piece = 32;  // characters
constexpr uint32_t atoms_per_word = 3;  // a phrase of w words may have 3 w atoms: "rock-'n'-roll"
constexpr uint32_t most_words = 16;
static_assert(most_words * atoms_per_word <= Layer::longest && longest_piece <= Layer::longest);
constexpr uint64_t drop_share = 6;  // a selection round drops at most a sixth of the candidates
constexpr unsigned most_refills = 3;

void append_utf8(uint32_t c, std::string& out) {
    if (c >= stray_byte) {
        out += static_cast<char>(c - stray_byte);
    } else if (c < 0x80) {
        out += static_cast<char>(c);
    } else if (c < 0x800) {
        out += static_cast<char>(0xc0 | c >> 6);
        out += static_cast<char>(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        out += static_cast<char>(0xe0 | c >> 12);
        out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
        out += static_cast<char>(0x80 | (c & 0x3f));
    } else {
        out += static_cast<char>(0xf0 | c >> 18);
        out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
        out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
        out += static_cast<char>(0x80 | (c & 0x3f));
    }
}

// The characters of all atoms as units of the piece layer. A character that starts an atom and the same one inside an
// atom are two units, as the tokens they become are.
struct CharUnits {
    struct Unit {
        uint32_t code;
        bool start;
        uint64_t count;
        std::string bytes;
        bool fixed() const { return bytes.size() == 1; }  // a byte token that is always there
    };
    std::vector<Unit> units;  // frequent ones first
    uint32_t frequent = 0;
};

CharUnits number_chars(Sequences& chars, uint64_t floor) {
    constexpr uint32_t codes = stray_byte + 256;
    std::vector<uint64_t> counts(2 * codes);
    chars.visit(Workers{}, false, [&](const auto& block, std::span<uint32_t> values, unsigned) {
        for_each_sequence(values, block.first, [&](uint32_t weight, std::span<uint32_t> units, uint64_t) {
            for (size_t i = 0; i < units.size(); ++i) counts[2 * units[i] + (i == 0)] += weight;
        });
    });
    CharUnits result;
    std::vector<uint32_t> number(2 * codes);
    for (const bool frequent : {true, false}) {
        for (uint32_t k = 0; k < 2 * codes; ++k) {
            if (counts[k] == 0 || (counts[k] >= floor) != frequent) continue;
            number[k] = static_cast<uint32_t>(result.units.size());
            CharUnits::Unit unit{k / 2, k % 2 == 1, counts[k], {}};
            append_utf8(unit.code, unit.bytes);
            result.units.push_back(std::move(unit));
        }
        if (frequent) result.frequent = static_cast<uint32_t>(result.units.size());
    }
    chars.visit(Workers{}, true, [&](const auto& block, std::span<uint32_t> values, unsigned) {
        for_each_sequence(values, block.first, [&](uint32_t, std::span<uint32_t> units, uint64_t) {
            for (size_t i = 0; i < units.size(); ++i) units[i] = number[2 * units[i] + (i == 0)];
        });
    });
    return result;
}

struct Candidate {
    bool enough;  // used at least min_count times
    uint64_t cost, count;
    uint32_t layer, id;  // layer 0: phrases, 1: pieces, 2: single characters
    auto key() const { return std::tie(enough, cost, count, layer, id); }
};

}  // namespace

uint64_t default_min_count(uint64_t docids) {
    // 2 up to 20 thousand docids, 5 at 400 thousand, 20 (the paper's value) from 20 million on.
    const double n = 2.0 * std::cbrt(static_cast<double>(docids) / 20000.0);
    return static_cast<uint64_t>(std::clamp(std::round(n), 2.0, 20.0));
}

struct Builder::Work {
    BuildOptions options;
    Scratch scratch;
    Ingest ingest;
    AtomCounts atoms;
    CharUnits chars;
    Sequences char_sequences;
    Spacing spacing;
    std::optional<Layer> phrases, pieces;
    std::vector<uint8_t> char_alive;
    std::vector<uint64_t> phrase_uses, piece_uses;
    BuiltVocabulary out;

    explicit Work(const BuildOptions& o)
        : options(o), scratch{o.scratch_folder, o.max_memory}, ingest(scratch, o.weighted), char_sequences(scratch) {}

    void mine_candidates(const Workers& workers);
    void segment(const Workers& workers, bool compact, bool lengths);
    std::vector<Candidate> candidates(const Workers& workers) const;
    void set_alive(std::span<const Candidate> which, bool in);
    void select(const Workers& workers);
    void write_tokens();

    bool off_rule(uint32_t left, bool detached, uint32_t right) const {
        struct Ends { uint32_t first, last; };
        const auto ends = [&](uint32_t atom) -> Ends {
            const std::string_view text = atoms.text(atom);
            const char* end = text.data() + text.size();
            const char* last = end - 1;
            while (last > text.data() && (*last & 0xc0) == 0x80) --last;
            return {char_at(text.data(), end).code_point, char_at(last, end).code_point};
        };
        SpacingState state;
        state.last = ends(left).last;
        state.detached = detached && char_kind(state.last) == CharKind::single;
        return spacing.blank_before(state, ends(right & id_mask).first) != ((right & blank_flag) != 0);
    }
};

Builder::Builder(const BuildOptions& options) : work_(std::make_unique<Work>(options)) {
    if (options.max_words < 1 || options.max_words > most_words)
        throw std::invalid_argument("max_words must be between 1 and " + std::to_string(most_words));
    work_->options.threads = usable_threads(options.threads);
}
Builder::~Builder() = default;

Builder::Work& Builder::work() const {
    if (!work_) throw std::logic_error("a builder builds once: make a new one");
    return *work_;
}
void Builder::add_lines(std::string_view lines) { work().ingest.add_lines(lines); }
uint64_t Builder::rows() const { return work().ingest.rows(); }

void Builder::Work::mine_candidates(const Workers& workers) {
    SpacingCounts::Rule rule = ingest.spacing_rule();
    out.spacing_chars = std::move(rule.chars);
    out.spacing_rule = std::move(rule.rule);
    spacing = Spacing(out.spacing_chars, out.spacing_rule);
    out.min_count = options.min_count ? options.min_count : default_min_count(ingest.distinct());
    atoms = ingest.number_atoms(workers.named("numbering words"), out.min_count, spacing, char_sequences);

    chars = number_chars(char_sequences, out.min_count);
    const auto char_count = static_cast<uint32_t>(chars.units.size());
    pieces.emplace(char_sequences,
                   mine(char_sequences, {out.min_count, longest_piece, 1, chars.frequent, char_count}, scratch,
                        workers.named("counting pieces")));
    phrases.emplace(ingest.docids(),
                    mine(ingest.docids(),
                         {out.min_count, options.max_words * atoms_per_word, options.max_words, atoms.frequent, atoms.total},
                         scratch, workers.named("counting phrases")));

    pieces->choose([](uint32_t) { return true; });
    std::vector<uint8_t> single(atoms.frequent);
    for (uint32_t a = 0; a < atoms.frequent; ++a) {
        const std::string_view text = atoms.text(a);
        single[a] = char_kind(char_at(text.data(), text.data() + text.size()).code_point) == CharKind::single;
    }
    const Grams& grams = phrases->grams();
    std::vector<uint8_t> no_word(grams.grams.size());  // n-grams of punctuation only
    for (uint32_t k = 0; k < grams.grams.size(); ++k) {
        const auto& gram = grams.grams[k];
        no_word[k] = single[gram.last & id_mask] &&
                     (gram.prefix < grams.units ? single[gram.prefix] : no_word[gram.prefix - grams.units]);
    }
    phrases->choose([&](uint32_t id) {
        if (options.punctuation == Punctuation::anywhere || no_word[id - grams.units]) return true;
        if (single[grams.at(id).last & id_mask]) return false;
        return options.punctuation == Punctuation::leading || !single[grams.first_unit(id)];
    });
    char_alive.resize(chars.units.size());
    for (uint32_t c = 0; c < chars.frequent; ++c) char_alive[c] = !chars.units[c].fixed();
}

// Words are segmented into pieces, docids into phrases and words; then it is known how often each word, and so each
// piece, is needed.
void Builder::Work::segment(const Workers& workers, bool compact, bool lengths) {
    for (uint32_t c = 0; c < chars.units.size(); ++c) {
        const auto& unit = chars.units[c];
        const bool one = unit.fixed() || char_alive[c];
        pieces->unit_costs[c] = one ? token_cost(score_of(unit.count)) : unit.bytes.size() * token_cost(0);
    }
    pieces->refresh();
    phrases->refresh();
    const Workers quiet = workers.silent();
    pieces->segment(quiet, nullptr, [&](uint64_t number, uint64_t, Cost cost, unsigned) {
        phrases->unit_costs[atoms.by_bytes[number]] = cost;
    }, compact);

    Layer::Each each;
    std::vector<std::vector<uint64_t>> histograms(workers.threads);
    if (lengths) {
        each = [&](uint64_t, uint64_t weight, Cost cost, unsigned thread) {
            const uint64_t n = tokens_in(cost);
            if (histograms[thread].size() <= n) histograms[thread].resize(n + 1);
            histograms[thread][n] += weight;
        };
    }
    phrase_uses = phrases->segment(workers, nullptr, each, compact);
    std::vector<uint64_t> weights(atoms.total);
    for (uint32_t k = 0; k < atoms.total; ++k) weights[k] = phrase_uses[atoms.by_bytes[k]];
    piece_uses = pieces->segment(quiet, &weights, {}, false);
    if (lengths) {
        out.lengths.assign(1, 0);
        for (const auto& histogram : histograms) {
            if (out.lengths.size() < histogram.size()) out.lengths.resize(histogram.size());
            for (size_t n = 0; n < histogram.size(); ++n) out.lengths[n] += histogram[n];
        }
    }
}

std::vector<Candidate> Builder::Work::candidates(const Workers& workers) const {
    std::vector<Candidate> all;
    const Layer::Border border = [this](uint32_t left, bool detached, uint32_t right) {
        return off_rule(left, detached, right);
    };
    for (const uint32_t layer : {0u, 1u}) {
        const Layer& from = layer == 0 ? *phrases : *pieces;
        const auto& uses = layer == 0 ? phrase_uses : piece_uses;
        const Grams& grams = from.grams();
        const size_t first = all.size();
        for (uint32_t id = grams.units; id < grams.size(); ++id)
            if (from.alive(id)) all.push_back({uses[id] >= out.min_count, 0, grams.counts[id - grams.units], layer, id});
        constexpr size_t chunk = 4096;
        workers.silent().run((all.size() - first + chunk - 1) / chunk, [&](size_t part, unsigned) {
            const size_t end = std::min(first + (part + 1) * chunk, all.size());
            for (size_t k = first + part * chunk; k < end; ++k)
                if (const uint64_t n = uses[all[k].id])
                    all[k].cost = n * (from.tokens_without(all[k].id, layer == 0 ? &border : nullptr) - 1);
        });
    }
    for (uint32_t c = 0; c < chars.frequent; ++c)
        if (char_alive[c])
            all.push_back({piece_uses[c] >= out.min_count, piece_uses[c] * (chars.units[c].bytes.size() - 1),
                           chars.units[c].count, 2, c});
    return all;
}

void Builder::Work::set_alive(std::span<const Candidate> which, bool in) {
    for (const Candidate& c : which) {
        if (c.layer == 2) char_alive[c.id] = in;
        else (c.layer == 0 ? *phrases : *pieces).set_alive(c.id, in);
    }
}

void Builder::Work::select(const Workers& workers) {
    const uint64_t target = options.size > fixed_tokens ? options.size - fixed_tokens : 0;
    const auto alive = [&] {
        return phrases->alive_count() + pieces->alive_count() +
               static_cast<uint64_t>(std::ranges::count(char_alive, uint8_t{1}));
    };
    const auto by_worth = [](const Candidate& a, const Candidate& b) { return a.key() > b.key(); };
    out.candidates = alive();
    std::vector<Candidate> last_out;  // what the step to the wanted size dropped
    unsigned refills = 0;
    for (;;) {
        const uint64_t left = alive();
        // What is out after the step to the wanted size may come back, so the passes behind it forget nothing.
        segment(workers.named("selecting: " + std::to_string(left) + " left"), left > target, false);
        std::vector<Candidate> all = candidates(workers);
        const auto weak = static_cast<uint64_t>(std::ranges::count(all, false, &Candidate::enough));
        uint64_t n;
        if (left > target) {
            n = std::min(left - target, std::max<uint64_t>(left / drop_share, 64));
        } else if (weak > 0) {
            // Tokens that are used too little often compete with each other: when half of them go, others gain.
            n = weak > std::max<uint64_t>(256, left / 1000) ? weak / 2 : weak;
        } else if (left < target && !last_out.empty() && refills < most_refills) {
            ++refills;
            const auto end = last_out.begin() + static_cast<std::ptrdiff_t>(std::min<uint64_t>(target - left, last_out.size()));
            set_alive({last_out.begin(), end}, true);
            last_out.erase(last_out.begin(), end);
            continue;
        } else {
            break;
        }
        const auto middle = all.begin() + static_cast<std::ptrdiff_t>(n);
        std::ranges::nth_element(all, middle, {}, &Candidate::key);
        all.erase(middle, all.end());
        set_alive(all, false);
        if (left > target && left - n == target) {
            last_out = std::move(all);
            std::erase_if(last_out, [](const Candidate& c) { return !c.enough; });
            std::ranges::sort(last_out, by_worth);
        }
    }
    segment(workers.named("counting uses"), false, true);
}

void Builder::Work::write_tokens() {
    struct Token {
        TokenKind kind;
        std::string text;
        uint64_t count, uses;
    };
    std::vector<Token> tokens;
    const auto& grams = phrases->grams();
    std::vector<uint32_t> spelled;
    for (uint32_t id = grams.units; id < grams.size(); ++id) {
        if (!phrases->alive(id)) continue;
        grams.spell(id, spelled);
        std::string text;
        for (size_t i = 0; i < spelled.size(); ++i) {
            if (i > 0 && spelled[i] & blank_flag) text += ' ';
            text += atoms.text(spelled[i] & id_mask);
        }
        tokens.push_back({TokenKind::start, std::move(text), grams.counts[id - grams.units], phrase_uses[id]});
    }
    std::vector<std::pair<uint64_t, uint64_t>> byte_counts(512);  // count, uses; starts first
    const auto kind_of = [](const CharUnits::Unit& unit) {
        return unit.start ? TokenKind::start : TokenKind::continuation;
    };
    for (uint32_t c = 0; c < chars.units.size(); ++c) {
        const auto& unit = chars.units[c];
        if (unit.fixed() || !char_alive[c]) {
            for (size_t i = 0; i < unit.bytes.size(); ++i) {
                auto& cell = byte_counts[(unit.start && i == 0 ? 0 : 256) + static_cast<uint8_t>(unit.bytes[i])];
                if (unit.fixed()) cell.first += unit.count;
                cell.second += piece_uses[c];
            }
        } else {
            tokens.push_back({kind_of(unit), unit.bytes, unit.count, piece_uses[c]});
        }
    }
    const auto& piece_grams = pieces->grams();
    for (uint32_t id = piece_grams.units; id < piece_grams.size(); ++id) {
        if (!pieces->alive(id)) continue;
        piece_grams.spell(id, spelled);
        std::string text;
        for (const uint32_t c : spelled) text += chars.units[c].bytes;
        tokens.push_back({kind_of(chars.units[spelled[0]]), std::move(text), piece_grams.counts[id - piece_grams.units],
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
}

BuiltVocabulary Builder::build(const Progress& progress) {
    work();
    const std::unique_ptr<Work> held = std::move(work_);
    Work& w = *held;
    const Workers workers{w.options.threads, progress, ""};
    w.ingest.finish(workers);
    w.out.rows = w.ingest.rows();
    w.out.docids = w.ingest.distinct();
    w.out.text_bytes = w.ingest.text_bytes();
    w.mine_candidates(workers);
    w.out.words = w.atoms.total;
    w.out.frequent_words = w.atoms.frequent;
    w.select(workers);
    w.write_tokens();
    w.out.spilled_bytes = w.scratch.spilled;
    for (const uint64_t n : w.out.lengths) w.out.total_weight += n;
    return std::move(w.out);
}

}  // namespace pixnar
