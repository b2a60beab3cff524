// SPDX-License-Identifier: GPL-2.0-or-later
#include "image/beneath.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <climits>

namespace bootpress {

namespace {

constexpr int kFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;

Fd open_by_openat2(int root, const std::string& path) {
  struct open_how how{};
  how.flags = kFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return Fd(static_cast<int>(::syscall(SYS_openat2, root, path.c_str(), &how, sizeof how)));
}

Fd open_by_components(int root, std::string_view path) {
  Fd at(::openat(root, ".", kFlags));
  while (at && !path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string component(path.substr(0, slash));
    path = slash == std::string_view::npos ? std::string_view{} : path.substr(slash + 1);
    at = Fd(::openat(at.get(), component.c_str(), kFlags | O_NOFOLLOW));
  }
  return at;
}

}  // namespace

Fd open_directory_beneath(int root, const std::string& path, Beneath how) {
  // ENOSYS: before Linux 5.6. EPERM: a seccomp filter that does not know the call (older container
  // runtimes); the call itself never fails that way.
  static std::atomic<bool> has_openat2{true};
  if (how == Beneath::automatic && has_openat2 && !path.empty() && path.size() < PATH_MAX) {
    Fd opened = open_by_openat2(root, path);
    if (opened || (errno != ENOSYS && errno != EPERM)) return opened;
    has_openat2 = false;
  }
  return open_by_components(root, path);
}

int DirectoryCache::try_open(InodeId directory) {
  if (directory == 0) return root_;
  Slot& slot = slots_[directory % kSlots];
  if (slot.directory != directory) {
    slot.directory = kNoInode;
    slot.fd = open_directory_beneath(root_, tree_.path(directory));
    if (!slot.fd) return -1;
    slot.directory = directory;
  }
  return slot.fd.get();
}

int DirectoryCache::open(InodeId directory) {
  const int fd = try_open(directory);
  if (fd >= 0) return fd;
  const int code = errno;
  const std::string path = tree_.path(directory);
  if (code == ELOOP || code == ENOTDIR || code == EXDEV || code == ENOENT) {
    throw Error(ErrorKind::target,
                "someone replaced the directory " + path + " while it was unpacked into",
                "unpack where nobody else can write");
  }
  throw system_error(ErrorKind::target, "opening", path, code);
}

}  // namespace bootpress
