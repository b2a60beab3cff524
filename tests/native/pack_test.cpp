// SPDX-License-Identifier: GPL-2.0-or-later
#include "pack/pack.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "image/compare.hpp"
#include "image/image.hpp"
#include "memory_tree.hpp"
#include "pack/check.hpp"
#include "pack/dedupe.hpp"
#include "pack/metadata.hpp"
#include "pack/writer.hpp"

namespace bootpress {
namespace {

using testing::made_up_noise;
using testing::made_up_text;
using testing::MemoryTree;

class PackTest : public ::testing::Test {
 protected:
  PackTest()
      : directory_(std::filesystem::temp_directory_path() /
                   ("bootpress-pack-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(directory_);
  }
  ~PackTest() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::string target() const { return directory_ / "image.squashfs"; }
  [[nodiscard]] std::string image_bytes() const {
    std::ifstream in(target(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  [[nodiscard]] bool directory_is_empty() const { return std::filesystem::is_empty(directory_); }

  static PackOptions options(CodecId id = CodecId::zstd, std::uint32_t block_size = 4096) {
    PackOptions o;
    o.codec = {.id = id, .level = level_range(id).lowest, .block_size = block_size};
    return o;
  }

  std::filesystem::path directory_;
  SilentMonitor monitor_;
};

// A few hundred files of many sizes in a few directories, with duplicates, holes and hard links.
MemoryTree varied_tree() {
  MemoryTree tree;
  for (std::uint32_t i = 0; i < 300; ++i) {
    const std::string path = "d" + std::to_string(i % 7) + "/f" + std::to_string(i);
    const std::size_t size = (i * 977) % 20000;
    tree.file(path, i % 5 == 0 ? made_up_noise(size, i) : made_up_text(size, i));
  }
  tree.file("same/a", made_up_text(9000, 1000));
  tree.file("same/b", made_up_text(9000, 1000));
  tree.file("zeros", std::string(50000, '\0'));
  tree.file("holes", made_up_text(4096, 1) + std::string(12288, '\0') + made_up_text(5000, 2));
  tree.directory("empty");
  tree.file("nothing", "");
  tree.link("d0/hard", tree.file("d0/original", made_up_text(100, 7)));
  tree.file("tagged", "x", {{.name = "user.tag", .value = std::string(300, 'v')}});
  tree.file("tagged2", "y",
            {{.name = "user.tag", .value = std::string(300, 'v')},
             {.name = "security.other", .value = "w"}});
  return tree;
}

TEST_F(PackTest, EveryCodecReadsBackThroughTheReader) {
  for (const CodecId id :
       {CodecId::none, CodecId::gzip, CodecId::lzo, CodecId::xz, CodecId::lz4, CodecId::zstd}) {
    MemoryTree made = varied_tree();
    const Tree tree = made.finish();
    const PackResult result = pack_image(tree, target(), options(id), monitor_);
    EXPECT_EQ(result.duplicate_files, 1U);
    EXPECT_GT(result.blocks.hole_blocks, 10U);
    const auto image = Image::open(open_image_file(target()));
    EXPECT_TRUE(compare_trees(tree, image->tree(), {}, monitor_).empty()) << codec_name(id);
    EXPECT_EQ(image->check_seal(monitor_), Image::SealState::intact);
  }
}

TEST_F(PackTest, SameBytesForAnyNumberOfWorkersUnderRandomDelays) {
  std::string expected;
  for (const unsigned jobs : {1U, 2U, 7U}) {
    MemoryTree made = varied_tree();
    std::atomic<std::uint32_t> seed{jobs};
    made.source().before_read = [&](InodeId) {
      std::mt19937 random(seed++);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    };
    const Tree tree = made.finish();
    PackOptions o = options();
    o.jobs = jobs;
    o.memory = 12 * 4096;  // few slots, so that workers do wait for one another's turn
    o.hot = {*tree.find("d3/f101"), *tree.find("holes"), *tree.find("d0/hard")};
    o.hot_data = o.hot;
    pack_image(tree, target(), o, monitor_);
    if (expected.empty()) expected = image_bytes();
    EXPECT_TRUE(image_bytes() == expected) << jobs << " workers";
  }
}

TEST_F(PackTest, FailingReadLeavesNothingAndNamesTheError) {
  MemoryTree made = varied_tree();
  std::atomic<int> reads{0};
  made.source().before_read = [&](InodeId) {
    if (++reads == 150) throw Error(ErrorKind::source, "cannot read d1/f8: Input/output error");
  };
  const Tree tree = made.finish();
  PackOptions o = options();
  o.jobs = 4;
  o.dedupe = false;
  try {
    pack_image(tree, target(), o, monitor_);
    FAIL() << "packed in spite of a read error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::source);
    EXPECT_STREQ(error.what(), "cannot read d1/f8: Input/output error");
  }
  EXPECT_TRUE(directory_is_empty());
}

TEST_F(PackTest, InterruptAtEveryStageLeavesNothing) {
  class Interrupting final : public Monitor {
   public:
    explicit Interrupting(std::string_view stage) : stage_(stage) {}
    void tick(const Progress& progress) override {
      if (progress.stage == stage_) throw Error(ErrorKind::interrupted, "stopped");
    }

   private:
    std::string_view stage_;
  };
  for (const std::string_view stage : {"dedupe", "compress", "verify"}) {
    MemoryTree made = varied_tree();
    const Tree tree = made.finish();
    Interrupting monitor(stage);
    PackOptions o = options();
    o.jobs = 3;
    EXPECT_THROW(pack_image(tree, target(), o, monitor), Error) << stage;
    EXPECT_TRUE(directory_is_empty()) << stage;
  }
}

TEST_F(PackTest, AnExistingImageStaysWhenPackingFails) {
  std::ofstream(target()) << "precious";
  MemoryTree made = varied_tree();
  made.source().before_read = [](InodeId) { throw Error(ErrorKind::source, "no"); };
  const Tree tree = made.finish();
  EXPECT_THROW(pack_image(tree, target(), options(), monitor_), Error);
  EXPECT_EQ(image_bytes(), "precious");
}

// A codec on a machine with a bad memory cell: one block comes out as another.
class DamagingCompressor final : public Compressor {
 public:
  explicit DamagingCompressor(std::atomic<int>& calls) : calls_(calls) {}
  std::size_t compress(ByteView in, ByteSpan out) override {
    std::vector<std::byte> copy(in.begin(), in.end());
    if (++calls_ == 100) copy[copy.size() / 2] ^= std::byte{1};
    return inner_->compress(copy, out);
  }

 private:
  std::atomic<int>& calls_;
  std::unique_ptr<Compressor> inner_ =
      make_compressor({.id = CodecId::zstd, .level = 3, .block_size = 4096});
};

TEST_F(PackTest, ABlockDamagedWhileCompressingIsFoundByTheCheck) {
  MemoryTree made = varied_tree();
  const Tree tree = made.finish();
  const std::vector<InodeId> original = find_duplicates(tree, 1, monitor_);
  const Order order = order_files(tree, original, {.block_size = 4096}, monitor_);
  Plan plan = plan_blocks(tree, original, order, 4096, true);
  OutputFile output(target());
  ImageSink sink(output, squashfs::kSuperblockSize);
  std::atomic<int> calls{0};
  const StoredBlocks stored = compress_blocks(
      tree, plan, sink,
      {.make_compressor = [&] { return std::make_unique<DamagingCompressor>(calls); }, .jobs = 2},
      monitor_);
  const squashfs::Superblock superblock =
      write_metadata(tree, plan, stored, order_inodes(tree, order),
                     {.codec = {.id = CodecId::zstd, .level = 15, .block_size = 4096}}, sink);
  sink.finish(squashfs::encode(superblock));
  const auto image = Image::open(open_image_descriptor(output.fd(), target()));
  EXPECT_THROW(check_packed(*image, tree, plan, stored, 2, monitor_), Error);
  EXPECT_TRUE(directory_is_empty()) << "an output that is not committed has a name";
}

TEST_F(PackTest, TargetThatIsADirectoryIsRefused) {
  MemoryTree made = varied_tree();
  const Tree tree = made.finish();
  EXPECT_THROW(pack_image(tree, directory_.string(), options(), monitor_), Error);
}

Order complete_order(const Tree& tree, const std::vector<InodeId>& hot,
                     std::vector<InodeId> last = {}) {
  SilentMonitor monitor;
  const std::vector<InodeId> original = find_duplicates(tree, 1, monitor);
  return order_files(tree, original,
                     {.hot = hot, .hot_data = hot, .last = std::move(last), .block_size = 4096},
                     monitor);
}

Plan complete_plan(const Tree& tree, const Order& order) {
  SilentMonitor monitor;
  return plan_blocks(tree, find_duplicates(tree, 1, monitor), order, 4096, true);
}

TEST(Plan, HotBlocksComeFirstInListOrderAndHotFragmentsHoldNothingCold) {
  MemoryTree made = varied_tree();
  const Tree tree = made.finish();
  const std::vector<InodeId> hot = {*tree.find("same/b"), *tree.find("d4/f200"),
                                    *tree.find("d0/f21"), *tree.find("d2/f9")};
  const Order order = complete_order(tree, hot);
  const Plan plan = complete_plan(tree, order);
  std::vector<InodeId> first_blocks;
  std::set<InodeId> in_hot_fragments;
  for (std::size_t i = 0; i < plan.hot_jobs; ++i) {
    const BlockJob& job = plan.jobs[i];
    if (!job.is_fragment()) {
      if (first_blocks.empty() || first_blocks.back() != job.subject) {
        first_blocks.push_back(job.subject);
      }
      continue;
    }
    for (const Piece& piece : plan.fragment(job.subject)) in_hot_fragments.insert(piece.file);
  }
  std::vector<InodeId> with_blocks;
  std::ranges::copy_if(hot, std::back_inserter(with_blocks),
                       [&](InodeId id) { return tree[id].size >= plan.block_size; });
  EXPECT_EQ(with_blocks.size(), 3U);
  EXPECT_EQ(first_blocks, with_blocks);
  EXPECT_EQ(in_hot_fragments, std::set<InodeId>(hot.begin(), hot.end()));
}

TEST(Plan, EveryByteOfEveryContentIsPlannedOnce) {
  MemoryTree made = varied_tree();
  const Tree tree = made.finish();
  const Plan plan = complete_plan(tree, complete_order(tree, {*tree.find("zeros")}));
  std::uint64_t bytes = 0;
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  for (const BlockJob& job : plan.jobs) {
    EXPECT_TRUE(seen.emplace(job.subject, job.block).second);
    if (job.is_fragment()) {
      std::uint32_t filled = 0;
      for (const Piece& piece : plan.fragment(job.subject)) filled += piece.length;
      EXPECT_LE(filled, plan.block_size);
      bytes += filled;
    } else {
      bytes += std::min<std::uint64_t>(4096, tree[job.subject].size - job.block * 4096ULL);
    }
  }
  std::uint64_t distinct = 0;
  for (InodeId id = 0; id < tree.size(); ++id) {
    if (tree[id].type == FileType::file) distinct += tree[id].size;
  }
  EXPECT_EQ(bytes, distinct - 9000);  // same/a and same/b are one
  EXPECT_EQ(bytes, plan.total_bytes);
}

TEST(Plan, HotInodesWithoutHotDataLeaveItToTheColdOrLastRegion) {
  MemoryTree made = varied_tree();
  const Tree tree = made.finish();
  const InodeId data = *tree.find("d0/f21");
  const InodeId metadata = *tree.find("d4/f200");
  const InodeId behind = *tree.find("d2/f9");
  SilentMonitor monitor;
  const Order order = order_files(tree, find_duplicates(tree, 1, monitor),
                                  {.hot = {metadata, data, behind, metadata},
                                   .hot_data = {data, data},
                                   .last = {behind},
                                   .block_size = 4096},
                                  monitor);
  EXPECT_EQ(order.hot, (std::vector{metadata, data, behind}));
  EXPECT_EQ(order.hot_data, std::vector{data});
  EXPECT_EQ(order.last, std::vector{behind});
  EXPECT_EQ(std::ranges::count(order.cold, metadata), 1);
  EXPECT_EQ(std::ranges::count(order.cold_tails, metadata), 1);
  EXPECT_EQ(std::ranges::count(order.cold, behind), 0);
  const InodeOrder inodes = order_inodes(tree, order);
  for (const InodeId id : order.hot) EXPECT_GT(inodes.numbers[id], inodes.cold_count);
}

TEST(Plan, DataHasAnOrderOfItsOwn) {
  MemoryTree made = varied_tree();
  const Tree tree = made.finish();
  const InodeId first = *tree.find("d4/f200");
  const InodeId second = *tree.find("same/b");
  SilentMonitor monitor;
  const Order order = order_files(
      tree, find_duplicates(tree, 1, monitor),
      {.hot = {first, second}, .hot_data = {second, first}, .block_size = 4096}, monitor);
  const InodeOrder inodes = order_inodes(tree, order);
  EXPECT_LT(inodes.numbers[first], inodes.numbers[second]);
  const Plan plan = complete_plan(tree, order);
  EXPECT_EQ(plan.jobs.front().subject, second);
  EXPECT_EQ(plan.pieces.front().file, second);
  EXPECT_EQ(plan.pieces[1].file, first);
}

TEST(Plan, LastFilesLieBehindEverythingElse) {
  MemoryTree made = varied_tree();
  const Tree tree = made.finish();
  const InodeId last = *tree.find("d4/f200");
  const Plan plan = complete_plan(tree, complete_order(tree, {}, {last}));
  ASSERT_TRUE(plan.jobs.back().is_fragment());
  const auto pieces = plan.fragment(plan.jobs.back().subject);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].file, last);
}

TEST(InodeOrder, HotInodesEndTheTableBehindTheirDirectoriesAndColdDirectoriesFollowTheirContent) {
  MemoryTree made = varied_tree();
  const Tree tree = made.finish();
  const InodeId hot = *tree.find("d2/f9");
  const InodeOrder order = order_inodes(tree, complete_order(tree, {hot}));
  EXPECT_EQ(std::vector(order.hot().begin(), order.hot().end()),
            (std::vector{InodeId{0}, *tree.find("d2"), hot}));
  EXPECT_EQ(order.inodes.size(), tree.size());
  for (const InodeId id : order.cold()) {
    if (tree[id].type != FileType::directory) continue;
    for (const Entry& entry : tree.entries(id)) {
      EXPECT_LT(order.numbers[entry.inode], order.numbers[id]);
    }
  }
}

TEST(InodeOrder, ADirectoryThatNamesAHotInodeIsHot) {
  MemoryTree made;
  const InodeId hot = made.file("first/linked", "content");
  made.link("other/again", hot);
  const InodeId cold = made.directory("cold");
  const Tree tree = made.finish();
  const InodeOrder order = order_inodes(tree, complete_order(tree, {hot}));
  EXPECT_EQ(std::vector(order.hot().begin(), order.hot().end()),
            (std::vector{InodeId{0}, *tree.find("first"), hot, *tree.find("other")}));
  EXPECT_EQ(std::vector(order.cold().begin(), order.cold().end()), std::vector{cold});
}

TEST(MetadataTable, ReferencesIntoARawTailAreKnownBeforeItIsWritten) {
  const auto compressor = make_compressor({.id = CodecId::zstd, .level = 3, .block_size = 8192});
  MetadataTable table(compressor.get(), {.tail = 20000});
  table.append(std::vector<std::byte>(20000, std::byte{1}));
  const std::uint64_t within = table.reference(20000);
  const std::uint64_t behind = table.reference(30000);
  table.append(std::vector<std::byte>(20000, std::byte{2}));
  EXPECT_EQ(table.reference(20000), within);
  EXPECT_EQ(table.reference(30000), behind);
  std::vector<std::uint64_t> starts;
  const std::vector<std::byte> stored = table.finish(&starts);
  ASSERT_EQ(starts.size(), 5U);
  EXPECT_LT(starts[1], 100U);  // what is before it is compressed
  EXPECT_EQ(within, starts[2] << 16 | 20000 % 8192);
  EXPECT_EQ(behind, starts[3] << 16 | 30000 % 8192);
  EXPECT_EQ(starts[3] - starts[2], 8194U);
  EXPECT_EQ(stored.size(), starts[4] + 2 + 40000 % 8192);
}

TEST(MetadataTable, ReferencesPastARawPartDoNotDependOnWhatItWillHold) {
  const auto compressor = make_compressor({.id = CodecId::zstd, .level = 3, .block_size = 8192});
  MetadataTable table(compressor.get(), {.head = 10000});
  table.append(std::vector<std::byte>(10000));
  table.append(std::vector<std::byte>(20000, std::byte{1}));
  const std::uint64_t behind = table.reference(16384);
  EXPECT_EQ(behind, 2 * 8194ULL << 16);
  table.patch(8190, as_view("hot!"));
  std::vector<std::uint64_t> starts;
  const std::vector<std::byte> stored = table.finish(&starts);
  ASSERT_EQ(starts.size(), 4U);
  EXPECT_EQ(starts[2] << 16, behind);
  EXPECT_EQ(as_text(ByteView(stored).subspan(2 + 8190, 2)), "ho");
  EXPECT_EQ(as_text(ByteView(stored).subspan(8194 + 2, 2)), "t!");
}

TEST(Dedupe, OnlySameContentIsMerged) {
  MemoryTree made;
  const InodeId a = made.file("a", "hello");
  const InodeId b = made.file("b", "hellx");
  const InodeId c = made.file("c", "hello");
  const InodeId empty = made.file("d", "");
  const InodeId empty2 = made.file("e", "");
  const Tree tree = made.finish();
  SilentMonitor monitor;
  const std::vector<InodeId> original = find_duplicates(tree, 2, monitor);
  EXPECT_EQ(original[a], a);
  EXPECT_EQ(original[b], b);
  EXPECT_EQ(original[c], a);
  EXPECT_EQ(original[empty], empty);
  EXPECT_EQ(original[empty2], empty2);
}

TEST(Tree, FindsPathsAndCountsLinks) {
  MemoryTree made = varied_tree();
  const Tree tree = made.finish();
  EXPECT_EQ(tree.find("d0/hard"), tree.find("d0/original"));
  EXPECT_EQ(tree[*tree.find("d0/hard")].links, 2U);
  EXPECT_EQ(tree.find("d0/none"), std::nullopt);
  EXPECT_EQ(tree.find("zeros/below"), std::nullopt);
  EXPECT_EQ(tree[0].links, 2U + 9U);
  EXPECT_EQ(tree.path(*tree.find("d6/f6")), "d6/f6");
}

TEST(Select, LeavesOutAndForcesOwners) {
  MemoryTree made = varied_tree();
  const Tree tree = made.finish();
  const Tree some = select(
      tree, {.excludes = {"d0", "same/*", "f1?"}, .owner = std::pair{7U, 8U}, .newest_mtime = 5});
  EXPECT_EQ(some.find("d0"), std::nullopt);
  EXPECT_TRUE(some.find("same"));
  EXPECT_EQ(some.find("same/a"), std::nullopt);
  EXPECT_EQ(some.find("d1/f15"), std::nullopt);
  EXPECT_TRUE(some.find("d1/f1"));
  EXPECT_EQ(some[*some.find("d1/f1")].uid, 7U);
  EXPECT_EQ(some[0].gid, 8U);
}

TEST(Select, KeepsHardLinksInDirectoriesThatCameLater) {
  MemoryTree made;
  const InodeId early = made.file("early", "content");
  made.link("late/again", early);
  const Tree tree = made.finish();
  const Tree copy = select(tree, {});
  EXPECT_EQ(copy.find("late/again"), copy.find("early"));
  EXPECT_EQ(copy[*copy.find("early")].links, 2U);
  const Tree rest = select(tree, {.excludes = {"early"}});
  EXPECT_EQ(rest.find("early"), std::nullopt);
  ASSERT_TRUE(rest.find("late/again"));
  EXPECT_EQ(rest[*rest.find("late/again")].links, 1U);
}

TEST(TreeBuilder, RefusesNamesThatNoDirectoryCanHold) {
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"),
        std::string("a\0b", 3), std::string(257, 'n')}) {
    TreeBuilder builder;
    EXPECT_THROW(builder.add(0, name, {}, {}), Error) << name;
  }
  TreeBuilder builder;
  builder.add(0, "twice", {}, {});
  builder.add(0, "twice", {}, {});
  EXPECT_THROW((void)builder.finish(nullptr), Error);
}

}  // namespace
}  // namespace bootpress
