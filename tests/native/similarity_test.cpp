// SPDX-License-Identifier: GPL-2.0-or-later
#include "pack/similarity.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "memory_tree.hpp"

namespace bootpress {
namespace {

using testing::made_up_noise;
using testing::made_up_text;
using testing::MemoryTree;

constexpr std::uint32_t kBlock = 131072;

std::vector<InodeId> files_with_tails(const Tree& tree, std::uint32_t block_size) {
  std::vector<InodeId> files;
  tree.walk([&](const std::string&, InodeId id) {
    const Inode& inode = tree[id];
    if (inode.type == FileType::file && inode.size % block_size != 0) files.push_back(id);
  });
  return files;
}

std::vector<InodeId> order_tree(const Tree& tree, unsigned jobs = 2,
                                std::uint32_t block_size = kBlock) {
  SilentMonitor monitor;
  return order_by_similarity(tree, files_with_tails(tree, block_size), block_size, jobs, monitor);
}

std::vector<std::string> paths(const Tree& tree, const std::vector<InodeId>& files) {
  std::vector<std::string> paths;
  for (const InodeId id : files) paths.push_back(tree.path(id));
  return paths;
}

void expect_permutation(const Tree& tree, std::vector<InodeId> order, std::uint32_t block_size) {
  std::vector<InodeId> files = files_with_tails(tree, block_size);
  std::ranges::sort(files);
  std::ranges::sort(order);
  EXPECT_EQ(order, files);
}

// Which fragment each file falls into where one is filled after the other.
std::vector<std::vector<InodeId>> fill_fragments(const Tree& tree,
                                                 const std::vector<InodeId>& order,
                                                 std::uint32_t block_size) {
  std::vector<std::vector<InodeId>> fragments;
  std::uint64_t filled = block_size;
  for (const InodeId id : order) {
    const std::uint64_t length = tree[id].size % block_size;
    if (filled + length > block_size) {
      fragments.emplace_back();
      filled = 0;
    }
    fragments.back().push_back(id);
    filled += length;
  }
  return fragments;
}

// Text, noise, zeros, empty tails and large files in a few directories.
Tree make_mixed_tree() {
  MemoryTree tree;
  for (std::uint32_t i = 0; i < 300; ++i) {
    const std::string path = "d" + std::to_string(i % 7) + "/f" + std::to_string(i);
    const std::size_t size = 1 + i * 977 % 60000;
    switch (i % 5) {
      case 0:
        tree.file(path, made_up_noise(size, i));
        break;
      case 1:
        tree.file(path, std::string(size, '\0'));
        break;
      case 2:
        tree.file(path, made_up_text(2 * kBlock + size, i % 3));
        break;
      case 3:
        tree.file(path, made_up_noise(size, 1) + made_up_text(i, i));
        break;
      default:
        tree.file(path, made_up_text(size, i % 11));
        break;
    }
  }
  tree.file("empty", "");
  tree.file("full", made_up_text(kBlock, 1));
  return tree.finish();
}

TEST(Similarity, ReturnsAPermutation) {
  const Tree tree = make_mixed_tree();
  for (const std::uint32_t block_size : {4096U, kBlock, 1048576U}) {
    expect_permutation(tree, order_tree(tree, 2, block_size), block_size);
  }
}

TEST(Similarity, IsTheSameForAnyNumberOfThreads) {
  const Tree tree = make_mixed_tree();
  const std::vector<InodeId> alone = order_tree(tree, 1);
  EXPECT_EQ(order_tree(tree, 2), alone);
  EXPECT_EQ(order_tree(tree, 7), alone);
}

TEST(Similarity, TakesNoFile) { EXPECT_TRUE(order_tree(MemoryTree().finish()).empty()); }

TEST(Similarity, TakesOneFile) {
  for (const std::size_t size : {1UL, 7UL, 8UL, 11UL, 12UL, 5000UL}) {
    MemoryTree builder;
    builder.file("only", made_up_text(size, 1));
    const Tree tree = builder.finish();
    EXPECT_EQ(paths(tree, order_tree(tree)), std::vector<std::string>{"only"});
  }
}

TEST(Similarity, KeepsPathOrderWhereNothingIsShared) {
  MemoryTree builder;
  for (std::uint32_t i = 0; i < 50; ++i) {
    builder.file("d" + std::to_string(10 + i) + "/same", made_up_noise(900, i));
  }
  const Tree tree = builder.finish();
  EXPECT_EQ(order_tree(tree), files_with_tails(tree, kBlock));
}

TEST(Similarity, TakesManyFilesOfOneContent) {
  // More sharers than a feature may have: none remains, and path order does.
  MemoryTree builder;
  for (std::uint32_t i = 0; i < 500; ++i) {
    builder.file("d" + std::to_string(1000 + i) + "/same", made_up_text(3000, 1));
  }
  const Tree tree = builder.finish();
  EXPECT_EQ(order_tree(tree), files_with_tails(tree, kBlock));
}

// Four families of files, each with a content of its own, take turns in path order.
TEST(Similarity, GathersInAFragmentWhatSharesContent) {
  constexpr std::size_t kFamilies = 4;
  MemoryTree builder;
  std::vector<std::string> bodies;
  for (std::uint32_t family = 0; family < kFamilies; ++family) {
    bodies.push_back(made_up_noise(15000, 100 + family));
  }
  for (std::uint32_t i = 0; i < 8 * kFamilies; ++i) {
    builder.file("f" + std::to_string(100 + i),
                 made_up_noise(100, i) + bodies[i % kFamilies] + made_up_noise(100, 50 + i));
  }
  const Tree tree = builder.finish();
  const auto fragments = fill_fragments(tree, order_tree(tree), kBlock);
  ASSERT_EQ(fragments.size(), kFamilies);
  for (const std::vector<InodeId>& fragment : fragments) {
    for (const InodeId id : fragment) EXPECT_EQ((id - fragment.front()) % kFamilies, 0U);
  }
}

TEST(Similarity, LooksAtTheTailOfALargeFileOnly) {
  MemoryTree builder;
  for (std::uint32_t i = 0; i < 8; ++i) {
    // The whole blocks say one family, the tails the other.
    builder.file("f" + std::to_string(i),
                 made_up_noise(kBlock, i / 4) + made_up_noise(30000, 10 + i % 2));
  }
  const Tree tree = builder.finish();
  const auto fragments = fill_fragments(tree, order_tree(tree), kBlock);
  ASSERT_EQ(fragments.size(), 2U);
  for (const std::vector<InodeId>& fragment : fragments) {
    for (const InodeId id : fragment) EXPECT_EQ((id - fragment.front()) % 2, 0U);
  }
}

TEST(Similarity, NeedsNoMoreFragmentsThanPathOrder) {
  const Tree tree = make_mixed_tree();
  EXPECT_LE(fill_fragments(tree, order_tree(tree), kBlock).size(),
            fill_fragments(tree, files_with_tails(tree, kBlock), kBlock).size());
}

TEST(Similarity, PassesOnWhatAReaderThrows) {
  MemoryTree builder;
  InodeId broken = kNoInode;
  for (std::uint32_t i = 0; i < 200; ++i) {
    const InodeId id = builder.file("f" + std::to_string(i), made_up_text(1000, i));
    if (i == 150) broken = id;
  }
  builder.source().before_read = [&](InodeId id) {
    if (id == broken) throw Error(ErrorKind::source, "cannot read f150");
  };
  const Tree tree = builder.finish();
  for (const unsigned jobs : {1U, 3U}) {
    try {
      static_cast<void>(order_tree(tree, jobs));
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::source);
      EXPECT_STREQ(error.what(), "cannot read f150");
    }
  }
}

TEST(Similarity, StopsWhenTheMonitorSaysSo) {
  class Stopper final : public Monitor {
   public:
    void tick(const Progress&) override { throw Error(ErrorKind::interrupted, "stop"); }
  };
  const Tree tree = make_mixed_tree();
  Stopper stopper;
  EXPECT_THROW(static_cast<void>(
                   order_by_similarity(tree, files_with_tails(tree, kBlock), kBlock, 2, stopper)),
               Error);
}

}  // namespace
}  // namespace bootpress
