// SPDX-License-Identifier: GPL-2.0-or-later
//
// File descriptors that close themselves, and an output file that is there whole or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/bytes.hpp"

namespace bootpress {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept;
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd();

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Reads up to out.size() bytes at `offset`, fewer only at the end of the file; returns the count,
// or -1 with errno.
[[nodiscard]] std::int64_t read_at(int fd, std::uint64_t offset, ByteSpan out);

// Writes everything at `offset`; false with errno otherwise.
[[nodiscard]] bool write_at(int fd, std::uint64_t offset, ByteView bytes);

// A temporary file without a name in `directory`; gone when closed.
[[nodiscard]] Fd open_unnamed(const std::string& directory);

// An output that appears under its name only when it is complete. Until commit() it has no name
// (O_TMPFILE), or a hidden temporary one beside the target where the file system has no O_TMPFILE;
// the destructor removes that.
class OutputFile {
 public:
  // Throws `target` where `path` is a directory, a special file, or in a directory that is
  // missing or not writable.
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const std::string& path() const { return path_; }
  void write(std::uint64_t offset, ByteView bytes);
  // Flushes to the disk, then renames over the target.
  void commit();

 private:
  std::string path_;
  std::string temporary_;  // its name beside the target, empty while it has none
  Fd fd_;
};

}  // namespace bootpress
