// SPDX-License-Identifier: GPL-2.0-or-later
#include "image/attributes.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace bootpress {

namespace {

constexpr mode_t kSetIdBits = S_ISUID | S_ISGID;

// The caller lacks a privilege, or the target's file system the feature. EINVAL is what chown
// says inside a user namespace that does not map the owner.
bool is_refusal(int code, std::string_view kind) {
  return code == EPERM || code == EACCES || code == EOPNOTSUPP ||
         (code == EINVAL && kind == "owner");
}

std::array<timespec, 2> times_of(const Inode& inode) {
  const timespec time{.tv_sec = static_cast<time_t>(inode.mtime), .tv_nsec = 0};
  return {time, time};  // an image has no access time
}

}  // namespace

void SkipList::add(std::string_view kind, const std::string& path) {
  const std::lock_guard lock(mutex_);
  auto& loss = losses_[std::string(kind)];
  if (loss.count == 0) loss = {.kind = std::string(kind), .count = 0, .example = path};
  ++loss.count;
}

std::vector<Loss> SkipList::take() {
  std::vector<Loss> all;
  for (auto& [kind, loss] : losses_) all.push_back(std::move(loss));
  losses_.clear();
  return all;
}

AttributeSetter::AttributeSetter(const Tree& tree, const UnpackOptions& options, SkipList& skipped)
    : tree_(tree), options_(options), skipped_(skipped) {}

bool AttributeSetter::check(int result, std::string_view kind, InodeId id) const {
  if (result == 0) return true;
  const int code = errno;
  if (!is_refusal(code, kind)) {
    throw system_error(ErrorKind::target, "setting the " + std::string(kind) + " of",
                       "/" + tree_.path(id), code);
  }
  skipped_.add(kind, tree_.path(id));
  return false;
}

// A set-id bit must not lend the caller's own identity to a file that was another's.
mode_t AttributeSetter::mode_of(InodeId id, bool owned) const {
  const Inode& inode = tree_[id];
  const mode_t mode = inode.mode;
  if (owned || inode.type == FileType::directory || (mode & kSetIdBits) == 0) return mode;
  if (inode.uid == ::geteuid() && inode.gid == ::getegid()) return mode;
  skipped_.add("set-id bits", tree_.path(id));
  return mode & ~kSetIdBits;
}

void AttributeSetter::set(int fd, InodeId id) const {
  const Inode& inode = tree_[id];
  const bool owned = options_.owners && check(::fchown(fd, inode.uid, inode.gid), "owner", id);
  if (options_.xattrs) {
    for (const Xattr& xattr : tree_.xattrs(id)) {
      check(::fsetxattr(fd, xattr.name.c_str(), xattr.value.data(), xattr.value.size(), 0), "xattr",
            id);
    }
  }
  check(::fchmod(fd, mode_of(id, owned)), "mode", id);
  check(::futimens(fd, times_of(inode).data()), "time", id);
}

void AttributeSetter::set_at(int directory, const std::string& name, InodeId id) const {
  const Inode& inode = tree_[id];
  const bool owned = options_.owners && check(::fchownat(directory, name.c_str(), inode.uid,
                                                         inode.gid, AT_SYMLINK_NOFOLLOW),
                                              "owner", id);
  if (options_.xattrs && !tree_.xattrs(id).empty()) {
    // There is no setxattrat before Linux 6.13; this path leads through our descriptor.
    const std::string path = "/proc/self/fd/" + std::to_string(directory) + "/" + name;
    for (const Xattr& xattr : tree_.xattrs(id)) {
      check(
          ::lsetxattr(path.c_str(), xattr.name.c_str(), xattr.value.data(), xattr.value.size(), 0),
          "xattr", id);
    }
  }
  if (inode.type != FileType::symlink) {
    check(::fchmodat(directory, name.c_str(), mode_of(id, owned), AT_SYMLINK_NOFOLLOW), "mode", id);
  }
  check(::utimensat(directory, name.c_str(), times_of(inode).data(), AT_SYMLINK_NOFOLLOW), "time",
        id);
}

}  // namespace bootpress
