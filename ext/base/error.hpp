// SPDX-License-Identifier: GPL-2.0-or-later
//
// One exception type for everything that can go wrong, so that the binding
// needs one translator. A kind maps to one Python class and one exit status.
#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace bootpress {

enum class ErrorKind {
  usage,        // the caller asked for something impossible (bad option value)
  source,       // the input tree or archive is missing, unreadable or damaged
  changed,      // a file changed between gathering and reading
  limit,        // the tree holds something that the format cannot
  target,       // the output cannot be written (full disk, read-only, a directory)
  corrupt,      // an image that is read breaks the format
  unsupported,  // valid, but not something this build can read
  interrupted,  // the caller asked to stop
};

// what(): one line that says what happened and where. hint(): what to do, or empty.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, std::string hint = {})
      : std::runtime_error(message), kind_(kind), hint_(std::move(hint)) {}

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  [[nodiscard]] const std::string& hint() const noexcept { return hint_; }

 private:
  ErrorKind kind_;
  std::string hint_;
};

// "<action> <path>: <strerror(code)>", with a hint for the codes that a person can act on.
[[nodiscard]] Error system_error(ErrorKind kind, std::string_view action, std::string_view path,
                                 int code = errno);

}  // namespace bootpress
