// SPDX-License-Identifier: GPL-2.0-or-later
#include "image/inode.hpp"

#include <algorithm>

namespace bootpress {

using squashfs::InodeType;
using squashfs::kNoFragment;
using squashfs::Superblock;

namespace {

constexpr std::uint32_t kEmptyListing = 3;  // a directory's size counts "." and ".."
constexpr std::uint64_t kLargestFile = 0x7fffffffffffffffULL;  // off_t

void check_listing_size(RawInode& inode, std::uint32_t size) {
  inode.listing_size = size > kEmptyListing ? size - kEmptyListing : 0;
}

void decode_directory(ByteReader& in, RawInode& inode) {
  inode.listing_unit = in.get<std::uint32_t>();
  (void)in.get<std::uint32_t>();  // links
  check_listing_size(inode, in.get<std::uint16_t>());
  inode.listing_offset = in.get<std::uint16_t>();
  (void)in.get<std::uint32_t>();  // parent
}

void decode_extended_directory(ByteReader& in, RawInode& inode) {
  (void)in.get<std::uint32_t>();  // links
  check_listing_size(inode, in.get<std::uint32_t>());
  inode.listing_unit = in.get<std::uint32_t>();
  (void)in.get<std::uint32_t>();  // parent
  const auto index_entries = in.get<std::uint16_t>();
  inode.listing_offset = in.get<std::uint16_t>();
  inode.xattrs = in.get<std::uint32_t>();
  // The index only speeds up look-ups; whoever reads the whole listing needs its length alone.
  for (std::uint32_t i = 0; i < index_entries; ++i) {
    (void)in.get(8);
    const auto last = in.get<std::uint32_t>();
    if (last >= squashfs::kMaxNameLength) throw_corrupt("a directory index has an endless name");
    (void)in.get(last + 1);
  }
}

// The block words follow; with a fragment the tail has none.
void decode_blocks(ByteReader& in, RawInode& inode, const Superblock& superblock) {
  if (inode.size > kLargestFile) throw_corrupt("a file has an impossible size");
  const std::uint64_t block_size = superblock.block_size;
  std::uint64_t blocks = inode.size / block_size;
  const std::uint64_t tail = inode.size % block_size;
  if (inode.fragment == kNoFragment) {
    blocks += tail == 0 ? 0 : 1;
  } else if (inode.fragment >= superblock.fragment_count) {
    throw_corrupt("a file's fragment does not exist");
  } else if (inode.fragment_offset > block_size || tail > block_size - inode.fragment_offset) {
    throw_corrupt("a file's tail lies outside its fragment");
  } else if (tail == 0) {
    inode.fragment = kNoFragment;  // never read
  }
  if (blocks > in.remaining() / 4) throw_corrupt("a file has more blocks than its inode holds");
  inode.words = in.get(blocks * 4);
}

void check_block_words(const RawInode& inode, const Superblock& superblock) {
  std::uint64_t end = inode.start;
  for (std::size_t i = 0; i < inode.words.size(); i += 4) {
    const auto word = load_le<std::uint32_t>(inode.words.data() + i);
    if (word == 0) continue;
    const std::uint32_t stored = word & squashfs::kBlockSizeMask;
    if (word >= squashfs::kBlockRaw << 1 || stored == 0 || stored > superblock.block_size) {
      throw_corrupt("a file's block has an impossible size");
    }
    end += stored;  // at most 2^20 each, 2^62 blocks would be needed to wrap
    if (inode.start < squashfs::kSuperblockSize || inode.start > superblock.bytes_used ||
        end > superblock.bytes_used) {
      throw_corrupt("a file's blocks lie outside the image");
    }
  }
}

void decode_file(ByteReader& in, RawInode& inode, const Superblock& superblock) {
  inode.start = in.get<std::uint32_t>();
  inode.fragment = in.get<std::uint32_t>();
  inode.fragment_offset = in.get<std::uint32_t>();
  inode.size = in.get<std::uint32_t>();
  decode_blocks(in, inode, superblock);
}

void decode_extended_file(ByteReader& in, RawInode& inode, const Superblock& superblock) {
  inode.start = in.get<std::uint64_t>();
  inode.size = in.get<std::uint64_t>();
  (void)in.get<std::uint64_t>();  // sparse bytes
  (void)in.get<std::uint32_t>();  // links
  inode.fragment = in.get<std::uint32_t>();
  inode.fragment_offset = in.get<std::uint32_t>();
  inode.xattrs = in.get<std::uint32_t>();
  decode_blocks(in, inode, superblock);
}

void decode_symlink(ByteReader& in, RawInode& inode) {
  (void)in.get<std::uint32_t>();  // links
  const auto length = in.get<std::uint32_t>();
  if (length == 0 || length > squashfs::kMaxSymlinkLength) {
    throw_corrupt("a symbolic link's target has an impossible length");
  }
  inode.target = in.get(length);
  inode.size = length;
  if (std::ranges::find(inode.target, std::byte{0}) != inode.target.end()) {
    throw_corrupt("a symbolic link's target holds a zero byte");
  }
}

void decode_device(ByteReader& in, RawInode& inode) {
  (void)in.get<std::uint32_t>();  // links
  inode.device = in.get<std::uint32_t>();
}

FileType type_of(std::uint16_t stored) {
  constexpr std::array kTypes = {FileType::directory,    FileType::file,        FileType::symlink,
                                 FileType::block_device, FileType::char_device, FileType::fifo,
                                 FileType::socket};
  if (stored < 1 || stored > 2 * kTypes.size()) throw_corrupt("an inode has an unknown type");
  return kTypes[(stored - 1U) % kTypes.size()];
}

}  // namespace

RawInode decode_inode(ByteView table, const Superblock& superblock) {
  ByteReader in(table, "the inode table");
  RawInode inode;
  const auto stored_type = in.get<std::uint16_t>();
  const bool extended = stored_type >= static_cast<std::uint16_t>(InodeType::extended_directory);
  inode.type = type_of(stored_type);
  inode.mode = in.get<std::uint16_t>() & 07777;
  inode.uid_index = in.get<std::uint16_t>();
  inode.gid_index = in.get<std::uint16_t>();
  inode.mtime = in.get<std::uint32_t>();
  inode.number = in.get<std::uint32_t>();
  switch (inode.type) {
    case FileType::directory:
      extended ? decode_extended_directory(in, inode) : decode_directory(in, inode);
      break;
    case FileType::file:
      extended ? decode_extended_file(in, inode, superblock) : decode_file(in, inode, superblock);
      check_block_words(inode, superblock);
      break;
    case FileType::symlink:
      decode_symlink(in, inode);
      break;
    case FileType::block_device:
    case FileType::char_device:
      decode_device(in, inode);
      break;
    case FileType::fifo:
    case FileType::socket:
      (void)in.get<std::uint32_t>();  // links
      break;
  }
  const bool has_xattrs_last =
      extended && inode.type != FileType::directory && inode.type != FileType::file;
  if (has_xattrs_last) inode.xattrs = in.get<std::uint32_t>();
  inode.encoded_size = table.size() - in.remaining();
  if (inode.number == 0 || inode.number > superblock.inode_count) {
    throw_corrupt("an inode's number (" + std::to_string(inode.number) + ") is not in 1.." +
                  std::to_string(superblock.inode_count));
  }
  return inode;
}

}  // namespace bootpress
