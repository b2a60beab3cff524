// SPDX-License-Identifier: GPL-2.0-or-later
#include "image/index.hpp"

#include <algorithm>
#include <cstring>
#include <ranges>
#include <unordered_map>

#include "image/inode.hpp"
#include "image/listing.hpp"
#include "image/tables.hpp"

namespace bootpress {

using squashfs::kNoFragment;
using squashfs::kNoXattrs;
using squashfs::Superblock;

namespace {

// Walks from the root, breadth first: a directory's nodes follow each other, and depth costs no
// stack. What an image can make it allocate is bounded by its decompressed tables, because no two
// inodes and no two listings may share bytes there.
class Loader {
 public:
  explicit Loader(const ImageBytes& bytes) : bytes_(bytes) {}

  ImageIndex load() {
    open_tables();
    add_root();
    for (std::uint32_t node = 0; node < index_.nodes.size(); ++node) {
      if (index_.nodes[node].type == FileType::directory) naming(node, [&] { read_listing(node); });
    }
    check_numbers();
    index_.inode_chain.drop_content();
    index_.listing_chain.drop_content();
    return std::move(index_);
  }

 private:
  void open_tables() {
    const Superblock& superblock = index_.superblock = read_superblock(bytes_);
    if (superblock.compressor < 1 || superblock.compressor > 6) {
      throw_corrupt("the superblock names an unknown compressor (" +
                    std::to_string(superblock.compressor) + ")");
    }
    index_.codec_record = read_codec_record(bytes_, superblock);
    decompressor_ =
        make_decompressor(static_cast<CodecId>(superblock.compressor), superblock.block_size);
    tables_ = read_tables(bytes_, superblock, *decompressor_);
    index_.ids = std::move(tables_.ids);
    index_.fragments = std::move(tables_.fragments);
    index_.export_index = std::move(tables_.export_index);
    index_.inode_chain = MetadataChain(bytes_, superblock.inode_table, superblock.directory_table,
                                       *decompressor_, "inode table");
    index_.listing_chain = MetadataChain(bytes_, superblock.directory_table, tables_.directory_end,
                                         *decompressor_, "directory table");
  }

  // Runs `step`; a `corrupt` error then names the path of `node`.
  template <typename Step>
  void naming(std::uint32_t node, const Step& step) {
    try {
      step();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::corrupt) throw;
      throw_corrupt(index_.path(node) + ": " + error.what());
    }
  }

  void add_root() {
    const std::uint64_t position = index_.inode_chain.locate(index_.superblock.root_inode);
    known_.emplace(position, 0);
    index_.nodes.emplace_back();
    naming(0, [&] {
      decode(position, 0);
      if (index_.nodes[0].type != FileType::directory) throw_corrupt("the root is no directory");
    });
  }

  void read_listing(std::uint32_t directory) {
    const Node& node = index_.nodes[directory];
    if (node.listing_size == 0) return;
    listing_bytes_ += node.listing_size;
    if (listing_bytes_ > index_.listing_chain.size()) {
      throw_corrupt("its listing shares bytes with another directory's");
    }
    decode_listing(index_.listing_chain.slice(node.listing_position, node.listing_size), listing_);
    for (const RawEntry& entry : listing_) add_entry(directory, entry);
  }

  void add_entry(std::uint32_t directory, const RawEntry& entry) {
    const std::uint64_t position = index_.inode_chain.locate(entry.inode_unit, entry.inode_offset);
    const auto next = static_cast<std::uint32_t>(index_.nodes.size());
    const auto [found, is_new] = known_.try_emplace(position, next);
    const std::uint32_t child = found->second;
    const NameRef name = add_text(entry.name);
    if (is_new) {
      index_.nodes.emplace_back();
      index_.nodes[child].parent = directory;
      index_.nodes[child].name = name;
      naming(child, [&] { decode(position, child); });
    } else if (index_.nodes[child].type == FileType::directory) {
      throw_corrupt("\"" + std::string(entry.name) + "\" leads to the directory " +
                    index_.path(child) + " a second time");
    }
    if (index_.nodes[child].type != entry.type || index_.nodes[child].number != entry.number) {
      throw_corrupt("\"" + std::string(entry.name) + "\" is entered as another inode than it is");
    }
    index_.entries.push_back({directory, child, name});
  }

