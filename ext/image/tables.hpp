// SPDX-License-Identifier: GPL-2.0-or-later
//
// Where an image's tables lie, and the small ones' content. The order on disk is inode table,
// directory table, fragment, export, id and xattr table; the checks run from the end, because each
// table must stop where the next one begins. The rules are those of the kernel's mount
// (fs/squashfs/super.c, id.c, export.c, fragment.c, xattr_id.c), no stricter.
#pragma once

#include <cstdint>
#include <vector>

#include "image/image.hpp"
#include "image/metadata.hpp"
#include "image/xattr.hpp"
#include "squashfs/format.hpp"

namespace bootpress {

// Reads the superblock and judges it against the size of the image.
[[nodiscard]] squashfs::Superblock read_superblock(const ImageBytes& bytes);

struct Tables {
  std::uint64_t directory_end = 0;  // where the directory table must stop
  TableIndex export_index;          // empty: not exportable
  std::vector<std::uint32_t> ids;
  std::vector<FragmentEntry> fragments;
  XattrTable xattrs;
};
[[nodiscard]] Tables read_tables(const ImageBytes& bytes, const squashfs::Superblock& superblock,
                                 Decompressor& decompressor);

// The raw unit behind the superblock; empty without the flag.
[[nodiscard]] std::vector<std::byte> read_codec_record(const ImageBytes& bytes,
                                                       const squashfs::Superblock& superblock);

}  // namespace bootpress
