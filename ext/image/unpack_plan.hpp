// SPDX-License-Identifier: GPL-2.0-or-later
//
// Cuts the content of an image into jobs that any worker can take, such that each fragment is
// decompressed once and a large file keeps several workers busy.
#pragma once

#include <cstdint>
#include <vector>

#include "image/image.hpp"
#include "tree/tree.hpp"

namespace bootpress {

inline constexpr std::uint32_t kNotSplit = 0xffffffff;

// What one job does for one file: some of its blocks, its tail, or all of it.
struct UnpackItem {
  InodeId file = kNoInode;
  std::uint32_t split = kNotSplit;  // number of a file that several items share
  std::uint64_t first_block = 0;
  std::uint64_t block_count = 0;
  std::uint64_t start = 0;  // of the first block, bytes from the image's start
  bool tail = false;        // the part in the fragment
};

// Items that belong together: those of one fragment, or a single one.
struct UnpackJob {
  std::uint32_t fragment = squashfs::kNoFragment;
  std::uint64_t first_item = 0;
  std::uint64_t item_count = 0;
};

struct UnpackPlan {
  std::vector<UnpackItem> items;
  std::vector<UnpackJob> jobs;             // in the order of the image
  std::vector<std::uint32_t> split_items;  // per split file: how many items
};

[[nodiscard]] UnpackPlan plan_unpack(const Image& image, const Tree& tree);

}  // namespace bootpress
