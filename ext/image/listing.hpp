// SPDX-License-Identifier: GPL-2.0-or-later
//
// A directory's listing in the directory table, little-endian:
//
//   header   u32 entries - 1 (at most 255), u32 inode unit, u32 base number
//   entry    u16 offset in the inode unit, s16 number - base, u16 basic type, u16 name size - 1,
//   name
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "image/metadata.hpp"
#include "tree/tree.hpp"

namespace bootpress {

struct RawEntry {
  std::uint32_t inode_unit = 0;
  std::uint16_t inode_offset = 0;
  std::uint32_t number = 0;
  FileType type = FileType::file;
  std::string_view name;  // points into the listing
};

// Decodes a whole listing into `entries` (cleared first), names ascending. Throws `corrupt` for
// what no directory can hold: names that are empty, ".", "..", too long, contain '/' or a zero
// byte, or occur twice. Names out of order are put in order: the kernel lists them as well.
void decode_listing(ByteView listing, std::vector<RawEntry>& entries);

}  // namespace bootpress
