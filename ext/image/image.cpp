// SPDX-License-Identifier: GPL-2.0-or-later
#include "image/image.hpp"

#include <algorithm>
#include <new>

#include "image/block_store.hpp"
#include "image/image_reader.hpp"
#include "image/index.hpp"

namespace bootpress {

using squashfs::kBlockRaw;
using squashfs::kBlockSizeMask;
using squashfs::kNoFragment;

bool same_place(const FileBlocks& a, const FileBlocks& b) {
  return a.start == b.start && a.size == b.size && a.fragment == b.fragment &&
         a.fragment_offset == b.fragment_offset && std::ranges::equal(a.words, b.words);
}

std::uint64_t hash_place(const FileBlocks& blocks) {
  return blocks.start ^ std::uint64_t{blocks.fragment} << 40 ^
         std::uint64_t{blocks.fragment_offset} << 20 ^ blocks.size * 31;
}

Image::Image(std::shared_ptr<const ImageBytes> bytes, std::unique_ptr<const ImageIndex> index)
    : bytes_(std::move(bytes)),
      index_(std::move(index)),
      store_(std::make_unique<BlockStore>(codec(), superblock().block_size)) {}

Image::~Image() = default;

std::shared_ptr<const Image> Image::open(std::shared_ptr<const ImageBytes> bytes) {
  try {
    auto index = std::make_unique<const ImageIndex>(load_index(*bytes));
    // The constructor is private, which std::make_shared cannot reach.
    return std::shared_ptr<const Image>(new Image(std::move(bytes), std::move(index)));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::corrupt, "the image's metadata take more memory than there is");
  }
}

const squashfs::Superblock& Image::superblock() const { return index_->superblock; }
CodecId Image::codec() const { return static_cast<CodecId>(index_->superblock.compressor); }
ByteView Image::codec_record() const { return index_->codec_record; }
const ImageBytes& Image::bytes() const { return *bytes_; }
const ImageIndex& Image::index() const { return *index_; }
std::size_t Image::inode_count() const { return index_->nodes.size(); }
std::span<const FragmentEntry> Image::fragments() const { return index_->fragments; }

namespace {

Inode make_inode(const Node& node, std::uint64_t data) {
  Inode inode;
  inode.type = node.type;
  inode.mode = node.mode;
  inode.uid = node.uid;
  inode.gid = node.gid;
  inode.mtime = node.mtime;
  inode.size = node.size;
  inode.data = data;
  if (node.type == FileType::block_device || node.type == FileType::char_device) {
    inode.device_major = squashfs::device_major(node.device);
    inode.device_minor = squashfs::device_minor(node.device);
  }
  return inode;
}

}  // namespace

Tree Image::tree() const {
  TreeBuilder builder;
  std::vector<InodeId> ids(index_->nodes.size(), kNoInode);
  // A set of xattrs is handed over once; further inodes refer to the builder's copy.
  std::vector<InodeId> first_with(index_->xattr_sets.size(), kNoInode);
  const auto new_xattrs = [&](const Node& node) {
    const bool first = first_with[node.xattrs] == kNoInode;
    return first ? index_->xattr_sets[node.xattrs] : std::vector<Xattr>{};
  };
  builder.set_root(make_inode(index_->nodes[0], 0), new_xattrs(index_->nodes[0]));
  ids[0] = 0;
  first_with[index_->nodes[0].xattrs] = 0;
  for (const NameEntry& entry : index_->entries) {
    const std::string_view name = index_->text(entry.name);
    InodeId& id = ids[entry.node];
    if (id != kNoInode) {
      builder.link(ids[entry.directory], name, id);
      continue;
    }
    const Node& node = index_->nodes[entry.node];
    id = builder.add(ids[entry.directory], name, make_inode(node, entry.node), new_xattrs(node),
                     index_->text(node.target));
    InodeId& first = first_with[node.xattrs];
    if (first == kNoInode) first = id;
    builder[id].xattrs = builder[first].xattrs;
  }
  return builder.finish(shared_from_this());
}

FileBlocks Image::blocks(std::uint64_t data) const {
  const Node& node = index_->nodes.at(data);
  return {.start = node.start,
          .words = std::span(index_->words).subspan(node.first_word, node.word_count),
          .fragment = node.fragment,
          .fragment_offset = node.fragment_offset,
          .size = node.size};
}

InodeExtents Image::extents(std::uint64_t data) const {
  const Node& node = index_->nodes.at(data);
  InodeExtents extents;
  extents.number = node.number;
  extents.reference = index_->inode_chain.reference(node.position);
  extents.inode = index_->inode_chain.stored_extent(node.position, node.encoded_size);
  if (node.listing_size > 0) {
    extents.listing = index_->listing_chain.stored_extent(node.listing_position, node.listing_size);
    extents.listing_reference = index_->listing_chain.reference(node.listing_position);
    extents.listing_bytes = node.listing_size;
  }
  return extents;
}

std::unique_ptr<FileReader> Image::open(const Tree& tree, InodeId file) const {
  return std::make_unique<ImageReader>(shared_from_this(), *store_, blocks(tree[file].data));
}

std::vector<Extent> Image::data_extents(const Tree& tree, InodeId file) const {
  const FileBlocks content = blocks(tree[file].data);
  const std::uint64_t block_size = superblock().block_size;
  std::vector<Extent> extents;
  const auto append = [&](std::uint64_t offset) {
    const std::uint64_t length = std::min(block_size, content.size - offset);
    if (!extents.empty() && extents.back().offset + extents.back().length == offset) {
      extents.back().length += length;
    } else {
      extents.push_back({offset, length});
    }
  };
  for (std::size_t i = 0; i < content.words.size(); ++i) {
    if (content.words[i] != 0) append(i * block_size);
  }
  if (content.fragment != kNoFragment) append(content.words.size() * block_size);
  return extents;
}

std::size_t Image::read_stored(std::uint64_t start, std::uint32_t word, Decompressor& decompressor,
                               std::vector<std::byte>& scratch, ByteSpan out) const {
  const std::size_t stored = word & kBlockSizeMask;
  if (word >= kBlockRaw << 1 || stored > superblock().block_size) {
    throw Error(ErrorKind::corrupt,
                "the block at offset " + std::to_string(start) + " has an impossible size");
  }
  if ((word & kBlockRaw) != 0) {
    if (stored > out.size()) {
      throw Error(ErrorKind::corrupt, "the block at offset " + std::to_string(start) +
                                          " is larger than what it belongs to");
    }
    bytes_->read(start, out.first(stored));
    return stored;
  }
  if (scratch.size() < stored) scratch.resize(stored);
  const ByteSpan in = ByteSpan(scratch).first(stored);
  bytes_->read(start, in);
  try {
    return decompressor.decompress(in, out);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::corrupt) throw;
    throw Error(ErrorKind::corrupt,
                "the block at offset " + std::to_string(start) + " is damaged: " + error.what());
  }
}

}  // namespace bootpress
