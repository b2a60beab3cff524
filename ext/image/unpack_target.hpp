// SPDX-License-Identifier: GPL-2.0-or-later
//
// The directory that is unpacked into: made, or found empty.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "image/beneath.hpp"

namespace bootpress {

// Nobody else looks in, or swaps names, while we work.
inline constexpr mode_t kWhileWorking = 0700;

class UnpackTarget {
 public:
  // Throws `target` where the directory cannot be made, or holds anything.
  explicit UnpackTarget(std::filesystem::path path);

  [[nodiscard]] int fd() const { return fd_.get(); }

  // Leaves it as it was found. REQUIRES: it is empty again.
  void give_up() noexcept;

 private:
  [[nodiscard]] bool is_empty() const;

  std::filesystem::path path_;
  bool made_;
  mode_t old_mode_ = 0755;
  Fd fd_;
};

}  // namespace bootpress
