// SPDX-License-Identifier: GPL-2.0-or-later
//
// The bytes an image is made of: a file, a block device, or memory.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "image/image.hpp"

namespace bootpress {

namespace {

void check_range(std::uint64_t offset, std::size_t length, std::uint64_t size) {
  if (offset > size || length > size - offset) {
    throw Error(ErrorKind::corrupt, "the image is cut short: " + std::to_string(length) +
                                        " bytes at offset " + std::to_string(offset) +
                                        " lie behind its end (" + std::to_string(size) + ")");
  }
}

class FileBytes final : public ImageBytes {
 public:
  FileBytes(int fd, std::string path) : fd_(fd), path_(std::move(path)) { measure(); }
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;
  ~FileBytes() override { ::close(fd_); }

  [[nodiscard]] std::uint64_t size() const override { return size_; }

  void read(std::uint64_t offset, ByteSpan out) const override {
    check_range(offset, out.size(), size_);
    while (!out.empty()) {
      const ssize_t got = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
      if (got < 0) {
        if (errno == EINTR) continue;
        throw system_error(ErrorKind::source, "reading", path_);
      }
      if (got == 0) check_range(offset, out.size(), offset);  // shrank since it was opened
      out = out.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
  }

 private:
  void measure() {
    struct stat status{};
    if (::fstat(fd_, &status) != 0) fail();
    if (S_ISDIR(status.st_mode)) {
      fail_with(path_ + " is a directory, not a SquashFS image");
    }
    if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) {
      fail_with(path_ + " is neither a regular file nor a block device");
    }
    const off_t end = ::lseek(fd_, 0, SEEK_END);  // st_size is 0 for a block device
    if (end < 0) fail();
    size_ = static_cast<std::uint64_t>(end);
  }
  // The destructor does not run for an object whose constructor throws.
  [[noreturn]] void fail() {
    const int code = errno;
    ::close(fd_);
    throw system_error(ErrorKind::source, "reading", path_, code);
  }
  [[noreturn]] void fail_with(const std::string& message) {
    ::close(fd_);
    throw Error(ErrorKind::source, message);
  }

  int fd_;
  std::string path_;
  std::uint64_t size_ = 0;
};

class MemoryBytes final : public ImageBytes {
 public:
  explicit MemoryBytes(ByteView bytes) : bytes_(bytes) {}
  [[nodiscard]] std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, ByteSpan out) const override {
    check_range(offset, out.size(), bytes_.size());
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }

 private:
  ByteView bytes_;
};

}  // namespace

std::shared_ptr<const ImageBytes> open_image_file(const std::filesystem::path& path) {
  // O_NONBLOCK: a fifo in the image's place is refused instead of waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw system_error(ErrorKind::source, "opening", path.native());
  return std::make_shared<FileBytes>(fd, path.native());
}

std::shared_ptr<const ImageBytes> image_in_memory(ByteView bytes) {
  return std::make_shared<MemoryBytes>(bytes);
}

}  // namespace bootpress
