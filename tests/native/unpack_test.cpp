// SPDX-License-Identifier: GPL-2.0-or-later
//
// Spec: what is unpacked is what the image holds; nothing is ever written outside the target, and a
// run that fails leaves nothing behind.
#include "image/unpack.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "corpus.hpp"
#include "image/beneath.hpp"
#include "image/compare.hpp"
#include "tree/gather.hpp"

namespace bootpress {
namespace {

namespace fs = std::filesystem;
using test::corpus_images;
using test::open_bytes;
using test::RawImage;
using test::read_corpus;

bool is_root() { return ::geteuid() == 0; }

class UnpackTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/unpack-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    place_ = pattern;
  }
  void TearDown() override { fs::remove_all(place_); }

  [[nodiscard]] fs::path target() const { return place_ / "out"; }
  [[nodiscard]] static UnpackOptions options() {
    return {.jobs = 2, .owners = is_root(), .xattrs = true};
  }
  [[nodiscard]] static ErrorKind failure_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.kind();
    }
    ADD_FAILURE() << "no error";
    return ErrorKind::usage;
  }

  fs::path place_;
  SilentMonitor silent_;
};

TEST_F(UnpackTest, GivesWhatTheImageHolds) {
  for (const std::string& name : corpus_images()) {
    const auto bytes = read_corpus(name);
    const auto image = open_bytes(bytes);
    const UnpackResult result = unpack(image, target(), options(), silent_);
    const Tree wanted = image->tree();
    const Tree got = scan_directory(target(), {}, 2, silent_);
    const CompareOptions compare{.jobs = 2, .xattrs = is_root(), .owners = is_root()};
    for (const Difference& difference : compare_trees(wanted, got, compare, silent_)) {
      // Without root there are no device nodes and no set-id bits of another's.
      EXPECT_FALSE(is_root()) << name << ": " << difference.path << ": " << difference.what;
    }
    if (is_root()) {
      EXPECT_EQ(result.files, wanted.size()) << name;
    }
    fs::remove_all(target());
  }
}

TEST_F(UnpackTest, HolesStayHoles) {
  const auto bytes = read_corpus("mksquashfs-gzip.sqfs");
  (void)unpack(open_bytes(bytes), target(), options(), silent_);
  struct stat status{};
  ASSERT_EQ(::stat((target() / "usr/share/holes").c_str(), &status), 0);
  EXPECT_EQ(status.st_size, 100000);
  EXPECT_EQ(status.st_blocks, 0);
}

TEST_F(UnpackTest, TakesAnEmptyDirectoryAndNoOther) {
  const auto bytes = read_corpus("mksquashfs-gzip.sqfs");
  fs::create_directory(target());
  (void)unpack(open_bytes(bytes), target(), options(), silent_);
  EXPECT_TRUE(fs::exists(target() / "etc/motd"));
  const auto again = [&] { (void)unpack(open_bytes(bytes), target(), options(), silent_); };
  EXPECT_EQ(failure_of(again), ErrorKind::target);
  EXPECT_TRUE(fs::exists(target() / "etc/motd"));
}

TEST_F(UnpackTest, NeedsAParentDirectoryAndNoFileInItsPlace) {
  const auto bytes = read_corpus("mksquashfs-gzip.sqfs");
  std::ofstream(place_ / "file") << "x";
  for (const fs::path& path : {place_ / "missing" / "out", place_ / "file"}) {
    const auto attempt = [&] { (void)unpack(open_bytes(bytes), path, options(), silent_); };
    EXPECT_EQ(failure_of(attempt), ErrorKind::target) << path;
  }
  EXPECT_FALSE(fs::exists(place_ / "missing"));
}

TEST_F(UnpackTest, DamagedContentLeavesNothing) {
  RawImage raw;
  const std::uint64_t words = raw.inode("usr/share/exact") + 32;
  raw.put(words, raw.get<std::uint32_t>(words) | squashfs::kBlockRaw);  // now far too short
  const auto image = open_bytes(raw.bytes());
  const auto attempt = [&] { (void)unpack(image, target(), options(), silent_); };
  EXPECT_EQ(failure_of(attempt), ErrorKind::corrupt);
  EXPECT_FALSE(fs::exists(target()));

  fs::create_directory(target());
  fs::permissions(target(), fs::perms(0750));
  EXPECT_EQ(failure_of(attempt), ErrorKind::corrupt);
  EXPECT_TRUE(fs::is_empty(target()));
  EXPECT_EQ(fs::status(target()).permissions(), fs::perms(0750));
}

class ActingMonitor final : public Monitor {
 public:
  explicit ActingMonitor(std::function<void(const Progress&)> action)
      : action_(std::move(action)) {}
  void tick(const Progress& progress) override { action_(progress); }

 private:
  std::function<void(const Progress&)> action_;
};

TEST_F(UnpackTest, StoppedAtAnyTickLeavesNothing) {
  const auto bytes = read_corpus("mksquashfs-gzip.sqfs");
  for (int stop_at = 0; stop_at < 4; ++stop_at) {
    int ticks = 0;
    ActingMonitor monitor([&](const Progress&) {
      if (ticks++ == stop_at) throw Error(ErrorKind::interrupted, "stopped");
    });
    const auto attempt = [&] { (void)unpack(open_bytes(bytes), target(), options(), monitor); };
    EXPECT_EQ(failure_of(attempt), ErrorKind::interrupted);
    EXPECT_FALSE(fs::exists(target())) << stop_at;
  }
}

