// SPDX-License-Identifier: GPL-2.0-or-later
//
// One metadata table on its way to the image: a stream of bytes cut into units of 8 KiB.
//
//   unit: u16 header (low 15 bits: stored bytes; top bit: stored raw), then the bytes
//
// A reference names a unit by its offset in the table, which is known only once all units before
// it are compressed. Tables whose first part must be filled in last (hot directories, which refer
// to everything) begin with raw units: their size is fixed, so references past them do not depend
// on what they will hold.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.hpp"
#include "codec/codec.hpp"
#include "squashfs/format.hpp"

namespace bootpress {

class MetadataTable {
 public:
  // `compressor` may be null: everything raw. Units that hold any of the first `raw_bytes` bytes
  // of the stream are stored raw, whatever they hold.
  explicit MetadataTable(Compressor* compressor, std::uint64_t raw_bytes = 0);

  [[nodiscard]] std::uint64_t size() const { return size_; }  // bytes of the stream so far
  void append(ByteView bytes);
  // Overwrites bytes of the raw part. REQUIRES: offset + bytes.size() <= raw_bytes and <= size().
  void patch(std::uint64_t offset, ByteView bytes);
  // REQUIRES: offset <= size().
  [[nodiscard]] std::uint64_t reference(std::uint64_t offset) const;
  // The table as stored; `starts` gets each unit's offset in it. Ends the table.
  [[nodiscard]] std::vector<std::byte> finish(std::vector<std::uint64_t>* starts = nullptr);

 private:
  static constexpr std::uint64_t kRawUnit = squashfs::kMetadataUnit + 2;
  void close_unit();

  Compressor* compressor_;
  std::uint64_t raw_units_;
  std::uint64_t size_ = 0;
  std::vector<std::byte> raw_;         // the stream's raw part
  std::vector<std::byte> open_;        // the unit being filled
  std::vector<std::byte> stored_;      // closed units behind the raw ones
  std::vector<std::uint64_t> starts_;  // of those units and the open one, in the table
  std::vector<std::byte> scratch_;
};

}  // namespace bootpress
