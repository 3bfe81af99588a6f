#include "vocab/build/ingest.hpp"

#include <algorithm>
#include <queue>
#include <stdexcept>

#include "common/hash.hpp"
#include "vocab/tables.hpp"

namespace pixnar {
namespace {

constexpr unsigned overflow_bits = 5;  // docids put aside go to 32 files by their hash
constexpr uint64_t second_seed = 0x6a09e667f3bcc909ULL;

struct Fingerprint {
    uint64_t a, b;
    bool operator==(const Fingerprint&) const = default;
};

}  // namespace

// A set of 128-bit fingerprints with a number for each.
class Ingest::Seen {
  public:
    explicit Seen(Scratch& scratch) : scratch_(scratch) { resize(1024); }
    ~Seen() { scratch_.in_use -= slots_.size() * slot_bytes; }

    enum class Answer { added, found, full };
    Answer insert(Fingerprint f, uint32_t number, uint32_t& known) {
        if (f.a == 0 && f.b == 0) f.b = 1;
        size_t i = f.a & (slots_.size() - 1);
        for (; slots_[i] != Fingerprint{0, 0}; i = (i + 1) & (slots_.size() - 1))
            if (slots_[i] == f) {
                known = numbers_[i];
                return Answer::found;
            }
        if (used_ * 3 >= slots_.size() * 2) {
            const uint64_t more = slots_.size() * slot_bytes;
            // While growing, the old table is alive too; a quarter of the budget is the most this set may hold.
            if (slots_.size() * 3 * slot_bytes > scratch_.max_memory / 4 || !scratch_.take(more, more)) return Answer::full;
            resize(slots_.size() * 2);
            return insert(f, number, known);
        }
        slots_[i] = f;
        numbers_[i] = number;
        ++used_;
        return Answer::added;
    }

  private:
    static constexpr uint64_t slot_bytes = sizeof(Fingerprint) + sizeof(uint32_t);
    void resize(size_t size) {
        if (slots_.empty()) scratch_.in_use += size * slot_bytes;
        std::vector<Fingerprint> old(size, Fingerprint{0, 0});
        std::vector<uint32_t> old_numbers(size);
        old.swap(slots_);
        old_numbers.swap(numbers_);
        for (size_t k = 0; k < old.size(); ++k) {
            if (old[k] == Fingerprint{0, 0}) continue;
            size_t i = old[k].a & (size - 1);
            while (slots_[i] != Fingerprint{0, 0}) i = (i + 1) & (size - 1);
            slots_[i] = old[k];
            numbers_[i] = old_numbers[k];
        }
    }
    Scratch& scratch_;
    std::vector<Fingerprint> slots_;
    std::vector<uint32_t> numbers_;
    size_t used_ = 0;
};

// The atoms of a stretch of the input in byte order, in memory (the last one) or on disk.
struct Ingest::Epoch {
    uint32_t size = 0;
    std::unique_ptr<AtomTable> table;
    std::unique_ptr<TempFile> file;  // u32 number, u32 length, bytes

