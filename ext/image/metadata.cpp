// SPDX-License-Identifier: GPL-2.0-or-later
#include "image/metadata.hpp"

#include <algorithm>

namespace bootpress {

using squashfs::kMetadataRaw;
using squashfs::kMetadataUnit;

namespace {

constexpr std::uint64_t kHeader = 2;  // bytes

std::string at_offset(std::string_view what, std::uint64_t offset) {
  return std::string(what) + " at offset " + std::to_string(offset);
}

}  // namespace

void throw_corrupt(const std::string& message) { throw Error(ErrorKind::corrupt, message); }

UnitReader::UnitReader(const ImageBytes& bytes, std::uint64_t end, Decompressor& decompressor)
    : bytes_(&bytes),
      end_(std::min(end, bytes.size())),
      decompressor_(&decompressor),
      stored_(kHeader + kMetadataUnit),
      plain_(kMetadataUnit) {}

UnitReader::Unit UnitReader::read(std::uint64_t at) {
  const std::string what = at_offset("the metadata unit", at);
  if (at >= end_ || end_ - at <= kHeader) throw_corrupt(what + " lies outside its table");
  const std::uint64_t available = std::min<std::uint64_t>(end_ - at, stored_.size());
  const ByteSpan window = ByteSpan(stored_).first(available);
  bytes_->read(at, window);
  const auto header = load_le<std::uint16_t>(window.data());
  const std::size_t length = header & (kMetadataRaw - 1);
  if (length == 0 || length > kMetadataUnit) throw_corrupt(what + " has an impossible size");
  if (length > available - kHeader) throw_corrupt(what + " runs out of its table");
  const ByteView stored = window.subspan(kHeader, length);
  if ((header & kMetadataRaw) != 0) return {kHeader + length, stored};
  std::size_t produced = 0;
  try {
    produced = decompressor_->decompress(stored, plain_);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::corrupt) throw;
    throw_corrupt(what + " is damaged: " + error.what());
  }
  if (produced == 0) throw_corrupt(what + " is empty");
  return {kHeader + length, ByteView(plain_).first(produced)};
}

MetadataChain::MetadataChain(const ImageBytes& bytes, std::uint64_t start, std::uint64_t end,
                             Decompressor& decompressor, std::string_view name)
    : name_(name), start_(start) {
  UnitReader reader(bytes, end, decompressor);
  std::uint64_t at = start;
  while (at < end) {
    try {
      const UnitReader::Unit unit = reader.read(at);
      units_.push_back({at - start, plain_.size()});
      plain_.insert(plain_.end(), unit.plain.begin(), unit.plain.end());
      at += unit.stored;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::corrupt) throw;
      break_ = error.what();
      break;
    }
  }
  end_ = at - start;
  size_ = plain_.size();
}

std::size_t MetadataChain::unit_of(std::uint64_t position) const {
  const auto after = std::ranges::upper_bound(units_, position, {}, &Unit::plain);
  return static_cast<std::size_t>(after - units_.begin()) - 1;
}

std::uint64_t MetadataChain::locate(std::uint64_t unit, std::uint64_t offset) const {
  const auto found = std::ranges::lower_bound(units_, unit, {}, &Unit::at);
  if (found != units_.end() && found->at == unit) {
    const std::uint64_t unit_end = found + 1 == units_.end() ? size_ : found[1].plain;
    if (offset < unit_end - found->plain) return found->plain + offset;
  }
  throw_corrupt("a reference into the " + name_ + " (unit " + std::to_string(unit) + ", offset " +
                std::to_string(offset) + ") leads nowhere" + (break_.empty() ? "" : "; " + break_));
}

std::uint64_t MetadataChain::reference(std::uint64_t position) const {
  const Unit& unit = units_[unit_of(position)];
  return unit.at << 16 | (position - unit.plain);
}

ByteView MetadataChain::slice(std::uint64_t position, std::uint64_t length) const {
  if (position > size_ || length > size_ - position) {
    throw_corrupt("the " + name_ + " ends early" + (break_.empty() ? "" : "; " + break_));
  }
  return ByteView(plain_).subspan(position, length);
}

Extent MetadataChain::stored_extent(std::uint64_t position, std::uint64_t length) const {
  const std::size_t first = unit_of(position);
  const std::size_t last = unit_of(position + length - 1);
  const std::uint64_t stop = last + 1 == units_.size() ? end_ : units_[last + 1].at;
  return {start_ + units_[first].at, stop - units_[first].at};
}

void MetadataChain::drop_content() {
  plain_.clear();
  plain_.shrink_to_fit();
}

TableIndex read_table_index(const ImageBytes& bytes, std::uint64_t at, std::uint64_t units,
                            std::uint64_t end, bool exact, std::string_view name) {
  const std::string what = "the " + std::string(name);
  const std::uint64_t length = units * 8;  // units < 2^32
  if (at < squashfs::kSuperblockSize || at > end || length > end - at ||
      (exact && length != end - at)) {
    throw_corrupt(what + "'s index does not fit between its neighbours");
  }
  TableIndex index;
  index.at = at;
  index.units.resize(units);
  bytes.read(at, std::as_writable_bytes(std::span(index.units)));
  for (std::size_t i = 0; i < units; ++i) {
    const std::uint64_t start = index.units[i];
    const std::uint64_t next = i + 1 < units ? index.units[i + 1] : at;
    if (start < squashfs::kSuperblockSize || start >= next ||
        (exact && next - start > kHeader + kMetadataUnit)) {
      throw_corrupt(what + "'s index is out of order");
    }
  }
  return index;
}

std::vector<std::byte> read_indexed_table(const ImageBytes& bytes, const TableIndex& index,
                                          std::uint64_t size, Decompressor& decompressor,
                                          std::string_view name) {
  UnitReader reader(bytes, index.at, decompressor);
  std::vector<std::byte> table;  // grows with what was really there, not with what was claimed
  for (const std::uint64_t at : index.units) {
    const UnitReader::Unit unit = reader.read(at);
    const std::uint64_t wanted = std::min<std::uint64_t>(size - table.size(), kMetadataUnit);
    if (unit.plain.size() < wanted) throw_corrupt("the " + std::string(name) + " ends early");
    const ByteView taken = unit.plain.first(wanted);
    table.insert(table.end(), taken.begin(), taken.end());
  }
  return table;
}

}  // namespace bootpress
