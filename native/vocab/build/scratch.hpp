// The builder's working space: a memory budget, and unnamed temporary files for what exceeds it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pixnar {

// A file without a name: it is gone when closed, however the process ends. Reads and writes at an offset may come from
// several threads.
class TempFile {
  public:
    explicit TempFile(const std::string& folder);
    ~TempFile();
    TempFile(const TempFile&) = delete;
    TempFile& operator=(const TempFile&) = delete;

    uint64_t append(const void* data, size_t bytes);  // returns where it went
    void write(uint64_t offset, const void* data, size_t bytes) const;
    void read(uint64_t offset, void* data, size_t bytes) const;
    uint64_t size() const { return size_; }

  private:
    int fd_;
    uint64_t size_ = 0;
};

// Lines and numbers through a buffer, to the end of a file or from its start.
class BufferedWriter {
  public:
    explicit BufferedWriter(TempFile& file) : file_(file) {}
    ~BufferedWriter() = default;
    void put(const void* data, size_t bytes);
    void flush();

  private:
    TempFile& file_;
    std::string buffer_;
};

class BufferedReader {
  public:
    BufferedReader(const TempFile& file, uint64_t begin, uint64_t end) : file_(&file), at_(begin), end_(end) {}
    bool done() const { return at_ == end_ && used_ == buffer_.size(); }
    void get(void* data, size_t bytes);
    std::string_view get(size_t bytes);  // valid until the next call

  private:
    void need(size_t bytes);
    const TempFile* file_;
    uint64_t at_, end_;
    std::string buffer_;
    size_t used_ = 0;
};

struct Scratch {
    std::string folder;
    uint64_t max_memory;
    uint64_t in_use = 0;
    uint64_t spilled = 0;  // bytes that went to disk

    // Takes `bytes` of the budget if at least `reserve` stay free for what cannot be spilled.
    bool take(uint64_t bytes, uint64_t reserve) {
        if (in_use + bytes + reserve > max_memory) return false;
        in_use += bytes;
        return true;
    }
    uint64_t left() const { return in_use < max_memory ? max_memory - in_use : 0; }
};

}  // namespace pixnar
