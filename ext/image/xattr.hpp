// SPDX-License-Identifier: GPL-2.0-or-later
//
// Extended attributes, little-endian:
//
//   header      u64 where the keys and values start, u32 sets, u32 unused; the index follows
//   id record   u64 reference into keys and values, u32 attributes, u32 bytes
//   attribute   u16 prefix (0 user, 1 trusted, 2 security), with 0x100 where the value is out of
//               line; u16 name size, name; u32 value size, value (out of line: a u64 reference to
//               the u32 value size and the value)
#pragma once

#include <cstdint>
#include <vector>

#include "image/metadata.hpp"
#include "tree/tree.hpp"

namespace bootpress {

// The xattr table of one image. Sets are decoded one by one.
class XattrTable {
 public:
  XattrTable() = default;
  XattrTable(MetadataChain pairs, std::vector<std::byte> records, std::uint64_t budget);

  // Decodes a set, sorted by name. Throws `corrupt`, also when all sets decoded so far take more
  // than the budget: values out of line could be repeated without end.
  [[nodiscard]] std::vector<Xattr> decode(std::uint32_t id);

 private:
  [[nodiscard]] Xattr decode_pair(ByteReader& in);

  MetadataChain pairs_;
  std::vector<std::byte> records_;
  std::uint64_t budget_ = 0;  // bytes
};

}  // namespace bootpress
