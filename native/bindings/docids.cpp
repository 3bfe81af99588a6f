// The docid table's and the decoder's side of the border.
#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>

#include "bindings/held_table.hpp"
#include "docids/builder.hpp"
#include "docids/merge.hpp"
#include "search/decode.hpp"

namespace pixnar {

namespace {

nb::dict give_store(TableStore&& store) {
    nb::dict out;
    out["shape"] = give(std::move(store.shape));
    out["tokens"] = give(std::move(store.tokens));
    out["start_heads"] = give(std::move(store.start_heads));
    out["start_bits"] = give(std::move(store.start_bits));
    out["row_docs"] = give(std::move(store.row_docs));
    out["row_doc_heads"] = give(std::move(store.row_doc_heads));
    out["row_doc_bits"] = give(std::move(store.row_doc_bits));
    out["doc_rows"] = give(std::move(store.doc_rows));
    out["doc_row_heads"] = give(std::move(store.doc_row_heads));
    out["doc_row_bits"] = give(std::move(store.doc_row_bits));
    out["postings"] = give(std::move(store.postings));
    out["posting_heads"] = give(std::move(store.posting_heads));
    out["posting_bits"] = give(std::move(store.posting_bits));
    return out;
}

// A floor with its tokens in falling order, which only the beam needs.
class HeldFloor {
  public:
    explicit HeldFloor(nb::handle values) {
        if (values.is_none()) return;
        Holder holder;
        const auto given = holder.get<float>(values, "floor");
        floor = Floor(std::vector<float>(given.begin(), given.end()));
    }
    std::span<const uint32_t> by_floor() const {
        std::call_once(sorted_, [this] {
            order_.resize(floor.values.size());
            std::iota(order_.begin(), order_.end(), 0u);
            std::stable_sort(order_.begin(), order_.end(),
                             [this](uint32_t a, uint32_t b) { return floor.values[a] > floor.values[b]; });
        });
        return order_;
    }
    Floor floor;

  private:
    mutable std::once_flag sorted_;
    mutable std::vector<uint32_t> order_;
};

class HeldLevels {
  public:
    HeldLevels(const HeldTable& table, const HeldFloor& floor, uint32_t slots, unsigned threads) {
        if (!floor.floor.strict() && floor.floor.values.size() != table.table->vocabulary())
            throw std::invalid_argument("the floor has " + std::to_string(floor.floor.values.size()) +
                                        " values, the vocabulary " + std::to_string(table.table->vocabulary()) + " tokens");
        if (slots == 0 || slots > most_slots)
            throw std::invalid_argument(std::to_string(slots) + " slots: give 1 to " + std::to_string(most_slots));
        of_table = table.table.get();
        of_floor = &floor;
        of_slots = slots;
        nb::gil_scoped_release released;
        levels = std::make_unique<Levels>(*table.table, floor.floor, slots, Workers{usable_threads(threads), {}, {}});
    }
    std::unique_ptr<Levels> levels;
    const DocidTable* of_table = nullptr;  // what they belong to; only compared
    const HeldFloor* of_floor = nullptr;
    uint32_t of_slots = 0;
};

class HeldFactors {
  public:
    HeldFactors(const HeldTable& table, nb::handle classes, nb::handle values) {
        const auto of_rows = holder_.get<uint8_t>(classes, "classes");
        const auto given = holder_.get<float>(values, "values");
        of_table = table.table.get();
        nb::gil_scoped_release released;
        factors = std::make_unique<Factors>(*table.table, of_rows, given);
    }
    std::unique_ptr<Factors> factors;
    const DocidTable* of_table = nullptr;  // what they belong to; only compared

