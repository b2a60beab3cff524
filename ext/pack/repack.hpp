// SPDX-License-Identifier: GPL-2.0-or-later
//
// Plans a new order for an image whose blocks stay as they are stored.
//
//   data       copied as stored. What files share in the old image (equal files, or runs of blocks
//              that overlap in any way) makes one stretch, which goes where its first file goes.
//   fragments  Tails are sorted anew. Where all tails of an old fragment, and only they, come
//              together again in their old order, the fragment is copied; all others are made
//              anew from the tails that remain. So there are no dead bytes, and what neither
//              joins nor leaves the hot region costs nothing.
//
// The cold tails keep the old image's order, in which like lies beside like if bootpress made it.
#pragma once

#include <span>
#include <vector>

#include "image/image.hpp"
#include "pack/pipeline.hpp"
#include "pack/plan.hpp"
#include "tree/tree.hpp"

namespace bootpress {

// For each inode of the image's tree the first one that has its blocks and its tail, as
// find_duplicates() gives it; nothing is read.
[[nodiscard]] std::vector<InodeId> find_shared(const Image& image, const Tree& tree);

// REQUIRES: `tree` is image.tree(), `original` find_shared(), `order` made without fragments (the
// order of cold tails follows from the image). The contents' starts are those of the old image
// until relocate_contents() has been called.
[[nodiscard]] Plan plan_repack(const Image& image, const Tree& tree,
                               std::span<const InodeId> original, const Order& order);

// Gives the contents the places to which their stretches were copied.
void relocate_contents(Plan& plan, const StoredBlocks& stored);

}  // namespace bootpress
