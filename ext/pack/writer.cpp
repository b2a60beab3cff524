// SPDX-License-Identifier: GPL-2.0-or-later
//
// Layout of what is written here (see squashfs/format.hpp for the order of the tables):
//
// inode, common:  u16 type, u16 mode, u16 uid index, u16 gid index, u32 mtime, u32 number
//   directory     + u32 listing unit, u32 links, u16 listing size + 3, u16 offset, u32 parent
//   extended      + u32 links, u32 listing size + 3, u32 listing unit, u32 parent, u16 index
//                   count, u16 offset, u32 xattr; then per index entry u32 byte in the listing,
//                   u32 unit, u32 name length - 1, name
//   file          + u32 start, u32 fragment, u32 offset in it, u32 size; u32 per block
//   extended      + u64 start, u64 size, u64 hole bytes, u32 links, u32 fragment, u32 offset,
//                   u32 xattr; u32 per block
//   symlink       + u32 links, u32 length, target; extended: + u32 xattr
//   device        + u32 links, u32 device; extended: + u32 xattr
//   fifo, socket  + u32 links; extended: + u32 xattr
//
// directory listing, per header (at most 256 entries of one inode unit):
//   u32 count - 1, u32 inode unit, u32 base number; per entry u16 offset in the unit, i16 number -
//   base, u16 basic type, u16 name length - 1, name
#include "pack/writer.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "pack/metadata.hpp"

namespace bootpress {

namespace {

using squashfs::InodeType;
using squashfs::kMetadataUnit;

constexpr std::uint32_t kHeaderSize = 12;      // of a directory listing's header
constexpr std::uint32_t kEntrySize = 8;        // of its entries, without the name
constexpr std::uint32_t kIndexEntrySize = 12;  // without the name
constexpr std::uint32_t kListingExtra = 3;     // the size field counts "." and ".." as three bytes
constexpr std::uint64_t kBasicLimit = 0xffffffff;
constexpr std::uint32_t kBasicListingLimit = 0xffff;

InodeType basic_type(FileType type) {
  switch (type) {
    case FileType::directory:
      return InodeType::directory;
    case FileType::file:
      return InodeType::file;
    case FileType::symlink:
      return InodeType::symlink;
    case FileType::block_device:
      return InodeType::block_device;
    case FileType::char_device:
      return InodeType::char_device;
    case FileType::fifo:
      return InodeType::fifo;
    case FileType::socket:
      return InodeType::socket;
  }
  return InodeType::file;
}

std::uint16_t type_field(FileType type, bool extended) {
  return static_cast<std::uint16_t>(static_cast<std::uint16_t>(basic_type(type)) +
                                    (extended ? 7 : 0));
}

// uid and gid values in the order they are first met.
class IdTable {
 public:
  std::uint16_t index_of(std::uint32_t id) {
    const auto [found, added] = indices_.try_emplace(id, ids_.size());
    if (added) {
      if (ids_.size() == 0xffff) {
        throw Error(ErrorKind::limit, "the tree has more than 65535 different owners and groups",
                    "give everything one owner with --owner");
      }
      ids_.push_back(id);
    }
    return static_cast<std::uint16_t>(found->second);
  }
  [[nodiscard]] const std::vector<std::uint32_t>& ids() const { return ids_; }

 private:
  std::map<std::uint32_t, std::size_t> indices_;
  std::vector<std::uint32_t> ids_;
};

// A run of entries behind one header of a listing.
struct HeaderRun {
  std::size_t first;  // entry
  std::size_t count;
  std::uint64_t offset;  // of the header, in the listing
};

// Where every inode and listing lies in its uncompressed stream. All of it follows from sizes, so
// it is known before anything is compressed.
class TableLayout {
 public:
  TableLayout(const Tree& tree, const Plan& plan, const InodeOrder& order)
      : tree_(tree), plan_(plan), order_(order) {
    inode_offsets_.resize(tree.size());
    listing_offsets_.resize(tree.size());
    listing_sizes_.resize(tree.size());
    index_bytes_.assign(tree.size(), 0);
    no_index_.assign(tree.size(), false);
    settle();
  }

