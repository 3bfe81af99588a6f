// The border of products with the docid-token matrix.
#include "bindings/arrays.hpp"
#include "head/bags.hpp"

namespace pixnar {

namespace {

using Dense = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Changed = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Product = void (*)(const head::Bags&, const float*, size_t, float*, const Workers&);

void apply(const In<uint32_t>& ids, const In<int64_t>& offsets, const Dense& dense, const Changed& out, unsigned threads,
           size_t rows, Product product) {
    if (dense.shape(1) != out.shape(1)) throw std::invalid_argument("the two arrays have different widths");
    const Progress callback = from_python(nb::none());
    nb::gil_scoped_release released;
    const head::Bags bags{view(ids), view(offsets)};
    bags.check(rows);
    product(bags, dense.data(), dense.shape(1), out.data(), Workers{usable_threads(threads), callback, {}});
}

void check_bags(const In<int64_t>& offsets, size_t given) {
    if (offsets.shape(0) != given + 1)
        throw std::invalid_argument(std::to_string(given) + " rows for " + std::to_string(offsets.shape(0)) + " offsets");
}

}  // namespace

void bind_bags(nb::module_& m) {
    // `out` is never converted: the product would be written to the copy.
    m.def("bag_sums",
          [](const In<uint32_t>& ids, const In<int64_t>& offsets, const Dense& rows, const Changed& out, unsigned threads) {
              check_bags(offsets, out.shape(0));
              apply(ids, offsets, rows, out, threads, rows.shape(0), head::bag_sums);
          },
          nb::arg("ids"), nb::arg("offsets"), nb::arg("rows"), nb::arg("out").noconvert(), nb::arg("threads"));
    m.def("bag_scatter",
          [](const In<uint32_t>& ids, const In<int64_t>& offsets, const Dense& values, const Changed& out, unsigned threads) {
              check_bags(offsets, values.shape(0));
              apply(ids, offsets, values, out, threads, out.shape(0), head::bag_scatter);
          },
          nb::arg("ids"), nb::arg("offsets"), nb::arg("values"), nb::arg("out").noconvert(), nb::arg("threads"));
    m.def("bag_gram",
          [](const In<uint32_t>& ids, const In<int64_t>& offsets, const Dense& rows, const Changed& out, unsigned threads) {
              if (rows.shape(0) != out.shape(0)) throw std::invalid_argument("the two arrays have different lengths");
              apply(ids, offsets, rows, out, threads, out.shape(0), head::bag_gram);
          },
          nb::arg("ids"), nb::arg("offsets"), nb::arg("rows"), nb::arg("out").noconvert(), nb::arg("threads"));
}

}  // namespace pixnar
