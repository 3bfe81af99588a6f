// A vocabulary build in shards, on the Python side of the border.
#include <cstdint>
#include <memory>

#include "bindings/arrays.hpp"
#include "bindings/built.hpp"
#include "vocab/build/shard.hpp"
#include "vocab/build/sharded.hpp"

namespace pixnar {

namespace {

std::string_view chars(const In<uint8_t>& array) { return {reinterpret_cast<const char*>(array.data()), array.shape(0)}; }

Out<uint8_t> give_chars(const std::string& text) { return give(std::vector<uint8_t>(text.begin(), text.end())); }

ShardedBuilder::LayerName layer_of(unsigned layer) {
    if (layer > ShardedBuilder::phrases) throw std::invalid_argument("no such layer");
    return static_cast<ShardedBuilder::LayerName>(layer);
}

nb::list deal(const nb::bytes& lines, unsigned shards) {
    std::vector<std::string> dealt;
    {
        const std::string_view text = view(lines);
        nb::gil_scoped_release released;
        dealt = deal_lines(text, shards);
    }
    nb::list out;
    for (const std::string& part : dealt) out.append(nb::bytes(part.data(), part.size()));
    return out;
}

nb::dict finish_reader(ShardReader& reader) {
    DistinctDocids found;
    {
        nb::gil_scoped_release released;
        found = reader.finish();
    }
    nb::dict out;
    out["values"] = give(std::move(found.values));
    out["word_bytes"] = give_chars(found.word_bytes);
    out["word_offsets"] = give(std::move(found.word_offsets));
    out["word_counts"] = give(std::move(found.word_counts));
    out["spacing_votes"] = give(std::move(found.spacing_votes));
    out["docids"] = found.docids;
    out["text_bytes"] = found.text_bytes;
    return out;
}

nb::tuple count(Shard& shard, uint32_t lo, uint32_t hi, unsigned buckets, uint64_t max_memory) {
    Shard::Pairs pairs;
    {
        nb::gil_scoped_release released;
        pairs = shard.count({lo, hi}, buckets, max_memory);
    }
    return nb::make_tuple(give(std::move(pairs.keys)), give(std::move(pairs.counts)), give(std::move(pairs.borders)));
}

nb::tuple segment(Shard& shard, uint32_t units, const In<uint32_t>& prefixes, const In<uint16_t>& lengths,
                  const In<uint16_t>& scores, const In<uint8_t>& alive, const In<uint64_t>& unit_costs, nb::handle weights,
                  bool with_costs, bool with_lengths) {
    Holder holder;
    const auto given = holder.get<uint64_t>(weights, "weights");
    if (unit_costs.shape(0) != units) throw std::invalid_argument("as many costs as units, please");
    Shard::Uses uses;
    {
        nb::gil_scoped_release released;
        const std::vector<Up> up = link(units, view(prefixes), view(lengths), view(scores), view(alive));
        uses = shard.segment({units, view(alive), up, view(unit_costs)}, given, with_costs, with_lengths);
    }
    return nb::make_tuple(give(std::move(uses.ids)), give(std::move(uses.counts)), give(std::move(uses.costs)),
                          give(std::move(uses.lengths)));
}

// Lists of keys and counts, taken from two sequences of arrays.
nb::tuple add_pairs_py(const nb::sequence& keys, const nb::sequence& counts, uint64_t floor) {
    Holder holder;
    std::vector<PairList> lists;
    if (nb::len(keys) != nb::len(counts)) throw std::invalid_argument("as many keys as counts, please");
    for (size_t i = 0; i < nb::len(keys); ++i)
        lists.push_back({holder.get<uint64_t>(nb::object(keys[i]), "keys"), holder.get<uint64_t>(nb::object(counts[i]), "counts")});
    std::vector<uint64_t> out_keys, out_counts;
    {
        nb::gil_scoped_release released;
        for (const Counted& pair : add_pairs(lists, floor)) {
            out_keys.push_back(pair.key);
            out_counts.push_back(pair.count);
        }
    }
    return nb::make_tuple(give(std::move(out_keys)), give(std::move(out_counts)));
}

nb::list number_words(ShardedBuilder& builder, const nb::sequence& bytes, const nb::sequence& offsets, const nb::sequence& counts) {
    Holder holder;
    std::vector<ShardedBuilder::Words> shards;
    for (size_t i = 0; i < nb::len(bytes); ++i) {
        const auto text = holder.get<uint8_t>(nb::object(bytes[i]), "bytes");
        shards.push_back({{reinterpret_cast<const char*>(text.data()), text.size()},
                          holder.get<uint64_t>(nb::object(offsets[i]), "offsets"), holder.get<uint64_t>(nb::object(counts[i]), "counts")});
    }
    std::vector<std::vector<uint32_t>> numbers;
    {
        nb::gil_scoped_release released;
        numbers = builder.number_words(shards);
    }
    nb::list out;
    for (auto& of_shard : numbers) out.append(give(std::move(of_shard)));
    return out;
}

nb::tuple take(ShardedBuilder& builder, unsigned layer, const nb::sequence& keys, const nb::sequence& counts) {
    std::vector<Counted> pairs;
    for (size_t i = 0; i < nb::len(keys); ++i) {
        const auto some = nb::cast<In<uint64_t>>(keys[i]), how_often = nb::cast<In<uint64_t>>(counts[i]);
        if (some.shape(0) != how_often.shape(0)) throw std::invalid_argument("as many keys as counts, please");
        for (size_t k = 0; k < some.shape(0); ++k) pairs.push_back({some.data()[k], how_often.data()[k]});
    }
    std::pair<std::vector<uint64_t>, uint32_t> taken;
    {
        nb::gil_scoped_release released;
        taken = builder.take(layer_of(layer), std::move(pairs));
    }
    return nb::make_tuple(give(std::move(taken.first)), taken.second);
}

// What never changes about the candidates of a layer: units, prefixes, lengths, scores.
nb::tuple candidates(const ShardedBuilder& builder, unsigned layer) {
    const Layer& from = builder.layer(layer_of(layer));
    const Choices choices = from.choices();
    std::vector<uint32_t> prefixes;
    std::vector<uint16_t> lengths, scores;
    for (size_t k = 0; k < choices.up.size(); ++k) {
        prefixes.push_back(from.grams().grams[k].prefix);
        lengths.push_back(choices.up[k].length);
        scores.push_back(choices.up[k].score);
    }
    return nb::make_tuple(choices.units, give(std::move(prefixes)), give(std::move(lengths)), give(std::move(scores)));
}

}  // namespace

void bind_vocab_shards(nb::module_& m) {
    m.def("deal_lines", &deal, nb::arg("lines"), nb::arg("shards"));
    m.def("add_pairs", &add_pairs_py, nb::arg("keys"), nb::arg("counts"), nb::arg("floor"));
    nb::class_<ShardReader>(m, "ShardReader")
        .def(nb::init<bool, uint64_t, const std::string&>(), nb::arg("weighted"), nb::arg("max_memory"), nb::arg("scratch_folder"))
        .def("add_lines", [](ShardReader& self, const nb::bytes& lines) {
            const std::string_view text = view(lines);
            nb::gil_scoped_release released;
            self.add_lines(text);
        }, nb::arg("lines"))
        .def("finish", &finish_reader);
    nb::class_<Shard>(m, "Shard")
        .def("__init__", [](Shard* self, const In<uint32_t>& values) {
            const auto given = view(values);
            new (self) Shard(std::vector<uint32_t>(given.begin(), given.end()));
        }, nb::arg("values"))
        .def("number_words",
             [](Shard& self, const In<uint8_t>& words, const In<uint64_t>& offsets, const In<uint32_t>& numbers,
                const In<uint32_t>& spacing_chars, const In<uint8_t>& spacing_rule) {
                 nb::gil_scoped_release released;
                 if (!Spacing::valid(view(spacing_chars), view(spacing_rule))) throw std::invalid_argument("this is no spacing rule");
                 self.number_words(chars(words), view(offsets), view(numbers), Spacing(view(spacing_chars), view(spacing_rule)));
             },
             nb::arg("words"), nb::arg("offsets"), nb::arg("numbers"), nb::arg("spacing_chars"), nb::arg("spacing_rule"))
        .def("extend",
             [](Shard& self, uint32_t lo, uint32_t hi, const In<uint64_t>& keys, uint32_t first) {
                 nb::gil_scoped_release released;
                 self.extend({lo, hi}, view(keys), first);
             },
             nb::arg("lo"), nb::arg("hi"), nb::arg("keys"), nb::arg("first"))
        .def("count", &count, nb::arg("lo"), nb::arg("hi"), nb::arg("buckets"), nb::arg("max_memory"))
        .def("segment", &segment, nb::arg("units"), nb::arg("prefixes"), nb::arg("lengths"), nb::arg("scores"),
             nb::arg("alive"), nb::arg("unit_costs"), nb::arg("weights").none(), nb::arg("costs"), nb::arg("count_lengths"))
        .def("values", [](const Shard& self) { return give(self.values()); });
    nb::class_<ShardedBuilder>(m, "ShardedBuilder")
        .def("__init__",
             [](ShardedBuilder* self, uint64_t size, uint64_t min_count, uint32_t max_words, bool weighted,
                int punctuation, unsigned threads, uint64_t max_memory, const std::string& scratch_folder) {
                 new (self) ShardedBuilder({size, min_count, max_words, weighted, static_cast<Punctuation>(punctuation), threads,
                                            max_memory, scratch_folder});
             },
             nb::arg("size"), nb::arg("min_count"), nb::arg("max_words"), nb::arg("weighted"),
             nb::arg("punctuation"), nb::arg("threads"), nb::arg("max_memory"), nb::arg("scratch_folder"))
        .def("add_shard",
             [](ShardedBuilder& self, uint64_t rows, uint64_t docids, uint64_t text_bytes, const In<uint64_t>& votes) {
                 self.add_shard(rows, docids, text_bytes, view(votes));
             },
             nb::arg("rows"), nb::arg("docids"), nb::arg("text_bytes"), nb::arg("spacing_votes"))
        .def("number_words", &number_words, nb::arg("bytes"), nb::arg("offsets"), nb::arg("counts"))
        .def("rule",
             [](const ShardedBuilder& self) {
                 return nb::make_tuple(give(std::vector<uint32_t>(self.rule().chars)), give(std::vector<uint8_t>(self.rule().rule)));
             })
        .def("min_count", &ShardedBuilder::min_count)
        .def("word_blocks", &ShardedBuilder::word_blocks)
        .def("first_word", &ShardedBuilder::first_word, nb::arg("block"))
        .def("words", [](const ShardedBuilder& self, size_t from, size_t to) { return give(self.words(from, to)); },
             nb::arg("first"), nb::arg("last"))
        .def("level",
             [](const ShardedBuilder& self, unsigned layer) -> nb::object {
                 const auto of = layer_of(layer);
                 if (!self.more(of)) return nb::none();
                 const Level level = self.level(of);
                 return nb::make_tuple(level.lo, level.hi, self.length(of));
             },
             nb::arg("layer"))
        .def("take", &take, nb::arg("layer"), nb::arg("keys"), nb::arg("counts"))
        .def("start", [](ShardedBuilder& self) {
            nb::gil_scoped_release released;
            self.start();
        })
        .def("candidates", &candidates, nb::arg("layer"))
        .def("left", [](const ShardedBuilder& self) { return self.selection().left(); })
        .def("refresh", [](ShardedBuilder& self) {
            nb::gil_scoped_release released;
            self.selection().refresh();
            self.clear_uses();
        })
        .def("alive",
             [](const ShardedBuilder& self, unsigned layer) {
                 const auto alive = self.layer(layer_of(layer)).alive();
                 return give(std::vector<uint8_t>(alive.begin(), alive.end()));
             },
             nb::arg("layer"))
        .def("unit_costs", [](const ShardedBuilder& self, unsigned layer) { return give(std::vector<uint64_t>(self.layer(layer_of(layer)).unit_costs)); },
             nb::arg("layer"))
        .def("set_word_costs",
             [](ShardedBuilder& self, uint64_t first, const In<uint64_t>& costs) { self.set_word_costs(first, view(costs)); },
             nb::arg("first"), nb::arg("costs"))
        .def("add_uses",
             [](ShardedBuilder& self, unsigned layer, const In<uint32_t>& ids, const In<uint64_t>& counts) {
                 self.add_uses(layer_of(layer), view(ids), view(counts));
             },
             nb::arg("layer"), nb::arg("ids"), nb::arg("counts"))
        .def("add_lengths", [](ShardedBuilder& self, const In<uint64_t>& lengths) { self.add_lengths(view(lengths)); },
             nb::arg("lengths"))
        .def("word_weights", [](const ShardedBuilder& self) { return give(self.selection().word_weights()); })
        .def("advance", [](ShardedBuilder& self, unsigned threads) {
            nb::gil_scoped_release released;
            return self.selection().advance(Workers{usable_threads(threads), {}, {}});
        }, nb::arg("threads"))
        .def("finish", [](ShardedBuilder& self) {
            BuiltVocabulary built;
            {
                nb::gil_scoped_release released;
                built = self.finish();
            }
            return give_built(std::move(built));
        });
}

}  // namespace pixnar
