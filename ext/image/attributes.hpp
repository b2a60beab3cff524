// SPDX-License-Identifier: GPL-2.0-or-later
//
// Gives what was unpacked its owner, xattrs, mode and time, in the order that keeps them: a change
// of owner clears set-id bits and capabilities, and a change of mode may forbid the rest.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "image/unpack.hpp"
#include "tree/tree.hpp"

namespace bootpress {

// Counts what the target could not take. Thread-safe.
class SkipList {
 public:
  void add(std::string_view kind, const std::string& path);
  [[nodiscard]] std::vector<Loss> take();

 private:
  std::mutex mutex_;
  std::map<std::string, Loss, std::less<>> losses_;
};

// Thread-safe. Throws `target` for failures that are no lack of privilege or support.
class AttributeSetter {
 public:
  AttributeSetter(const Tree& tree, const UnpackOptions& options, SkipList& skipped);

  // For files and directories, through a descriptor open for reading or writing.
  void set(int fd, InodeId id) const;
  // For the other types, which cannot be opened: `name` in `directory`.
  void set_at(int directory, const std::string& name, InodeId id) const;

 private:
  // Judges errno after a failed call: counts it as skipped, or throws.
  void refuse(std::string_view kind, InodeId id) const;
  [[nodiscard]] mode_t mode_of(InodeId id, bool owned) const;

  const Tree& tree_;
  UnpackOptions options_;
  SkipList& skipped_;
};

}  // namespace bootpress
