// Worker threads that report progress and can be stopped from the calling thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace pixnar {

// Called on the thread that started the work, a few times a second. May throw: the work is then abandoned. An empty
// stage only asks whether to go on.
using Progress = std::function<void(const std::string& stage, uint64_t done, uint64_t total)>;

struct Workers {
    unsigned threads = 1;
    Progress progress;
    std::string stage;

    Workers named(std::string name) const { return {threads, progress, std::move(name)}; }
    Workers silent() const { return named({}); }

    // Runs item(i, thread) for i in [0, n), in any order, on all threads.
    void run(size_t n, const std::function<void(size_t item, unsigned thread)>& item) const;
};

unsigned usable_threads(unsigned wanted);

}  // namespace pixnar
