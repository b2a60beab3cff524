// SPDX-License-Identifier: GPL-2.0-or-later
//
// All metadata of an image, decoded and checked: what Image answers from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "image/image.hpp"
#include "image/metadata.hpp"
#include "squashfs/format.hpp"
#include "tree/tree.hpp"

namespace bootpress {

// One inode that the root leads to. A parent comes before its children; the root is the first.
struct Node {
  FileType type = FileType::file;
  std::uint16_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t mtime = 0;
  std::uint32_t number = 0;
  std::uint32_t device = 0;
  std::uint32_t xattrs = 0;            // index into xattr_sets, 0: none
  std::uint32_t parent = 0;            // the first directory that names it; the root's is itself
  NameRef name;                        // there
  NameRef target;                      // symlinks
  std::uint64_t position = 0;          // in the decompressed inode table
  std::uint64_t encoded_size = 0;      // bytes there
  std::uint64_t listing_position = 0;  // directories, in the decompressed directory table
  std::uint32_t listing_size = 0;      // bytes there, 0: empty
  std::uint32_t fragment = squashfs::kNoFragment;  // files
  std::uint32_t fragment_offset = 0;
  std::uint64_t start = 0;
  std::uint64_t size = 0;
  std::uint64_t first_word = 0;  // index into words
  std::uint64_t word_count = 0;
};

// A name in a directory, in the order in which the tree is built.
struct NameEntry {
  std::uint32_t directory = 0;  // index into nodes
  std::uint32_t node = 0;
  NameRef name;
};

struct ImageIndex {
  squashfs::Superblock superblock;
  std::vector<std::byte> codec_record;
  std::vector<Node> nodes;
  std::vector<NameEntry> entries;
  std::string names;
  std::vector<std::uint32_t> words;  // of all files, each one's together
  std::vector<FragmentEntry> fragments;
  std::vector<std::uint32_t> ids;
  std::vector<std::vector<Xattr>> xattr_sets{{}};
  TableIndex export_index;    // empty: not exportable
  MetadataChain inode_chain;  // without its content
  MetadataChain listing_chain;

  [[nodiscard]] std::string_view text(NameRef ref) const {
    return std::string_view(names).substr(ref.offset, ref.length);
  }
  // Of its first name; "/" for the root.
  [[nodiscard]] std::string path(std::uint32_t node) const;
};

// Decodes and checks everything, from the root down. Throws `corrupt`, `unsupported`.
[[nodiscard]] ImageIndex load_index(const ImageBytes& bytes);

}  // namespace bootpress
