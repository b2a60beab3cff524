// SPDX-License-Identifier: GPL-2.0-or-later
//
// SquashFS 4.0 on disk, little-endian. An image made here is laid out as
//
//   superblock            96 bytes
//   compressor options    one raw metadata unit, only with flag 0x0400
//   data region           data blocks and fragment blocks, hot region first
//   inode table           metadata units
//   directory table       metadata units
//   fragment table        metadata units of 16-byte entries, then the index (u64 per unit)
//   export table          metadata units of u64 references, then the index
//   id table              metadata units of u32, then the index
//   xattr table           key/value units, 16-byte id-record units, header, index
//   padding               to 4 KiB; holds bootpress' seal (see seal.hpp)
//
// superblock:
//    0 u32 magic          4 u32 inode count      8 u32 mkfs time    12 u32 block size
//   16 u32 fragments     20 u16 compressor      22 u16 block log    24 u16 flags
//   26 u16 id count      28 u16 major (4)       30 u16 minor (0)    32 u64 root inode reference
//   40 u64 bytes used    48 u64 id table        56 u64 xattr table  64 u64 inode table
//   72 u64 dir table     80 u64 fragment table  88 u64 export table
//
// metadata unit: u16 header (low 15 bits: stored bytes; top bit: stored raw), then at most 8 KiB
// once decompressed. A reference is (unit's offset in its table << 16) | offset within the unit.
//
// Authority: Linux fs/squashfs/squashfs_fs.h; each rule is judged by mounting.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.hpp"

namespace bootpress::squashfs {

inline constexpr std::uint32_t kMagic = 0x73717368;  // "hsqs"
inline constexpr std::uint16_t kMajor = 4;
inline constexpr std::size_t kSuperblockSize = 96;
inline constexpr std::uint64_t kAbsent = 0xffffffffffffffffULL;  // an absent table
inline constexpr std::uint32_t kMinBlockSize = 4096;
inline constexpr std::uint32_t kMaxBlockSize = 1048576;
inline constexpr std::uint32_t kPadding = 4096;  // bytes_used must fit the device

inline constexpr std::size_t kMetadataUnit = 8192;
inline constexpr std::uint16_t kMetadataRaw = 0x8000;

inline constexpr std::uint32_t kNoFragment = 0xffffffff;
inline constexpr std::uint32_t kNoXattrs = 0xffffffff;
inline constexpr std::uint32_t kBlockRaw = 1U << 24;  // in a block word or a fragment's size
inline constexpr std::uint32_t kBlockSizeMask = kBlockRaw - 1;

inline constexpr std::size_t kFragmentEntrySize = 16;
inline constexpr std::size_t kFragmentsPerUnit = kMetadataUnit / kFragmentEntrySize;
inline constexpr std::size_t kIdsPerUnit = kMetadataUnit / 4;
inline constexpr std::size_t kExportsPerUnit = kMetadataUnit / 8;
inline constexpr std::size_t kXattrIdSize = 16;
inline constexpr std::size_t kXattrIdsPerUnit = kMetadataUnit / kXattrIdSize;

inline constexpr std::size_t kMaxNameLength = 256;        // bytes (Linux' own limit is 255)
inline constexpr std::size_t kMaxDirHeaderEntries = 256;  // entries behind one directory header
inline constexpr std::size_t kMaxSymlinkLength = 4096;    // longer targets are rejected: PAGE_SIZE

namespace flag {
inline constexpr std::uint16_t raw_inodes = 0x0001;
inline constexpr std::uint16_t raw_data = 0x0002;
inline constexpr std::uint16_t raw_fragments = 0x0008;
inline constexpr std::uint16_t no_fragments = 0x0010;
inline constexpr std::uint16_t always_fragments = 0x0020;
inline constexpr std::uint16_t duplicates_removed = 0x0040;
inline constexpr std::uint16_t exportable = 0x0080;
inline constexpr std::uint16_t raw_xattrs = 0x0100;
inline constexpr std::uint16_t no_xattrs = 0x0200;
inline constexpr std::uint16_t compressor_options = 0x0400;
inline constexpr std::uint16_t raw_ids = 0x0800;
}  // namespace flag

// Inode types as they stand in an inode; directory entries carry the basic type (1..7).
enum class InodeType : std::uint16_t {
  directory = 1,
  file = 2,
  symlink = 3,
  block_device = 4,
  char_device = 5,
  fifo = 6,
  socket = 7,
  extended_directory = 8,
  extended_file = 9,
  extended_symlink = 10,
  extended_block_device = 11,
  extended_char_device = 12,
  extended_fifo = 13,
  extended_socket = 14,
};

// Xattr key types: the prefix, with 0x100 set where the value is stored out of line.
inline constexpr std::uint16_t kXattrOutOfLine = 0x100;
inline constexpr std::array<std::string_view, 3> kXattrPrefixes = {"user.", "trusted.",
                                                                   "security."};

struct Superblock {
  std::uint32_t inode_count = 0;
  std::uint32_t mkfs_time = 0;  // seconds since 1970
  std::uint32_t block_size = 0;
  std::uint32_t fragment_count = 0;
  std::uint16_t compressor = 0;
  std::uint16_t block_log = 0;
  std::uint16_t flags = 0;
  std::uint16_t id_count = 0;
  std::uint64_t root_inode = 0;  // a reference
  std::uint64_t bytes_used = 0;
  std::uint64_t id_table = kAbsent;  // these tables: offset of the index (xattr: of the header)
  std::uint64_t xattr_table = kAbsent;
  std::uint64_t inode_table = kAbsent;  // these two: offset of the first unit
  std::uint64_t directory_table = kAbsent;
  std::uint64_t fragment_table = kAbsent;
  std::uint64_t export_table = kAbsent;
};

[[nodiscard]] std::array<std::byte, kSuperblockSize> encode(const Superblock& superblock);

// Checks the magic, version, block size and log; a file that is no SquashFS, or one of another
// version, is a `corrupt` or `unsupported` error that says so. Table offsets are not checked here.
[[nodiscard]] Superblock decode_superblock(ByteView bytes);

// Device numbers as the kernel's new_encode_dev() stores them.
[[nodiscard]] constexpr std::uint32_t encode_device(std::uint32_t major, std::uint32_t minor) {
  return (minor & 0xff) | (major << 8) | ((minor & ~0xffU) << 12);
}
[[nodiscard]] constexpr std::uint32_t device_major(std::uint32_t device) {
  return (device >> 8) & 0xfff;
}
[[nodiscard]] constexpr std::uint32_t device_minor(std::uint32_t device) {
  return (device & 0xff) | ((device >> 12) & 0xfff00);
}

}  // namespace bootpress::squashfs
