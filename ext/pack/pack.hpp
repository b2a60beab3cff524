// SPDX-License-Identifier: GPL-2.0-or-later
//
// Packs a gathered tree into a SquashFS image: dedupe → order → plan → compress → write → verify.
// Or packs an image anew in another order, with its blocks as they are: order → plan → copy → write
// → verify.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/monitor.hpp"
#include "codec/codec.hpp"
#include "image/image.hpp"
#include "pack/pipeline.hpp"
#include "pack/plan.hpp"
#include "tree/tree.hpp"

namespace bootpress {

struct PackOptions {
  CodecOptions codec;
  std::vector<InodeId> hot;  // any type; these two as in OrderOptions
  std::vector<InodeId> hot_data;
  std::vector<InodeId> last;  // behind everything else
  ColdOrder cold_order = ColdOrder::similarity;
  bool fragments = true;
  bool dedupe = true;
  std::optional<std::uint32_t> mkfs_time;  // seconds since 1970; otherwise the newest mtime
  unsigned jobs = 1;
  std::uint64_t memory = 0;  // bytes of blocks in flight; 0: enough
  bool verify = true;
};

struct PackResult {
  std::uint64_t image_bytes = 0;  // the file's size, padding included
  std::uint64_t used_bytes = 0;   // the superblock's bytes_used
  std::uint64_t input_bytes = 0;  // of all regular files, duplicates and holes included
  std::uint64_t files = 0;
  std::uint64_t duplicate_files = 0;
  std::uint64_t duplicate_bytes = 0;
  std::uint64_t fragments = 0;
  std::uint64_t hot_files = 0;       // inodes of any type, those with cold data included
  std::uint64_t metadata_bytes = 0;  // behind the data region
  BlockStatistics blocks;
  std::vector<std::pair<std::string, double>> stages;  // name, seconds
  std::vector<std::byte> seal;                         // 16 bytes
};

// The image is there, whole and checked, when this returns, and not at all when it throws. The
// same tree, options and codec versions give the same bytes for any number of jobs.
PackResult pack_image(const Tree& tree, const std::string& target, const PackOptions& options,
                      Monitor& monitor);

struct RepackOptions {
  CodecOptions codec;        // of what is made anew; see keeps_blocks()
  std::vector<InodeId> hot;  // these three as in PackOptions
  std::vector<InodeId> hot_data;
  std::vector<InodeId> last;
  unsigned jobs = 1;
  std::uint64_t memory = 0;
  bool verify = true;
};

// The options that an image was made with, as far as it tells; codec none where all of it is raw.
[[nodiscard]] CodecOptions recorded_options(const Image& image);

// Whether what `codec` makes may stand beside the image's own blocks: the same codec and block
// size, and the same record of options.
[[nodiscard]] bool keeps_blocks(const Image& image, const CodecOptions& codec);

// As pack_image(), for a new order of an image whose data blocks, and fragments that stay as they
// are, are copied as stored. An image with a broken seal is `corrupt`; blocks of one without a seal
// are copied unseen. The verification compares stored bytes. `tree` is image.tree().
// REQUIRES: keeps_blocks(image, options.codec).
PackResult repack_image(const Image& image, const Tree& tree, const std::string& target,
                        const RepackOptions& options, Monitor& monitor);

}  // namespace bootpress
