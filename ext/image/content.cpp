// SPDX-License-Identifier: GPL-2.0-or-later
#include "image/content.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/parallel.hpp"

namespace bootpress {

namespace {

// Both sides are read in pieces of the largest block size: no block is decompressed twice.
constexpr std::uint64_t kPiece = squashfs::kMaxBlockSize;

const Image* image_of(const Tree& tree) { return dynamic_cast<const Image*>(&tree.source()); }

// The first file known to have the blocks of `file`, or `file` itself.
InodeId representative(const Tree& tree, InodeId file,
                       std::unordered_map<std::uint64_t, InodeId>& known) {
  const Image* image = image_of(tree);
  if (image == nullptr) return file;
  const FileBlocks blocks = image->blocks(tree[file].data);
  const auto [found, is_new] = known.try_emplace(hash_place(blocks), file);
  if (is_new || same_place(blocks, image->blocks(tree[found->second].data))) return found->second;
  return file;
}

// Where a file's content begins in its image, so that neighbours are read together.
std::uint64_t place_of(const Tree& tree, InodeId file) {
  const Image* image = image_of(tree);
  if (image == nullptr) return file;
  const FileBlocks blocks = image->blocks(tree[file].data);
  if (blocks.words.empty() && blocks.fragment != squashfs::kNoFragment) {
    return image->fragments()[blocks.fragment].start;
  }
  return blocks.start;
}

std::vector<Extent> unite(const std::vector<Extent>& a, const std::vector<Extent>& b) {
  std::vector<Extent> all;
  all.reserve(a.size() + b.size());
  std::ranges::merge(a, b, std::back_inserter(all), {}, &Extent::offset, &Extent::offset);
  std::vector<Extent> united;
  for (const Extent& extent : all) {
    if (united.empty() || extent.offset > united.back().offset + united.back().length) {
      united.push_back(extent);
      continue;
    }
    const std::uint64_t end =
        std::max(united.back().offset + united.back().length, extent.offset + extent.length);
    united.back().length = end - united.back().offset;
  }
  return united;
}

}  // namespace

ContentPairs::ContentPairs(const Tree& a, const Tree& b) : a_(a), b_(b) {}

std::size_t ContentPairs::add(InodeId a, InodeId b) {
  const Pair pair{representative(a_, a, same_in_a_), representative(b_, b, same_in_b_)};
  const std::uint64_t key = std::uint64_t{pair.a} << 32 | pair.b;
  const auto [found, is_new] = numbers_.try_emplace(key, pairs_.size());
  if (is_new) {
    pairs_.push_back(pair);
    bytes_ += a_[a].size;
  }
  return found->second;
}

std::vector<std::size_t> ContentPairs::reading_order() const {
  std::vector<std::pair<std::uint64_t, std::size_t>> places;
  places.reserve(pairs_.size());
  const bool by_a = image_of(a_) != nullptr;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    places.emplace_back(by_a ? place_of(a_, pairs_[i].a) : place_of(b_, pairs_[i].b), i);
  }
  std::ranges::sort(places);
  std::vector<std::size_t> order;
  order.reserve(places.size());
  for (const auto& place : places) order.push_back(place.second);
  return order;
}

// A part of the file that may differ: what is not a hole in both.
std::vector<Extent> ContentPairs::data_of(const Pair& pair) const {
  const std::uint64_t size = a_[pair.a].size;
  if (size <= kPiece) return {{.offset = 0, .length = size}};  // not worth asking
  return unite(a_.source().data_extents(a_, pair.a), b_.source().data_extents(b_, pair.b));
}

ContentResult ContentPairs::compare_pair(const Pair& pair, ByteSpan buffer) const {
  const auto reader_a = a_.source().open(a_, pair.a);
  const auto reader_b = b_.source().open(b_, pair.b);
  const ByteSpan from_a = buffer.first(kPiece);
  const ByteSpan from_b = buffer.subspan(kPiece);
  for (const Extent& extent : data_of(pair)) {
    const std::uint64_t end = extent.offset + extent.length;
    std::uint64_t at = extent.offset;
    while (at < end) {
      const std::uint64_t length = std::min(end, (at / kPiece + 1) * kPiece) - at;
      reader_a->read(at, from_a.first(length));
      reader_b->read(at, from_b.first(length));
      if (std::memcmp(from_a.data(), from_b.data(), length) != 0) {
        const auto differing =
            std::ranges::mismatch(from_a.first(length), from_b.first(length)).in1;
        return {at + static_cast<std::uint64_t>(differing - from_a.begin())};
      }
      at += length;
    }
  }
  return {};
}

std::vector<ContentResult> ContentPairs::compare(unsigned jobs, Monitor& monitor) const {
  std::vector<ContentResult> results(pairs_.size());
  const std::vector<std::size_t> order = reading_order();
  std::atomic<std::uint64_t> done_bytes{0};
  std::atomic<std::uint64_t> done_files{0};
  const auto make_worker = [&]() -> Job {
    const auto buffer = std::make_shared<std::vector<std::byte>>(2 * kPiece);
    return [&, buffer](std::uint64_t number) {
      const std::size_t at = order[number];
      results[at] = compare_pair(pairs_[at], *buffer);
      done_bytes += a_[pairs_[at].a].size;
      ++done_files;
    };
  };
  run_parallel(jobs, pairs_.size(), make_worker, monitor, [&] {
    return Progress{.stage = "compare",
                    .done_bytes = done_bytes,
                    .total_bytes = bytes_,
                    .done_files = done_files,
                    .total_files = pairs_.size()};
  });
  return results;
}

}  // namespace bootpress
