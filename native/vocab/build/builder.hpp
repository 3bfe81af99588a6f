// From normalised docids to the tokens of a phrase vocabulary.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>

#include "common/parallel.hpp"
#include "vocab/build/options.hpp"

namespace pixnar {

class Builder {
  public:
    explicit Builder(const BuildOptions& options);
    ~Builder();
    void add_lines(std::string_view normalised);  // one docid per line
    uint64_t rows() const;
    BuiltVocabulary build(const Progress& progress);  // once; a second call throws

  private:
    struct Work;
    Work& work() const;
    std::unique_ptr<Work> work_;  // gone after build
};

}  // namespace pixnar