  private:
    Holder holder_;
};

// Arrays of one segment, as Python gives them.
void add_segment(SearchSpace& space, Holder& holder, nb::handle table, nb::handle levels, nb::handle dead, nb::handle documents,
                 nb::handle twins, nb::handle factors) {
    Segment segment;
    const auto& held = nb::cast<const HeldTable&>(table);
    segment.table = held.table.get();
    const auto& of = nb::cast<const HeldLevels&>(levels);
    if (of.of_table != segment.table) throw std::invalid_argument("these levels belong to another table");
    segment.levels = of.levels.get();
    segment.dead = holder.get<uint64_t>(dead, "dead");
    segment.documents = holder.get<uint32_t>(documents, "documents");
    segment.twins = holder.get<uint32_t>(twins, "twins");
    if (!segment.dead.empty() && segment.dead.size() * 64 < segment.table->pairs())
        throw std::invalid_argument("array dead is too short");
    if (!space.segments.empty() &&
        (segment.documents.size() != segment.table->documents() || segment.twins.size() != segment.table->rows() ||
         segment.table->vocabulary() != space.segments.front().table->vocabulary()))
        throw std::invalid_argument("the segments do not fit together");
    for (const uint32_t document : segment.documents)
        if (document >= space.documents) throw std::invalid_argument("the segments do not fit together");
    for (const uint32_t twin : segment.twins)
        if (twin != Segment::no_twin && twin >= space.segments.front().table->rows())
            throw std::invalid_argument("the segments do not fit together");
    if (!factors.is_none()) {
        const auto& given = nb::cast<const HeldFactors&>(factors);
        if (given.of_table != segment.table) throw std::invalid_argument("these factors belong to another table");
        segment.factors = given.factors.get();
        holder.keep(factors);
    }
    if (!space.segments.empty()) {
        // The same docid in both segments has to score the same.
        const Factors* first = space.segments.front().factors;
        if ((first == nullptr) != (segment.factors == nullptr) || (first != nullptr && !first->same_values(*segment.factors)))
            throw std::invalid_argument("the segments have different factors: give both the same values");
    }
    holder.keep(table);
    holder.keep(levels);
    space.segments.push_back(segment);
}

class HeldSpace {
  public:
    HeldSpace(nb::handle table, nb::handle levels, nb::handle dead, nb::handle rank, nb::handle factors) {
        space_.rank = holder_.get<uint32_t>(rank, "rank");
        space_.documents = nb::cast<const HeldTable&>(table).table->documents();
        floor_ = nb::cast<const HeldLevels&>(levels).of_floor;
        slots_ = nb::cast<const HeldLevels&>(levels).of_slots;
        if (!space_.rank.empty() && space_.rank.size() != space_.documents)
            throw std::invalid_argument("array rank has another size than there are documents");
        add_segment(space_, holder_, table, levels, dead, nb::none(), nb::none(), factors);
    }
    void add(nb::handle table, nb::handle levels, nb::handle documents, nb::handle twins, nb::handle keys, nb::handle factors) {
        const auto& of = nb::cast<const HeldLevels&>(levels);
        if (of.of_floor != floor_ || of.of_slots != slots_) throw std::invalid_argument("these levels have another floor");
        space_.keys = holder_.get<uint64_t>(keys, "keys");
        space_.documents = static_cast<uint32_t>(space_.documents + space_.keys.size());
        add_segment(space_, holder_, table, levels, nb::none(), documents, twins, factors);
    }

    nb::tuple decode(const HeldFloor& floor, const In<uint32_t>& tokens, const In<float>& scores, const In<int64_t>& offsets,
                     const In<float>& ends, bool dense, size_t k, int order, double length_norm, int engine,
                     uint64_t work_limit, bool documents, uint64_t top, size_t beam_width, nb::handle allowed) const {
        if (&floor != floor_ || ends.shape(0) != slots_)
            throw std::invalid_argument("the floor or the number of slots is not the one the levels were made for");
        if (order < 0 || order > static_cast<int>(Order::assigned) || engine < 0 || engine > static_cast<int>(Engine::beam))
            throw std::invalid_argument("no such order or engine");
        Holder holder;
        Answer answer;
        SearchSpace space = space_;
        restrict(space, holder, allowed);
        std::vector<uint32_t> segments, rows, named;
        std::vector<double> found;
        {
            nb::gil_scoped_release released;
            for (const uint64_t word : space.allowed) space.allowed_count += static_cast<uint64_t>(std::popcount(word));
            const DecodeOptions options{k,       static_cast<Order>(order), length_norm, static_cast<Engine>(engine), work_limit, documents,
                            top, beam_width};
            const auto by_floor = options.engine == Engine::beam ? floor.by_floor() : std::span<const uint32_t>{};
            answer = pixnar::decode(space, floor.floor, by_floor,
                                    {view(tokens), view(scores), view(offsets), view(ends), dense}, options);
            for (const Hit& hit : answer.hits) {
                segments.push_back(hit.place.segment);
                rows.push_back(hit.place.row);
                named.push_back(hit.document);
                found.push_back(hit.score);
            }
        }
        return nb::make_tuple(give(std::move(segments)), give(std::move(rows)), give(std::move(named)), give(std::move(found)),
                              answer.exact, answer.bound, answer.gap, name_of(answer.engine), answer.work);
    }

