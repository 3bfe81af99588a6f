#include "head/dispatch.hpp"

#include <atomic>
#include <stdexcept>
#include <string>

#if defined(PIXNAR_AVX2)
#include <cpuid.h>
#endif
#if defined(PIXNAR_DOTPROD) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace pixnar::head {

namespace {

std::atomic<const Kernels*> chosen{nullptr};

#if defined(PIXNAR_AVX2)
bool has_f16c() {  // not every compiler's __builtin_cpu_supports knows it
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29)) != 0;
}
#endif

#if defined(PIXNAR_DOTPROD)
bool has_dotprod() {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & (1UL << 20)) != 0;  // HWCAP_ASIMDDP
#elif defined(__APPLE__)
    return true;  // every 64-bit Mac
#else
    return false;
#endif
}
#endif

}  // namespace

std::vector<const Kernels*> runnable() {
    std::vector<const Kernels*> found;
#if defined(PIXNAR_AVX512)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
        found.push_back(&avx512_kernels);
#endif
#if defined(PIXNAR_AVX2)
    if (__builtin_cpu_supports("avx2") && has_f16c()) found.push_back(&avx2_kernels);
#endif
#if defined(PIXNAR_DOTPROD)
    if (has_dotprod()) found.push_back(&dotprod_kernels);
#endif
#if defined(PIXNAR_NEON)
    found.push_back(&neon_kernels);
#endif
    found.push_back(&portable_kernels);
    return found;
}

const Kernels& kernels() {
    const Kernels* now = chosen.load(std::memory_order_acquire);
    if (!now) {
        now = runnable().front();
        chosen.store(now, std::memory_order_release);
    }
    return *now;
}

void use_path(std::string_view name) {
    if (name.empty()) return chosen.store(nullptr);
    std::string known;
    for (const Kernels* one : runnable()) {
        if (one->name == name) return chosen.store(one);
        known += (known.empty() ? "" : ", ") + std::string(one->name);
    }
    throw std::invalid_argument("this machine does not run the path '" + std::string(name) + "': it runs " + known);
}

}  // namespace pixnar::head