  [[nodiscard]] std::uint64_t inode_offset(InodeId id) const { return inode_offsets_[id]; }
  [[nodiscard]] std::uint64_t listing_offset(InodeId id) const { return listing_offsets_[id]; }
  [[nodiscard]] std::uint64_t listing_size(InodeId id) const { return listing_sizes_[id]; }
  [[nodiscard]] bool extended_directory(InodeId id) const {
    return index_bytes_[id] > 0 || tree_[id].xattrs != 0 ||
           listing_sizes_[id] + kListingExtra > kBasicListingLimit;
  }
  // Hot listings are filled in last, and refer to hot inodes before these are written.
  [[nodiscard]] RawParts raw_inodes() const {
    return order_.hot().empty() ? RawParts{} : RawParts{.tail = inode_offsets_[order_.hot()[0]]};
  }
  [[nodiscard]] RawParts raw_listings() const { return {.head = hot_listing_bytes_}; }

  [[nodiscard]] std::vector<HeaderRun> header_runs(InodeId directory) const {
    std::vector<HeaderRun> runs;
    const std::span<const Entry> entries = tree_.entries(directory);
    std::uint64_t offset = 0;
    for (std::size_t first = 0; first < entries.size();) {
      const std::uint64_t unit = unit_of(entries[first].inode);
      const std::int64_t base = order_.numbers[entries[first].inode];
      HeaderRun run{.first = first, .count = 0, .offset = offset};
      offset += kHeaderSize;
      for (; first < entries.size() && run.count < squashfs::kMaxDirHeaderEntries; ++first) {
        const Entry& entry = entries[first];
        const std::int64_t delta = order_.numbers[entry.inode] - base;
        if (unit_of(entry.inode) != unit || delta < INT16_MIN || delta > INT16_MAX) break;
        ++run.count;
        offset += kEntrySize + entry.name.length;
      }
      runs.push_back(run);
    }
    return runs;
  }

  // The headers that an index names: the first to start in each further unit of the listing.
  [[nodiscard]] std::vector<HeaderRun> indexed_runs(InodeId directory) const {
    if (no_index_[directory]) return {};
    return indexed(directory, header_runs(directory));
  }

  [[nodiscard]] bool extended_file(InodeId id) const {
    const Inode& inode = tree_[id];
    if (inode.links > 1 || inode.xattrs != 0 || inode.size > kBasicLimit) return true;
    const Content* content = content_of(id);
    return content != nullptr && (content->start > kBasicLimit || hole_bytes(id) > 0);
  }
  [[nodiscard]] const Content* content_of(InodeId id) const {
    const std::uint32_t index = plan_.content_of[id];
    return index == Plan::kNoContent ? nullptr : &plan_.contents[index];
  }
  [[nodiscard]] std::span<const std::uint32_t> words_of(const Content& content) const {
    return std::span(plan_.words).subspan(content.first_word, content.word_count);
  }
  // What the file's blocks do not occupy: it becomes st_blocks.
  [[nodiscard]] std::uint64_t hole_bytes(InodeId id) const {
    const Content* content = content_of(id);
    if (content == nullptr) return 0;
    const std::uint64_t size = tree_[id].size;
    std::uint64_t bytes = 0;
    std::uint64_t at = 0;
    for (const std::uint32_t word : words_of(*content)) {
      if (word == 0) bytes += std::min<std::uint64_t>(plan_.block_size, size - at);
      at += plan_.block_size;
    }
    // mksquashfs leaves one byte, so that a file of holes alone is not taken for an empty one.
    return std::min(bytes, size - 1);
  }

 private:
  [[nodiscard]] std::uint64_t unit_of(InodeId id) const {
    return inode_offsets_[id] / kMetadataUnit;
  }

