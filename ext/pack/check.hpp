// SPDX-License-Identifier: GPL-2.0-or-later
//
// Reads a finished image back and holds it against what was to be packed.
#pragma once

#include "base/monitor.hpp"
#include "image/image.hpp"
#include "pack/pipeline.hpp"
#include "pack/plan.hpp"
#include "tree/tree.hpp"

namespace bootpress {

// Decodes the image with the independent reader and compares every name, every attribute, every
// block's place, and the hash of every decompressed block (of every copied one, as stored) with
// what the packer read. Throws
// `corrupt`, saying that this is a defect of the packer or of the machine, at the first mismatch.
void check_packed(const Image& image, const Tree& tree, const Plan& plan,
                  const StoredBlocks& stored, unsigned jobs, Monitor& monitor);

}  // namespace bootpress
