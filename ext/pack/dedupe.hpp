// SPDX-License-Identifier: GPL-2.0-or-later
//
// Finds files of the same content before anything is compressed.
#pragma once

#include <vector>

#include "base/monitor.hpp"
#include "tree/tree.hpp"

namespace bootpress {

// For each inode (length tree.size()) the first one, as gathered, that has its content: itself
// where it is unique, empty or no regular file. Only files that share their size are hashed
// (xxh3-128); equal hashes are compared byte for byte.
[[nodiscard]] std::vector<InodeId> find_duplicates(const Tree& tree, unsigned jobs,
                                                   Monitor& monitor);

}  // namespace bootpress
