#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "tests/check.hpp"
#include "tests/corpus.hpp"
#include "tests/naive_counts.hpp"
#include "tests/random.hpp"

using namespace pixnar;
using namespace pixnar::test;

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr uint32_t huge_word = 1 << 17;  // thirty times slower
#else
constexpr uint32_t huge_word = 1 << 20;
#endif
constexpr uint64_t little_memory = 1 << 18;  // several epochs, sequences on disk, docids put aside twice over

BuildOptions options_of(uint64_t size, uint64_t min_count = 2) {
    BuildOptions options;
    options.size = size;
    options.min_count = min_count;
    options.threads = 2;
    return options;
}

void test_true_to_encoder() {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
        Random random(seed);
        const Lines lines = generated_lines(random, 30 + random.below(600));
        BuildOptions options = options_of(fixed_tokens + random.below(400), 1 + random.below(4));
        options.max_words = 1 + random.below(8);
        options.weighted = random.one_in(2);
        options.punctuation = static_cast<Punctuation>(random.below(3));
        options.threads = 1 + random.below(3);
        if (seed == 1) options.min_count = 0;
        const BuiltVocabulary built = build(lines, options);
        CHECK_EQ(built.rows, lines.size());
        CHECK_EQ(built.min_count, options.min_count ? options.min_count : default_min_count(built.docids));
        check_true_to(built, lines, options);

        const TokenList tokens{built.kinds, built.offsets, built.bytes, built.scores};
        for (auto v = static_cast<uint32_t>(fixed_tokens); v < tokens.size(); ++v) {
            const std::string_view text = tokens.text(v);
            const Shape shape = shape_of(text);
            CHECK(static_cast<size_t>(std::ranges::count(text, ' ')) < options.max_words);
            CHECK(shape.atoms <= options.max_words * 3);
            if (shape.atoms > 1 && !shape.only_single) {
                CHECK(options.punctuation != Punctuation::inside || !shape.single_first);
                CHECK(options.punctuation == Punctuation::anywhere || !shape.single_last);
            }
            if (v > fixed_tokens) CHECK(built.uses[v - 1] >= built.uses[v]);
        }
    }
}

// What a user asks for in size is what comes out, as long as there is enough to choose from.
void test_size() {
    Random random(20);
    const Lines lines = generated_lines(random, 2000);
    for (const uint64_t size : {uint64_t{0}, fixed_tokens, fixed_tokens + 1, fixed_tokens + 50, fixed_tokens + 300}) {
        const BuiltVocabulary built = build(lines, options_of(size));
        CHECK_EQ(built.kinds.size(), std::max(size, fixed_tokens));
    }
    const BuiltVocabulary all = build(lines, options_of(1 << 20));
    CHECK(all.kinds.size() <= fixed_tokens + all.candidates);
    check_true_to(all, lines, options_of(1 << 20));
    // More tokens never make docids longer.
    const auto tokens = [](const BuiltVocabulary& built) {
        uint64_t sum = 0;
        for (size_t n = 0; n < built.lengths.size(); ++n) sum += n * built.lengths[n];
        return sum;
    };
    CHECK(tokens(all) < tokens(build(lines, options_of(fixed_tokens + 100))));
}

// Threads, order and memory change how the work is done, not what comes out.
void test_same_whatever_the_way() {
    Random random(30);
    for (const bool weighted : {false, true}) {
        Lines lines = generated_lines(random, 6000, 4000);
        BuildOptions options = options_of(fixed_tokens + 500);
        options.weighted = weighted;
        options.threads = 1;
        const BuiltVocabulary built = build(lines, options);
        CHECK_EQ(built.spilled_bytes, 0u);
        check_true_to(built, lines, options);
        for (const unsigned threads : {2u, 4u}) {
            options.threads = threads;
            check_equal(build(lines, options), built);
        }
        random.shuffle(lines);
        check_equal(build(lines, options), built);
        options.max_memory = little_memory;
        const BuiltVocabulary spilled = build(lines, options);
        CHECK(spilled.spilled_bytes > built.text_bytes);
        check_equal(spilled, built);
        options.threads = 1;
        check_equal(build(lines, options), built);
    }
}

