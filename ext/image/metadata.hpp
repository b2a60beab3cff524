// SPDX-License-Identifier: GPL-2.0-or-later
//
// Metadata units and the two kinds of tables made of them:
//
//   a chain    units back to back; entries cross units and are found by references
//              (inode table, directory table, xattr keys and values)
//   indexed    units of fixed-size entries, then one u64 per unit: where it starts
//              (fragment, export, id and xattr id tables)
//
// unit: u16 header (low 15 bits: stored bytes, top bit: stored raw), then the stored bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "codec/codec.hpp"
#include "image/image.hpp"

namespace bootpress {

// A `corrupt` error.
[[noreturn]] void throw_corrupt(const std::string& message);

// Decodes single units that lie before `end`.
class UnitReader {
 public:
  UnitReader(const ImageBytes& bytes, std::uint64_t end, Decompressor& decompressor);

  struct Unit {
    std::uint64_t stored;  // bytes in the image, header included
    ByteView plain;        // valid until the next read
  };
  [[nodiscard]] Unit read(std::uint64_t at);

 private:
  const ImageBytes* bytes_;
  std::uint64_t end_;
  Decompressor* decompressor_;
  std::vector<std::byte> stored_;
  std::vector<std::byte> plain_;
};

// A chain, decompressed whole: at most 8 KiB per unit. The kernel reads units only when a
// reference leads there, so a chain simply ends at the first unit that cannot be decoded; a
// reference behind it is the error.
class MetadataChain {
 public:
  MetadataChain() = default;
  // Decodes the units from `start` up to `end`.
  MetadataChain(const ImageBytes& bytes, std::uint64_t start, std::uint64_t end,
                Decompressor& decompressor, std::string_view name);

  // Where a reference leads in the decompressed chain.
  [[nodiscard]] std::uint64_t locate(std::uint64_t unit, std::uint64_t offset) const;
  [[nodiscard]] std::uint64_t locate(std::uint64_t reference) const {
    return locate(reference >> 16, reference & 0xffff);
  }
  // The reference that leads to a position.
  [[nodiscard]] std::uint64_t reference(std::uint64_t position) const;
  [[nodiscard]] ByteView from(std::uint64_t position) const {
    return ByteView(plain_).subspan(position);
  }
  [[nodiscard]] ByteView slice(std::uint64_t position, std::uint64_t length) const;
  // The units that hold `length` bytes (at least one) from `position` on, headers included.
  [[nodiscard]] Extent stored_extent(std::uint64_t position, std::uint64_t length) const;
  [[nodiscard]] std::uint64_t size() const { return size_; }  // decompressed bytes
  // Frees the decompressed bytes; references and extents still resolve.
  void drop_content();

 private:
  struct Unit {
    std::uint64_t at;     // from the chain's start
    std::uint64_t plain;  // its first byte in the decompressed chain
  };
  [[nodiscard]] std::size_t unit_of(std::uint64_t position) const;

  std::string name_;
  std::uint64_t start_ = 0;
  std::uint64_t end_ = 0;  // of the last unit, from the chain's start
  std::uint64_t size_ = 0;
  std::vector<Unit> units_;
  std::vector<std::byte> plain_;
  std::string break_;  // why the chain ended early
};

// Where an indexed table's units lie.
struct TableIndex {
  std::vector<std::uint64_t> units;
  std::uint64_t at = 0;  // of the index itself
};

// Reads an index of `units` entries at `at`, that ends by `end`. `exact`: the kernel demands that
// the units follow each other without gaps and that the index ends at `end`.
[[nodiscard]] TableIndex read_table_index(const ImageBytes& bytes, std::uint64_t at,
                                          std::uint64_t units, std::uint64_t end, bool exact,
                                          std::string_view name);

// Reads `size` bytes of entries through the index.
[[nodiscard]] std::vector<std::byte> read_indexed_table(const ImageBytes& bytes,
                                                        const TableIndex& index, std::uint64_t size,
                                                        Decompressor& decompressor,
                                                        std::string_view name);

}  // namespace bootpress
