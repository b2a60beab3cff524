// SPDX-License-Identifier: GPL-2.0-or-later
#include "pack/metadata.hpp"

#include <algorithm>

namespace bootpress {

using squashfs::kMetadataRaw;
using squashfs::kMetadataUnit;

namespace {

void store_unit(std::vector<std::byte>& out, ByteView bytes, bool raw) {
  std::array<std::byte, 2> header{};
  const auto length = static_cast<std::uint16_t>(bytes.size());
  store_le(header.data(), static_cast<std::uint16_t>(raw ? length | kMetadataRaw : length));
  out.insert(out.end(), header.begin(), header.end());
  out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

MetadataTable::MetadataTable(Compressor* compressor, RawParts raw)
    : compressor_(compressor),
      raw_units_((raw.head + kMetadataUnit - 1) / kMetadataUnit),
      first_raw_tail_(raw.tail / kMetadataUnit) {
  starts_.push_back(raw_units_ * kRawUnit);
  scratch_.resize(kMetadataUnit);
}

void MetadataTable::append(ByteView bytes) {
  size_ += bytes.size();
  const std::size_t room = raw_units_ * kMetadataUnit - raw_.size();
  const std::size_t head = std::min(room, bytes.size());
  raw_.insert(raw_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(head));
  bytes = bytes.subspan(head);
  while (!bytes.empty()) {
    const ByteView part = bytes.first(std::min(bytes.size(), kMetadataUnit - open_.size()));
    open_.insert(open_.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
    if (open_.size() == kMetadataUnit) close_unit();
  }
}

void MetadataTable::patch(std::uint64_t offset, ByteView bytes) {
  std::ranges::copy(bytes, raw_.begin() + static_cast<std::ptrdiff_t>(offset));
}

std::uint64_t MetadataTable::reference(std::uint64_t offset) const {
  const std::uint64_t unit = offset / kMetadataUnit;
  std::uint64_t start = unit * kRawUnit;
  if (unit >= raw_units_) {
    // Units behind the open one are not there yet, but they will be raw.
    const std::uint64_t known = std::min<std::uint64_t>(unit - raw_units_, starts_.size() - 1);
    start = starts_[known] + (unit - raw_units_ - known) * kRawUnit;
  }
  return start << 16 | offset % kMetadataUnit;
}

void MetadataTable::close_unit() {
  const bool raw = compressor_ == nullptr || raw_units_ + starts_.size() - 1 >= first_raw_tail_;
  const std::size_t packed =
      raw ? 0 : compressor_->compress(open_, {scratch_.data(), open_.size()});
  store_unit(stored_, packed > 0 ? ByteView(scratch_).first(packed) : ByteView(open_), packed == 0);
  open_.clear();
  starts_.push_back(raw_units_ * kRawUnit + stored_.size());
}

std::vector<std::byte> MetadataTable::finish(std::vector<std::uint64_t>* starts) {
  if (!open_.empty()) close_unit();
  std::vector<std::byte> table;
  std::vector<std::uint64_t> unit_starts;
  for (std::size_t at = 0; at < raw_.size(); at += kMetadataUnit) {
    unit_starts.push_back(table.size());
    store_unit(table, ByteView(raw_).subspan(at, std::min(kMetadataUnit, raw_.size() - at)), true);
  }
  table.insert(table.end(), stored_.begin(), stored_.end());
  if (starts != nullptr) {
    unit_starts.insert(unit_starts.end(), starts_.begin(), starts_.end() - 1);
    *starts = std::move(unit_starts);
  }
  return table;
}

}  // namespace bootpress
