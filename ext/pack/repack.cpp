// SPDX-License-Identifier: GPL-2.0-or-later
#include "pack/repack.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>

namespace bootpress {

using squashfs::kBlockSizeMask;
using squashfs::kNoFragment;

namespace {

std::uint64_t stored_bytes(std::span<const std::uint32_t> words) {
  return std::transform_reduce(words.begin(), words.end(), std::uint64_t{0}, std::plus<>(),
                               [](std::uint32_t word) { return word & kBlockSizeMask; });
}

// A tail in the old image; equal ones are one.
struct Tail {
  std::uint32_t fragment = 0;
  std::uint32_t offset = 0;  // bytes, in the decompressed fragment
  std::uint32_t length = 0;
  InodeId file = kNoInode;  // one that has it
  std::uint32_t new_fragment = kNoFragment;
  std::uint32_t new_offset = 0;

  [[nodiscard]] auto place() const { return std::tuple(fragment, offset, length); }
};

// Stored bytes that are copied as one, since files share them.
struct Stretch {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  bool copied = false;
};

class Replanner {
 public:
  Replanner(const Image& image, const Tree& tree, std::span<const InodeId> original)
      : image_(image), tree_(tree), original_(original) {
    plan_.block_size = image.superblock().block_size;
    plan_.content_of.assign(tree.size(), Plan::kNoContent);
    content_of_original_.assign(tree.size(), Plan::kNoContent);
    collect();
  }

  enum class TailOrder : std::uint8_t { files, image };

  // Data in the order of `files`; tails as well, or in that of the old image. With `interleaved`,
  // a fragment comes where the first file that needs it comes; otherwise all fragments come last.
  void add_region(std::span<const InodeId> files, TailOrder tail_order, bool interleaved) {
    const std::vector<InodeId> fresh = claim_contents(files);
    auto emitted = static_cast<std::uint32_t>(pieces_.size());
    region_start_ = plan_.jobs.size();
    assign_tails(tails_of(fresh, tail_order));
    for (const InodeId id : fresh) {
      copy_stretch(id);
      const Content& content = plan_.contents[plan_.content_of[id]];
      if (interleaved && content.fragment == emitted) emit_fragment(emitted++);
    }
    while (emitted < pieces_.size()) emit_fragment(emitted++);
  }

  void end_hot_region() { plan_.hot_jobs = plan_.jobs.size(); }

  Plan finish() {
    for (const std::vector<Piece>& pieces : pieces_) {
      plan_.first_piece.push_back(plan_.pieces.size());
      plan_.pieces.insert(plan_.pieces.end(), pieces.begin(), pieces.end());
    }
    plan_.first_piece.push_back(plan_.pieces.size());
    return std::move(plan_);
  }

 private:
  // All stretches and tails that the tree uses, ascending.
  void collect() {
    for (InodeId id = 0; id < tree_.size(); ++id) {
      if (tree_[id].type != FileType::file || original_[id] != id) continue;
      const FileBlocks blocks = image_.blocks(tree_[id].data);
      if (const std::uint64_t length = stored_bytes(blocks.words); length > 0) {
        stretches_.push_back({.start = blocks.start, .end = blocks.start + length});
      }
      if (blocks.fragment == kNoFragment) continue;
      tails_.push_back({.fragment = blocks.fragment,
                        .offset = blocks.fragment_offset,
                        .length = static_cast<std::uint32_t>(blocks.size % plan_.block_size),
                        .file = id});
    }
    std::ranges::stable_sort(tails_, {}, &Tail::place);
    const auto repeated = std::ranges::unique(tails_, {}, &Tail::place);
    tails_.erase(repeated.begin(), repeated.end());

    std::ranges::sort(stretches_, {}, &Stretch::start);
    std::size_t last = 0;
    for (std::size_t i = 1; i < stretches_.size(); ++i) {
      if (stretches_[i].start < stretches_[last].end) {
        stretches_[last].end = std::max(stretches_[last].end, stretches_[i].end);
      } else {
        stretches_[++last] = stretches_[i];
      }
    }
    if (!stretches_.empty()) stretches_.resize(last + 1);
  }

