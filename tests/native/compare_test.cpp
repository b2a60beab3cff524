// SPDX-License-Identifier: GPL-2.0-or-later
//
// Spec: each way in which two trees can differ is reported once, at its path, and nothing else is.
#include "image/compare.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "corpus.hpp"

namespace bootpress {
namespace {

// Files whose content is text, by the number in Inode::data.
class TextSource final : public Source {
 public:
  std::vector<std::string> texts;

  [[nodiscard]] std::unique_ptr<FileReader> open(const Tree& tree, InodeId file) const override {
    return std::make_unique<Reader>(texts.at(tree[file].data));
  }

 private:
  class Reader final : public FileReader {
   public:
    explicit Reader(const std::string& text) : text_(text) {}
    void read(std::uint64_t offset, ByteSpan out) override {
      std::memcpy(out.data(), text_.data() + offset, out.size());
    }

   private:
    const std::string& text_;
  };
};

struct TestTree {
  TreeBuilder builder;
  std::shared_ptr<TextSource> source = std::make_shared<TextSource>();

  InodeId file(InodeId parent, std::string_view name, const std::string& text, Inode inode = {},
               std::vector<Xattr> xattrs = {}) {
    inode.size = text.size();
    inode.data = source->texts.size();
    source->texts.push_back(text);
    return builder.add(parent, name, inode, std::move(xattrs));
  }
  InodeId other(InodeId parent, std::string_view name, FileType type,
                std::string_view target = {}) {
    Inode inode;
    inode.type = type;
    return builder.add(parent, name, inode, {}, target);
  }
  Tree finish() { return builder.finish(source); }
};

// "path: what" of each difference.
std::vector<std::string> compare(TestTree& a, TestTree& b, CompareOptions options = {.jobs = 2}) {
  SilentMonitor monitor;
  std::vector<std::string> lines;
  for (const Difference& difference : compare_trees(a.finish(), b.finish(), options, monitor)) {
    lines.push_back(difference.path + ": " + difference.what);
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(CompareTest, EqualTreesHaveNoDifferences) {
  TestTree a;
  TestTree b;
  for (TestTree* tree : {&a, &b}) {
    const InodeId directory = tree->other(0, "d", FileType::directory);
    const InodeId file = tree->file(directory, "f", "text", {}, {{"user.x", "1"}});
    tree->builder.link(0, "g", file);
    tree->other(0, "s", FileType::symlink, "d/f");
  }
  EXPECT_EQ(compare(a, b), Lines{});
}

TEST(CompareTest, NamesInOneTreeOnlyAreReportedAtTheirTop) {
  TestTree a;
  TestTree b;
  const InodeId directory = a.other(0, "d", FileType::directory);
  a.file(directory, "f", "text");
  a.file(0, "same", "text");
  b.file(0, "same", "text");
  b.file(0, "z", "text");
  EXPECT_EQ(compare(a, b), (Lines{"d: only in a", "z: only in b"}));
}

TEST(CompareTest, ContentOfTheSameSizeIsRead) {
  TestTree a;
  TestTree b;
  a.file(0, "f", "text");
  b.file(0, "f", "tent");
  EXPECT_EQ(compare(a, b), Lines{"f: content"});
}

TEST(CompareTest, LargeContentIsReadToTheEnd) {
  TestTree a;
  TestTree b;
  std::string text(5'000'000, 'x');
  a.file(0, "f", text);
  text.back() = 'y';
  b.file(0, "f", text);
  EXPECT_EQ(compare(a, b), Lines{"f: content"});
}

TEST(CompareTest, SizeTypeTargetAndDevice) {
  TestTree a;
  TestTree b;
  a.file(0, "size", "1");
  b.file(0, "size", "12");
  a.other(0, "target", FileType::symlink, "x");
  b.other(0, "target", FileType::symlink, "y");
  a.other(0, "type", FileType::fifo);
  b.other(0, "type", FileType::socket);
  Inode device;
  device.type = FileType::char_device;
  a.builder.add(0, "device", device, {});
  device.device_minor = 7;
  b.builder.add(0, "device", device, {});
  EXPECT_EQ(compare(a, b), (Lines{"device: device", "size: size", "target: target", "type: type"}));
}

TEST(CompareTest, AttributesInTheOrderOfTheContract) {
  TestTree a;
  TestTree b;
  Inode inode;
  a.file(0, "f", "text", inode, {{"user.x", "1"}});
  inode.mode = 0644;
  inode.uid = 5;
  inode.mtime = 99;
  b.file(0, "f", "text", inode, {{"user.x", "2"}});
  EXPECT_EQ(compare(a, b), (Lines{"f: mode", "f: owner", "f: mtime", "f: xattrs"}));
}

TEST(CompareTest, OptionsLeaveOutWhatTheyName) {
  TestTree a;
  TestTree b;
  Inode inode;
  a.file(0, "f", "text", inode, {{"user.x", "1"}});
  inode.uid = 5;
  inode.mtime = 99;
  b.file(0, "f", "text", inode);
  EXPECT_EQ(compare(a, b, {.jobs = 1, .xattrs = false, .owners = false, .times = false}), Lines{});
}

TEST(CompareTest, TimesThatNoImageHoldsAreComparedClamped) {
  TestTree a;
  TestTree b;
  Inode inode;
  inode.mtime = -5;
  a.file(0, "early", "", inode);
  inode.mtime = 0;
  b.file(0, "early", "", inode);
  inode.mtime = 0x1'0000'0000;
  a.file(0, "late", "", inode);
  inode.mtime = 0xffff'ffff;
  b.file(0, "late", "", inode);
  EXPECT_EQ(compare(a, b), Lines{});
}

TEST(CompareTest, HardLinkThatBecameACopy) {
  TestTree a;
  TestTree b;
  a.builder.link(0, "g", a.file(0, "f", "text"));
  b.file(0, "f", "text");
  b.file(0, "g", "text");
  EXPECT_EQ(compare(a, b), (Lines{"f: hard links", "g: hard links"}));
}

TEST(CompareTest, HardLinksInOtherGroups) {
  TestTree a;
  TestTree b;
  const InodeId a1 = a.file(0, "f", "text");
  const InodeId a2 = a.file(0, "g", "text");
  a.builder.link(0, "h", a1);
  a.builder.link(0, "i", a2);
  const InodeId b1 = b.file(0, "f", "text");
  const InodeId b2 = b.file(0, "g", "text");
  b.builder.link(0, "h", b2);
  b.builder.link(0, "i", b1);
  EXPECT_EQ(compare(a, b),
            (Lines{"f: hard links", "g: hard links", "h: hard links", "i: hard links"}));
}

TEST(CompareTest, ImagesOfOneTreeByDifferentCodecsAreEqual) {
  const auto gzip = test::read_corpus("mksquashfs-gzip.sqfs");
  const auto lz4 = test::read_corpus("mksquashfs-lz4.sqfs");
  SilentMonitor monitor;
  EXPECT_TRUE(compare_trees(test::open_bytes(gzip)->tree(), test::open_bytes(lz4)->tree(),
                            {.jobs = 2}, monitor)
                  .empty());
}

}  // namespace
}  // namespace bootpress