  [[nodiscard]] std::vector<HeaderRun> indexed(InodeId directory,
                                               const std::vector<HeaderRun>& runs) const {
    std::vector<HeaderRun> chosen;
    std::uint64_t unit = listing_offsets_[directory] / kMetadataUnit;
    for (const HeaderRun& run : runs) {
      const std::uint64_t own = (listing_offsets_[directory] + run.offset) / kMetadataUnit;
      if (own != unit) chosen.push_back(run);
      unit = own;
    }
    // The count is a 16-bit field; names beyond are found by walking on from the last entry.
    if (chosen.size() > 0xffff) chosen.resize(0xffff);
    return chosen;
  }

  [[nodiscard]] std::uint64_t inode_size(InodeId id) const {
    const Inode& inode = tree_[id];
    const std::uint64_t xattr = inode.xattrs != 0 ? 4 : 0;
    switch (inode.type) {
      case FileType::directory:
        return extended_directory(id) ? 40 + index_bytes_[id] : 32;
      case FileType::file: {
        const Content* content = content_of(id);
        const std::uint64_t words = content == nullptr ? 0 : content->word_count;
        return (extended_file(id) ? 56 : 32) + 4 * words;
      }
      case FileType::symlink:
        return 24 + inode.target.length + xattr;
      case FileType::block_device:
      case FileType::char_device:
        return 24 + xattr;
      case FileType::fifo:
      case FileType::socket:
        return 20 + xattr;
    }
    return 0;
  }

  // Listings break where the inode table's units break, and the indexes that long listings get lie
  // in the inode table: so the two are laid out in turn until nothing moves. A directory whose
  // index never comes to rest does without one (it only speeds up look-ups), so this ends.
  void settle() {
    constexpr int kFreeRounds = 8;
    for (int round = 0;; ++round) {
      place_inodes();
      place_listings();
      bool moved = false;
      for (const InodeId id : order_.inodes) {
        if (tree_[id].type != FileType::directory) continue;
        std::uint32_t bytes = 0;
        if (!no_index_[id] && listing_sizes_[id] > 0) {
          for (const HeaderRun& run : indexed(id, header_runs(id))) {
            bytes += kIndexEntrySize + tree_.entries(id)[run.first].name.length;
          }
        }
        if (bytes == index_bytes_[id]) continue;
        moved = true;
        if (round >= kFreeRounds) {
          no_index_[id] = true;
          bytes = 0;
        }
        index_bytes_[id] = bytes;
      }
      if (!moved) return;
    }
  }

  void place_inodes() {
    std::uint64_t at = 0;
    for (const InodeId id : order_.inodes) {
      inode_offsets_[id] = at;
      at += inode_size(id);
    }
  }

  void place_listings() {
    hot_listing_bytes_ = place_listings_of(order_.hot(), 0);
    place_listings_of(order_.cold(), hot_listing_bytes_);
  }

  // Returns the end of the last.
  std::uint64_t place_listings_of(std::span<const InodeId> inodes, std::uint64_t at) {
    for (const InodeId id : inodes) {
      if (tree_[id].type != FileType::directory) continue;
      listing_offsets_[id] = at;
      listing_sizes_[id] = listing_bytes(id);
      at += listing_sizes_[id];
    }
    return at;
  }

  [[nodiscard]] std::uint64_t listing_bytes(InodeId id) const {
    std::uint64_t bytes = 0;
    for (const Entry& entry : tree_.entries(id)) bytes += kEntrySize + entry.name.length;
    return bytes + kHeaderSize * header_runs(id).size();
  }

  const Tree& tree_;
  const Plan& plan_;
  const InodeOrder& order_;
  std::vector<std::uint64_t> inode_offsets_;
  std::vector<std::uint64_t> listing_offsets_;
  std::vector<std::uint64_t> listing_sizes_;
  std::vector<std::uint32_t> index_bytes_;
  std::vector<bool> no_index_;
  std::uint64_t hot_listing_bytes_ = 0;
};

class Writer {
 public:
  Writer(const Tree& tree, const Plan& plan, const StoredBlocks& stored, const InodeOrder& order,
         const MetadataOptions& options, ImageSink& sink)
      : tree_(tree),
        stored_(stored),
        order_(order),
        options_(options),
        sink_(sink),
        layout_(tree, plan, order),
        compressor_(make_metadata_compressor(options)),
        inodes_(compressor_.get(), layout_.raw_inodes()),
        listings_(compressor_.get(), layout_.raw_listings()) {}