  // Gives each file its content; returns the files whose content is not placed yet.
  std::vector<InodeId> claim_contents(std::span<const InodeId> files) {
    std::vector<InodeId> fresh;
    for (const InodeId id : files) {
      const Inode& inode = tree_[id];
      if (inode.type != FileType::file || inode.size == 0) continue;
      std::uint32_t& content = content_of_original_[original_[id]];
      if (content == Plan::kNoContent) {
        content = checked_cast<std::uint32_t>(plan_.contents.size(), "the number of files");
        const FileBlocks blocks = image_.blocks(inode.data);
        plan_.contents.push_back({.start = stored_bytes(blocks.words) == 0 ? 0 : blocks.start,
                                  .first_word = plan_.words.size(),
                                  .word_count = checked_cast<std::uint32_t>(
                                      blocks.words.size(), "the number of blocks of a file")});
        plan_.words.insert(plan_.words.end(), blocks.words.begin(), blocks.words.end());
        fresh.push_back(id);
      }
      plan_.content_of[id] = content;
    }
    return fresh;
  }

  [[nodiscard]] std::size_t tail_of(const FileBlocks& blocks) const {
    const std::tuple place(blocks.fragment, blocks.fragment_offset,
                           static_cast<std::uint32_t>(blocks.size % plan_.block_size));
    return static_cast<std::size_t>(std::ranges::lower_bound(tails_, place, {}, &Tail::place) -
                                    tails_.begin());
  }

  // The tails of `files` that have no place yet, each once. Also notes whose they are.
  std::vector<std::size_t> tails_of(std::span<const InodeId> files, TailOrder order) {
    std::vector<std::size_t> tails;
    users_.clear();
    std::vector<bool> seen(tails_.size(), false);
    for (const InodeId id : files) {
      const FileBlocks blocks = image_.blocks(tree_[id].data);
      if (blocks.fragment == kNoFragment) continue;
      const std::size_t tail = tail_of(blocks);
      users_.emplace_back(tail, plan_.content_of[id]);
      if (seen[tail] || tails_[tail].new_fragment != kNoFragment) continue;
      seen[tail] = true;
      tails.push_back(tail);
    }
    if (order == TailOrder::image) std::ranges::sort(tails);
    return tails;
  }

  void assign_tails(std::span<const std::size_t> tails) {
    std::uint32_t open = kNoFragment;  // the fragment that takes what must be made anew
    std::uint32_t filled = 0;
    while (!tails.empty()) {
      if (const std::size_t whole = whole_fragment(tails); whole > 0) {
        keep_fragment(tails.first(whole));
        tails = tails.subspan(whole);
        continue;
      }
      Tail& tail = tails_[tails.front()];
      tails = tails.subspan(1);
      if (open == kNoFragment || tail.length > plan_.block_size - filled) {
        open = new_fragment({});
        filled = 0;
      }
      tail.new_fragment = open;
      tail.new_offset = filled;
      pieces_[open].push_back({.file = tail.file, .length = tail.length});
      plan_.total_bytes += tail.length;
      filled += tail.length;
    }
    for (const auto& [tail, content] : users_) {
      plan_.contents[content].fragment = tails_[tail].new_fragment;
      plan_.contents[content].fragment_offset = tails_[tail].new_offset;
    }
  }

  // How many of the next tails are one old fragment, complete and in its order; 0: they are not.
  [[nodiscard]] std::size_t whole_fragment(std::span<const std::size_t> next) const {
    const std::uint32_t fragment = tails_[next.front()].fragment;
    if (next.front() > 0 && tails_[next.front() - 1].fragment == fragment) return 0;
    std::size_t count = 0;
    for (std::size_t tail = next.front(); tail < tails_.size(); ++tail, ++count) {
      if (tails_[tail].fragment != fragment) break;
      if (count == next.size() || next[count] != tail) return 0;
    }
    return count;
  }

  void keep_fragment(std::span<const std::size_t> tails) {
    const FragmentEntry& kept = image_.fragments()[tails_[tails.front()].fragment];
    const std::uint32_t number = new_fragment(kept);
    for (const std::size_t tail : tails) {
      tails_[tail].new_fragment = number;
      tails_[tail].new_offset = tails_[tail].offset;
    }
    plan_.total_bytes += kept.word & kBlockSizeMask;
  }