    std::vector<uint32_t> sorted() const {
        std::vector<uint32_t> order(size);
        for (uint32_t i = 0; i < size; ++i) order[i] = i;
        std::ranges::sort(order, [&](uint32_t a, uint32_t b) { return table->text(a) < table->text(b); });
        return order;
    }
};

Ingest::Ingest(Scratch& scratch, bool weighted)
    : scratch_(scratch),
      weighted_(weighted),
      docids_(scratch),
      seen_(std::make_unique<Seen>(scratch)),
      table_(std::make_unique<AtomTable>()) {}

Ingest::~Ingest() = default;

void Ingest::add_lines(std::string_view lines) {
    while (!lines.empty()) {
        const size_t end = std::min(lines.find('\n'), lines.size());
        ++rows_;
        if (end > 0) add(lines.substr(0, end));
        lines.remove_prefix(std::min(end + 1, lines.size()));
    }
}

void Ingest::add(std::string_view text) {
    if (text.size() >= longest_text)
        throw std::length_error("docid " + std::to_string(rows_) + " has 16 MiB or more: split it");
    const Fingerprint print{hash_bytes(text.data(), text.size()), hash_bytes(text.data(), text.size(), second_seed)};
    if (docids_.size() >= 0xffffffff) throw std::length_error("more than four thousand million distinct docids");
    const auto number = static_cast<uint32_t>(docids_.size());
    uint32_t known = 0;
    switch (seen_->insert(print, number, known)) {
        case Seen::Answer::found:
            if (weighted_ && weights_[known] < sentinel - 1) ++weights_[known];
            return;
        case Seen::Answer::full: {
            if (overflow_.empty()) {
                if (overflow_shift_ <= overflow_bits)
                    throw std::length_error("max-memory is too small to tell docids apart: allow more");
                overflow_shift_ -= overflow_bits;
                for (unsigned i = 0; i < 1u << overflow_bits; ++i) {
                    overflow_.push_back(std::make_unique<TempFile>(scratch_.folder));
                    overflow_writers_.push_back(std::make_unique<BufferedWriter>(*overflow_.back()));
                }
            }
            auto& writer = *overflow_writers_[(print.b >> overflow_shift_) & ((1u << overflow_bits) - 1)];
            const auto length = static_cast<uint32_t>(text.size());
            writer.put(&length, sizeof length);
            writer.put(text.data(), text.size());
            return;
        }
        case Seen::Answer::added: break;
    }
    if (weighted_) weights_.push_back(1);
    text_bytes_ += text.size();
    values_.clear();
    Atoms atoms(text);
    SpacingState state;
    for (Atom atom; atoms.next(atom);) {
        const bool first = values_.empty();
        if (!first) spacing_.count(state, atom);
        state.read(atom, first);
        values_.push_back(table_->number(atom.text) | (atom.blank_before ? blank_flag : 0));
    }
    if (table_->size() >= most_ids) throw std::length_error("more than a thousand million distinct words");
    docids_.append(1, values_);
    if (table_->memory() > scratch_.max_memory / 8) close_epoch();
}

void Ingest::close_epoch() {
    Epoch epoch;
    epoch.size = table_->size();
    epoch.table = std::move(table_);
    epoch.file = std::make_unique<TempFile>(scratch_.folder);
    BufferedWriter writer(*epoch.file);
    for (const uint32_t atom : epoch.sorted()) {
        const std::string_view text = epoch.table->text(atom);
        const auto length = static_cast<uint32_t>(text.size());
        writer.put(&atom, sizeof atom);
        writer.put(&length, sizeof length);
        writer.put(text.data(), text.size());
    }
    writer.flush();
    scratch_.spilled += epoch.file->size();
    epoch.table.reset();
    epochs_.push_back(std::move(epoch));
    docids_.tag_new_blocks(static_cast<uint32_t>(epochs_.size()));
    table_ = std::make_unique<AtomTable>();
}

void Ingest::finish(const Workers& workers) {
    while (!overflow_.empty()) {
        auto files = std::move(overflow_);
        for (auto& writer : overflow_writers_) writer->flush();
        overflow_.clear();
        overflow_writers_.clear();
        const Workers single{1, workers.progress, "telling docids apart"};
        single.run(files.size(), [&](size_t i, unsigned) {
            seen_.reset();
            seen_ = std::make_unique<Seen>(scratch_);
            scratch_.spilled += files[i]->size();
            BufferedReader reader(*files[i], 0, files[i]->size());
            while (!reader.done()) {
                uint32_t length;
                reader.get(&length, sizeof length);
                const std::string text(reader.get(length));
                add(text);
            }
            files[i].reset();
        });
    }
    seen_.reset();
    docids_.finish();
    Epoch last;
    last.size = table_->size();
    last.table = std::move(table_);
    epochs_.push_back(std::move(last));
}

AtomCounts Ingest::number_atoms(const Workers& workers, uint64_t floor, const Spacing& spacing, Sequences& chars) {
    // Count within each epoch.
    std::vector<std::vector<uint64_t>> counts(epochs_.size());
    for (size_t e = 0; e < epochs_.size(); ++e) counts[e].resize(epochs_[e].size);
    Workers counting = workers;
    counting.threads = 1;  // bound by memory, and one array per thread would cost more than it gains
    docids_.visit(counting, weighted_, [&](const Sequences::Block& block, std::span<uint32_t> values, unsigned) {
        auto& count = counts[block.tag];
        for_each_sequence(values, block.first, [&](uint32_t& weight, std::span<uint32_t> units, uint64_t number) {
            if (weighted_) weight = weights_[number];
            for (const uint32_t unit : units) count[unit & id_mask] += weight;
        });
    });
    weights_ = {};

    // Merge the epochs in byte order.
    struct Head {
        std::string_view text;
        uint32_t number;
        size_t epoch;
        bool operator<(const Head& other) const {
            return text != other.text ? text > other.text : epoch > other.epoch;
        }
    };
    std::vector<std::unique_ptr<BufferedReader>> readers(epochs_.size());
    std::vector<std::string> held(epochs_.size());
    std::vector<uint32_t> order = epochs_.back().sorted();
    size_t at = 0;
    std::priority_queue<Head> heads;
    const auto advance = [&](size_t e) {
        if (e + 1 == epochs_.size()) {
            if (at == order.size()) return;
            heads.push({epochs_[e].table->text(order[at]), order[at], e});
            ++at;
            return;
        }
        if (readers[e]->done()) return;
        uint32_t head[2];
        readers[e]->get(head, sizeof head);
        held[e] = readers[e]->get(head[1]);
        heads.push({held[e], head[0], e});
    };
    for (size_t e = 0; e < epochs_.size(); ++e) {
        if (epochs_[e].file) readers[e] = std::make_unique<BufferedReader>(*epochs_[e].file, 0, epochs_[e].file->size());
        advance(e);
    }
    AtomNumbering numbering(floor, chars);
    std::vector<std::vector<uint32_t>> numbers(epochs_.size());
    for (size_t e = 0; e < epochs_.size(); ++e) numbers[e].resize(epochs_[e].size);
    std::string text;
    std::vector<std::pair<size_t, uint32_t>> same;
    while (!heads.empty()) {
        text = heads.top().text;
        uint64_t count = 0;
        same.clear();
        while (!heads.empty() && heads.top().text == text) {
            const Head head = heads.top();
            heads.pop();
            count += counts[head.epoch][head.number];
            same.emplace_back(head.epoch, head.number);
            advance(head.epoch);
        }
        const uint32_t number = numbering.add(text, count);
        for (const auto& [e, old] : same) numbers[e][old] = number;
    }
    counts.clear();
    AtomCounts atoms = numbering.finish();

    std::vector<AtomEnds> ends(atoms.total);
    chars.visit(Workers{}, false, [&](const Sequences::Block& block, std::span<uint32_t> values, unsigned) {
        for_each_sequence(values, block.first,
                          [&](uint32_t, std::span<uint32_t> c, uint64_t number) { ends[atoms.by_bytes[number]] = ends_of(c); });
    });
    docids_.visit(workers, true, [&](const Sequences::Block& block, std::span<uint32_t> values, unsigned) {
        const auto& number = numbers[block.tag];
        renumber(values, spacing, [&](uint32_t atom) {
            const uint32_t n = numbering.settled(number[atom]);
            return Numbered{n, ends[n]};
        });
    });
    epochs_.clear();
    return atoms;
}

}  // namespace pixnar
