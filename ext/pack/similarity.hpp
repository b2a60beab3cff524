// SPDX-License-Identifier: GPL-2.0-or-later
//
// Orders tail-ends (files smaller than a block, and the last part of larger ones) so that like
// lies beside like: what shares a fragment is compressed as one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/monitor.hpp"
#include "tree/tree.hpp"

namespace bootpress {

// Returns a permutation of `files`, meant for a planner that opens a new fragment only where the
// next tail does not fit the current one. The result depends on the tree and its content alone,
// not on `jobs`.
//
// `files`: those with a tail-end, in path order (depth first, names bytewise), duplicates removed.
// A tail is the last size % block_size bytes of a file. Reads every tail once, on `jobs` threads;
// what a reader or the monitor throws passes through.
// REQUIRES: jobs >= 1, block_size > 0.
[[nodiscard]] std::vector<InodeId> order_by_similarity(const Tree& tree,
                                                       std::span<const InodeId> files,
                                                       std::uint32_t block_size, unsigned jobs,
                                                       Monitor& monitor);

}  // namespace bootpress
