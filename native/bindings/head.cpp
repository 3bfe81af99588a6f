// The phrase rows' side of the border.
#include <nanobind/stl/vector.h>

#include "bindings/held_table.hpp"
#include "head/dispatch.hpp"
#include "head/lists.hpp"
#include "head/norms.hpp"
#include "head/score.hpp"
#include "head/top.hpp"

namespace pixnar {

namespace {

// An argument that may be None: all tokens below `all`.
head::Tokens tokens_of(Holder& holder, nb::handle ids, size_t all) {
    if (ids.is_none()) return {nullptr, all};
    const auto given = holder.get<uint32_t>(ids, "ids");
    static constexpr uint32_t none = 0;  // an empty array may have no address, which would mean all tokens
    return {given.empty() ? &none : given.data(), given.size()};
}

nb::tuple give_best(const std::vector<std::vector<head::Best>>& found) {
    std::vector<uint32_t> tokens;
    std::vector<float> logits;
    std::vector<int64_t> offsets{0};
    for (const auto& slot : found) {
        for (const head::Best& one : slot) {
            tokens.push_back(one.token);
            logits.push_back(one.logit);
        }
        offsets.push_back(static_cast<int64_t>(tokens.size()));
    }
    return nb::make_tuple(give(std::move(tokens)), give(std::move(logits)), give(std::move(offsets)));
}

class HeldRows {
  public:
    HeldRows(nb::handle data, const std::string& format, uint32_t count, uint32_t dim, size_t stride, nb::handle scales,
             nb::handle bias, nb::handle places) {
        rows_ = {holder_.get<uint8_t>(data, "data"), head::format_named(format), count, dim, stride,
                 holder_.get<float>(scales, "scales"), holder_.get<float>(bias, "bias"), holder_.get<uint32_t>(places, "places")};
        nb::gil_scoped_release released;
        rows_.check();
    }

    Out<float> logits(const In<float>& x, size_t slots, nb::handle ids, unsigned threads) const {
        Holder holder;
        const auto tokens = tokens_of(holder, ids, rows_.count);
        std::vector<float> found;
        {
            nb::gil_scoped_release released;
            found = head::logits(rows_, view(x), slots, tokens, usable_threads(threads));
        }
        return give(std::move(found));
    }

    nb::tuple top(const In<float>& x, size_t slots, nb::handle ids, size_t n, unsigned threads) const {
        Holder holder;
        const auto tokens = tokens_of(holder, ids, rows_.count);
        std::vector<std::vector<head::Best>> found;
        {
            nb::gil_scoped_release released;
            found = head::top(rows_, view(x), slots, tokens, n, usable_threads(threads));
        }
        return give_best(found);
    }

    nb::tuple top_each(const In<float>& x, size_t slots, const In<uint32_t>& ids, const In<int64_t>& offsets, size_t n,
                       unsigned threads) const {
        std::vector<std::vector<head::Best>> found;
        {
            nb::gil_scoped_release released;
            found = head::top_each(rows_, view(x), slots, view(ids), view(offsets), n, usable_threads(threads));
        }
        return give_best(found);
    }

    nb::tuple score(const In<float>& x, nb::handle ids, const In<uint32_t>& own, int order, bool normalize, double copy,
                    double prior_weight, double scale, bool ends, nb::handle floors, const In<float>& token_priors,
                    const In<float>& end_priors, const In<float>& log_z, nb::handle bonus, size_t expansion,
                    unsigned threads) const {
        if (order < 0 || order > static_cast<int>(head::Matching::slots)) throw std::invalid_argument("no such order");
        Holder holder;
        const auto tokens = tokens_of(holder, ids, rows_.count == 0 ? 0 : rows_.count - 1);
        const head::ScoreRule rule{static_cast<head::Matching>(order), normalize, ends, copy, prior_weight, scale,
                                   !floors.is_none(), holder.get<float>(floors, "floors"), view(token_priors),
                                   view(end_priors), view(log_z), holder.get<float>(bonus, "bonus")};
        head::Scores found;
        {
            nb::gil_scoped_release released;
            found = head::score(rows_, rule, view(x), tokens, view(own), expansion, usable_threads(threads));
        }
        return nb::make_tuple(give(std::move(found.tokens)), give(std::move(found.scores)), give(std::move(found.offsets)),
                              give(std::move(found.ends)), found.dense, give(std::move(found.expansion)),
                              give(std::move(found.gains)));
    }

    const head::Rows& rows() const { return rows_; }

  private:
    Holder holder_;
    head::Rows rows_;
};

Out<uint32_t> union_of(const In<uint32_t>& lists, const In<int64_t>& offsets, const In<int64_t>& chosen, const In<uint32_t>& extra,
                       uint32_t vocabulary) {
    std::vector<uint32_t> found;
    {
        nb::gil_scoped_release released;
        found = head::union_of(view(lists), view(offsets), view(chosen), view(extra), vocabulary);
    }
    return give(std::move(found));
}

Out<float> docid_norms_py(const HeldTable& table, const HeldRows& rows, uint32_t slots, unsigned threads) {
    std::vector<float> norms;
    {
        nb::gil_scoped_release released;
        norms = head::docid_norms(*table.table, rows.rows(), slots, Workers{usable_threads(threads), {}, {}});
    }
    return give(std::move(norms));
}

}  // namespace

void bind_head(nb::module_& m) {
    m.def("head_paths", [] {
        std::vector<std::string> names;
        for (const head::Kernels* one : head::runnable()) names.emplace_back(one->name);
        return names;
    });
    m.def("use_head_path", [](const std::string& name) {
        head::use_path(name);
        return std::string(head::kernels().name);
    }, nb::arg("name"));
    m.def("head_stride", [](const std::string& format, uint32_t dim) { return head::stride_for(head::format_named(format), dim); },
          nb::arg("format"), nb::arg("dim"));
    m.def("union_of_lists", &union_of, nb::arg("lists"), nb::arg("offsets"), nb::arg("chosen"), nb::arg("extra"), nb::arg("vocabulary"));
    nb::class_<HeldRows>(m, "HeadRows")
        .def(nb::init<nb::handle, const std::string&, uint32_t, uint32_t, size_t, nb::handle, nb::handle, nb::handle>(),
             nb::arg("data"), nb::arg("format"), nb::arg("count"), nb::arg("dim"), nb::arg("stride"), nb::arg("scales").none(),
             nb::arg("bias").none(), nb::arg("places").none())
        .def("logits", &HeldRows::logits, nb::arg("x"), nb::arg("slots"), nb::arg("ids").none(), nb::arg("threads"))
        .def("top", &HeldRows::top, nb::arg("x"), nb::arg("slots"), nb::arg("ids").none(), nb::arg("n"), nb::arg("threads"))
        .def("top_each", &HeldRows::top_each, nb::arg("x"), nb::arg("slots"), nb::arg("ids"), nb::arg("offsets"), nb::arg("n"),
             nb::arg("threads"))
        .def("score", &HeldRows::score, nb::arg("x"), nb::arg("ids").none(), nb::arg("own"), nb::arg("order"),
             nb::arg("normalize"), nb::arg("copy"), nb::arg("prior_weight"), nb::arg("scale"), nb::arg("ends"),
             nb::arg("floors").none(), nb::arg("token_priors"), nb::arg("end_priors"), nb::arg("log_z"), nb::arg("bonus").none(), nb::arg("expansion"),
             nb::arg("threads"));
    m.def("docid_norms", &docid_norms_py, nb::arg("table"), nb::arg("rows"), nb::arg("slots"), nb::arg("threads"));
}

}  // namespace pixnar
