// SPDX-License-Identifier: GPL-2.0-or-later
//
// Opens directories below a root without ever leaving it: no symbolic link is followed, whoever
// puts one there and whenever.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.hpp"
#include "tree/tree.hpp"

namespace bootpress {

enum class Beneath {
  automatic,      // openat2 where the kernel has it and lets us, otherwise one step per component
  component_wise  // for tests
};

// Opens the directory `path` (relative, no "..") below `root` with O_PATH. Invalid with errno set
// on failure: ELOOP or ENOTDIR where a component is a symbolic link or no directory.
[[nodiscard]] Fd open_directory_beneath(int root, const std::string& path,
                                        Beneath how = Beneath::automatic);

// Keeps the directories of a tree that were used last open. One per thread.
class DirectoryCache {
 public:
  DirectoryCache(const Tree& tree, int root) : tree_(tree), root_(root) {}

  // A descriptor (O_PATH) of the unpacked directory, valid until the next call. Throws `target`.
  int open(InodeId directory);
  // The same for who can do without: -1 with errno.
  int try_open(InodeId directory);

 private:
  // Fragments hold files that lie next to each other in the tree, so few directories are in use
  // at a time; the bound keeps us far from any limit on open files.
  static constexpr std::size_t kSlots = 64;
  struct Slot {
    InodeId directory = kNoInode;
    Fd fd;
  };

  const Tree& tree_;
  int root_;
  std::array<Slot, kSlots> slots_;
};

}  // namespace bootpress