  squashfs::Superblock run() {
    write_inodes_and_listings();
    squashfs::Superblock s;
    s.inode_count = checked_cast<std::uint32_t>(tree_.size(), "the number of inodes");
    s.mkfs_time = options_.mkfs_time;
    s.block_size = options_.codec.block_size;
    s.block_log = static_cast<std::uint16_t>(std::countr_zero(s.block_size));
    s.fragment_count = static_cast<std::uint32_t>(stored_.fragment_starts.size());
    s.compressor = static_cast<std::uint16_t>(
        options_.codec.id == CodecId::none ? CodecId::gzip : options_.codec.id);
    s.flags = flags();
    s.root_inode = inodes_.reference(layout_.inode_offset(0));
    const std::vector<std::uint64_t> exports = export_references();
    s.inode_table = sink_.position();
    sink_.append(inodes_.finish());
    s.directory_table = sink_.position();
    sink_.append(listings_.finish());
    if (s.fragment_count > 0) s.fragment_table = write_indexed(fragment_entries());
    s.export_table = write_indexed(bytes_of(exports));
    s.id_count = static_cast<std::uint16_t>(ids_.ids().size());
    s.id_table = write_indexed(bytes_of(ids_.ids()));
    if (!tree_.xattr_sets().empty()) s.xattr_table = write_xattrs();
    s.bytes_used = sink_.position();
    return s;
  }

 private:
  static std::unique_ptr<Compressor> make_metadata_compressor(const MetadataOptions& options) {
    if (options.raw || options.codec.id == CodecId::none) return nullptr;
    CodecOptions codec = options.codec;
    codec.bcj = Bcj::none;  // there is no machine code in metadata
    return make_compressor(codec);
  }

  [[nodiscard]] std::uint16_t flags() const {
    namespace flag = squashfs::flag;
    unsigned bits = options_.flags | flag::exportable;
    if (!compressor_) bits |= flag::raw_inodes | flag::raw_xattrs | flag::raw_ids;
    if (tree_.xattr_sets().empty()) bits |= flag::no_xattrs;
    return static_cast<std::uint16_t>(bits);
  }

  // Cold directories refer to what is before them; hot ones to everything, so their listings'
  // place is kept with zeros until everything has its own.
  void write_inodes_and_listings() {
    listings_.append(std::vector<std::byte>(layout_.raw_listings().head));
    for (const InodeId id : order_.cold()) {
      if (tree_[id].type == FileType::directory) listings_.append(listing(id));
      inodes_.append(inode(id));
    }
    for (const InodeId id : order_.hot()) {
      if (tree_[id].type == FileType::directory) {
        listings_.patch(layout_.listing_offset(id), listing(id));
      }
      inodes_.append(inode(id));
    }
  }

  [[nodiscard]] std::vector<std::byte> listing(InodeId directory) const {
    ByteWriter out;
    const std::span<const Entry> entries = tree_.entries(directory);
    for (const HeaderRun& run : layout_.header_runs(directory)) {
      const std::uint64_t unit = reference_of(entries[run.first].inode) >> 16;
      const std::uint32_t base = order_.numbers[entries[run.first].inode];
      out.put(static_cast<std::uint32_t>(run.count - 1));
      out.put(checked_cast<std::uint32_t>(unit, "the inode table's size"));
      out.put(base);
      for (const Entry& entry : entries.subspan(run.first, run.count)) {
        out.put(static_cast<std::uint16_t>(reference_of(entry.inode) & 0xffff));
        out.put(static_cast<std::int16_t>(order_.numbers[entry.inode] - base));
        out.put(type_field(tree_[entry.inode].type, false));
        out.put(static_cast<std::uint16_t>(entry.name.length - 1));
        out.put(as_view(tree_.text(entry.name)));
      }
    }
    return out.take();
  }

