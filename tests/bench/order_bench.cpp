// SPDX-License-Identifier: GPL-2.0-or-later
//
// What the order of the tail-ends is worth: the fragments' size alone, for each order.
//
//   order_bench [--codec C] [--level N] [--threads T] DIRECTORY...
//
// Prints Markdown rows: tree, block size, order, fragments, MB in, MB out, against directory
// order, and the seconds that ordering took. ORDER.md holds a run.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "codec/codec.hpp"
#include "pack/dedupe.hpp"
#include "pack/plan.hpp"
#include "pack/similarity.hpp"
#include "tree/gather.hpp"

namespace {

using namespace bootpress;

struct Arguments {
  std::string codec = "zstd";
  int level = -1;  // the codec's standard
  unsigned threads = 2;
  std::vector<std::string> directories;
};

int parse_number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw Error(ErrorKind::usage, "not a number: " + text);
  }
  return value;
}

Arguments parse_arguments(const std::vector<std::string>& words) {
  Arguments arguments;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("--")) {
      arguments.directories.push_back(words[i]);
      continue;
    }
    if (i + 1 == words.size()) throw Error(ErrorKind::usage, words[i] + " needs a value");
    const std::string& value = words[i + 1];
    if (words[i] == "--codec") {
      arguments.codec = value;
    } else if (words[i] == "--level") {
      arguments.level = parse_number(value);
    } else if (words[i] == "--threads") {
      arguments.threads = static_cast<unsigned>(std::max(1, parse_number(value)));
    } else {
      throw Error(ErrorKind::usage, "unknown option " + words[i]);
    }
    ++i;
  }
  return arguments;
}

std::vector<std::byte> read_fragment(const Tree& tree, std::span<const Piece> pieces) {
  std::vector<std::byte> bytes;
  for (const Piece& piece : pieces) {
    const std::size_t at = bytes.size();
    bytes.resize(at + piece.length);
    tree.source()
        .open(tree, piece.file)
        ->read(tree[piece.file].size - piece.length, std::span(bytes).subspan(at));
  }
  return bytes;
}

struct Sizes {
  std::uint64_t fragments = 0;
  std::uint64_t in = 0;
  std::uint64_t out = 0;
};

Sizes compress_fragments(const Tree& tree, const Plan& plan, const CodecOptions& codec,
                         unsigned threads) {
  std::atomic<std::uint64_t> in{0};
  std::atomic<std::uint64_t> out{0};
  const auto make_worker = [&]() -> Job {
    const std::shared_ptr<Compressor> compressor = make_compressor(codec);
    return [&, compressor](std::uint64_t number) {
      const auto bytes = read_fragment(tree, plan.fragment(static_cast<std::uint32_t>(number)));
      std::vector<std::byte> packed(bytes.size());
      const std::size_t size = compressor->compress(bytes, packed);
      in += bytes.size();
      out += size == 0 ? bytes.size() : size;
    };
  };
  SilentMonitor monitor;
  run_parallel(threads, plan.fragment_count(), make_worker, monitor, [] { return Progress{}; });
  return {plan.fragment_count(), in, out};
}

void sort_by_extension_and_name(const Tree& tree, std::vector<InodeId>& files) {
  std::ranges::stable_sort(files, {}, [&](InodeId id) {
    const std::string_view name = tree.text(tree[id].name);
    const std::size_t dot = name.rfind('.');
    const bool none = dot == std::string_view::npos || dot == 0;
    return std::tuple(none ? std::string_view{} : name.substr(dot + 1), name);
  });
}

void measure_tree(const std::string& directory, std::uint32_t block_size,
                  const Arguments& arguments) {
  SilentMonitor monitor;
  const Tree tree = scan_directory(directory, {}, 1, monitor);
  const std::vector<InodeId> original = find_duplicates(tree, arguments.threads, monitor);
  CodecOptions codec{.id = codec_from_name(arguments.codec), .block_size = block_size};
  codec.level = arguments.level < 0 ? level_range(codec.id).standard : arguments.level;

  const Order by_path = order_files(
      tree, original,
      {.cold_order = ColdOrder::path, .block_size = block_size, .jobs = arguments.threads},
      monitor);
  std::uint64_t base = 0;
  const auto report = [&](std::string_view name,
                          const std::function<void(std::vector<InodeId>&)>& sort) {
    Order order = by_path;
    const auto begin = std::chrono::steady_clock::now();
    sort(order.cold_tails);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const Plan plan = plan_blocks(tree, original, order, block_size, true);
    const Sizes sizes = compress_fragments(tree, plan, codec, arguments.threads);
    if (base == 0) base = sizes.out;
    const double mb = 1e6;
    std::printf("| %s | %u | %s | %llu | %.1f | %.2f | %+.2f%% | %.2f |\n", directory.c_str(),
                block_size >> 10, std::string(name).c_str(),
                static_cast<unsigned long long>(sizes.fragments),
                static_cast<double>(sizes.in) / mb, static_cast<double>(sizes.out) / mb,
                100.0 * static_cast<double>(sizes.out) / static_cast<double>(base) - 100.0,
                seconds.count());
    std::fflush(stdout);
  };
  report("directory", [](std::vector<InodeId>&) {});
  report("extension, name",
         [&](std::vector<InodeId>& files) { sort_by_extension_and_name(tree, files); });
  report("similarity", [&](std::vector<InodeId>& files) {
    files = order_by_similarity(tree, files, block_size, arguments.threads, monitor);
  });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Arguments arguments = parse_arguments({argv + 1, argv + argc});
    std::puts("| tree | block KiB | order | fragments | MB in | MB out | vs directory | s |");
    std::puts("|---|---|---|---|---|---|---|---|");
    for (const std::string& directory : arguments.directories) {
      for (const std::uint32_t block_size : {131072U, 1048576U}) {
        measure_tree(directory, block_size, arguments);
      }
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "order_bench: %s\n", error.what());
    return 1;
  }
}
