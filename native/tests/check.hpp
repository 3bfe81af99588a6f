// Checks that print where they fail and what they saw. A test program ends with `return checks_done();`.
#pragma once
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

namespace pixnar::test {

inline uint64_t passed = 0, failed = 0;

inline std::string shown(std::string_view text) {
    std::string out = "\"";
    for (const char c : text.substr(0, 200)) {
        char buffer[8];
        const auto byte = static_cast<unsigned char>(c);
        std::snprintf(buffer, sizeof buffer, byte < 0x20 || byte >= 0x7f || c == '\\' ? "\\x%02x" : "%c", byte);
        out += buffer;
    }
    return out + (text.size() > 200 ? "\"..." : "\"");
}

template <class T> std::string shown(const T& value) {
    std::ostringstream out;
    if constexpr (std::is_convertible_v<const T&, std::string_view>) return shown(std::string_view(value));
    else if constexpr (std::is_same_v<T, bool>) out << (value ? "true" : "false");
    else if constexpr (std::is_enum_v<T>) out << +static_cast<std::underlying_type_t<T>>(value);
    else if constexpr (std::is_arithmetic_v<T>) out << +value;
    else {
        out << value.size() << " {";
        size_t n = 0;
        for (const auto& item : value) {
            if (n++ == 40) {
                out << " ...";
                break;
            }
            out << ' ' << shown(item);
        }
        out << " }";
    }
    return out.str();
}

// Only the first failures are worth reading; a broken kernel would print thousands.
inline bool report(bool good, const char* file, int line, const std::string& what) {
    ++(good ? passed : failed);
    if (!good && failed <= 20) std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
    return good;
}

template <class A, class B>
bool equal(const A& a, const B& b, const char* file, int line, const char* a_text, const char* b_text) {
    if (a == b) {
        ++passed;
        return true;
    }
    return report(false, file, line,
                  std::string(a_text) + " == " + b_text + "\n  left:  " + shown(a) + "\n  right: " + shown(b));
}

template <class Error, class Call>
bool throws(Call call, std::string_view message, const char* file, int line) {
    try {
        call();
    } catch (const Error& error) {
        if (std::string_view(error.what()).find(message) != std::string_view::npos) {
            ++passed;
            return true;
        }
        return report(false, file, line, "wanted " + shown(message) + " in " + shown(std::string_view(error.what())));
    } catch (const std::exception& error) {
        return report(false, file, line, "another exception: " + shown(std::string_view(error.what())));
    }
    return report(false, file, line, "nothing was thrown; wanted " + shown(message));
}

inline int checks_done() {
    std::printf("%llu passed, %llu failed\n", static_cast<unsigned long long>(passed),
                static_cast<unsigned long long>(failed));
    return failed > 0 || passed == 0;
}

}  // namespace pixnar::test

#define CHECK(condition) ::pixnar::test::report(static_cast<bool>(condition), __FILE__, __LINE__, #condition)
#define CHECK_EQ(a, b) ::pixnar::test::equal((a), (b), __FILE__, __LINE__, #a, #b)
#define CHECK_THROWS(error, message, call) \
    ::pixnar::test::throws<error>([&] { (void)(call); }, message, __FILE__, __LINE__)
