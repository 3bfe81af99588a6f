#include "vocab/build/scratch.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace pixnar {
namespace {

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

constexpr size_t buffer_bytes = size_t{1} << 20;

}  // namespace

TempFile::TempFile(const std::string& folder) {
    std::string name = folder + "/pixnar-XXXXXX";
    fd_ = mkostemp(name.data(), O_CLOEXEC);
    if (fd_ < 0) fail("cannot create a temporary file");
    unlink(name.c_str());
}

TempFile::~TempFile() { close(fd_); }

uint64_t TempFile::append(const void* data, size_t bytes) {
    const uint64_t offset = size_;
    write(offset, data, bytes);
    size_ += bytes;
    return offset;
}

void TempFile::write(uint64_t offset, const void* data, size_t bytes) const {
    for (const char* p = static_cast<const char*>(data); bytes > 0;) {
        const ssize_t n = pwrite(fd_, p, bytes, static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("cannot write a temporary file");
        p += n;
        offset += static_cast<uint64_t>(n);
        bytes -= static_cast<size_t>(n);
    }
}

void TempFile::read(uint64_t offset, void* data, size_t bytes) const {
    for (char* p = static_cast<char*>(data); bytes > 0;) {
        const ssize_t n = pread(fd_, p, bytes, static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail("cannot read a temporary file");
        p += n;
        offset += static_cast<uint64_t>(n);
        bytes -= static_cast<size_t>(n);
    }
}

void BufferedWriter::put(const void* data, size_t bytes) {
    buffer_.append(static_cast<const char*>(data), bytes);
    if (buffer_.size() >= buffer_bytes) flush();
}

void BufferedWriter::flush() {
    if (!buffer_.empty()) file_.append(buffer_.data(), buffer_.size());
    buffer_.clear();
}

void BufferedReader::need(size_t bytes) {
    if (buffer_.size() - used_ >= bytes) return;
    buffer_.erase(0, used_);
    used_ = 0;
    const size_t have = buffer_.size();
    const auto more = static_cast<size_t>(std::min<uint64_t>(end_ - at_, std::max(bytes - have, buffer_bytes)));
    if (have + more < bytes) throw std::logic_error("read past the end of a temporary file");
    buffer_.resize(have + more);
    file_->read(at_, buffer_.data() + have, more);
    at_ += more;
}

void BufferedReader::get(void* data, size_t bytes) {
    need(bytes);
    std::memcpy(data, buffer_.data() + used_, bytes);
    used_ += bytes;
}

std::string_view BufferedReader::get(size_t bytes) {
    need(bytes);
    used_ += bytes;
    return {buffer_.data() + used_ - bytes, bytes};
}

}  // namespace pixnar
