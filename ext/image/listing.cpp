// SPDX-License-Identifier: GPL-2.0-or-later
#include "image/listing.hpp"

#include <algorithm>

#include "squashfs/format.hpp"

namespace bootpress {

namespace {

void check_name(std::string_view name) {
  if (name == "." || name == ".." || name.find_first_of(std::string_view("/\0", 2)) != name.npos) {
    throw_corrupt("a directory holds the forbidden name \"" + std::string(name) + "\"");
  }
}

RawEntry decode_entry(ByteReader& in, std::uint32_t inode_unit, std::uint32_t base_number) {
  RawEntry entry;
  entry.inode_unit = inode_unit;
  entry.inode_offset = in.get<std::uint16_t>();
  const auto delta = in.get<std::int16_t>();
  entry.number = base_number + static_cast<std::uint32_t>(static_cast<std::int32_t>(delta));
  const auto type = in.get<std::uint16_t>();
  if (type < 1 || type > 7) throw_corrupt("a directory entry has an unknown type");
  entry.type = static_cast<FileType>(type - 1);
  const std::size_t length = std::size_t{in.get<std::uint16_t>()} + 1;
  if (length > squashfs::kMaxNameLength) throw_corrupt("a directory entry's name is too long");
  entry.name = as_text(in.get(length));
  check_name(entry.name);
  return entry;
}

}  // namespace

// FileType's values follow the order of the basic types 1..7.
static_assert(static_cast<int>(FileType::directory) == 0 && static_cast<int>(FileType::file) == 1 &&
              static_cast<int>(FileType::symlink) == 2 &&
              static_cast<int>(FileType::block_device) == 3 &&
              static_cast<int>(FileType::char_device) == 4 &&
              static_cast<int>(FileType::fifo) == 5 && static_cast<int>(FileType::socket) == 6);

void decode_listing(ByteView listing, std::vector<RawEntry>& entries) {
  entries.clear();
  ByteReader in(listing, "a directory's listing");
  while (in.remaining() > 0) {
    const auto last = in.get<std::uint32_t>();
    const auto inode_unit = in.get<std::uint32_t>();
    const auto base_number = in.get<std::uint32_t>();
    if (last >= squashfs::kMaxDirHeaderEntries) {
      throw_corrupt("a directory header claims too many entries");
    }
    for (std::uint32_t i = 0; i <= last; ++i) {
      entries.push_back(decode_entry(in, inode_unit, base_number));
    }
  }
  if (!std::ranges::is_sorted(entries, {}, &RawEntry::name)) {
    std::ranges::sort(entries, {}, &RawEntry::name);
  }
  const auto twice = std::ranges::adjacent_find(entries, {}, &RawEntry::name);
  if (twice != entries.end()) {
    throw_corrupt("a directory holds the name \"" + std::string(twice->name) + "\" twice");
  }
}

}  // namespace bootpress
