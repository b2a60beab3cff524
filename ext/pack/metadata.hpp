// SPDX-License-Identifier: GPL-2.0-or-later
//
// One metadata table on its way to the image: a stream of bytes cut into units of 8 KiB.
//
//   unit: u16 header (low 15 bits: stored bytes; top bit: stored raw), then the bytes
//
// A reference names a unit by its offset in the table, which is known only once all units before
// it are compressed. Raw units have a fixed size, so references past them do not depend on what
// they will hold. A table may begin with such units (hot listings, which refer to everything and
// are filled in last) or end with them (hot inodes, which those listings refer to beforehand).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/bytes.hpp"
#include "codec/codec.hpp"
#include "squashfs/format.hpp"

namespace bootpress {

// Which bytes of the stream lie in units that are stored raw, whatever they hold.
struct RawParts {
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t head = 0;      // the first so many bytes
  std::uint64_t tail = kNone;  // all from this byte on
};

class MetadataTable {
 public:
  // `compressor` may be null: everything raw.
  explicit MetadataTable(Compressor* compressor, RawParts raw = {});

  [[nodiscard]] std::uint64_t size() const { return size_; }  // bytes of the stream so far
  void append(ByteView bytes);
  // Overwrites bytes of the raw head. REQUIRES: offset + bytes.size() <= raw.head and <= size().
  void patch(std::uint64_t offset, ByteView bytes);
  // REQUIRES: offset <= size(); or size() >= raw.tail, that is, only raw units are to come.
  [[nodiscard]] std::uint64_t reference(std::uint64_t offset) const;
  // The table as stored; `starts` gets each unit's offset in it. Ends the table.
  [[nodiscard]] std::vector<std::byte> finish(std::vector<std::uint64_t>* starts = nullptr);

 private:
  static constexpr std::uint64_t kRawUnit = squashfs::kMetadataUnit + 2;
  void close_unit();

  Compressor* compressor_;
  std::uint64_t raw_units_;       // at the beginning
  std::uint64_t first_raw_tail_;  // the unit from which on all are raw
  std::uint64_t size_ = 0;
  std::vector<std::byte> raw_;         // the stream's raw head
  std::vector<std::byte> open_;        // the unit being filled
  std::vector<std::byte> stored_;      // closed units behind the raw ones
  std::vector<std::uint64_t> starts_;  // of those units and the open one, in the table
  std::vector<std::byte> scratch_;
};

}  // namespace bootpress
