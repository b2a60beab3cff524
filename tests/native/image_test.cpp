// SPDX-License-Identifier: GPL-2.0-or-later
//
// Spec: images of other tools open and read back; an image that breaks the format is an error that
// says so, whatever it claims, and never more than that.
#include "image/image.hpp"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <functional>

#include "corpus.hpp"
#include "image/compare.hpp"

namespace bootpress {
namespace {

using test::corpus_images;
using test::open_bytes;
using test::RawImage;
using test::read_corpus;

constexpr std::uint64_t kReadCap = 1 << 20;  // bytes per image: holes may claim terabytes

std::string read_text(const Image& image, const Tree& tree, std::string_view path) {
  const InodeId id = tree.find(path).value();
  std::string text(tree[id].size, '\0');
  image.open(tree, id)->read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// Opens an image, walks it and reads it; an Error is a fine end, anything else is not.
bool survives(const std::vector<std::byte>& bytes) {
  try {
    const auto image = open_bytes(bytes);
    const Tree tree = image->tree();
    std::uint64_t left = kReadCap;
    for (InodeId id = 0; id < tree.size(); ++id) {
      (void)image->extents(tree[id].data);
      if (tree[id].type != FileType::file || tree[id].size > left) continue;
      left -= tree[id].size;
      std::vector<std::byte> content(tree[id].size);
      (void)image->data_extents(tree, id);
      image->open(tree, id)->read(0, content);
    }
  } catch (const Error& error) {
    return error.what() != nullptr && *error.what() != '\0';
  }
  return true;
}

// The kind and text of the error that opening gives; empty text for none.
std::pair<ErrorKind, std::string> error_of(const std::vector<std::byte>& bytes) {
  try {
    (void)open_bytes(bytes)->tree();
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  }
  return {ErrorKind::usage, ""};
}

#define EXPECT_CORRUPT(bytes, part)                        \
  do {                                                     \
    const auto [kind, text] = error_of(bytes);             \
    EXPECT_EQ(kind, ErrorKind::corrupt) << text;           \
    EXPECT_NE(text.find(part), std::string::npos) << text; \
  } while (false)

class CorpusTest : public testing::TestWithParam<std::string> {};

TEST_P(CorpusTest, HoldsTheTreeItWasMadeFrom) {
  if (GetParam() == "empty.sqfs") GTEST_SKIP() << "holds nothing";
  const auto bytes = read_corpus(GetParam());
  const auto image = open_bytes(bytes);
  const Tree tree = image->tree();
  EXPECT_EQ(read_text(*image, tree, "etc/motd"), "hello\n");
  EXPECT_EQ(read_text(*image, tree, "etc/empty"), "");
  EXPECT_EQ(read_text(*image, tree, "deep/1/2/name-07"), "7\n");
  EXPECT_EQ(read_text(*image, tree, "usr/share/holes"), std::string(100000, '\0'));
  std::string sparse(12 * 4096 + 17, '\0');
  sparse.replace(0, 4096, 4096, 'a').replace(std::size_t{5} * 4096, 4, "tail");
  EXPECT_EQ(read_text(*image, tree, "usr/share/sparse"), sparse);
  EXPECT_EQ(read_text(*image, tree, "usr/bin/tool"), read_text(*image, tree, "usr/bin/copy"));
  const Inode& tool = tree[tree.find("usr/bin/tool").value()];
  EXPECT_EQ(tool.mode, 04755);
  EXPECT_EQ(tree[tree.find("deep/1/2/name-03").value()].uid, 1000U);
  EXPECT_EQ(tree[tree.find("deep/1/2/name-03").value()].gid, 50U);
  const Inode& disk = tree[tree.find("dev/sda").value()];
  EXPECT_EQ(disk.type, FileType::block_device);
  EXPECT_EQ(disk.device_major, 8U);
  EXPECT_EQ(disk.device_minor, 300U);
  EXPECT_EQ(tree.text(tree[tree.find("usr/link").value()].target), "../etc/passwd");
}

TEST_P(CorpusTest, PassesVerification) {
  const auto bytes = read_corpus(GetParam());
  SilentMonitor monitor;
  const VerifyResult result = verify_image(*open_bytes(bytes), 2, monitor);
  EXPECT_EQ(result.seal, Image::SealState::absent);
  EXPECT_EQ(result.files > 0, GetParam() != "empty.sqfs");
}

TEST_P(CorpusTest, EveryFlippedMetadataByteIsSurvived) {
  const auto original = read_corpus(GetParam());
  const auto superblock = open_bytes(original)->superblock();
  auto bytes = original;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if (at == squashfs::kSuperblockSize) at = superblock.inode_table;
    for (const auto mask : {std::byte{0x01}, std::byte{0x80}, std::byte{0xff}}) {
      bytes[at] ^= mask;
      EXPECT_TRUE(survives(bytes)) << "at " << at;
      bytes[at] = original[at];
    }
  }
}

TEST_P(CorpusTest, TruncatedAnywhereIsRefused) {
  const auto original = read_corpus(GetParam());
  const std::uint64_t used = open_bytes(original)->superblock().bytes_used;
  for (std::size_t size = 0; size < used; ++size) {
    const std::vector<std::byte> bytes(original.begin(),
                                       original.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(error_of(bytes).first, ErrorKind::corrupt) << "at " << size;
  }
}

INSTANTIATE_TEST_SUITE_P(Images, CorpusTest, testing::ValuesIn(corpus_images()),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::ranges::replace(name, '-', '_');
                           return name.substr(0, name.find('.'));
                         });

TEST(ImageTest, HardLinksShareAnInode) {
  const auto bytes = read_corpus("mksquashfs-gzip.sqfs");
  const Tree tree = open_bytes(bytes)->tree();
  EXPECT_EQ(tree.find("etc/motd"), tree.find("deep/1/issue"));
  EXPECT_EQ(tree[tree.find("etc/motd").value()].links, 3U);
}

TEST(ImageTest, XattrsInlineAndOutOfLineAreTheSame) {
  const auto bytes = read_corpus("mksquashfs-raw.sqfs");
  const Tree tree = open_bytes(bytes)->tree();
  const std::string value = "a value that is long enough to be stored once only";
  for (const char* path : {"etc/passwd", "deep", "etc/motd"}) {
    const auto set = tree.xattrs(tree.find(path).value());
    ASSERT_FALSE(set.empty()) << path;
    EXPECT_EQ(set[0], (Xattr{"user.note", value})) << path;
  }
}

TEST(ImageTest, HolesAreNoData) {
  const auto bytes = read_corpus("mksquashfs-gzip.sqfs");
  const auto image = open_bytes(bytes);
  const Tree tree = image->tree();
  const auto sparse = image->data_extents(tree, tree.find("usr/share/sparse").value());
  ASSERT_GE(sparse.size(), 2U);
  EXPECT_EQ(sparse[0].offset, 0U);
  EXPECT_EQ(sparse[0].length, 4096U);
  EXPECT_EQ(sparse[1].offset, 5U * 4096);
}

TEST(ImageTest, ReadsAnyRangeOfAFile) {
  const auto bytes = read_corpus("mksquashfs-zstd.sqfs");
  const auto image = open_bytes(bytes);
  const Tree tree = image->tree();
  const std::string whole = read_text(*image, tree, "usr/bin/tool");
  const auto reader = image->open(tree, tree.find("usr/bin/tool").value());
  for (const std::size_t offset : {8191UL, 0UL, 4096UL, 4095UL, 100UL, 9003UL}) {
    std::string part(std::min<std::size_t>(5000, whole.size() - offset), '\0');
    reader->read(offset, std::as_writable_bytes(std::span(part)));
    EXPECT_EQ(part, whole.substr(offset, part.size()));
  }
  std::array<std::byte, 2> behind{};
  EXPECT_THROW(reader->read(whole.size() - 1, behind), Error);
}

TEST(ImageTest, NoImageSaysSo) {
  EXPECT_CORRUPT(std::vector<std::byte>(4096), "not a SquashFS image");
  EXPECT_CORRUPT(std::vector<std::byte>(10), "too small");
}

TEST(ImageTest, MissingFileAndDirectoryAreSourceErrors) {
  for (const char* path : {"/nonexistent/image", "/", "/dev/null"}) {
    try {
      (void)open_image_file(path);
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::source) << path;
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
    }
  }
}

// What fuzzing found stays found.
TEST(ImageTest, EveryFileOfTheFuzzCorpusIsSurvived) {
  for (const auto& entry : std::filesystem::directory_iterator(test::corpus_directory())) {
    EXPECT_TRUE(survives(read_corpus(entry.path().filename()))) << entry.path();
  }
}

// --- hostile names

class HostileNameTest : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(HostileNameTest, IsRefused) {
  RawImage image;
  image.rename(GetParam().first, GetParam().second);
  EXPECT_CORRUPT(image.bytes(), "name");
}

INSTANTIATE_TEST_SUITE_P(
    Names, HostileNameTest,
    testing::Values(std::pair<std::string, std::string>{"zz", ".."},
                    std::pair<std::string, std::string>{"4", "."},
                    std::pair<std::string, std::string>{"4", "/"},
                    std::pair<std::string, std::string>{"motd", "/etc"},
                    std::pair<std::string, std::string>{"motd", "../x"},
                    std::pair<std::string, std::string>{"motd", "a/bc"},
                    std::pair<std::string, std::string>{"motd", std::string("a\0bc", 4)},
                    std::pair<std::string, std::string>{"name-01", "name-00"}));

TEST(HostileImageTest, NamesOutOfOrderAreListed) {
  RawImage image;
  image.rename("name-00", "name-99");
  const Tree tree = open_bytes(image.bytes())->tree();
  EXPECT_TRUE(tree.find("deep/1/2/name-99"));
  EXPECT_TRUE(tree.find("deep/1/2/name-01"));
}

TEST(HostileImageTest, DuplicateNameFarApartIsRefused) {
  RawImage image;
  image.rename("name-00", "name-19");
  EXPECT_CORRUPT(image.bytes(), "\"name-19\" twice");
}

// --- hostile structure

TEST(HostileImageTest, DirectoryCycleIsRefused) {
  for (const char* path : {"", "deep", "deep/1/2/3"}) {
    RawImage image;
    image.redirect("4", path);
    EXPECT_CORRUPT(image.bytes(), "a second time");
  }
}

TEST(HostileImageTest, DirectoryReachedTwiceIsRefused) {
  RawImage image;
  image.redirect("4", "usr/share");
  EXPECT_CORRUPT(image.bytes(), "a second time");
}

TEST(HostileImageTest, EntryOfAnotherTypeIsRefused) {
  RawImage image;
  image.redirect("4", "etc/motd");
  EXPECT_CORRUPT(image.bytes(), "another inode than it is");
}

TEST(HostileImageTest, RootThatIsAFileIsRefused) {
  RawImage image;
  image.put(32, image.extents("etc/motd").reference);
  EXPECT_CORRUPT(image.bytes(), "root");
}

TEST(HostileImageTest, SharedInodeNumberIsRefused) {
  RawImage image;
  const auto number = image.extents("abs").number;
  const std::uint64_t entry = image.entry("4");
  image.put(image.inode("deep/1/2/3/4") + 12, number);
  image.put(entry - 4, number).put(entry + 2, std::int16_t{0});
  EXPECT_CORRUPT(image.bytes(), "same inode number");
}

TEST(HostileImageTest, InodeNumberOutOfRangeIsRefused) {
  for (const std::uint32_t number : {0U, 0xffffffffU}) {
    RawImage image;
    image.put(image.inode("abs") + 12, number);
    EXPECT_CORRUPT(image.bytes(), "abs: an inode's number");
  }
}

TEST(HostileImageTest, OwnerOutsideTheIdTableIsRefused) {
  RawImage image;
  image.put(image.inode("abs") + 4, std::uint16_t{999});
  EXPECT_CORRUPT(image.bytes(), "id table");
}

TEST(HostileImageTest, ListingsThatShareBytesAreRefused) {
  RawImage image;
  const std::uint64_t from = image.inode("etc");
  const std::uint64_t to = image.inode("usr/share/empty");
  for (const std::uint64_t field : {16, 24}) {  // listing unit; listing size and offset
    image.put(to + field, image.get<std::uint32_t>(from + field));
  }
  EXPECT_EQ(error_of(image.bytes()).first, ErrorKind::corrupt);
}

TEST(HostileImageTest, FragmentOutsideTheImageIsRefused) {
  RawImage image;
  const std::uint64_t at = image.inode("deep/1/2/name-05");
  image.put(at + 20, std::uint32_t{1000});
  EXPECT_CORRUPT(image.bytes(), "fragment does not exist");
  image.put(at + 20, std::uint32_t{0}).put(at + 24, std::uint32_t{4095});
  EXPECT_CORRUPT(image.bytes(), "tail lies outside");
}

// --- huge claims: each is refused at once, without the memory it asks for

struct Claim {
  const char* what;
  std::function<void(RawImage&)> make;
};
class HugeClaimTest : public testing::TestWithParam<Claim> {};

TEST_P(HugeClaimTest, IsRefused) {
  RawImage image;
  GetParam().make(image);
  const auto [kind, text] = error_of(image.bytes());
  EXPECT_EQ(kind, ErrorKind::corrupt) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Claims, HugeClaimTest,
    testing::Values(
        Claim{"inodes", [](RawImage& image) { image.put(4, 0xffffffffU); }},
        Claim{"fragments", [](RawImage& image) { image.put(16, 0xffffffffU); }},
        Claim{"ids", [](RawImage& image) { image.put(26, std::uint16_t{0xffff}); }},
        Claim{"no_ids", [](RawImage& image) { image.put(26, std::uint16_t{0}); }},
        Claim{"bytes_used", [](RawImage& image) { image.put(40, std::uint64_t{1} << 62); }},
        Claim{"xattr_sets",
              [](RawImage& image) { image.put(image.superblock().xattr_table + 8, 0xffffffffU); }},
        Claim{"directory_header",
              [](RawImage& image) { image.put(image.entry("4") - 12, 0xffffffffU); }},
        Claim{"listing_size",
              [](RawImage& image) { image.put(image.inode("usr") + 24, std::uint16_t{0xffff}); }},
        Claim{"file_size",
              [](RawImage& image) { image.put(image.inode("etc/zz") + 28, 0xffffffffU); }},
        Claim{"extended_file_size",
              [](RawImage& image) { image.put(image.inode("etc/motd") + 24, ~std::uint64_t{0}); }},
        Claim{"target_length",
              [](RawImage& image) { image.put(image.inode("abs") + 20, 0xffffffffU); }},
        Claim{"unit_size",
              [](RawImage& image) {
                image.put(image.superblock().inode_table, std::uint16_t{0xffff});
              }},
        Claim{"unit_without_bytes",
              [](RawImage& image) {
                image.put(image.superblock().inode_table, std::uint16_t{0x8000});
              }}),
    [](const auto& parameter) { return std::string(parameter.param.what); });

// --- the seal and the data

std::vector<std::byte> sealed(std::vector<std::byte> bytes) {
  const std::uint64_t used = load_le<std::uint64_t>(bytes.data() + 40);
  bytes.resize(used);
  std::vector<std::byte> summed(bytes.begin() + squashfs::kSuperblockSize, bytes.end());
  summed.insert(summed.end(), bytes.begin(), bytes.begin() + squashfs::kSuperblockSize);
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(summed.data(), summed.size()));
  const ByteView magic = as_view(squashfs::kSealMagic);
  const ByteView digest = std::as_bytes(std::span(canonical.digest));
  bytes.insert(bytes.end(), magic.begin(), magic.end());
  bytes.insert(bytes.end(), digest.begin(), digest.end());
  return bytes;
}