  std::uint32_t new_fragment(const FragmentEntry& kept) {
    plan_.kept_fragments.push_back(kept);
    pieces_.emplace_back();
    return static_cast<std::uint32_t>(pieces_.size() - 1);
  }

  void emit_fragment(std::uint32_t index) {
    plan_.jobs.push_back({.subject = index, .block = BlockJob::kFragment});
  }

  void copy_stretch(InodeId id) {
    const std::uint64_t start = plan_.contents[plan_.content_of[id]].start;
    if (start == 0) return;
    Stretch& stretch = *(std::ranges::upper_bound(stretches_, start, {}, &Stretch::start) - 1);
    if (stretch.copied) return;
    stretch.copied = true;
    plan_.total_bytes += stretch.end - stretch.start;
    for (std::uint64_t at = stretch.start; at < stretch.end;) {
      Extent& copy = copy_to_extend(at);
      const std::uint64_t length =
          std::min<std::uint64_t>(stretch.end - at, plan_.block_size - copy.length);
      copy.length += length;
      at += length;
    }
  }

  // The copy that ends at `at` and has room, or a new one: neighbours are copied as one.
  Extent& copy_to_extend(std::uint64_t at) {
    const bool follows = plan_.jobs.size() > region_start_ && plan_.jobs.back().is_copy();
    if (!follows || plan_.copies.back().offset + plan_.copies.back().length != at ||
        plan_.copies.back().length == plan_.block_size) {
      plan_.jobs.push_back(
          {.subject = checked_cast<std::uint32_t>(plan_.copies.size(), "the number of blocks"),
           .block = BlockJob::kCopy});
      plan_.copies.push_back({.offset = at, .length = 0});
    }
    return plan_.copies.back();
  }

  const Image& image_;
  const Tree& tree_;
  std::span<const InodeId> original_;
  Plan plan_;
  std::vector<Tail> tails_;
  std::vector<Stretch> stretches_;
  std::vector<std::vector<Piece>> pieces_;                    // per new fragment
  std::vector<std::pair<std::size_t, std::uint32_t>> users_;  // (tail, content) of a region
  std::vector<std::uint32_t> content_of_original_;
  std::size_t region_start_ = 0;  // its first job
};

}  // namespace

std::vector<InodeId> find_shared(const Image& image, const Tree& tree) {
  std::vector<InodeId> original(tree.size());
  std::iota(original.begin(), original.end(), InodeId{0});
  std::unordered_map<std::uint64_t, InodeId> known;
  for (InodeId id = 0; id < tree.size(); ++id) {
    if (tree[id].type != FileType::file || tree[id].size == 0) continue;
    const FileBlocks blocks = image.blocks(tree[id].data);
    const auto [first, is_new] = known.try_emplace(hash_place(blocks), id);
    if (!is_new && same_place(blocks, image.blocks(tree[first->second].data))) {
      original[id] = first->second;
    }
  }
  return original;
}

Plan plan_repack(const Image& image, const Tree& tree, std::span<const InodeId> original,
                 const Order& order) {
  using TailOrder = Replanner::TailOrder;
  Replanner planner(image, tree, original);
  planner.add_region(order.hot_data, TailOrder::files, true);
  planner.end_hot_region();
  planner.add_region(order.cold, TailOrder::image, false);
  planner.add_region(order.last, TailOrder::files, false);
  return planner.finish();
}

void relocate_contents(Plan& plan, const StoredBlocks& stored) {
  std::vector<std::uint32_t> by_offset(plan.copies.size());
  std::iota(by_offset.begin(), by_offset.end(), 0U);
  const auto offset_of = [&](std::uint32_t copy) { return plan.copies[copy].offset; };
  std::ranges::sort(by_offset, {}, offset_of);
  for (Content& content : plan.contents) {
    if (content.start == 0) continue;
    const std::uint32_t copy =
        *(std::ranges::upper_bound(by_offset, content.start, {}, offset_of) - 1);
    content.start = stored.copy_starts[copy] + (content.start - plan.copies[copy].offset);
  }
}

}  // namespace bootpress
