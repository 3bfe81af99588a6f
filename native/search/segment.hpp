// What is searched: one docid table with its floor, what has been removed from it, and which documents it speaks of.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/parallel.hpp"
#include "docids/table.hpp"
#include "search/query.hpp"

namespace pixnar {

inline uint16_t token_hash(uint32_t token) { return static_cast<uint16_t>(token * 0x9e3779b1u >> 16); }

// An upper bound of Σ base(token) for every row, in one byte, and a hash of one more token: what makes most rows cost one
// look, without going to their tokens.
class Levels {
  public:
    struct Scale {
        double low = 0, step = 0;
        double most = 0;  // greatest of the class
    };
    Levels(const DocidTable& table, const Floor& floor, uint32_t slots, const Workers& workers);
    static constexpr uint32_t worth_near = 1 << 11;  // rows from which on hashes are kept

    bool empty() const { return level_.empty(); }  // strict: every base is 0
    uint8_t operator[](uint32_t row) const { return level_[row]; }
    const uint8_t* data() const { return level_.data(); }
    // The same in the order of the postings of a place >= 1, so that a list can be sieved without a look at its rows.
    const uint8_t* posted(uint32_t place) const { return posted_[place - 1].data(); }

    // The hash of a docid's token at `near_place(place)`, by row for the first place, and in the order of the postings of
    // the others; 0 where the docid is too short. Only kept of tables that are worth it.
    bool knows_near() const { return knows_near_; }
    static uint32_t near_place(uint32_t place) { return place == 1 ? 2 : 1; }
    const uint16_t* near(uint32_t place) const { return near_[place].data(); }
    const Scale& scale(size_t of_class) const { return scales_[of_class]; }
    double base(size_t of_class, uint32_t row) const {
        return level_.empty() ? 0.0 : scales_[of_class].low + scales_[of_class].step * level_[row];
    }
    double at(size_t of_class, uint8_t level) const { return scales_[of_class].low + scales_[of_class].step * level; }
    // The least level that may reach `wanted`; 256 if none does.
    unsigned least(size_t of_class, double wanted) const;

  private:
    void find_near(const DocidTable& table, uint32_t places, const Workers& workers);

    std::vector<uint8_t> level_;
    std::vector<std::vector<uint8_t>> posted_;
    std::vector<std::vector<uint16_t>> near_;
    bool knows_near_ = false;
    std::vector<Scale> scales_;
};

// What multiplies the scores of docids: one of 256 values for each of them, which a byte names.
class Factors {
  public:
    static constexpr size_t kinds = 256;
    struct Range {
        double least = 1, most = 1;
    };
    // Keeps a view of `classes`, which has one for each row. Throws std::invalid_argument.
    Factors(const DocidTable& table, std::span<const uint8_t> classes, std::span<const float> values);

    double operator[](uint32_t row) const { return values_[classes_[row]]; }
    double inverse(uint32_t row) const { return inverses_[classes_[row]]; }
    const Range& range(size_t of_class) const { return ranges_[of_class]; }  // of the docids of one length
    double most() const;                                                     // of all docids
    bool same_values(const Factors& other) const { return std::equal(values_, values_ + kinds, other.values_); }

  private:
    std::span<const uint8_t> classes_;
    double values_[kinds], inverses_[kinds];
    std::vector<Range> ranges_;
};

// The score of a docid, from the sum of its tokens and its end. All engines and the twins use this order of operations.
inline double score_of(double sum, double factor, double divisor) { return sum * factor / divisor; }

struct Segment {
    const DocidTable* table = nullptr;
    const Levels* levels = nullptr;
    std::span<const uint64_t> dead;       // a bit for each pair that was removed; empty: none was
    std::span<const uint32_t> documents;  // number of each document of the table, rising; empty: the same
    std::span<const uint32_t> twins;      // by row: the row of the first segment with the same tokens, or none
    const Factors* factors = nullptr;     // none: all of them are 1
    static constexpr uint32_t no_twin = ~uint32_t{0};

    double factor(uint32_t row) const { return factors == nullptr ? 1.0 : (*factors)[row]; }

    // The docids of a document by its number: [first, last) indexes document_row; those removed are among them.
    std::pair<uint64_t, uint64_t> rows_of(uint32_t document, uint32_t& local) const {
        local = document;
        if (!documents.empty()) {
            const auto found = std::lower_bound(documents.begin(), documents.end(), document);
            if (found == documents.end() || *found != document) return {0, 0};
            local = static_cast<uint32_t>(found - documents.begin());
        }
        if (local >= table->documents() || table->rows() == 0) return {0, 0};
        return table->rows_of(local);
    }
    bool alive(uint64_t pair) const { return dead.empty() || !(dead[pair / 64] >> (pair % 64) & 1); }
    uint32_t document(uint64_t pair) const {
        const uint32_t local = table->pair_document(pair);
        return documents.empty() ? local : documents[local];
    }
};

struct Place {  // of a docid
    uint32_t segment = 0, row = 0;
    bool operator==(const Place&) const = default;
};

// Everything that can be found: the table and, behind it, what was added since.
struct SearchSpace {
    std::vector<Segment> segments;
    std::span<const uint32_t> rank;  // of a document's id among those of the first segment
    std::span<const uint64_t> keys;  // the same for documents added later, comparable with key()
    uint32_t documents = 0;
    bool filtered = false;
    std::span<const uint64_t> allowed;  // when filtered: a bit for each document
    uint64_t allowed_count = 0;

    // Orders documents as their ids are ordered.
    uint64_t key(uint32_t document) const {
        if (document < rank.size()) return (uint64_t{rank[document]} + 1) << 32;
        const size_t later = document - rank.size();
        return later < keys.size() ? keys[later] : document;
    }
    bool allows(uint32_t document) const {
        return !filtered || (allowed[document / 64] >> (document % 64) & 1);
    }
    int compare(Place a, Place b) const;  // token sequences: <0, 0, >0
    bool names_any(Place place) const;    // whether a row names a document that is there and allowed
    // The documents of a docid that are there and allowed, in every segment, in the order of their ids.
    std::vector<uint32_t> named(Place place) const;
    // Calls visit(place) for every docid of a document.
    template <class Visit> void each_docid(uint32_t document, Visit visit) const;

  private:
    bool pair_alive(const Segment& in, uint32_t row, uint32_t local) const;
};

template <class Visit> void SearchSpace::each_docid(uint32_t document, Visit visit) const {
    for (uint32_t s = 0; s < segments.size(); ++s) {
        const Segment& in = segments[s];
        uint32_t local;
        const auto [from, to] = in.rows_of(document, local);
        for (uint64_t i = from; i < to; ++i) {
            const uint32_t row = in.table->document_row(i);
            if (in.dead.empty() || pair_alive(in, row, local)) visit(Place{s, row});
        }
    }
}

}  // namespace pixnar
