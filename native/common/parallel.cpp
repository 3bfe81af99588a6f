#include "common/parallel.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace pixnar {

unsigned usable_threads(unsigned wanted) {
    if (wanted > 0) return wanted;
    const unsigned found = std::thread::hardware_concurrency();
    return found > 0 ? found : 1;
}

void Workers::run(size_t n, const std::function<void(size_t, unsigned)>& item) const {
    if (n == 0) return;
    if (threads <= 1 && !progress) {
        for (size_t i = 0; i < n; ++i) item(i, 0);
        return;
    }
    std::atomic<size_t> next{0}, done{0};
    std::atomic<bool> stop{false};
    std::mutex mutex;
    std::condition_variable idle;
    std::exception_ptr failure;
    unsigned running = threads;

    auto work = [&](unsigned thread) {
        try {
            for (size_t i; !stop && (i = next++) < n; ++done) item(i, thread);
        } catch (...) {
            std::lock_guard lock(mutex);
            if (!failure) failure = std::current_exception();
            stop = true;
        }
        std::lock_guard lock(mutex);
        --running;
        idle.notify_one();
    };
    std::vector<std::thread> pool;
    pool.reserve(threads);
    try {
        for (unsigned t = 0; t < threads; ++t) pool.emplace_back(work, t);
    } catch (const std::system_error&) {
        // No more threads are to be had: those that started do the work, or this one does.
        std::unique_lock lock(mutex);
        running -= threads - static_cast<unsigned>(pool.size());
        lock.unlock();
        if (pool.empty()) {
            ++running;
            work(0);
        }
    }
    {
        std::unique_lock lock(mutex);
        while (running > 0) {
            idle.wait_for(lock, std::chrono::milliseconds(100));
            if (running == 0 || !progress || stop) continue;
            lock.unlock();
            try {
                progress(stage, done, n);
                lock.lock();
            } catch (...) {
                lock.lock();
                if (!failure) failure = std::current_exception();
                stop = true;
            }
        }
    }
    for (auto& thread : pool) thread.join();
    if (failure) std::rethrow_exception(failure);
    if (progress) progress(stage, n, n);
}

}  // namespace pixnar
