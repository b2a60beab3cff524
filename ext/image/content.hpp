// SPDX-License-Identifier: GPL-2.0-or-later
//
// Compares the content of files in pairs, in parallel, each pair of contents once.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/monitor.hpp"
#include "image/image.hpp"
#include "tree/tree.hpp"

namespace bootpress {

struct ContentResult {
  std::optional<std::uint64_t> differs_at;  // the first byte that differs
};

class ContentPairs {
 public:
  ContentPairs(const Tree& a, const Tree& b);

  // Asks for a pair of files of the same size; returns its number. Hard links, and files of an
  // image that share their blocks, get the number of the pair that stands for them.
  std::size_t add(InodeId a, InodeId b);

  // The results by number.
  [[nodiscard]] std::vector<ContentResult> compare(unsigned jobs, Monitor& monitor) const;

 private:
  struct Pair {
    InodeId a;
    InodeId b;
  };

  [[nodiscard]] std::vector<std::size_t> reading_order() const;
  [[nodiscard]] ContentResult compare_pair(const Pair& pair, ByteSpan buffer) const;
  [[nodiscard]] std::vector<Extent> data_of(const Pair& pair) const;

  const Tree& a_;
  const Tree& b_;
  std::unordered_map<std::uint64_t, InodeId> same_in_a_;  // hash of the blocks → first file
  std::unordered_map<std::uint64_t, InodeId> same_in_b_;
  std::unordered_map<std::uint64_t, std::size_t> numbers_;  // both inodes → pair
  std::vector<Pair> pairs_;
  std::uint64_t bytes_ = 0;
};

}  // namespace bootpress
