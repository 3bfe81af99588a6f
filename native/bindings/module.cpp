#include <system_error>

#include "bindings/arrays.hpp"

NB_MODULE(_native, m) {
    m.doc() = "The native core of pixnar.";
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const std::system_error& error) {
            PyErr_SetString(PyExc_OSError, error.what());
        }
    });
    nb::set_leak_warnings(false);  // a vocabulary that lives until the interpreter ends is no leak
    pixnar::bind_vocab(m);
    pixnar::bind_vocab_shards(m);
    pixnar::bind_docids(m);
    pixnar::bind_head(m);
    pixnar::bind_bags(m);
    pixnar::bind_texts(m);
}
