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
  all.reserve(losses_.size());
  for (auto& [kind, loss] : losses_) all.push_back(std::move(loss));
  losses_.clear();
  return all;
}

AttributeSetter::AttributeSetter(const Tree& tree, const UnpackOptions& options, SkipList& skipped)
    : tree_(tree), options_(options), skipped_(skipped) {}

void AttributeSetter::refuse(std::string_view kind, InodeId id) const {
  const int code = errno;
  const std::string path = tree_.path(id);
  if (!is_refusal(code, kind)) {
    throw system_error(ErrorKind::target, "setting the " + std::string(kind) + " of", "/" + path,
                       code);
  }
  skipped_.add(kind, path);
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
  const bool owned = options_.owners && ::fchown(fd, inode.uid, inode.gid) == 0;
  if (options_.owners && !owned) refuse("owner", id);
  if (options_.xattrs) {
    for (const auto& [name, value] : tree_.xattrs(id)) {
      if (::fsetxattr(fd, name.c_str(), value.data(), value.size(), 0) != 0) refuse("xattr", id);
    }
  }
  if (::fchmod(fd, mode_of(id, owned)) != 0) refuse("mode", id);
  if (::futimens(fd, times_of(inode).data()) != 0) refuse("time", id);
}

void AttributeSetter::set_at(int directory, const std::string& name, InodeId id) const {
  const Inode& inode = tree_[id];
  const char* const at = name.c_str();
  const bool owned =
      options_.owners && ::fchownat(directory, at, inode.uid, inode.gid, AT_SYMLINK_NOFOLLOW) == 0;
  if (options_.owners && !owned) refuse("owner", id);
  if (options_.xattrs && !tree_.xattrs(id).empty()) {
    // There is no setxattrat before Linux 6.13; this path leads through our descriptor.
    const std::string path = "/proc/self/fd/" + std::to_string(directory) + "/" + name;
    for (const auto& [key, value] : tree_.xattrs(id)) {
      if (::lsetxattr(path.c_str(), key.c_str(), value.data(), value.size(), 0) != 0) {
        refuse("xattr", id);
      }
    }
  }
  if (inode.type != FileType::symlink &&
      ::fchmodat(directory, at, mode_of(id, owned), AT_SYMLINK_NOFOLLOW) != 0) {
    refuse("mode", id);
  }
  if (::utimensat(directory, at, times_of(inode).data(), AT_SYMLINK_NOFOLLOW) != 0) {
    refuse("time", id);
  }
}

}  // namespace bootpress
