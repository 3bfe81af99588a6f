// The vocabulary's side of the border: arrays in, arrays out, GIL released while the core works.
#include <algorithm>
#include <cstdint>
#include <memory>

#include "bindings/arrays.hpp"
#include "bindings/built.hpp"
#include "vocab/build/builder.hpp"
#include "vocab/encoder.hpp"
#include "vocab/tables.hpp"
#include "vocab/text.hpp"

namespace pixnar {

namespace {

// Edges cross the border as plain 64-bit numbers, two per edge.
Out<uint64_t> give_edges(std::vector<Edge>&& edges) {
    static_assert(sizeof(Edge) == 2 * sizeof(uint64_t));
    auto* held = new std::vector<Edge>(std::move(edges));
    nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<Edge>*>(p); });
    return Out<uint64_t>(reinterpret_cast<uint64_t*>(held->data()), {held->size() * 2}, owner);
}

std::span<const Edge> edges(const In<uint64_t>& array) {
    return {reinterpret_cast<const Edge*>(array.data()), array.shape(0) / 2};
}

// ASCII texts are normalised here, all others by the Python function that defines what normal is.
nb::bytes normalize_lines(const nb::sequence& texts, const nb::callable& normalize) {
    std::string lines;
    bool first = true;
    for (nb::handle text : texts) {
        if (!first) lines += '\n';
        first = false;
        if (!PyUnicode_Check(text.ptr())) throw nb::type_error("texts must be strings");
        if (PyUnicode_IS_ASCII(text.ptr())) {
            Py_ssize_t size = 0;
            const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
            append_normal_ascii({data, static_cast<size_t>(size)}, lines);
        } else {
            const nb::object normal = normalize(text);
            Py_ssize_t size = 0;
            const char* data = PyUnicode_AsUTF8AndSize(normal.ptr(), &size);
            if (data == nullptr) throw nb::python_error();
            lines.append(data, static_cast<size_t>(size));
        }
    }
    return nb::bytes(lines.data(), lines.size());
}

// The tables of one vocabulary, kept alive together with the arrays they look into.
class Coder {
  public:
    // Without `verify` only sizes are looked at; damage then gives odd tokens, and nothing worse.
    Coder(const nb::dict& arrays, bool verify) {
        tables_.tokens = {holder_.get<uint8_t>(arrays, "kinds"), holder_.get<uint64_t>(arrays, "offsets"), holder_.get<uint8_t>(arrays, "bytes"),
                          holder_.get<uint16_t>(arrays, "scores")};
        tables_.spacing_chars = holder_.get<uint32_t>(arrays, "spacing_chars");
        tables_.spacing_rule = holder_.get<uint8_t>(arrays, "spacing_rule");
        tables_.atom_offsets = holder_.get<uint64_t>(arrays, "atom_offsets");
        tables_.atom_bytes = holder_.get<uint8_t>(arrays, "atom_bytes");
        tables_.atom_tokens = holder_.get<uint32_t>(arrays, "atom_tokens");
        tables_.atom_costs = holder_.get<uint64_t>(arrays, "atom_costs");
        tables_.atom_slots = holder_.get<uint64_t>(arrays, "atom_slots");
        tables_.phrase_edges = edges(holder_.hold<uint64_t>(arrays, "phrase_edges"));
        tables_.piece_edges = edges(holder_.hold<uint64_t>(arrays, "piece_edges"));
        nb::gil_scoped_release released;
        if (const std::string problem = verify ? tables_.problem() : tables_.misfit(); !problem.empty()) throw std::invalid_argument(problem);
    }

    // Texts are normalised, one per line.
    nb::tuple encode_lines(const nb::bytes& lines, size_t count, unsigned threads) const {
        Rows rows;
        {
            nb::gil_scoped_release released;
            rows = each_line(view(lines), count, longest_text, threads,
                             [](Encoder& encoder, std::string_view text, Rows& out) { encoder.encode(text, out.ids); });
        }
        return nb::make_tuple(give(std::move(rows.ids)), give(std::move(rows.offsets)));
    }

    // All occurrences in each text, as Encoder::ngrams gives them; the distinct ones, by id, and their counts if `count_them`.
    nb::tuple ngrams(const nb::bytes& lines, size_t count, bool pieces, bool count_them, unsigned threads) const {
        Rows rows;
        {
            nb::gil_scoped_release released;
            rows = each_line(view(lines), count, pieces ? longest_text : SIZE_MAX, threads,
                             [&](Encoder& encoder, std::string_view text, Rows& out) {
                                 const size_t before = out.ids.size();
                                 encoder.ngrams(text, pieces, out.ids);
                                 if (count_them) merge_equal(out, before);
                             });
        }
        return nb::make_tuple(give(std::move(rows.ids)), give(std::move(rows.offsets)), give(std::move(rows.counts)));
    }

    nb::bytes decode(const In<uint32_t>& ids) const {
        std::string text;
        {
            nb::gil_scoped_release released;
            for (const uint32_t id : view(ids))
                if (id >= tables_.tokens.size())
                    throw std::out_of_range("token id " + std::to_string(id) + " is not below the vocabulary size " +
                                            std::to_string(tables_.tokens.size()));
            text = pixnar::decode(tables_, view(ids));
        }
        return nb::bytes(text.data(), text.size());
    }

  private:
    struct Rows {
        std::vector<uint32_t> ids;
        std::vector<int64_t> offsets;
        std::vector<uint32_t> counts;
    };

    static void merge_equal(Rows& rows, size_t begin) {
        std::sort(rows.ids.begin() + static_cast<std::ptrdiff_t>(begin), rows.ids.end());
        size_t end = begin;
        for (size_t i = begin; i < rows.ids.size(); ++i) {
            if (end > begin && rows.ids[end - 1] == rows.ids[i]) {
                ++rows.counts.back();
            } else {
                rows.ids[end++] = rows.ids[i];
                rows.counts.push_back(1);
            }
        }
        rows.ids.resize(end);
    }

