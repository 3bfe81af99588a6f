// Arrays across the border to Python. Only files of this folder see a Python header.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/parallel.hpp"

namespace nb = nanobind;

namespace pixnar {

template <class T> using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <class T> std::span<const T> view(const In<T>& array) { return {array.data(), array.shape(0)}; }
inline std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

template <class T> Out<T> give(std::vector<T>&& values) {
    auto* held = new std::vector<T>(std::move(values));
    nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Out<T>(held->data(), {held->size()}, owner);
}

// Looks for Ctrl-C even when nobody listens. Holds a borrowed reference: the core copies the function while the GIL is
// released, and the caller keeps the callback alive for as long as it runs.
inline Progress from_python(nb::handle callback) {
    return [callback](const std::string& stage, uint64_t done, uint64_t total) {
        nb::gil_scoped_acquire gil;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        if (!callback.is_none() && !stage.empty()) callback(stage, done, total);
    };
}

// Arrays that native views look into, kept alive.
class Holder {
  public:
    template <class T> In<T> hold(const nb::dict& arrays, const char* name) {
        if (!arrays.contains(name)) throw std::invalid_argument(std::string("array ") + name + " is missing");
        In<T> array;
        // No conversion: the views must look into the array that is kept alive, not into a copy of it.
        if (!nb::try_cast(arrays[name], array, false))
            throw std::invalid_argument(std::string("array ") + name + " has the wrong type");
        held_.push_back(nb::borrow(arrays[name]));
        return array;
    }
    template <class T> std::span<const T> get(const nb::dict& arrays, const char* name) {
        return view(hold<T>(arrays, name));
    }
    // Of an argument that may be None.
    template <class T> std::span<const T> get(nb::handle array, const char* name) {
        if (array.is_none()) return {};
        In<T> found;
        if (!nb::try_cast(array, found, false))
            throw std::invalid_argument(std::string("array ") + name + " has the wrong type");
        held_.push_back(nb::borrow(array));
        return view(found);
    }
    void keep(nb::handle object) { held_.push_back(nb::borrow(object)); }

  private:
    std::vector<nb::object> held_;
};

void bind_vocab(nb::module_& m);
void bind_vocab_shards(nb::module_& m);
void bind_docids(nb::module_& m);
void bind_head(nb::module_& m);
void bind_bags(nb::module_& m);
void bind_texts(nb::module_& m);

}  // namespace pixnar
