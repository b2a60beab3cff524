// SPDX-License-Identifier: GPL-2.0-or-later
//
// Writes a tree out into a directory.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/monitor.hpp"
#include "image/image.hpp"

namespace bootpress {

struct UnpackOptions {
  unsigned jobs = 1;
  bool owners = true;  // chown (needs root); false: everything stays the caller's
  bool xattrs = true;
};

struct UnpackResult {
  std::uint64_t files = 0;  // inodes written, directories included
  std::uint64_t bytes = 0;
  std::vector<Loss> skipped;  // attributes the target could not take (device nodes without root, …)
};

// Unpacks into `directory`, which is made, or is empty; anything in it is a `target` error.
// Nothing is ever written outside it, whatever the image says and whoever swaps a symlink in
// meanwhile. On failure what was written so far is removed again.
UnpackResult unpack(const std::shared_ptr<const Image>& image,
                    const std::filesystem::path& directory, const UnpackOptions& options,
                    Monitor& monitor);

}  // namespace bootpress