    // Calls each(encoder, text, out) for every line, in parts that run side by side; what they append is put in order.
    template <class Each>
    Rows each_line(std::string_view lines, size_t count, size_t limit, unsigned threads, Each each) const {
        std::vector<std::string_view> texts;
        texts.reserve(count);
        for (size_t i = 0; i < count; ++i) {
            const size_t end = std::min(lines.find('\n'), lines.size());
            if (end >= limit) throw std::length_error("a text has 16 MiB or more: split it");
            texts.push_back(lines.substr(0, end));
            lines.remove_prefix(std::min(end + 1, lines.size()));
        }
        constexpr size_t chunk = 1024;
        const size_t chunks = (count + chunk - 1) / chunk;
        threads = static_cast<unsigned>(std::min<size_t>(usable_threads(threads), std::max<size_t>(chunks, 1)));
        std::vector<int64_t> offsets(count + 1);
        std::vector<Rows> parts(chunks);
        std::vector<Encoder> encoders(threads, Encoder(tables_));
        Workers{threads, {}, {}}.run(chunks, [&](size_t part, unsigned thread) {
            for (size_t i = part * chunk; i < std::min((part + 1) * chunk, count); ++i) {
                const size_t before = parts[part].ids.size();
                each(encoders[thread], texts[i], parts[part]);
                offsets[i + 1] = static_cast<int64_t>(parts[part].ids.size() - before);
            }
        });
        for (size_t i = 0; i < count; ++i) offsets[i + 1] += offsets[i];
        Rows all;
        if (chunks == 1) {
            all = std::move(parts[0]);
        } else {
            all.ids.reserve(static_cast<size_t>(offsets.back()));
            for (Rows& part : parts) {
                all.ids.insert(all.ids.end(), part.ids.begin(), part.ids.end());
                all.counts.insert(all.counts.end(), part.counts.begin(), part.counts.end());
                part = {};
            }
        }
        all.offsets = std::move(offsets);
        return all;
    }

    Holder holder_;
    Tables tables_;
};

nb::dict build_lookup_py(const In<uint8_t>& kinds, const In<uint64_t>& offsets, const In<uint8_t>& bytes,
                         const In<uint16_t>& scores, const In<uint32_t>& chars, const In<uint8_t>& rule) {
    Lookup lookup;
    {
        nb::gil_scoped_release released;
        lookup = build_lookup({view(kinds), view(offsets), view(bytes), view(scores)}, view(chars), view(rule));
    }
    nb::dict out;
    out["atom_offsets"] = give(std::move(lookup.atom_offsets));
    out["atom_bytes"] = give(std::move(lookup.atom_bytes));
    out["atom_tokens"] = give(std::move(lookup.atom_tokens));
    out["atom_costs"] = give(std::move(lookup.atom_costs));
    out["atom_slots"] = give(std::move(lookup.atom_slots));
    out["phrase_edges"] = give_edges(std::move(lookup.phrase_edges));
    out["piece_edges"] = give_edges(std::move(lookup.piece_edges));
    return out;
}

nb::dict build(Builder& builder, nb::object progress) {
    BuiltVocabulary built;
    {
        const Progress callback = from_python(progress);
        nb::gil_scoped_release released;
        built = builder.build(callback);
    }
    return give_built(std::move(built));
}

}  // namespace

void bind_vocab(nb::module_& m) {
    m.attr("FIXED_TOKENS") = fixed_tokens;
    m.def("default_min_count", &default_min_count, nb::arg("docids"));
    m.def("normalize_lines", &normalize_lines, nb::arg("texts"), nb::arg("normalize"));
    m.def("char_kind", [](uint32_t code_point) { return static_cast<int>(char_kind(code_point)); }, nb::arg("code_point"));
    m.def("score_of", &score_of, nb::arg("count"));
    m.def("build_lookup", &build_lookup_py, nb::arg("kinds"), nb::arg("offsets"), nb::arg("bytes"), nb::arg("scores"),
          nb::arg("spacing_chars"), nb::arg("spacing_rule"));
    nb::class_<Coder>(m, "Coder")
        .def(nb::init<const nb::dict&, bool>(), nb::arg("arrays"), nb::arg("verify"))
        .def("encode_lines", &Coder::encode_lines, nb::arg("lines"), nb::arg("count"), nb::arg("threads"))
        .def("ngrams", &Coder::ngrams, nb::arg("lines"), nb::arg("count"), nb::arg("pieces"), nb::arg("count_them"),
             nb::arg("threads"))
        .def("decode", &Coder::decode, nb::arg("ids"));
    nb::class_<Builder>(m, "Builder")
        .def("__init__",
             [](Builder* self, uint64_t size, uint64_t min_count, uint32_t max_words, bool weighted,
                int punctuation, unsigned threads, uint64_t max_memory, const std::string& scratch_folder) {
                 new (self) Builder({size, min_count, max_words, weighted, static_cast<Punctuation>(punctuation), threads, max_memory,
                                     scratch_folder});
             },
             nb::arg("size"), nb::arg("min_count"), nb::arg("max_words"), nb::arg("weighted"),
             nb::arg("punctuation"), nb::arg("threads"), nb::arg("max_memory"), nb::arg("scratch_folder"))
        .def("add_lines", [](Builder& self, const nb::bytes& lines) {
            const std::string_view text = view(lines);
            nb::gil_scoped_release released;
            self.add_lines(text);
        }, nb::arg("lines"))
        .def("build", &build, nb::arg("progress").none());
}

}  // namespace pixnar
