// SPDX-License-Identifier: GPL-2.0-or-later
#include "pack/repack.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "corpus.hpp"
#include "image/compare.hpp"
#include "memory_tree.hpp"
#include "pack/pack.hpp"

namespace bootpress {
namespace {

using testing::made_up_noise;
using testing::made_up_text;
using testing::MemoryTree;

constexpr std::uint32_t kBlock = 4096;

class RepackTest : public ::testing::Test {
 protected:
  RepackTest()
      : directory_(std::filesystem::temp_directory_path() /
                   ("bootpress-repack-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(directory_);
  }
  ~RepackTest() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::string target() const { return directory_ / "image"; }

  [[nodiscard]] static std::vector<std::byte> read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const ByteView bytes = as_view(text);
    return {bytes.begin(), bytes.end()};
  }

  [[nodiscard]] std::vector<std::byte> packed(const Tree& tree, CodecId id = CodecId::none,
                                              std::vector<InodeId> hot = {}) {
    PackOptions options;
    options.codec = {.id = id, .level = level_range(id).lowest, .block_size = kBlock};
    options.hot = hot;
    options.hot_data = std::move(hot);
    pack_image(tree, target(), options, monitor_);
    return read(target());
  }

  struct Planned {
    std::shared_ptr<const Image> image;
    Tree tree;
    Plan plan;
  };
  Planned plan(const std::vector<std::byte>& bytes, const std::vector<std::string>& hot,
               const std::vector<std::string>& last = {}) {
    const auto image = test::open_bytes(bytes);
    Tree tree = image->tree();
    OrderOptions options{.block_size = kBlock, .fragments = false};
    for (const std::string& path : hot) options.hot.push_back(tree.find(path).value());
    options.hot_data = options.hot;
    for (const std::string& path : last) options.last.push_back(tree.find(path).value());
    options.cold_order = ColdOrder::path;
    const std::vector<InodeId> original = find_shared(*image, tree);
    const Order order = order_files(tree, original, options, monitor_);
    Plan made = plan_repack(*image, tree, original, order);
    return {.image = image, .tree = std::move(tree), .plan = std::move(made)};
  }

