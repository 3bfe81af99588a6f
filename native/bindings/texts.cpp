// Sorted texts in flat arrays, on the Python side of the border.
#include "bindings/arrays.hpp"
#include "common/near_texts.hpp"
#include "common/sorted_texts.hpp"

namespace pixnar {

namespace {

// Where each of some texts is among those of the arrays, -1 where it is not.
Out<int64_t> find_sorted(const In<uint8_t>& bytes, const In<int64_t>& offsets, const nb::sequence& wanted) {
    const SortedTexts texts(view(bytes), view(offsets));
    std::vector<int64_t> found;
    for (nb::handle one : wanted) found.push_back(texts.find(view(nb::cast<nb::bytes>(one))));
    return give(std::move(found));
}

// Where the texts one edit away from another are, ascending.
Out<int64_t> near_sorted(const In<uint8_t>& bytes, const In<int64_t>& offsets, const nb::bytes& text) {
    const SortedTexts texts(view(bytes), view(offsets));
    return give(NearTexts(texts).find(view(text)));
}

}  // namespace

void bind_texts(nb::module_& m) {
    m.def("find_sorted", &find_sorted, nb::arg("bytes"), nb::arg("offsets"), nb::arg("wanted"), nb::rv_policy::move);
    m.def("near_sorted", &near_sorted, nb::arg("bytes"), nb::arg("offsets"), nb::arg("text"), nb::rv_policy::move);
}

}  // namespace pixnar