  // Decodes the inode at `position` into a node that has its parent and name already.
  void decode(std::uint64_t position, std::uint32_t at) {
    const RawInode raw = decode_inode(index_.inode_chain.from(position), index_.superblock);
    inode_bytes_ += raw.encoded_size;
    if (inode_bytes_ > index_.inode_chain.size()) throw_corrupt("its inode overlaps another");
    Node& node = index_.nodes[at];
    node.type = raw.type;
    node.mode = raw.mode;
    node.uid = id_at(raw.uid_index);
    node.gid = id_at(raw.gid_index);
    node.mtime = raw.mtime;
    node.number = raw.number;
    node.device = raw.device;
    node.xattrs = xattrs_at(raw.xattrs);
    node.target = add_text(as_text(raw.target));
    node.position = position;
    node.encoded_size = raw.encoded_size;
    node.size = raw.size;
    if (raw.listing_size > 0) {
      node.listing_position = index_.listing_chain.locate(raw.listing_unit, raw.listing_offset);
      node.listing_size = raw.listing_size;
    }
    if (raw.type == FileType::file) set_blocks(node, raw);
  }

  void set_blocks(Node& node, const RawInode& raw) {
    node.start = raw.start;
    node.fragment = raw.fragment;
    node.fragment_offset = raw.fragment_offset;
    node.first_word = index_.words.size();
    node.word_count = raw.words.size() / 4;
    index_.words.resize(node.first_word + node.word_count);
    if (!raw.words.empty()) {
      std::memcpy(&index_.words[node.first_word], raw.words.data(), raw.words.size());
    }
    if (node.fragment != kNoFragment) check_fragment(index_.fragments[node.fragment]);
  }

  void check_fragment(const FragmentEntry& fragment) const {
    const Superblock& superblock = index_.superblock;
    const std::uint32_t stored = fragment.word & squashfs::kBlockSizeMask;
    if (fragment.word >= squashfs::kBlockRaw << 1 || stored == 0 ||
        stored > superblock.block_size || fragment.start < squashfs::kSuperblockSize ||
        fragment.start > superblock.bytes_used || stored > superblock.bytes_used - fragment.start) {
      throw_corrupt("its fragment lies outside the image");
    }
  }

  [[nodiscard]] std::uint32_t id_at(std::uint16_t index) const {
    if (index >= index_.ids.size()) throw_corrupt("its owner is not in the id table");
    return index_.ids[index];
  }

  std::uint32_t xattrs_at(std::uint32_t id) {
    if (id == kNoXattrs) return 0;
    const auto next = static_cast<std::uint32_t>(index_.xattr_sets.size());
    const auto [found, is_new] = xattr_ids_.try_emplace(id, next);
    if (is_new) index_.xattr_sets.push_back(tables_.xattrs.decode(id));
    return found->second;
  }

  NameRef add_text(std::string_view text) {
    const NameRef ref{index_.names.size(), static_cast<std::uint32_t>(text.size())};
    index_.names.append(text);
    return ref;
  }

  void check_numbers() const {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> numbers;  // (number, node)
    numbers.reserve(index_.nodes.size());
    for (std::uint32_t next = 0; const Node& node : index_.nodes) {
      numbers.emplace_back(node.number, next++);
    }
    std::ranges::sort(numbers);
    const auto twice = std::ranges::adjacent_find(
        numbers, [](const auto& a, const auto& b) { return a.first == b.first; });
    if (twice != numbers.end()) {
      throw_corrupt(index_.path(twice[0].second) + " and " + index_.path(twice[1].second) +
                    " have the same inode number");
    }
  }

  const ImageBytes& bytes_;
  ImageIndex index_;
  Tables tables_;
  std::unique_ptr<Decompressor> decompressor_;
  std::unordered_map<std::uint64_t, std::uint32_t> known_;      // inode position → node
  std::unordered_map<std::uint32_t, std::uint32_t> xattr_ids_;  // in the image → index of the set
  std::vector<RawEntry> listing_;
  std::uint64_t listing_bytes_ = 0;
  std::uint64_t inode_bytes_ = 0;
};

}  // namespace

std::string ImageIndex::path(std::uint32_t node) const {
  if (node == 0) return "/";
  std::vector<std::uint32_t> chain;
  for (std::uint32_t at = node; at != 0; at = nodes[at].parent) chain.push_back(at);
  std::string path;
  for (const std::uint32_t at : std::views::reverse(chain)) {
    path.append(path.empty() ? "" : "/").append(text(nodes[at].name));
  }
  return path;
}

ImageIndex load_index(const ImageBytes& bytes) { return Loader(bytes).load(); }

}  // namespace bootpress
