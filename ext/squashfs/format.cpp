// SPDX-License-Identifier: GPL-2.0-or-later
#include "squashfs/format.hpp"

namespace bootpress::squashfs {

std::array<std::byte, kSuperblockSize> encode(const Superblock& s) {
  ByteWriter writer;
  writer.put(kMagic).put(s.inode_count).put(s.mkfs_time).put(s.block_size);
  writer.put(s.fragment_count).put(s.compressor).put(s.block_log).put(s.flags).put(s.id_count);
  writer.put(kMajor).put(std::uint16_t{0}).put(s.root_inode).put(s.bytes_used);
  writer.put(s.id_table).put(s.xattr_table).put(s.inode_table).put(s.directory_table);
  writer.put(s.fragment_table).put(s.export_table);
  std::array<std::byte, kSuperblockSize> out{};
  std::memcpy(out.data(), writer.view().data(), out.size());
  return out;
}

Superblock decode_superblock(ByteView bytes) {
  ByteReader in(bytes, "the superblock");
  if (in.get<std::uint32_t>() != kMagic) {
    throw Error(ErrorKind::corrupt, "no SquashFS magic at its start: this is not a SquashFS image");
  }
  Superblock s;
  s.inode_count = in.get<std::uint32_t>();
  s.mkfs_time = in.get<std::uint32_t>();
  s.block_size = in.get<std::uint32_t>();
  s.fragment_count = in.get<std::uint32_t>();
  s.compressor = in.get<std::uint16_t>();
  s.block_log = in.get<std::uint16_t>();
  s.flags = in.get<std::uint16_t>();
  s.id_count = in.get<std::uint16_t>();
  const auto major = in.get<std::uint16_t>();
  const auto minor = in.get<std::uint16_t>();
  s.root_inode = in.get<std::uint64_t>();
  s.bytes_used = in.get<std::uint64_t>();
  s.id_table = in.get<std::uint64_t>();
  s.xattr_table = in.get<std::uint64_t>();
  s.inode_table = in.get<std::uint64_t>();
  s.directory_table = in.get<std::uint64_t>();
  s.fragment_table = in.get<std::uint64_t>();
  s.export_table = in.get<std::uint64_t>();
  if (major != kMajor || minor != 0) {
    throw Error(ErrorKind::unsupported, "SquashFS version " + std::to_string(major) + "." +
                                            std::to_string(minor) + "; only 4.0 is supported");
  }
  if (s.block_size < kMinBlockSize || s.block_size > kMaxBlockSize ||
      !std::has_single_bit(s.block_size) || s.block_size != 1ULL << (s.block_log & 63)) {
    throw Error(ErrorKind::corrupt, "the superblock's block size (" + std::to_string(s.block_size) +
                                        ", log " + std::to_string(s.block_log) + ") is invalid");
  }
  return s;
}

}  // namespace bootpress::squashfs