void test_weights() {
    Random random(40);
    const Lines lines = generated_lines(random, 500);
    Lines distinct;
    for (const auto& [line, weight] : weights_of(lines, false)) distinct.push_back(line);
    BuildOptions plain = options_of(fixed_tokens + 200), weighted = plain;
    weighted.weighted = true;
    const BuiltVocabulary built = build(lines, plain);
    check_equal(build(distinct, plain), built);
    check_equal(build(distinct, weighted), built);
    CHECK_EQ(built.total_weight, distinct.size());
    const BuiltVocabulary heavy = build(lines, weighted);
    CHECK_EQ(heavy.total_weight, lines.size());
    CHECK(heavy.uses != built.uses);
    // Seen once but given often, a docid is worth tokens only if its weight counts.
    const Lines one(50, "singular docid");
    CHECK_EQ(build(one, options_of(4096, 5)).kinds.size(), fixed_tokens);
    weighted.min_count = 5;
    CHECK_EQ(build(one, weighted).kinds.size(), fixed_tokens + 1);
}

// Every n-gram and every piece is counted wherever it occurs, overlaps included.
void test_counts() {
    for (const bool weighted : {false, true}) {
        Random random(50);
        const Lines lines = generated_lines(random, 800);
        BuildOptions options = options_of(1 << 20);
        options.weighted = weighted;
        options.punctuation = Punctuation::anywhere;
        const NaiveCounts naive(weights_of(lines, weighted));
        const BuiltVocabulary built = build(lines, options);
        const TokenList tokens{built.kinds, built.offsets, built.bytes, built.scores};
        CHECK_EQ(built.words, naive.words.size());
        uint64_t phrases = 0;
        for (uint32_t v = 2; v < tokens.size(); ++v) {
            const std::string text(tokens.text(v));
            const bool phrase = shape_of(text).atoms > 1;
            const auto& counts = phrase ? naive.phrases : tokens.kind(v) == TokenKind::start ? naive.starts : naive.continuations;
            CHECK_EQ(tokens.scores[v], score_of(naive.of(counts, text)));
            phrases += phrase;
        }
        CHECK(phrases > 100);
    }
}

// So many pairs that they are counted in slices of the key space when memory is short.
void test_slices() {
    Random random(60);
    Lines lines;
    for (int i = 0; i < 90000; ++i) {
        std::string line;
        for (int n = 0; n < 34; ++n) (line += n ? " w" : "w") += std::to_string(random.below(1200));
        lines.push_back(line);
    }
    BuildOptions options = options_of(fixed_tokens + 1000, 9);
    options.max_words = 3;
    const BuiltVocabulary built = build(lines, options);
    options.max_memory = 1 << 20;
    const BuiltVocabulary sliced = build(lines, options);
    CHECK(sliced.spilled_bytes > 0);
    check_equal(sliced, built);
}

// So many docids for so little memory that those put aside have to be put aside again.
void test_docids_put_aside() {
    Random random(65);
    Lines lines;
    for (int i = 0; i < 40000; ++i) lines.push_back(std::to_string(random.below(300)) + " " + std::to_string(random.below(300)));
    BuildOptions options = options_of(fixed_tokens + 100, 40);
    options.weighted = true;
    const BuiltVocabulary built = build(lines, options);
    check_true_to(built, lines, options);
    options.max_memory = 1 << 17;
    const BuiltVocabulary aside = build(lines, options);
    CHECK(aside.spilled_bytes > 0);
    check_equal(aside, built);
}

void test_odd_inputs() {
    for (const Lines& lines : {Lines{}, Lines{"", "", ""}}) {
        const BuiltVocabulary built = build(lines, options_of(4096));
        CHECK_EQ(built.kinds.size(), fixed_tokens);
        CHECK_EQ(built.docids, 0u);
        CHECK_EQ(built.rows, lines.size());
        CHECK_EQ(built.lengths, std::vector<uint64_t>{0});
        check_true_to(built, lines, options_of(4096));
    }
    for (const Lines& lines : {Lines{"a"}, Lines{"\""}, Lines{"\u4e2d"}, Lines{"a b a b a b a b"}, Lines{", , ,", ",,,"}})
        for (const uint64_t min_count : {1, 2, 3}) check_true_to(build(lines, options_of(4096, min_count)), lines, options_of(4096, min_count));

    const Lines stray{"\xff a \xff", "a \xff", "\xc3 \xc3\xa9\xc3", "b\xe4\xb8", "b\xe4", "\xff a b\xe4"};
    check_true_to(build(stray, options_of(4096)), stray, options_of(4096));

    Builder lines({});
    lines.add_lines("a\n\nb");
    lines.add_lines("");
    lines.add_lines("c\n");
    CHECK_EQ(lines.rows(), 4u);

    // One word of a megabyte, of one letter and of many.
    std::string many;
    Random random(70);
    for (uint32_t i = 0; i < huge_word; ++i) many += static_cast<char>('a' + random.below(26));
    BuildOptions options = options_of(fixed_tokens + 200, 40);
    for (const Lines& huge : {Lines{std::string(huge_word, 'a'), "a b"}, Lines{many, "a b"}}) {
        check_true_to(build(huge, options), huge, options);
        options.max_memory = 1 << 20;
    }
}