// A directory outside that has the names the image has, so that a write or a removal that gets
// there would show.
class Outside {
 public:
  explicit Outside(const fs::path& root) : root_(root) {
    fs::create_directories(root / "share" / "empty");
    fs::create_directories(root / "bin");
    for (const char* name : {"bin/tool", "link", "issue"}) std::ofstream(root / name) << "mine";
    fs::permissions(root / "share", fs::perms(0711));
    names_ = list();
  }
  void expect_untouched() const {
    EXPECT_EQ(list(), names_);
    std::ifstream in(root_ / "bin/tool");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "mine");
    EXPECT_EQ(fs::status(root_ / "share").permissions(), fs::perms(0711));
  }

 private:
  [[nodiscard]] std::vector<std::string> list() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
      names.push_back(entry.path().string());
    }
    std::ranges::sort(names);
    return names;
  }
  fs::path root_;
  std::vector<std::string> names_;
};

struct Swap {
  const char* name;
  bool before_files;  // when: before or after the content is written
  bool then_fail;     // so that what was written is removed again
};
class SwapTest : public UnpackTest, public testing::WithParamInterface<Swap> {};

TEST_P(SwapTest, SymlinkSwappedInDuringUnpackLeadsNowhere) {
  const Outside outside(place_ / "outside");
  const auto bytes = read_corpus("mksquashfs-gzip.sqfs");
  bool swapped = false;
  ActingMonitor monitor([&](const Progress& progress) {
    // The last directory is there; usr/bin/tool has not been written, or everything has.
    const bool now = fs::exists(target() / "usr/share/empty") &&
                     (GetParam().before_files || progress.done_files > 0);
    if (swapped || !now) return;
    swapped = true;
    for (const char* name : {"usr", "etc", "deep"}) {
      fs::rename(target() / name, place_ / (std::string("moved-") + name));
      fs::create_directory_symlink(place_ / "outside", target() / name);
    }
    if (GetParam().then_fail) throw Error(ErrorKind::interrupted, "stopped");
  });
  try {
    (void)unpack(open_bytes(bytes), target(), options(), monitor);
    // Only directories that were open already can go on being written to.
    EXPECT_FALSE(GetParam().before_files || GetParam().then_fail);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), GetParam().then_fail ? ErrorKind::interrupted : ErrorKind::target);
  }
  EXPECT_TRUE(swapped);
  outside.expect_untouched();
}

INSTANTIATE_TEST_SUITE_P(Moments, SwapTest,
                         testing::Values(Swap{"BeforeFiles", true, false},
                                         Swap{"BeforeFilesThenRemoved", true, true},
                                         Swap{"AfterFiles", false, false},
                                         Swap{"AfterFilesThenRemoved", false, true}),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

class BeneathTest : public UnpackTest, public testing::WithParamInterface<Beneath> {};

TEST_P(BeneathTest, FollowsNoSymlinkAtAnyDepth) {
  const Outside outside(place_ / "outside");
  fs::create_directories(place_ / "root/a/b/c");
  fs::create_directory_symlink(place_ / "outside", place_ / "root/link");
  fs::create_directory_symlink("../../outside", place_ / "root/a/up");
  fs::create_directory_symlink("b", place_ / "root/a/same");
  const Fd root(::open((place_ / "root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  EXPECT_TRUE(bool(open_directory_beneath(root.get(), "a/b/c", GetParam())));
  for (const char* path : {"link", "link/share", "a/up", "a/up/bin", "a/same/c"}) {
    EXPECT_FALSE(bool(open_directory_beneath(root.get(), path, GetParam()))) << path;
    EXPECT_TRUE(errno == ELOOP || errno == ENOTDIR) << path;
  }
}

TEST_P(BeneathTest, OpensPathsLongerThanTheSystemTakes) {
  std::string path;
  Fd at(::open(place_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const Fd root(::open(place_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const std::string name(200, 'd');
  for (int depth = 0; depth < 30; ++depth) {
    ASSERT_EQ(::mkdirat(at.get(), name.c_str(), 0700), 0);
    at = Fd(::openat(at.get(), name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    path += (path.empty() ? "" : "/") + name;
  }
  ASSERT_GT(path.size(), 4096U);
  EXPECT_TRUE(bool(open_directory_beneath(root.get(), path, GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Ways, BeneathTest,
                         testing::Values(Beneath::automatic, Beneath::component_wise),
                         [](const auto& parameter) {
                           return std::string(parameter.param == Beneath::automatic
                                                  ? "Automatic"
                                                  : "ComponentWise");
                         });

TEST_F(UnpackTest, AbsoluteSymlinkInTheImageStaysALink) {
  const auto bytes = read_corpus("mksquashfs-gzip.sqfs");
  (void)unpack(open_bytes(bytes), target(), options(), silent_);
  EXPECT_EQ(fs::read_symlink(target() / "abs"), "/absolute/target");
}

TEST_F(UnpackTest, WithoutOwnersEverythingIsTheCallersAndNoSetIdBitSurvives) {
  RawImage raw;
  raw.put(raw.inode("deep/1/2/name-03") + 2, std::uint16_t{06755});
  const UnpackResult result =
      unpack(open_bytes(raw.bytes()), target(), {.jobs = 1, .owners = false}, silent_);
  struct stat status{};
  ASSERT_EQ(::stat((target() / "deep/1/2/name-03").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, ::geteuid());
  EXPECT_EQ(status.st_mode & 07777, 0755U);
  EXPECT_TRUE(std::ranges::any_of(result.skipped,
                                  [](const Loss& loss) { return loss.kind == "set-id bits"; }));
}

}  // namespace
}  // namespace bootpress
