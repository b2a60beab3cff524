// SPDX-License-Identifier: GPL-2.0-or-later
//
// The limit that the packer is measured against: the same blocks through the bare codec, nothing
// read while the clock runs, nothing written, nothing shared but a counter.
//
//   bare_codec IMAGE [--codec C] [--level N] [--bcj B] [--threads T]
//
// IMAGE should be packed with `--codec none`: then loading is a copy, and its blocks are what the
// packer would have given to the codec. Prints one JSON line.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "codec/codec.hpp"
#include "image/image.hpp"
#include "tree/tree.hpp"

namespace {

using bootpress::ByteSpan;
using bootpress::ByteView;

using Block = std::vector<std::byte>;

struct Arguments {
  std::string image;
  std::string codec = "zstd";
  std::string bcj = "none";
  int level = -1;  // the codec's standard
  unsigned threads = 1;
};

int parse_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw bootpress::Error(bootpress::ErrorKind::usage, "not a number: " + std::string(text));
  }
  return value;
}

Arguments parse_arguments(const std::vector<std::string>& words) {
  Arguments arguments;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("--")) {
      arguments.image = word;
    } else if (i + 1 == words.size()) {
      throw bootpress::Error(bootpress::ErrorKind::usage, word + " needs a value");
    } else if (word == "--codec") {
      arguments.codec = words[++i];
    } else if (word == "--bcj") {
      arguments.bcj = words[++i];
    } else if (word == "--level") {
      arguments.level = parse_number(words[++i]);
    } else if (word == "--threads") {
      arguments.threads = static_cast<unsigned>(std::max(1, parse_number(words[++i])));
    } else {
      throw bootpress::Error(bootpress::ErrorKind::usage, "unknown option " + word);
    }
  }
  if (arguments.image.empty()) {
    throw bootpress::Error(bootpress::ErrorKind::usage, "name an image");
  }
  return arguments;
}

// Every data block once (duplicates share theirs, so a start offset names a block) and every
// fragment, in the order in which they lie in the image.
std::vector<Block> load_blocks(const bootpress::Image& image) {
  struct Stored {
    std::uint64_t start;
    std::uint32_t word;
  };
  std::vector<Stored> stored;
  std::unordered_set<std::uint64_t> seen;
  const bootpress::Tree tree = image.tree();
  for (bootpress::InodeId id = 0; id < tree.size(); ++id) {
    const bootpress::Inode& inode = tree[id];
    if (inode.type != bootpress::FileType::file) {
      continue;
    }
    const bootpress::FileBlocks blocks = image.blocks(inode.data);
    std::uint64_t start = blocks.start;
    for (const std::uint32_t word : blocks.words) {
      if (word != 0 && seen.insert(start).second) {
        stored.push_back({start, word});
      }
      start += word & bootpress::squashfs::kBlockSizeMask;
    }
  }
  for (const bootpress::FragmentEntry& fragment : image.fragments()) {
    stored.push_back({fragment.start, fragment.word});
  }
  std::ranges::sort(stored, {}, &Stored::start);

  const std::uint32_t block_size = image.superblock().block_size;
  const auto decompressor = bootpress::make_decompressor(image.codec(), block_size);
  std::vector<std::byte> scratch;
  std::vector<std::byte> content(block_size);
  std::vector<Block> blocks;
  blocks.reserve(stored.size());
  for (const Stored& block : stored) {
    const std::size_t size =
        image.read_stored(block.start, block.word, *decompressor, scratch, content);
    blocks.emplace_back(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(size));
  }
  return blocks;
}

struct Totals {
  std::atomic<std::uint64_t> out_bytes{0};
  std::atomic<std::uint64_t> raw_blocks{0};
};

void compress_all(const std::vector<Block>& blocks, const bootpress::CodecOptions& options,
                  unsigned threads, Totals& totals) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    const auto compressor = bootpress::make_compressor(options);
    std::vector<std::byte> out(options.block_size);
    std::uint64_t out_bytes = 0;
    std::uint64_t raw_blocks = 0;
    for (std::size_t i = next++; i < blocks.size(); i = next++) {
      const std::size_t size = compressor->compress(blocks[i], out);
      out_bytes += size == 0 ? blocks[i].size() : size;
      raw_blocks += static_cast<std::uint64_t>(size == 0);
    }
    totals.out_bytes += out_bytes;
    totals.raw_blocks += raw_blocks;
  };
  std::vector<std::jthread> workers;
  workers.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) {
    workers.emplace_back(work);
  }
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void run(const Arguments& arguments) {
  const auto image = bootpress::Image::open(bootpress::open_image_file(arguments.image));
  bootpress::CodecOptions options;
  options.id = bootpress::codec_from_name(arguments.codec);
  options.level =
      arguments.level < 0 ? bootpress::level_range(options.id).standard : arguments.level;
  options.block_size = image->superblock().block_size;
  options.bcj = bootpress::bcj_from_name(arguments.bcj);
  bootpress::check_codec_options(options);  // before loading a gigabyte

  const std::vector<Block> blocks = load_blocks(*image);
  std::uint64_t in_bytes = 0;
  for (const Block& block : blocks) {
    in_bytes += block.size();
  }
  Totals totals;
  const double cpu_before = cpu_seconds();
  const auto before = std::chrono::steady_clock::now();
  compress_all(blocks, options, arguments.threads, totals);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - before;
  const double cpu = cpu_seconds() - cpu_before;
  std::printf(
      "{\"codec\": \"%s\", \"level\": %d, \"bcj\": \"%s\", \"version\": \"%s\", \"threads\": %u, "
      "\"block_size\": %u, \"wall_s\": %.3f, \"cpu_s\": %.3f, \"blocks\": %zu, "
      "\"raw_blocks\": %llu, \"in_bytes\": %llu, \"out_bytes\": %llu}\n",
      arguments.codec.c_str(), options.level, arguments.bcj.c_str(),
      bootpress::codec_version(options.id).c_str(), arguments.threads, options.block_size,
      wall.count(), cpu, blocks.size(), static_cast<unsigned long long>(totals.raw_blocks.load()),
      static_cast<unsigned long long>(in_bytes),
      static_cast<unsigned long long>(totals.out_bytes.load()));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse_arguments({argv + 1, argv + argc}));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bare_codec: %s\n", error.what());
    return 1;
  }
}
