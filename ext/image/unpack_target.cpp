// SPDX-License-Identifier: GPL-2.0-or-later
#include "image/unpack_target.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <memory>

namespace bootpress {

UnpackTarget::UnpackTarget(std::filesystem::path path)
    : path_(std::move(path)), made_(::mkdir(path_.c_str(), kWhileWorking) == 0) {
  if (!made_ && errno != EEXIST) {
    throw system_error(ErrorKind::target, "creating", path_.native());
  }
  const int no_follow = made_ ? O_NOFOLLOW : 0;  // a link to an existing directory is the caller's
  fd_ = Fd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | no_follow));
  if (!fd_) throw system_error(ErrorKind::target, "opening", path_.native());
  if (made_) return;
  if (!is_empty()) {
    throw Error(ErrorKind::target, path_.native() + " is not empty",
                "name a new directory, or an empty one");
  }
  struct stat status{};
  if (::fstat(fd_.get(), &status) == 0) old_mode_ = status.st_mode & 07777;
  (void)::fchmod(fd_.get(), kWhileWorking);  // refused where it is another's: then that one may
}

bool UnpackTarget::is_empty() const {
  struct Close {
    void operator()(DIR* stream) const { ::closedir(stream); }
  };
  Fd copy(::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, Close> stream(copy ? ::fdopendir(copy.get()) : nullptr);
  if (!stream) throw system_error(ErrorKind::target, "reading", path_.native());
  (void)copy.release();  // closedir() closes it
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = static_cast<const char*>(entry->d_name);
    if (name != "." && name != "..") return false;
  }
  return true;
}

void UnpackTarget::give_up() noexcept {
  if (made_) {
    (void)::rmdir(path_.c_str());
  } else {
    (void)::fchmod(fd_.get(), old_mode_);
  }
}

}  // namespace bootpress