    Out<uint32_t> named(uint32_t segment, uint32_t row, nb::handle allowed) const {
        if (segment >= space_.segments.size() || row >= space_.segments[segment].table->rows())
            throw nb::index_error("no such docid");
        Holder holder;
        SearchSpace space = space_;
        restrict(space, holder, allowed);
        return give(space.named({segment, row}));
    }

  private:
    static void restrict(SearchSpace& space, Holder& holder, nb::handle allowed) {
        space.filtered = !allowed.is_none();
        space.allowed = holder.get<uint64_t>(allowed, "allowed");
        if (!allowed.is_none() && space.allowed.size() != (uint64_t{space.documents} + 63) / 64)
            throw std::invalid_argument("array allowed has another size than there are documents");
    }
    SearchSpace space_;
    const HeldFloor* floor_ = nullptr;
    size_t slots_ = 0;
    Holder holder_;
};

// Tokens and document of every pair of rows [from, to) that was not removed, and its row.
nb::tuple records(const HeldTable& self, uint32_t from, uint32_t to, nb::handle dead) {
    if (from > to || to > self.table->rows()) throw nb::index_error("no such rows");
    Holder holder;
    Segment segment{self.table.get(), nullptr, holder.get<uint64_t>(dead, "dead"), {}, {}};
    if (!segment.dead.empty() && segment.dead.size() * 64 < self.table->pairs())
        throw std::invalid_argument("array dead is too short");
    std::vector<uint32_t> ids, documents, rows;
    std::vector<int64_t> offsets{0};
    {
        nb::gil_scoped_release released;
        for (uint32_t row = from; row < to; ++row) {
            const auto tokens = self.table->tokens(row);
            const auto [first, last] = self.table->pairs_of(row);
            for (uint64_t pair = first; pair < last; ++pair) {
                if (!segment.alive(pair)) continue;
                ids.insert(ids.end(), tokens.begin(), tokens.end());
                offsets.push_back(static_cast<int64_t>(ids.size()));
                documents.push_back(self.table->pair_document(pair));
                rows.push_back(row);
            }
        }
    }
    return nb::make_tuple(give(std::move(ids)), give(std::move(offsets)), give(std::move(documents)), give(std::move(rows)));
}

// Tables of ranges of docids, in order, become one.
nb::dict merge_tables_py(const nb::sequence& parts, bool index, unsigned threads, nb::object progress) {
    std::vector<const DocidTable*> tables;
    for (nb::handle part : parts) tables.push_back(nb::cast<const HeldTable&>(part).table.get());
    TableStore store;
    {
        const Progress callback = from_python(progress);
        nb::gil_scoped_release released;
        store = merge_tables(tables, index, Workers{usable_threads(threads), callback, {}});
    }
    return give_store(std::move(store));
}

Out<uint32_t> table_tokens(const HeldTable& self, uint32_t row) {
    self.check_row(row);
    return give(self.table->tokens(row));
}

}  // namespace

void bind_docids(nb::module_& m) {
    m.attr("MOST_SLOTS") = most_slots;
    m.attr("NO_TWIN") = Segment::no_twin;
    nb::class_<DocidBuilder>(m, "DocidBuilder")
        .def(nb::init<uint32_t>(), nb::arg("vocabulary"))
        .def("add",
             [](DocidBuilder& self, const In<uint32_t>& ids, const In<int64_t>& offsets, const In<uint32_t>& documents,
                const nb::bytes& texts, const In<int64_t>& text_offsets) {
                 const std::string_view bytes = view(texts);
                 nb::gil_scoped_release released;
                 self.add(view(ids), view(offsets), view(documents), bytes, view(text_offsets));
             },
             nb::arg("ids"), nb::arg("offsets"), nb::arg("documents"), nb::arg("texts"), nb::arg("text_offsets"))
        .def("finish",
             [](DocidBuilder& self, uint32_t documents, bool index, unsigned threads, nb::object progress) {
                 TableStore store;
                 {
                     const Progress callback = from_python(progress);
                     nb::gil_scoped_release released;
                     store = self.finish(documents, index, Workers{usable_threads(threads), callback, {}});
                 }
                 return give_store(std::move(store));
             },
             nb::arg("documents"), nb::arg("index"), nb::arg("threads"), nb::arg("progress").none())
        .def("spellings",
             [](const DocidBuilder& self, uint32_t from, uint32_t to) {
                 auto [bytes, offsets] = self.spellings(from, to);
                 return nb::make_tuple(nb::bytes(bytes.data(), bytes.size()), give(std::move(offsets)));
             },
             nb::arg("first"), nb::arg("last"));
    m.def("merge_tables", &merge_tables_py, nb::arg("parts"), nb::arg("index"), nb::arg("threads"), nb::arg("progress").none());
    nb::class_<HeldTable>(m, "DocidTable")
        .def(nb::init<const nb::dict&>(), nb::arg("arrays"))
        .def_prop_ro("vocabulary", [](const HeldTable& self) { return self.table->vocabulary(); })
        .def_prop_ro("rows", [](const HeldTable& self) { return self.table->rows(); })
        .def_prop_ro("documents", [](const HeldTable& self) { return self.table->documents(); })
        .def_prop_ro("pairs", [](const HeldTable& self) { return self.table->pairs(); })
        .def_prop_ro("indexed", [](const HeldTable& self) { return self.table->indexed(); })
        .def_prop_ro("most_docids", [](const HeldTable& self) { return self.table->most_docids(); })
        .def_prop_ro("lengths",
                     [](const HeldTable& self) {  // length, rows, length, rows, …
                         std::vector<uint64_t> out;
                         for (const LengthClass& in : self.table->classes()) out.insert(out.end(), {in.length, uint64_t{in.end} - in.begin});
                         return give(std::move(out));
                     },
                     nb::rv_policy::move)
        .def_prop_ro("packed_tokens", [](nb::object self) {
            const auto bytes = nb::cast<const HeldTable&>(self).packed_tokens;
            return nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>>(bytes.data(), {bytes.size()}, self);
        })
        .def("tokens", &table_tokens, nb::arg("row"))
        .def("find", [](const HeldTable& self, const In<uint32_t>& tokens) { return self.table->find(view(tokens)); },
             nb::arg("tokens"))
        .def("records", &records, nb::arg("first"), nb::arg("last"), nb::arg("dead").none())
        .def("pairs_of",
             [](const HeldTable& self, uint32_t row) {
                 self.check_row(row);
                 const auto [from, to] = self.table->pairs_of(row);
                 std::vector<uint32_t> documents;
                 for (uint64_t pair = from; pair < to; ++pair) documents.push_back(self.table->pair_document(pair));
                 return nb::make_tuple(from, give(std::move(documents)));
             },
             nb::arg("row"))
        .def("rows_of",
             [](const HeldTable& self, uint32_t document) {
                 if (!self.table->indexed()) throw std::invalid_argument("this table was built without its index");
                 if (document >= self.table->documents()) throw nb::index_error("no such document");
                 const auto [from, to] = self.table->rows_of(document);
                 std::vector<uint32_t> rows;
                 for (uint64_t i = from; i < to; ++i) rows.push_back(self.table->document_row(i));
                 return give(std::move(rows));
             },
             nb::arg("document"));
    nb::class_<HeldFloor>(m, "Floor").def(nb::init<nb::handle>(), nb::arg("values").none());
    nb::class_<HeldLevels>(m, "Levels")
        .def(nb::init<const HeldTable&, const HeldFloor&, uint32_t, unsigned>(), nb::arg("table"), nb::arg("floor"),
             nb::arg("slots"), nb::arg("threads"));
    nb::class_<HeldFactors>(m, "Factors")
        .def(nb::init<const HeldTable&, nb::handle, nb::handle>(), nb::arg("table"), nb::arg("classes"), nb::arg("values"));
    nb::class_<HeldSpace>(m, "SearchSpace")
        .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle, nb::handle>(), nb::arg("table"), nb::arg("levels"),
             nb::arg("dead").none(), nb::arg("rank").none(), nb::arg("factors").none() = nb::none())
        .def("add", &HeldSpace::add, nb::arg("table"), nb::arg("levels"), nb::arg("documents"), nb::arg("twins"), nb::arg("keys"),
             nb::arg("factors").none() = nb::none())
        .def("decode", &HeldSpace::decode, nb::arg("floor"), nb::arg("tokens"), nb::arg("scores"), nb::arg("offsets"),
             nb::arg("ends"), nb::arg("dense"), nb::arg("k"), nb::arg("order"), nb::arg("length_norm"), nb::arg("engine"),
             nb::arg("work_limit"), nb::arg("documents"), nb::arg("top"), nb::arg("beam_width"), nb::arg("allowed").none())
        .def("named", &HeldSpace::named, nb::arg("segment"), nb::arg("row"), nb::arg("allowed").none());
}

}  // namespace pixnar