  [[nodiscard]] std::uint64_t reference_of(InodeId id) const {
    return inodes_.reference(layout_.inode_offset(id));
  }

  std::vector<std::byte> inode(InodeId id) {
    const Inode& inode = tree_[id];
    switch (inode.type) {
      case FileType::directory:
        return directory_inode(id, inode);
      case FileType::file:
        return file_inode(id, inode);
      default:
        return other_inode(id, inode);
    }
  }

  ByteWriter common(InodeId id, const Inode& inode, bool extended) {
    ByteWriter out;
    out.put(type_field(inode.type, extended)).put(inode.mode);
    out.put(ids_.index_of(inode.uid)).put(ids_.index_of(inode.gid));
    out.put(static_cast<std::uint32_t>(inode.mtime)).put(order_.numbers[id]);
    return out;
  }

  static std::uint32_t xattr_field(const Inode& inode) {
    return inode.xattrs == 0 ? squashfs::kNoXattrs : inode.xattrs - 1;
  }

  std::vector<std::byte> directory_inode(InodeId id, const Inode& inode) {
    const bool extended = layout_.extended_directory(id);
    const std::uint64_t place = listings_.reference(layout_.listing_offset(id));
    const auto unit = checked_cast<std::uint32_t>(place >> 16, "the directory table's size");
    const auto offset = static_cast<std::uint16_t>(place & 0xffff);
    const auto size = checked_cast<std::uint32_t>(layout_.listing_size(id) + kListingExtra,
                                                  "the listing of /" + tree_.path(id));
    // The root has no parent; count + 1 is what mksquashfs writes.
    const std::uint32_t parent = inode.parent == kNoInode
                                     ? static_cast<std::uint32_t>(tree_.size() + 1)
                                     : order_.numbers[inode.parent];
    ByteWriter out = common(id, inode, extended);
    if (!extended) {
      out.put(unit).put(inode.links).put(static_cast<std::uint16_t>(size)).put(offset).put(parent);
      return out.take();
    }
    const std::vector<HeaderRun> index = layout_.indexed_runs(id);
    out.put(inode.links).put(size).put(unit).put(parent);
    out.put(static_cast<std::uint16_t>(index.size())).put(offset).put(xattr_field(inode));
    for (const HeaderRun& run : index) {
      const Entry& entry = tree_.entries(id)[run.first];
      const std::uint64_t at = listings_.reference(layout_.listing_offset(id) + run.offset);
      out.put(static_cast<std::uint32_t>(run.offset));
      out.put(static_cast<std::uint32_t>(at >> 16));
      out.put(entry.name.length - 1).put(as_view(tree_.text(entry.name)));
    }
    return out.take();
  }

  std::vector<std::byte> file_inode(InodeId id, const Inode& inode) {
    const bool extended = layout_.extended_file(id);
    const Content* found = layout_.content_of(id);
    const Content content = found != nullptr ? *found : Content{};
    ByteWriter out = common(id, inode, extended);
    if (extended) {
      out.put(content.start).put(inode.size).put(layout_.hole_bytes(id)).put(inode.links);
      out.put(content.fragment).put(content.fragment_offset).put(xattr_field(inode));
    } else {
      out.put(static_cast<std::uint32_t>(content.start));
      out.put(content.fragment).put(content.fragment_offset);
      out.put(static_cast<std::uint32_t>(inode.size));
    }
    for (const std::uint32_t word : layout_.words_of(content)) out.put(word);
    return out.take();
  }

  std::vector<std::byte> other_inode(InodeId id, const Inode& inode) {
    const bool extended = inode.xattrs != 0;
    ByteWriter out = common(id, inode, extended);
    out.put(inode.links);
    if (inode.type == FileType::symlink) {
      const std::string_view target = tree_.text(inode.target);
      out.put(static_cast<std::uint32_t>(target.size())).put(as_view(target));
    } else if (inode.type == FileType::block_device || inode.type == FileType::char_device) {
      // The kernel's dev_t has 12 bits of major and 20 of minor number.
      if (inode.device_major > 0xfff || inode.device_minor > 0xfffff) {
        throw Error(ErrorKind::limit, "the device numbers of /" + tree_.path(id) +
                                          " do not fit an image (12 and 20 bits)");
      }
      out.put(squashfs::encode_device(inode.device_major, inode.device_minor));
    }
    if (extended) out.put(xattr_field(inode));
    return out.take();
  }

