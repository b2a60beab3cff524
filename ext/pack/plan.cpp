// SPDX-License-Identifier: GPL-2.0-or-later
#include "pack/plan.hpp"

#include <algorithm>

#include "pack/similarity.hpp"

namespace bootpress {

namespace {

std::vector<InodeId> without_repeats(const std::vector<InodeId>& list, std::vector<bool>& taken) {
  std::vector<InodeId> out;
  for (const InodeId id : list) {
    if (taken[id]) continue;
    taken[id] = true;
    out.push_back(id);
  }
  return out;
}

// Regular files with content, by name depth first, or as gathered.
std::vector<InodeId> regular_files(const Tree& tree, ColdOrder order) {
  std::vector<InodeId> files;
  const auto take = [&](InodeId id) {
    if (tree[id].type == FileType::file && tree[id].size > 0) files.push_back(id);
  };
  if (order == ColdOrder::gathered) {
    for (InodeId id = 0; id < tree.size(); ++id) take(id);
  } else {
    tree.walk([&](const std::string&, InodeId id) { take(id); });
  }
  return files;
}

// Builds the plan region by region.
class Planner {
 public:
  Planner(const Tree& tree, std::span<const InodeId> original, std::uint32_t block_size,
          bool fragments)
      : tree_(tree), original_(original), fragments_(fragments) {
    plan_.block_size = block_size;
    plan_.content_of.assign(tree.size(), Plan::kNoContent);
    content_of_original_.assign(tree.size(), Plan::kNoContent);
  }

  // Data blocks in the order of `data`, tails in that of `tails`. With `interleaved`, a fragment
  // comes where the first file that needs it comes; otherwise all fragments come last.
  void add_region(std::span<const InodeId> data, std::span<const InodeId> tails, bool interleaved) {
    const std::vector<InodeId> fresh = claim_contents(data);
    const auto first_fragment = static_cast<std::uint32_t>(first_piece_.size());
    if (fragments_) assign_tails(tails);
    std::uint32_t emitted = first_fragment;
    for (const InodeId id : fresh) {
      add_blocks(id);
      const Content& content = plan_.contents[plan_.content_of[id]];
      if (interleaved && content.fragment == emitted) emit_fragment(emitted++);
    }
    while (emitted < first_piece_.size()) emit_fragment(emitted++);
  }

  void end_hot_region() { plan_.hot_jobs = plan_.jobs.size(); }

  Plan finish() {
    plan_.first_piece = std::move(first_piece_);
    plan_.first_piece.push_back(plan_.pieces.size());
    return std::move(plan_);
  }

 private:
  // Gives each file its content; returns the files whose content is not placed yet.
  std::vector<InodeId> claim_contents(std::span<const InodeId> files) {
    std::vector<InodeId> fresh;
    for (const InodeId id : files) {
      const Inode& inode = tree_[id];
      if (inode.type != FileType::file || inode.size == 0) continue;
      std::uint32_t& content = content_of_original_[original_[id]];
      if (content == Plan::kNoContent) {
        content = checked_cast<std::uint32_t>(plan_.contents.size(), "the number of files");
        plan_.contents.push_back({.first_word = plan_.words.size()});
        const bool tail = fragments_ && inode.size % plan_.block_size != 0;
        const std::uint64_t blocks =
            inode.size / plan_.block_size + (inode.size % plan_.block_size != 0 && !tail ? 1 : 0);
        plan_.contents.back().word_count =
            checked_cast<std::uint32_t>(blocks, "the number of blocks of /" + tree_.path(id));
        plan_.words.resize(plan_.words.size() + blocks);
        fresh.push_back(id);
      }
      plan_.content_of[id] = content;
    }
    return fresh;
  }

  void assign_tails(std::span<const InodeId> tails) {
    std::uint32_t filled = plan_.block_size;  // nothing open yet
    for (const InodeId id : tails) {
      if (plan_.content_of[id] == Plan::kNoContent) continue;
      Content& content = plan_.contents[plan_.content_of[id]];
      const auto length = static_cast<std::uint32_t>(tree_[id].size % plan_.block_size);
      if (length == 0 || content.fragment != squashfs::kNoFragment) continue;
      if (length > plan_.block_size - filled) {
        first_piece_.push_back(plan_.pieces.size());
        filled = 0;
      }
      content.fragment = static_cast<std::uint32_t>(first_piece_.size() - 1);
      content.fragment_offset = filled;
      plan_.pieces.push_back({.file = id, .length = length});
      plan_.total_bytes += length;
      filled += length;
    }
  }

  void emit_fragment(std::uint32_t index) {
    plan_.jobs.push_back({.subject = index, .block = BlockJob::kFragment});
  }

  void add_blocks(InodeId id) {
    const Content& content = plan_.contents[plan_.content_of[id]];
    if (content.word_count == 0) return;
    const std::uint64_t size = tree_[id].size;
    std::uint64_t next = 0;  // the first block not looked at yet
    for (const Extent& extent : tree_.source().data_extents(tree_, id)) {
      if (extent.length == 0) continue;
      const std::uint64_t first = std::max(next, extent.offset / plan_.block_size);
      const std::uint64_t last = (extent.offset + extent.length - 1) / plan_.block_size;
      for (next = first; next <= last && next < content.word_count; ++next) {
        plan_.jobs.push_back({.subject = id, .block = static_cast<std::uint32_t>(next)});
        plan_.total_bytes +=
            std::min<std::uint64_t>(plan_.block_size, size - next * plan_.block_size);
      }
    }
  }

  const Tree& tree_;
  std::span<const InodeId> original_;
  bool fragments_;
  Plan plan_;
  std::vector<std::uint64_t> first_piece_;
  std::vector<std::uint32_t> content_of_original_;
};

}  // namespace

Order order_files(const Tree& tree, std::span<const InodeId> original, const OrderOptions& options,
                  Monitor& monitor) {
  Order order;
  std::vector<bool> listed(tree.size(), false);
  order.hot = without_repeats(options.hot, listed);
  std::vector<bool> taken(tree.size(), false);
  order.hot_data = without_repeats(options.hot_data, taken);
  order.last = without_repeats(options.last, taken);
  // A content that a hot file has is not cold, and one that a cold file has is not last.
  std::vector<bool> placed(tree.size(), false);
  for (const InodeId id : order.hot_data) placed[original[id]] = true;
  for (const InodeId id : regular_files(tree, options.cold_order)) {
    if (!taken[id]) order.cold.push_back(id);
  }
  if (!options.fragments) return order;
  for (const InodeId id : order.cold) {
    if (placed[original[id]] || tree[id].size % options.block_size == 0) continue;
    placed[original[id]] = true;
    order.cold_tails.push_back(id);
  }
  if (options.cold_order == ColdOrder::similarity) {
    order.cold_tails =
        order_by_similarity(tree, order.cold_tails, options.block_size, options.jobs, monitor);
  }
  return order;
}

Plan plan_blocks(const Tree& tree, std::span<const InodeId> original, const Order& order,
                 std::uint32_t block_size, bool fragments) {
  Planner planner(tree, original, block_size, fragments);
  planner.add_region(order.hot_data, order.hot_data, true);
  planner.end_hot_region();
  planner.add_region(order.cold, order.cold_tails, false);
  planner.add_region(order.last, order.last, false);
  return planner.finish();
}

}  // namespace bootpress
