// SPDX-License-Identifier: GPL-2.0-or-later
#include "image/tables.hpp"

#include <array>

namespace bootpress {

using squashfs::kAbsent;
using squashfs::kMetadataUnit;
using squashfs::kSuperblockSize;
using squashfs::Superblock;

namespace {

constexpr std::uint64_t kXattrHeader = 16;  // bytes

constexpr std::uint64_t units_for(std::uint64_t bytes) {
  return (bytes + kMetadataUnit - 1) / kMetadataUnit;
}

// Real sets take far less; see XattrTable::decode.
constexpr std::uint64_t xattr_budget(std::uint64_t image_bytes) {
  return (64ULL << 20) + 16 * image_bytes;
}

// Each step takes the place where its table must end, and returns where it begins.
class TableReader {
 public:
  TableReader(const ImageBytes& bytes, const Superblock& superblock, Decompressor& decompressor)
      : bytes_(bytes), superblock_(superblock), decompressor_(decompressor) {}

  Tables read() {
    std::uint64_t end = superblock_.bytes_used;
    end = read_xattrs(end);
    end = read_ids(end);
    end = read_exports(end);
    end = read_fragments(end);
    if (superblock_.inode_table < kSuperblockSize ||
        superblock_.inode_table >= superblock_.directory_table ||
        superblock_.directory_table > end) {
      throw_corrupt("the inode and directory tables are out of order");
    }
    tables_.directory_end = end;
    return std::move(tables_);
  }

 private:
  std::uint64_t read_xattrs(std::uint64_t end) {
    const std::uint64_t at = superblock_.xattr_table;
    if (at == kAbsent) return end;
    if (at < kSuperblockSize || at > end || end - at < kXattrHeader) {
      throw_corrupt("the xattr table lies outside the image");
    }
    std::array<std::byte, kXattrHeader> header{};
    bytes_.read(at, header);
    const auto pairs_at = load_le<std::uint64_t>(header.data());
    const std::uint64_t sets = load_le<std::uint32_t>(header.data() + 8);
    if (sets == 0) throw_corrupt("the xattr table is present but empty");
    const std::uint64_t size = sets * squashfs::kXattrIdSize;
    TableIndex index =
        read_table_index(bytes_, at + kXattrHeader, units_for(size), end, true, "xattr id table");
    index.at = at;  // the units end at the header
    const std::uint64_t last = index.units.back();
    if (last >= at || at - last > kMetadataUnit + 2) {
      throw_corrupt("the xattr id table's index is out of order");
    }
    const std::uint64_t pairs_end = index.units.front();
    if (pairs_at < kSuperblockSize || pairs_at >= pairs_end) {
      throw_corrupt("the xattr table's keys and values lie outside it");
    }
    MetadataChain pairs(bytes_, pairs_at, pairs_end, decompressor_, "xattr table");
    tables_.xattrs = XattrTable(
        std::move(pairs), read_indexed_table(bytes_, index, size, decompressor_, "xattr id table"),
        xattr_budget(superblock_.bytes_used));
    return pairs_at;
  }

  std::uint64_t read_ids(std::uint64_t end) {
    if (superblock_.id_count == 0) throw_corrupt("the id table is empty");
    const std::uint64_t size = std::uint64_t{superblock_.id_count} * 4;
    const TableIndex index =
        read_table_index(bytes_, superblock_.id_table, units_for(size), end, true, "id table");
    const auto content = read_indexed_table(bytes_, index, size, decompressor_, "id table");
    tables_.ids.resize(superblock_.id_count);
    std::memcpy(tables_.ids.data(), content.data(), content.size());
    return index.units.front();
  }

  std::uint64_t read_exports(std::uint64_t end) {
    if (superblock_.export_table == kAbsent) return end;
    if (superblock_.inode_count == 0) throw_corrupt("the image claims to have no inode");
    const std::uint64_t size = std::uint64_t{superblock_.inode_count} * 8;
    tables_.export_index = read_table_index(bytes_, superblock_.export_table, units_for(size), end,
                                            true, "export table");
    return tables_.export_index.units.front();
  }

  std::uint64_t read_fragments(std::uint64_t end) {
    if (superblock_.fragment_count == 0) return end;
    const std::uint64_t size =
        std::uint64_t{superblock_.fragment_count} * squashfs::kFragmentEntrySize;
    const TableIndex index = read_table_index(bytes_, superblock_.fragment_table, units_for(size),
                                              end, false, "fragment table");
    const auto content = read_indexed_table(bytes_, index, size, decompressor_, "fragment table");
    tables_.fragments.reserve(superblock_.fragment_count);
    for (std::size_t at = 0; at < content.size(); at += squashfs::kFragmentEntrySize) {
      tables_.fragments.push_back({load_le<std::uint64_t>(content.data() + at),
                                   load_le<std::uint32_t>(content.data() + at + 8)});
    }
    return index.units.front();
  }

  const ImageBytes& bytes_;
  const Superblock& superblock_;
  Decompressor& decompressor_;
  Tables tables_;
};

}  // namespace

Superblock read_superblock(const ImageBytes& bytes) {
  if (bytes.size() < kSuperblockSize) {
    throw_corrupt("too small for a SquashFS image (" + std::to_string(bytes.size()) + " bytes)");
  }
  std::array<std::byte, kSuperblockSize> raw{};
  bytes.read(0, raw);
  Superblock superblock = squashfs::decode_superblock(raw);
  if (superblock.bytes_used < kSuperblockSize) {
    throw_corrupt("the superblock claims an impossible size");
  }
  if (superblock.bytes_used > bytes.size()) {
    throw_corrupt("the image is cut short: it has " + std::to_string(bytes.size()) + " of " +
                  std::to_string(superblock.bytes_used) + " bytes");
  }
  return superblock;
}

Tables read_tables(const ImageBytes& bytes, const Superblock& superblock,
                   Decompressor& decompressor) {
  return TableReader(bytes, superblock, decompressor).read();
}

std::vector<std::byte> read_codec_record(const ImageBytes& bytes, const Superblock& superblock) {
  if ((superblock.flags & squashfs::flag::compressor_options) == 0) return {};
  std::array<std::byte, 2> header{};
  bytes.read(kSuperblockSize, header);
  const auto word = load_le<std::uint16_t>(header.data());
  const std::size_t length = word & (squashfs::kMetadataRaw - 1);
  if ((word & squashfs::kMetadataRaw) == 0 || length == 0 || length > kMetadataUnit) {
    throw_corrupt("the compressor options are no raw metadata unit");
  }
  std::vector<std::byte> record(length);
  bytes.read(kSuperblockSize + 2, record);
  return record;
}

}  // namespace bootpress
