// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace bootpress {

namespace {

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A hidden name beside `path` that no other run of bootpress uses.
std::string temporary_name(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::size_t start = slash == std::string::npos ? 0 : slash + 1;
  // A name has at most 255 bytes; the target's own may use them all.
  std::string name = path.substr(0, start) + "." + path.substr(start, 200);
  name += "." + std::to_string(getpid()) + ".tmp";
  return name;
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

std::int64_t read_at(int fd, std::uint64_t offset, ByteSpan out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return static_cast<std::int64_t>(done);
}

bool write_at(int fd, std::uint64_t offset, ByteView bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put =
        pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    done += static_cast<std::size_t>(put);
  }
  return true;
}

Fd open_unnamed(const std::string& directory) {
  Fd fd(open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd) return fd;
  // File systems without O_TMPFILE (overlay on old kernels, FUSE, NFS).
  std::string name = directory + "/.bootpress-XXXXXX";
  fd = Fd(mkostemp(name.data(), O_CLOEXEC));
  if (!fd) throw system_error(ErrorKind::target, "cannot create a temporary file in", directory);
  unlink(name.c_str());
  return fd;
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  struct stat status{};
  if (path_.empty() || path_.ends_with('/')) {
    throw Error(ErrorKind::target, "the target '" + path_ + "' names a directory",
                "name a file to write the image to");
  }
  if (lstat(path_.c_str(), &status) == 0) {
    if (S_ISLNK(status.st_mode) && stat(path_.c_str(), &status) != 0) status.st_mode = S_IFREG;
    if (S_ISDIR(status.st_mode)) {
      throw Error(ErrorKind::target, "the target " + path_ + " is a directory",
                  "name a file in it: " + path_ + "/IMAGE");
    }
    if (!S_ISREG(status.st_mode)) {
      throw Error(ErrorKind::target, "the target " + path_ + " is not a regular file",
                  "write to a file first, then copy it to the device");
    }
  }
  const std::string directory = directory_of(path_);
  fd_ = Fd(open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
  if (fd_ && access("/proc/self/fd", X_OK) == 0) return;
  if (!fd_ && errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) {
    throw system_error(ErrorKind::target, "cannot write", path_);
  }
  temporary_ = temporary_name(path_);
  fd_ = Fd(open(temporary_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666));
  if (!fd_) {
    const int code = errno;
    temporary_.clear();
    throw system_error(ErrorKind::target, "cannot write", path_, code);
  }
}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void OutputFile::write(std::uint64_t offset, ByteView bytes) {
  if (!write_at(fd_.get(), offset, bytes)) {
    throw system_error(ErrorKind::target, "cannot write", path_);
  }
}

void OutputFile::commit() {
  if (fdatasync(fd_.get()) != 0) throw system_error(ErrorKind::target, "cannot flush", path_);
  if (temporary_.empty()) {
    const std::string name = temporary_name(path_);
    const std::string self = "/proc/self/fd/" + std::to_string(fd_.get());
    unlink(name.c_str());  // left behind by a killed process with this one's number
    if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      throw system_error(ErrorKind::target, "cannot name", path_);
    }
    temporary_ = name;
  }
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw system_error(ErrorKind::target, "cannot rename to", path_);
  }
  temporary_.clear();
}

}  // namespace bootpress
