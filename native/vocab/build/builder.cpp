#include "vocab/build/builder.hpp"

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "vocab/build/ingest.hpp"
#include "vocab/build/mine.hpp"
#include "vocab/build/selection.hpp"

namespace pixnar {

struct Builder::Work {
    BuildOptions options;
    Scratch scratch;
    Ingest ingest;
    Sequences char_sequences;
    std::optional<Selection> selection;
    std::vector<uint64_t> lengths{0};

    explicit Work(const BuildOptions& o)
        : options(o), scratch{o.scratch_folder, o.max_memory}, ingest(scratch, o.weighted), char_sequences(scratch) {}

    void mine_candidates(const Workers& workers);
    void segment(const Workers& workers, bool compact, bool with_lengths);
    void select(const Workers& workers);
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
    SpacingCounts::Rule rule = ingest.spacing().settle();
    const uint64_t min_count = options.min_count ? options.min_count : default_min_count(ingest.distinct());
    AtomCounts atoms =
        ingest.number_atoms(workers.named("numbering words"), min_count, Spacing(rule.chars, rule.rule), char_sequences);
    CharUnits chars = number_chars(char_sequences, min_count);
    Grams pieces = mine(char_sequences, piece_limits(min_count, chars), scratch, workers.named("counting pieces"));
    Grams phrases =
        mine(ingest.docids(), phrase_limits(min_count, options, atoms), scratch, workers.named("counting phrases"));
    selection.emplace(options, min_count, std::move(rule), std::move(atoms), std::move(chars), std::move(pieces),
                      std::move(phrases));
}

// Words are segmented into pieces, docids into phrases and words; then it is known how often each word, and so each
// piece, is needed.
void Builder::Work::segment(const Workers& workers, bool compact, bool with_lengths) {
    selection->refresh();
    const Workers quiet = workers.silent();
    selection->pieces.segment(char_sequences, quiet, nullptr, [&](uint64_t number, uint64_t, Cost cost, unsigned) {
        selection->set_word_cost(number, cost);
    }, compact);

    Layer::Each each;
    std::vector<std::vector<uint64_t>> histograms(workers.threads);
    if (with_lengths) {
        each = [&](uint64_t, uint64_t weight, Cost cost, unsigned thread) {
            const uint64_t n = tokens_in(cost);
            if (histograms[thread].size() <= n) histograms[thread].resize(n + 1);
            histograms[thread][n] += weight;
        };
    }
    selection->phrase_uses = selection->phrases.segment(ingest.docids(), workers, nullptr, each, compact);
    const std::vector<uint64_t> weights = selection->word_weights();
    selection->piece_uses = selection->pieces.segment(char_sequences, quiet, &weights, {}, false);
    for (const auto& histogram : histograms) {
        if (lengths.size() < histogram.size()) lengths.resize(histogram.size());
        for (size_t n = 0; n < histogram.size(); ++n) lengths[n] += histogram[n];
    }
}

void Builder::Work::select(const Workers& workers) {
    do {
        segment(workers.named("selecting: " + std::to_string(selection->left()) + " left"), selection->forgets(), false);
    } while (selection->advance(workers));
    segment(workers.named("counting uses"), false, true);
}

BuiltVocabulary Builder::build(const Progress& progress) {
    work();
    const std::unique_ptr<Work> held = std::move(work_);
    Work& w = *held;
    const Workers workers{w.options.threads, progress, ""};
    w.ingest.finish(workers);
    w.mine_candidates(workers);
    w.select(workers);
    BuiltVocabulary out = w.selection->tokens();
    out.rows = w.ingest.rows();
    out.docids = w.ingest.distinct();
    out.text_bytes = w.ingest.text_bytes();
    out.lengths = std::move(w.lengths);
    out.spilled_bytes = w.scratch.spilled;
    for (const uint64_t n : out.lengths) out.total_weight += n;
    return out;
}

}  // namespace pixnar
