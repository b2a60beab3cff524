// SPDX-License-Identifier: GPL-2.0-or-later
#include "image/unpack_plan.hpp"

#include <algorithm>
#include <tuple>

namespace bootpress {

using squashfs::kBlockSizeMask;
using squashfs::kNoFragment;

namespace {

// Larger files are written in pieces of this size, by whoever is free. Small enough that the last
// jobs end together, large enough that opening the file again costs nothing.
constexpr std::uint64_t kPiece = 4ULL << 20;  // bytes
// A job of one fragment writes whole files until their blocks sum up to this.
constexpr std::uint64_t kFragmentJob = 16ULL << 20;  // bytes

class Planner {
 public:
  Planner(const Image& image, const Tree& tree)
      : image_(image),
        tree_(tree),
        block_size_(image.superblock().block_size),
        fragment_load_(image.fragments().size(), 0) {}

  UnpackPlan plan() {
    for (InodeId id = 0; id < tree_.size(); ++id) {
      if (tree_[id].type == FileType::file) add_file(id);
    }
    std::ranges::sort(placed_, {}, [](const Placed& p) {
      return std::tuple(p.place, p.fragment, p.item.file, p.item.first_block);
    });
    for (const Placed& placed : placed_) append(placed);
    return std::move(plan_);
  }

 private:
  struct Placed {
    std::uint64_t place;  // where in the image it is read
    std::uint32_t fragment;
    UnpackItem item;
  };

  void add_file(InodeId id) {
    const FileBlocks blocks = image_.blocks(tree_[id].data);
    const bool has_tail = blocks.fragment != kNoFragment;
    const auto data_blocks = static_cast<std::uint64_t>(
        std::ranges::count_if(blocks.words, [](std::uint32_t word) { return word != 0; }));
    const std::uint64_t bytes = data_blocks * block_size_;
    if (bytes <= kPiece && (!has_tail || fragment_load_[blocks.fragment] + bytes <= kFragmentJob)) {
      if (has_tail) fragment_load_[blocks.fragment] += bytes;
      place(
          {.file = id, .block_count = blocks.words.size(), .start = blocks.start, .tail = has_tail},
          blocks);
      return;
    }
    split_file(id, blocks);
  }

  void split_file(InodeId id, const FileBlocks& blocks) {
    const auto split = static_cast<std::uint32_t>(plan_.split_items.size());
    plan_.split_items.push_back(0);
    const std::uint64_t step = kPiece / block_size_;
    std::uint64_t start = blocks.start;
    for (std::uint64_t first = 0; first < blocks.words.size(); first += step) {
      const std::uint64_t count = std::min<std::uint64_t>(step, blocks.words.size() - first);
      const auto words = blocks.words.subspan(first, count);
      if (std::ranges::all_of(words, [](std::uint32_t word) { return word == 0; })) continue;
      ++plan_.split_items[split];
      place(
          {.file = id, .split = split, .first_block = first, .block_count = count, .start = start},
          blocks);
      for (const std::uint32_t word : words) start += word & kBlockSizeMask;
    }
    if (blocks.fragment != kNoFragment) {
      ++plan_.split_items[split];
      place({.file = id, .split = split, .first_block = blocks.words.size(), .tail = true}, blocks);
    }
  }

  void place(const UnpackItem& item, const FileBlocks& blocks) {
    const std::uint32_t fragment = item.tail ? blocks.fragment : kNoFragment;
    const std::uint64_t at = item.tail ? image_.fragments()[fragment].start : item.start;
    placed_.push_back({at, fragment, item});
  }

  void append(const Placed& placed) {
    const bool joins = placed.fragment != kNoFragment && !plan_.jobs.empty() &&
                       plan_.jobs.back().fragment == placed.fragment;
    if (!joins) {
      plan_.jobs.push_back({.fragment = placed.fragment, .first_item = plan_.items.size()});
    }
    ++plan_.jobs.back().item_count;
    plan_.items.push_back(placed.item);
  }

  const Image& image_;
  const Tree& tree_;
  std::uint64_t block_size_;
  std::vector<std::uint64_t> fragment_load_;  // bytes of blocks in each fragment's job
  std::vector<Placed> placed_;
  UnpackPlan plan_;
};

}  // namespace

UnpackPlan plan_unpack(const Image& image, const Tree& tree) { return Planner(image, tree).plan(); }

}  // namespace bootpress