  [[nodiscard]] std::vector<std::uint64_t> export_references() const {
    std::vector<std::uint64_t> references(order_.inodes.size());
    for (const InodeId id : order_.inodes) references[order_.numbers[id] - 1] = reference_of(id);
    return references;
  }

  template <std::integral T>
  static std::vector<std::byte> bytes_of(const std::vector<T>& values) {
    ByteWriter out;
    for (const T value : values) out.put(value);
    return out.take();
  }

  // u64 start, u32 size word, u32 unused.
  [[nodiscard]] std::vector<std::byte> fragment_entries() const {
    ByteWriter out;
    for (std::size_t i = 0; i < stored_.fragment_starts.size(); ++i) {
      out.put(stored_.fragment_starts[i]).put(stored_.fragment_words[i]).put(std::uint32_t{0});
    }
    return out.take();
  }

  // Units, then the index of their places; returns the index's place.
  std::uint64_t write_indexed(ByteView entries) {
    const std::uint64_t base = sink_.position();
    const std::vector<std::uint64_t> starts = write_units(entries);
    const std::uint64_t index = sink_.position();
    ByteWriter out;
    for (const std::uint64_t start : starts) out.put(base + start);
    sink_.append(out.view());
    return index;
  }

  std::vector<std::uint64_t> write_units(ByteView bytes) {
    MetadataTable table(compressor_.get());
    table.append(bytes);
    std::vector<std::uint64_t> starts;
    sink_.append(table.finish(&starts));
    return starts;
  }

  // Key/value units: per xattr u16 type, u16 name length, name; u32 value length, value. A value
  // met before is stored as its place (length 8, u64 reference) with 0x100 in the type.
  // Id units: per set u64 reference, u32 count, u32 bytes. Then u64 start of the key/value units,
  // u32 sets, u32 unused, and the index of the id units. Returns that header's place.
  std::uint64_t write_xattrs() {
    const std::uint64_t base = sink_.position();
    MetadataTable pairs(compressor_.get());
    ByteWriter records;
    std::map<std::string_view, std::uint64_t> known_values;  // value → its place in the stream
    std::uint32_t sets = 0;
    // Inode::xattrs counts from one; sets no inode uses cannot occur (see TreeBuilder).
    for (const std::vector<Xattr>& set : tree_.xattr_sets()) {
      const std::uint64_t start = pairs.size();
      for (const Xattr& xattr : set) write_xattr(xattr, pairs, known_values);
      records.put(pairs.reference(start)).put(static_cast<std::uint32_t>(set.size()));
      records.put(checked_cast<std::uint32_t>(pairs.size() - start, "the size of an xattr set"));
      ++sets;
    }
    sink_.append(pairs.finish());
    const std::uint64_t ids = sink_.position();
    const std::vector<std::uint64_t> starts = write_units(records.view());
    const std::uint64_t header = sink_.position();
    ByteWriter out;
    out.put(base).put(sets).put(std::uint32_t{0});
    for (const std::uint64_t start : starts) out.put(ids + start);
    sink_.append(out.view());
    return header;
  }

