// SPDX-License-Identifier: GPL-2.0-or-later
//
// Inodes as they stand in the inode table, little-endian, entries follow each other unaligned:
//
//   every inode            u16 type, u16 mode, u16 uid index, u16 gid index, u32 mtime, u32 number
//   directory              u32 listing unit, u32 links, u16 listing size + 3, u16 offset, u32
//   parent extended directory     u32 links, u32 listing size + 3, u32 listing unit, u32 parent,
//                          u16 index entries, u16 offset, u32 xattrs,
//                          per index entry: u32 position, u32 unit, u32 name size - 1, name
//   file                   u32 first block, u32 fragment, u32 offset in it, u32 size,
//                          u32 per block
//   extended file          u64 first block, u64 size, u64 sparse bytes, u32 links, u32 fragment,
//                          u32 offset in it, u32 xattrs, u32 per block
//   symlink                u32 links, u32 size, target; extended: u32 xattrs
//   device                 u32 links, u32 device; extended: u32 xattrs
//   fifo, socket           u32 links; extended: u32 xattrs
#pragma once

#include <cstdint>

#include "image/metadata.hpp"
#include "squashfs/format.hpp"
#include "tree/tree.hpp"

namespace bootpress {

// One inode, decoded and checked as far as it can be judged alone. The views point into the table.
struct RawInode {
  FileType type = FileType::file;
  std::uint16_t mode = 0;
  std::uint16_t uid_index = 0;
  std::uint16_t gid_index = 0;
  std::uint32_t mtime = 0;
  std::uint32_t number = 0;
  std::uint32_t xattrs = squashfs::kNoXattrs;
  std::uint32_t device = 0;
  ByteView target;                 // symlinks
  std::uint32_t listing_unit = 0;  // directories
  std::uint16_t listing_offset = 0;
  std::uint32_t listing_size = 0;  // bytes, 0: empty
  std::uint64_t start = 0;         // files
  std::uint64_t size = 0;
  std::uint32_t fragment = squashfs::kNoFragment;
  std::uint32_t fragment_offset = 0;
  ByteView words;                  // u32 each
  std::uint64_t encoded_size = 0;  // bytes it takes in the table
};

// Decodes the inode that `table` begins with. Throws `corrupt`.
[[nodiscard]] RawInode decode_inode(ByteView table, const squashfs::Superblock& superblock);

}  // namespace bootpress
