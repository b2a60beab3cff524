// SPDX-License-Identifier: GPL-2.0-or-later
//
// Every block to be written, known before any data is read.
//
// A plan follows from names and sizes alone, so the jobs are independent: no worker waits for
// another to know what goes into a fragment. The data region is laid out as
//
//   hot      in first-read order: a file's blocks, and a fragment where its first tail is needed
//   cold     data blocks in path order, then the fragments in cold order
//   last     what the sort list places behind everything else
//
// Fragments never mix these three.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/monitor.hpp"
#include "image/image.hpp"
#include "squashfs/format.hpp"
#include "tree/tree.hpp"

namespace bootpress {

enum class ColdOrder : std::uint8_t { similarity, path, gathered };

struct Order {
  std::vector<InodeId> hot;         // any type, no duplicates: inodes and listings
  std::vector<InodeId> hot_data;    // those of them whose data is hot as well, in its own order
  std::vector<InodeId> cold;        // regular files, for data blocks
  std::vector<InodeId> cold_tails;  // the same files or some of them, for fragments
  std::vector<InodeId> last;        // any type
};

struct OrderOptions {
  std::vector<InodeId> hot;       // in the order of first looks: inodes and listings
  std::vector<InodeId> hot_data;  // REQUIRES: all in `hot`; in the order of first reads
  std::vector<InodeId> last;
  ColdOrder cold_order = ColdOrder::similarity;
  std::uint32_t block_size = 131072;
  bool fragments = true;
  unsigned jobs = 1;
};

// Completes the caller's lists with the cold rest. `original` as find_duplicates() gives it: a
// duplicate is ordered with the first of its group that occurs.
[[nodiscard]] Order order_files(const Tree& tree, std::span<const InodeId> original,
                                const OrderOptions& options, Monitor& monitor);

// Where one distinct content lies; duplicates share it. start and words are filled by the sink.
struct Content {
  std::uint64_t start = 0;       // of the first block, bytes from the image's start; 0: no block
  std::uint64_t first_word = 0;  // in Plan::words
  std::uint32_t word_count = 0;
  std::uint32_t fragment = squashfs::kNoFragment;
  std::uint32_t fragment_offset = 0;
};

// The tail of a file, in a fragment.
struct Piece {
  InodeId file;
  std::uint32_t length;  // bytes
};

// One block to compress: block `block` of inode `subject`, or fragment `subject`. Or bytes to copy
// from another image as they are stored there: those of Plan::copies[`subject`].
struct BlockJob {
  static constexpr std::uint32_t kFragment = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint32_t kCopy = kFragment - 1;
  std::uint32_t subject;
  std::uint32_t block;
  [[nodiscard]] bool is_fragment() const { return block == kFragment; }
  [[nodiscard]] bool is_copy() const { return block == kCopy; }
};

struct Plan {
  static constexpr std::uint32_t kNoContent = std::numeric_limits<std::uint32_t>::max();

  std::uint32_t block_size = 0;
  std::vector<BlockJob> jobs;             // in the order they lie in the image
  std::uint64_t hot_jobs = 0;             // how many of them are the hot region
  std::vector<std::uint32_t> content_of;  // per inode: index into contents, or kNoContent
  std::vector<Content> contents;
  std::vector<std::uint32_t> words;        // block words of all contents; holes are 0 already
  std::vector<Piece> pieces;               // of all fragments, one after the other
  std::vector<std::uint64_t> first_piece;  // per fragment, and the end: length fragments + 1
  std::uint64_t total_bytes = 0;           // that the jobs will read

  // Repacking only: runs of data blocks in the other image, each at most a block's size; and per
  // fragment the one that is kept as it is stored (it has no pieces here), word 0 for those made
  // anew.
  std::vector<Extent> copies;
  std::vector<FragmentEntry> kept_fragments;

  [[nodiscard]] std::size_t fragment_count() const { return first_piece.size() - 1; }
  [[nodiscard]] std::span<const Piece> fragment(std::uint32_t index) const {
    return std::span(pieces).subspan(first_piece[index],
                                     first_piece[index + 1] - first_piece[index]);
  }
  // What a job copies: where it lies in the other image, and its size word there (raw for data
  // blocks: whatever they are). Word 0: nothing, it reads files and compresses.
  [[nodiscard]] FragmentEntry stored_source(const BlockJob& job) const {
    if (job.is_copy()) {
      const Extent& copy = copies[job.subject];
      return {.start = copy.offset,
              .word = static_cast<std::uint32_t>(copy.length) | squashfs::kBlockRaw};
    }
    if (!job.is_fragment() || kept_fragments.empty()) return {};
    return kept_fragments[job.subject];
  }
};

[[nodiscard]] Plan plan_blocks(const Tree& tree, std::span<const InodeId> original,
                               const Order& order, std::uint32_t block_size, bool fragments);

}  // namespace bootpress