void test_workers() {
    for (const unsigned threads : {1u, 2u, 5u})
        for (const bool watched : {false, true}) {
            const Workers workers{threads, watched ? [](const std::string&, uint64_t, uint64_t) {} : Progress{}, "work"};
            std::vector<std::atomic<int>> seen(1000);
            workers.run(seen.size(), [&](size_t i, unsigned thread) { seen[i] += thread < threads ? 1 : 2; });
            CHECK(std::ranges::all_of(seen, [](const auto& n) { return n == 1; }));
            workers.run(0, [](size_t, unsigned) { throw std::logic_error("nothing to do"); });
            CHECK_THROWS(std::out_of_range, "item 7", workers.run(1000, [](size_t i, unsigned) {
                if (i == 7) throw std::out_of_range("item 7");
            }));
        }
    CHECK_EQ(usable_threads(3), 3u);
    CHECK(usable_threads(0) > 0);
}

struct Stop {};

// Stopped anywhere, a build throws what the callback threw, and leaves neither a file nor a descriptor behind.
void test_stopping() {
    namespace fs = std::filesystem;
    std::string folder = (fs::temp_directory_path() / "pixnar-test-XXXXXX").string();
    if (!CHECK(mkdtemp(folder.data()) != nullptr)) return;
    const auto descriptors = [] {
        if (!fs::exists("/proc/self/fd")) return std::ptrdiff_t{0};
        return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
    };
    Random random(80);
    const Lines lines = generated_lines(random, 2500, 3000);
    BuildOptions options = options_of(fixed_tokens + 100);
    options.scratch_folder = folder;
    options.max_memory = little_memory;
    const auto before = descriptors();
    int calls = 0;
    std::vector<std::string> stages;
    build(lines, options, [&](const std::string& stage, uint64_t done, uint64_t total) {
        ++calls;
        CHECK(done <= total);
        if (!stage.empty() && (stages.empty() || stages.back() != stage)) stages.push_back(stage);
    });
    CHECK(stages.size() > 3);
    for (int stop_at = 1; stop_at <= calls; stop_at += 1 + calls / 12) {
        int seen = 0;
        bool stopped = false;
        try {
            build(lines, options, [&](const std::string&, uint64_t, uint64_t) {
                if (++seen == stop_at) throw Stop();
            });
        } catch (const Stop&) {
            stopped = true;
        }
        CHECK_EQ(stopped, seen >= stop_at);  // how many calls there are depends on the clock
        CHECK(stopped || stop_at > 1);
    }
    CHECK_EQ(descriptors(), before);
    CHECK(fs::is_empty(folder));
    fs::remove_all(folder);
    CHECK_THROWS(std::system_error, "temporary file", build(lines, options));
}

void test_once_and_within_limits() {
    for (const bool fails : {false, true}) {
        Builder builder(options_of(1000));
        builder.add_lines("a b");
        try {
            builder.build([&](const std::string&, uint64_t, uint64_t) {
                if (fails) throw Stop();
            });
            CHECK(!fails);
        } catch (const Stop&) {
            CHECK(fails);
        }
        CHECK_THROWS(std::logic_error, "builds once", builder.build({}));
        CHECK_THROWS(std::logic_error, "builds once", builder.add_lines("c"));
        CHECK_THROWS(std::logic_error, "builds once", builder.rows());
    }
    BuildOptions wordy = options_of(1000);
    wordy.max_words = 17;
    CHECK_THROWS(std::invalid_argument, "max_words", Builder{wordy});
    Builder builder(options_of(1000));
    CHECK_THROWS(std::length_error, "docid 2 has 16 MiB", builder.add_lines("a\n" + std::string(longest_text, 'x')));
}

}  // namespace

int main() {
    test_true_to_encoder();
    test_size();
    test_same_whatever_the_way();
    test_weights();
    test_counts();
    test_odd_inputs();
    test_stopping();
    test_slices();
    test_docids_put_aside();
    test_workers();
    test_once_and_within_limits();
    return checks_done();
}
