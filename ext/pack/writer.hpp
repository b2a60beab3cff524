// SPDX-License-Identifier: GPL-2.0-or-later
//
// Writes an image's metadata behind its data: inodes, directories, fragments, export, ids, xattrs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/codec.hpp"
#include "pack/pipeline.hpp"
#include "pack/plan.hpp"
#include "squashfs/format.hpp"
#include "tree/tree.hpp"

namespace bootpress {

// The order of the inode table, and what follows from it.
//
// Cold inodes come first, every directory behind what is in it, so that its listing, which refers
// to those inodes, can be written in one go. The hot ones follow at the table's end: what the sort
// list names, each preceded by the directories that lead to it, as a boot looks them up. The
// directory table, right behind, begins with the listings of those directories: so what a boot
// reads of both lies together.
//
// A directory that names a hot inode is hot, by whatever name the list has it.
struct InodeOrder {
  std::vector<InodeId> inodes;         // all of the tree's, in table order
  std::size_t cold_count = 0;          // how many of them, at the beginning, are cold
  std::vector<std::uint32_t> numbers;  // per inode: 1..count, by place in the table

  [[nodiscard]] std::span<const InodeId> cold() const {
    return std::span(inodes).first(cold_count);
  }
  [[nodiscard]] std::span<const InodeId> hot() const {
    return std::span(inodes).subspan(cold_count);
  }
};
[[nodiscard]] InodeOrder order_inodes(const Tree& tree, const Order& order);

struct MetadataOptions {
  CodecOptions codec;           // none: everything raw
  bool raw = false;             // the tables raw, with any codec
  std::uint32_t mkfs_time = 0;  // seconds since 1970
  // How the data was made; those that tell of the tables are added here.
  std::uint16_t flags = squashfs::flag::always_fragments;
};

// Appends all tables to the sink; returns the superblock to be written last.
[[nodiscard]] squashfs::Superblock write_metadata(const Tree& tree, const Plan& plan,
                                                  const StoredBlocks& stored,
                                                  const InodeOrder& inode_order,
                                                  const MetadataOptions& options, ImageSink& sink);

}  // namespace bootpress