  std::filesystem::path directory_;
  SilentMonitor monitor_;
};

// Forty tails of 900 bytes, four to a fragment, and three files with blocks as well.
MemoryTree tails_tree() {
  MemoryTree tree;
  for (std::uint32_t i = 0; i < 40; ++i) {
    tree.file("t/" + std::to_string(100 + i), made_up_noise(900, i));
  }
  tree.file("large/a", made_up_noise(3 * kBlock + 10, 100));
  tree.file("large/b", made_up_noise(2 * kBlock, 101));
  tree.file("large/c",
            made_up_noise(kBlock, 102) + std::string(2 * kBlock, '\0') + made_up_noise(5, 103));
  return tree;
}

std::size_t kept(const Plan& plan) {
  return static_cast<std::size_t>(std::ranges::count_if(
      plan.kept_fragments, [](const FragmentEntry& entry) { return entry.word != 0; }));
}

TEST_F(RepackTest, WithoutAListEverythingIsCopied) {
  MemoryTree made = tails_tree();
  const Planned found = plan(packed(made.finish()), {});
  EXPECT_EQ(kept(found.plan), found.plan.fragment_count());
  EXPECT_EQ(found.plan.fragment_count(), found.image->fragments().size());
  EXPECT_TRUE(found.plan.pieces.empty());
}

TEST_F(RepackTest, OnlyFragmentsThatLoseOrGainATailAreMadeAnew) {
  MemoryTree made = tails_tree();
  const Tree tree = made.finish();
  const Planned before = plan(packed(tree), {});
  std::map<std::uint32_t, std::set<InodeId>> members;
  for (InodeId id = 0; id < before.tree.size(); ++id) {
    if (before.tree[id].type != FileType::file) continue;
    const FileBlocks blocks = before.image->blocks(before.tree[id].data);
    if (blocks.fragment != squashfs::kNoFragment) members[blocks.fragment].insert(id);
  }
  const std::vector<std::string> hot = {"t/131", "t/105", "large/a"};
  const Planned after = plan(read(target()), hot);
  std::set<std::uint32_t> broken;
  std::set<InodeId> hot_ids;
  for (const std::string& path : hot) {
    const InodeId id = after.tree.find(path).value();
    hot_ids.insert(id);
    broken.insert(after.image->blocks(after.tree[id].data).fragment);
  }
  EXPECT_EQ(kept(after.plan), after.image->fragments().size() - broken.size());
  // Made anew: one fragment of hot tails in list order, and those of the tails left behind.
  std::set<InodeId> left;
  for (const std::uint32_t fragment : broken) {
    for (const InodeId id : members[fragment]) {
      if (!hot_ids.contains(id)) left.insert(id);
    }
  }
  std::vector<InodeId> hot_pieces;
  for (std::uint32_t i = 0; i < after.plan.fragment_count(); ++i) {
    for (const Piece& piece : after.plan.fragment(i)) {
      if (i == 0) {
        hot_pieces.push_back(piece.file);
      } else {
        EXPECT_EQ(left.erase(piece.file), 1U);
      }
    }
  }
  EXPECT_TRUE(left.empty());
  std::vector<InodeId> expected;
  for (const std::string& path : hot) expected.push_back(*after.tree.find(path));
  EXPECT_EQ(hot_pieces, expected);
}

TEST_F(RepackTest, EveryStretchIsCopiedOnceInPiecesThatFitABuffer) {
  MemoryTree made = tails_tree();
  const Planned found =
      plan(packed(made.finish(), CodecId::lz4), {"large/b", "t/120"}, {"large/a"});
  std::uint64_t copied = 0;
  for (const Extent& copy : found.plan.copies) {
    EXPECT_GT(copy.length, 0U);
    EXPECT_LE(copy.length, kBlock);
    copied += copy.length;
  }
  std::uint64_t stored = 0;
  for (InodeId id = 0; id < found.tree.size(); ++id) {
    if (found.tree[id].type != FileType::file) continue;
    for (const std::uint32_t word : found.image->blocks(found.tree[id].data).words) {
      stored += word & squashfs::kBlockSizeMask;
    }
  }
  EXPECT_EQ(copied, stored);
  const auto start = [&](const char* path) {
    return found.image->blocks(found.tree[*found.tree.find(path)].data).start;
  };
  EXPECT_TRUE(found.plan.jobs.front().is_copy());
  EXPECT_EQ(found.plan.copies.front().offset, start("large/b"));
  EXPECT_EQ(found.plan.copies.back().offset + found.plan.copies.back().length,
            start("large/a") + 3 * kBlock);
}

TEST_F(RepackTest, NeighboursAreCopiedAsOne) {
  MemoryTree made;
  for (std::uint32_t i = 0; i < 64; ++i) {
    made.file(std::to_string(100 + i), std::string(kBlock, static_cast<char>('a' + i % 26)));
  }
  PackOptions options;
  options.codec = {.id = CodecId::lz4, .level = 1, .block_size = kBlock};
  options.dedupe = false;
  const Tree tree = made.finish();
  pack_image(tree, target(), options, monitor_);
  // Blocks of a few dozen bytes each: all of them fit one copy.
  EXPECT_EQ(plan(read(target()), {}).plan.copies.size(), 1U);
}

TEST_F(RepackTest, FilesThatShareAPartOfTheirBlocksStillDo) {
  MemoryTree made;
  const std::string block[] = {made_up_noise(kBlock, 1), made_up_noise(kBlock, 2),
                               made_up_noise(kBlock, 3)};
  made.file("a", block[0] + block[1]);
  made.file("b", block[1] + block[2]);
  made.file("m", block[1]);
  made.file("z", made_up_noise(2 * kBlock + 7, 9));
  const Tree tree = made.finish();
  std::vector<std::byte> bytes = packed(tree);
  {
    // As squashfs-tools-ng writes it: b begins with a's last block, and m is that block.
    const auto image = test::open_bytes(bytes);
    const auto data_of = [&](const char* path) {
      return image->tree()[image->tree().find(path).value()].data;
    };
    const std::uint64_t start = image->blocks(data_of("a")).start;
    ASSERT_EQ(image->blocks(data_of("b")).start, start + 2 * kBlock);
    const auto put_start = [&](const char* path, std::uint64_t value) {
      const std::uint64_t reference = image->extents(data_of(path)).reference;
      const std::uint64_t inode =
          image->superblock().inode_table + (reference >> 16) + 2 + (reference & 0xffff);
      store_le(bytes.data() + inode + 16, static_cast<std::uint32_t>(value));
    };
    std::ranges::copy(as_view(block[2]),
                      bytes.begin() + static_cast<std::ptrdiff_t>(start + 2 * kBlock));
    put_start("b", start + kBlock);
    put_start("m", start + kBlock);
    bytes[image->superblock().bytes_used] = std::byte{0};  // the seal
  }
  const auto image = test::open_bytes(bytes);
  const Tree patched = image->tree();
  ASSERT_TRUE(compare_trees(tree, patched, {}, monitor_).empty());
  for (const char* hot : {"a", "b", "m", "z"}) {
    const InodeId id = patched.find(hot).value();
    const PackResult result =
        repack_image(*image, patched, target(),
                     {.codec = recorded_options(*image), .hot = {id}, .hot_data = {id}}, monitor_);
    const auto repacked = Image::open(open_image_file(target()));
    EXPECT_TRUE(compare_trees(tree, repacked->tree(), {}, monitor_).empty()) << hot;
    // Three blocks for a, b and m, two and a tail for z.
    EXPECT_EQ(result.blocks.copied_bytes - result.blocks.copied_fragments * 7, 5 * kBlock) << hot;
  }
}

TEST_F(RepackTest, EveryForeignImageKeepsItsTree) {
  for (const std::string& name : test::corpus_images()) {
    const std::vector<std::byte> bytes = test::read_corpus(name);
    const auto image = test::open_bytes(bytes);
    const Tree tree = image->tree();
    RepackOptions options{.codec = recorded_options(*image), .jobs = 2};
    for (InodeId id = 0; id < tree.size(); id += 3) options.hot.push_back(id);
    options.hot_data.assign(options.hot.rbegin(), options.hot.rend());
    repack_image(*image, tree, target(), options, monitor_);
    const auto repacked = Image::open(open_image_file(target()));
    EXPECT_TRUE(compare_trees(tree, repacked->tree(), {}, monitor_).empty()) << name;
    EXPECT_EQ(repacked->superblock().mkfs_time, image->superblock().mkfs_time) << name;
  }
}

// Damaged images are refused, or repacked as far as their damage lies in what is copied unseen.
TEST_F(RepackTest, EveryFileOfTheFuzzCorpusIsSurvived) {
  std::size_t repacked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::corpus_directory())) {
    const std::vector<std::byte> bytes = test::read_corpus(entry.path().filename());
    try {
      const auto image = test::open_bytes(bytes);
      const Tree tree = image->tree();
      RepackOptions options{.codec = recorded_options(*image), .jobs = 2};
      for (InodeId id = 1; id < tree.size(); id += 2) options.hot.push_back(id);
      options.hot_data.assign(options.hot.rbegin(), options.hot.rend());
      repack_image(*image, tree, target(), options, monitor_);
      ++repacked;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()), "") << entry.path();
    }
  }
  EXPECT_GT(repacked, test::corpus_images().size());
}

