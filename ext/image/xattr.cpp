// SPDX-License-Identifier: GPL-2.0-or-later
#include "image/xattr.hpp"

#include <algorithm>

#include "squashfs/format.hpp"

namespace bootpress {

namespace {

constexpr std::size_t kLongestName = 255;     // XATTR_NAME_MAX, prefix included
constexpr std::size_t kLongestValue = 65536;  // XATTR_SIZE_MAX
constexpr std::string_view kWhat = "the xattr table";

ByteView get_value(ByteReader& in) {
  const auto size = in.get<std::uint32_t>();
  if (size > kLongestValue) throw_corrupt("an xattr's value is larger than Linux allows");
  return in.get(size);
}

}  // namespace

XattrTable::XattrTable(MetadataChain pairs, std::vector<std::byte> records, std::uint64_t budget)
    : pairs_(std::move(pairs)), records_(std::move(records)), budget_(budget) {}

Xattr XattrTable::decode_pair(ByteReader& in) {
  const auto type = in.get<std::uint16_t>();
  const auto name_size = in.get<std::uint16_t>();
  const std::string_view name = as_text(in.get(name_size));
  const std::size_t prefix = type & 0xffU;
  if (prefix >= squashfs::kXattrPrefixes.size()) throw_corrupt("an xattr has an unknown prefix");
  Xattr xattr;
  xattr.name = std::string(squashfs::kXattrPrefixes[prefix]) + std::string(name);
  if (name.empty() || xattr.name.size() > kLongestName || name.find('\0') != name.npos) {
    throw_corrupt("an xattr has an impossible name");
  }
  ByteView value = get_value(in);
  if ((type & squashfs::kXattrOutOfLine) != 0) {
    ByteReader reference(value, kWhat);
    const std::uint64_t position = pairs_.locate(reference.get<std::uint64_t>());
    ByteReader out_of_line(pairs_.from(position), kWhat);
    value = get_value(out_of_line);
  }
  xattr.value = as_text(value);
  const std::uint64_t cost = sizeof(Xattr) + xattr.name.size() + xattr.value.size();
  if (cost > budget_)
    throw_corrupt("the xattrs take more room than an image of this size can need");
  budget_ -= cost;
  return xattr;
}

std::vector<Xattr> XattrTable::decode(std::uint32_t id) {
  if (id >= records_.size() / squashfs::kXattrIdSize) {
    throw_corrupt("an inode's set of xattrs does not exist");
  }
  const std::byte* record = records_.data() + std::size_t{id} * squashfs::kXattrIdSize;
  const auto count = load_le<std::uint32_t>(record + 8);
  if (count == 0) return {};
  const std::uint64_t position = pairs_.locate(load_le<std::uint64_t>(record));
  ByteReader in(pairs_.from(position), kWhat);
  std::vector<Xattr> set;  // not reserved: the count is a claim
  while (set.size() < count) set.push_back(decode_pair(in));
  std::ranges::sort(set);
  if (std::ranges::adjacent_find(set, {}, &Xattr::name) != set.end()) {
    throw_corrupt("a set of xattrs holds a name twice");
  }
  return set;
}

}  // namespace bootpress
