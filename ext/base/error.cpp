// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/error.hpp"

#include <cstring>

namespace bootpress {

namespace {

std::string hint_for(ErrorKind kind, int code) {
  switch (code) {
    case ENOSPC:
    case EDQUOT:
      return "free some space there, or write the image to another file system";
    case EROFS:
      return "the file system is mounted read-only: choose another target";
    case EACCES:
    case EPERM:
      return kind == ErrorKind::target ? "check the permissions of the target's directory"
                                       : "run as root, or leave it out with --exclude";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    default:
      return {};
  }
}

}  // namespace

Error system_error(ErrorKind kind, std::string_view action, std::string_view path, int code) {
  std::string message;
  message.append(action).append(" ").append(path).append(": ").append(std::strerror(code));
  return {kind, message, hint_for(kind, code)};
}

}  // namespace bootpress