TEST_F(RepackTest, ABrokenSealIsRefusedAndSoIsADamagedBlockThatMustBeRead) {
  MemoryTree made;
  for (std::uint32_t i = 0; i < 40; ++i) {
    made.file(std::to_string(i), made_up_text(900, i));
  }
  const Tree tree = made.finish();
  std::vector<std::byte> bytes = packed(tree, CodecId::zstd);
  const auto repack = [&] {
    const auto image = test::open_bytes(bytes);
    const Tree read = image->tree();
    // One tail of each fragment.
    std::map<std::uint32_t, InodeId> one_of;
    for (InodeId id = 0; id < read.size(); ++id) {
      if (read[id].type != FileType::file) continue;
      one_of.emplace(image->blocks(read[id].data).fragment, id);
    }
    RepackOptions options{.codec = recorded_options(*image)};
    for (const auto& [fragment, id] : one_of) options.hot.push_back(id);
    options.hot_data = options.hot;
    repack_image(*image, read, target(), options, monitor_);
  };
  repack();
  std::filesystem::remove(target());
  const auto image = test::open_bytes(bytes);
  const FragmentEntry fragment = image->fragments()[3];
  ASSERT_EQ(fragment.word & squashfs::kBlockRaw, 0U);
  bytes[fragment.start + 5] ^= std::byte{1};
  const auto expect_corrupt = [&](const char* part) {
    try {
      repack();
      ADD_FAILURE() << "repacked in spite of " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::corrupt);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    EXPECT_FALSE(std::filesystem::exists(target()));
  };
  expect_corrupt("seal");
  // Without a seal the decompressor notices.
  bytes[image->superblock().bytes_used] = std::byte{0};
  for (std::size_t i = 0; i < 8; ++i) bytes[fragment.start + i] = std::byte{0xff};
  expect_corrupt("damaged");
}

TEST_F(RepackTest, OptionsThatTheRecordContradictsDoNotKeepBlocks) {
  MemoryTree made = tails_tree();
  const Tree tree = made.finish();
  const auto zstd = test::open_bytes(packed(tree, CodecId::zstd));
  const auto gzip = test::open_bytes(packed(tree, CodecId::gzip));
  const auto none = test::open_bytes(packed(tree));
  CodecOptions options = recorded_options(*zstd);
  EXPECT_EQ(options.level, level_range(CodecId::zstd).lowest);
  EXPECT_TRUE(keeps_blocks(*zstd, options));
  EXPECT_FALSE(keeps_blocks(*gzip, options));
  EXPECT_FALSE(keeps_blocks(*none, options));
  options.level = 9;
  EXPECT_FALSE(keeps_blocks(*zstd, options));
  options = recorded_options(*zstd);
  options.block_size = 8192;
  EXPECT_FALSE(keeps_blocks(*zstd, options));
  EXPECT_EQ(recorded_options(*none).id, CodecId::none);
  EXPECT_TRUE(keeps_blocks(*none, recorded_options(*none)));
  EXPECT_FALSE(keeps_blocks(*none, {.id = CodecId::gzip, .level = 9, .block_size = kBlock}));
}

}  // namespace
}  // namespace bootpress