TEST(SealTest, IsIntactUntilAByteChanges) {
  auto bytes = sealed(read_corpus("mksquashfs-gzip.sqfs"));
  SilentMonitor monitor;
  EXPECT_EQ(open_bytes(bytes)->check_seal(monitor), Image::SealState::intact);
  bytes[8] ^= std::byte{1};  // the time of making, which nothing else protects
  EXPECT_EQ(open_bytes(bytes)->check_seal(monitor), Image::SealState::broken);
}

TEST(VerifyTest, BlocksThatOverlapPartlyAreRefused) {
  RawImage image;
  const std::uint64_t start = image.inode("usr/share/exact") + 16;
  image.put(start, image.get<std::uint32_t>(start) - 1);
  SilentMonitor monitor;
  EXPECT_THROW(verify_image(*open_bytes(image.bytes()), 1, monitor), Error);
}

TEST(VerifyTest, DataInsideTheMetadataIsRefused) {
  RawImage image;
  const std::uint64_t start = image.inode("usr/share/exact") + 16;
  image.put(start, static_cast<std::uint32_t>(image.superblock().inode_table));
  SilentMonitor monitor;
  EXPECT_THROW(verify_image(*open_bytes(image.bytes()), 1, monitor), Error);
}

TEST(VerifyTest, WrongExportTableIsRefused) {
  RawImage image;
  const auto unit = image.get<std::uint64_t>(image.superblock().export_table);
  const std::uint64_t second = unit + 2 + 8;  // inode number 2
  image.put(second, image.get<std::uint64_t>(second) + 1);
  SilentMonitor monitor;
  const auto opened = open_bytes(image.bytes());
  EXPECT_THROW(verify_image(*opened, 1, monitor), Error);
}

}  // namespace
}  // namespace bootpress
