// SPDX-License-Identifier: GPL-2.0-or-later
//
// The bytes an image is made of: a file, a block device, or memory.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "base/file.hpp"
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
  FileBytes(Fd fd, std::string path, FilePart part = {})
      : fd_(std::move(fd)), path_(std::move(path)), start_(part.offset) {
    measure(part);
  }

  [[nodiscard]] std::uint64_t size() const override { return size_; }

  void read(std::uint64_t offset, ByteSpan out) const override {
    check_range(offset, out.size(), size_);
    while (!out.empty()) {
      const ssize_t got =
          ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(start_ + offset));
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
  void measure(FilePart part) {
    struct stat status{};
    if (::fstat(fd_.get(), &status) != 0) fail();
    if (S_ISDIR(status.st_mode)) {
      throw Error(ErrorKind::source, path_ + " is a directory, not a SquashFS image");
    }
    if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) {
      throw Error(ErrorKind::source, path_ + " is neither a regular file nor a block device");
    }
    const off_t end = ::lseek(fd_.get(), 0, SEEK_END);  // st_size is 0 for a block device
    if (end < 0) fail();
    check_range(part.offset, part.length, static_cast<std::uint64_t>(end));
    size_ = part.length > 0 ? part.length : static_cast<std::uint64_t>(end) - part.offset;
  }
  [[noreturn]] void fail() const { throw system_error(ErrorKind::source, "reading", path_); }

  Fd fd_;
  std::string path_;
  std::uint64_t start_;  // of the image, in the file
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

std::shared_ptr<const ImageBytes> open_image_file(const std::filesystem::path& path,
                                                  FilePart part) {
  // O_NONBLOCK: a fifo in the image's place is refused instead of waited for.
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw system_error(ErrorKind::source, "opening", path.native());
  return std::make_shared<FileBytes>(std::move(fd), path.native(), part);
}

std::shared_ptr<const ImageBytes> open_image_descriptor(int descriptor, const std::string& name) {
  Fd fd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!fd) throw system_error(ErrorKind::source, "opening", name);
  return std::make_shared<FileBytes>(std::move(fd), name);
}

std::shared_ptr<const ImageBytes> image_in_memory(ByteView bytes) {
  return std::make_shared<MemoryBytes>(bytes);
}

}  // namespace bootpress