  static void write_xattr(const Xattr& xattr, MetadataTable& pairs,
                          std::map<std::string_view, std::uint64_t>& known_values) {
    const auto prefix = std::ranges::find_if(
        squashfs::kXattrPrefixes, [&](std::string_view p) { return xattr.name.starts_with(p); });
    const auto type = static_cast<std::uint16_t>(prefix - squashfs::kXattrPrefixes.begin());
    const std::string_view name = std::string_view(xattr.name).substr(prefix->size());
    // A reference takes eight bytes: shorter values are not worth one.
    const bool worth = xattr.value.size() > 8;
    const auto known = worth ? known_values.find(xattr.value) : known_values.end();
    const bool elsewhere = known != known_values.end();
    ByteWriter out;
    out.put(static_cast<std::uint16_t>(elsewhere ? type | squashfs::kXattrOutOfLine : type));
    out.put(static_cast<std::uint16_t>(name.size())).put(as_view(name));
    if (elsewhere) {
      out.put(std::uint32_t{8}).put(pairs.reference(known->second));
    } else {
      if (worth) known_values.emplace(xattr.value, pairs.size() + out.size());
      out.put(static_cast<std::uint32_t>(xattr.value.size())).put(as_view(xattr.value));
    }
    pairs.append(out.view());
  }

  const Tree& tree_;
  const StoredBlocks& stored_;
  const InodeOrder& order_;
  const MetadataOptions& options_;
  ImageSink& sink_;
  TableLayout layout_;
  std::unique_ptr<Compressor> compressor_;
  MetadataTable inodes_;
  MetadataTable listings_;
  IdTable ids_;
};

// Whether a directory names a hot inode that has other names as well. (Its only name is in a
// directory that leads to it.)
bool names_hot_inode(const Tree& tree, InodeId directory, const std::vector<bool>& hot) {
  return tree[directory].type == FileType::directory && !hot[directory] &&
         std::ranges::any_of(tree.entries(directory), [&](const Entry& entry) {
           return tree[entry.inode].links > 1 && hot[entry.inode] &&
                  tree[entry.inode].type != FileType::directory;
         });
}

}  // namespace

InodeOrder order_inodes(const Tree& tree, const Order& order) {
  std::vector<bool> taken(tree.size(), false);
  std::vector<InodeId> hot;
  const auto take_into = [&](std::vector<InodeId>& list, InodeId id) {
    if (taken[id]) return;
    taken[id] = true;
    list.push_back(id);
  };
  std::vector<InodeId> chain;
  const auto take_with_ancestors = [&](InodeId id) {
    for (InodeId at = id; at != kNoInode && !taken[at]; at = tree[at].parent) chain.push_back(at);
    for (; !chain.empty(); chain.pop_back()) take_into(hot, chain.back());
  };
  for (const InodeId id : order.hot) take_with_ancestors(id);
  if (!hot.empty()) {
    for (InodeId id = 0; id < tree.size(); ++id) {
      if (names_hot_inode(tree, id, taken)) take_with_ancestors(id);
    }
  }

  InodeOrder result;
  result.inodes.reserve(tree.size());
  // Depth first without recursion: subdirectories, then a directory's own files together, then
  // the directory itself.
  struct Level {
    InodeId directory;
    std::size_t next;
  };
  std::vector<Level> levels{{.directory = 0, .next = 0}};
  while (!levels.empty()) {
    Level& level = levels.back();
    const std::span<const Entry> entries = tree.entries(level.directory);
    while (level.next < entries.size() &&
           tree[entries[level.next].inode].type != FileType::directory) {
      ++level.next;
    }
    if (level.next < entries.size()) {
      const InodeId below = entries[level.next++].inode;
      levels.push_back({.directory = below, .next = 0});
      continue;
    }
    for (const Entry& entry : entries) {
      if (tree[entry.inode].type != FileType::directory) take_into(result.inodes, entry.inode);
    }
    take_into(result.inodes, level.directory);
    levels.pop_back();
  }
  result.cold_count = result.inodes.size();
  result.inodes.insert(result.inodes.end(), hot.begin(), hot.end());
  result.numbers.assign(tree.size(), 0);
  for (std::uint32_t number = 0; const InodeId id : result.inodes) result.numbers[id] = ++number;
  return result;
}

squashfs::Superblock write_metadata(const Tree& tree, const Plan& plan, const StoredBlocks& stored,
                                    const InodeOrder& inode_order, const MetadataOptions& options,
                                    ImageSink& sink) {
  return Writer(tree, plan, stored, inode_order, options, sink).run();
}

}  // namespace bootpress
