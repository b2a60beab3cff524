// SPDX-License-Identifier: GPL-2.0-or-later
//
// Checks an image from end to end: what opening it does not touch.
#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "base/parallel.hpp"
#include "image/block_store.hpp"
#include "image/compare.hpp"
#include "image/index.hpp"

namespace bootpress {

using squashfs::kBlockSizeMask;
using squashfs::kNoFragment;

namespace {

// A block or fragment as stored, and what those who use it expect of it.
struct Stored {
  std::uint64_t start = 0;
  std::uint32_t word = 0;
  std::uint32_t exact = 0;     // bytes it must decompress to; 0: a fragment, any number
  std::uint32_t at_least = 0;  // bytes: the end of the furthest tail in a fragment

  [[nodiscard]] std::uint64_t end() const { return start + (word & kBlockSizeMask); }
};

void append_blocks(const ImageIndex& index, const Node& node, std::vector<Stored>& all) {
  const std::uint64_t block_size = index.superblock.block_size;
  std::uint64_t start = node.start;
  for (std::uint64_t i = 0; i < node.word_count; ++i) {
    const std::uint32_t word = index.words[node.first_word + i];
    if (word == 0) continue;
    const std::uint64_t length = std::min(block_size, node.size - i * block_size);
    all.push_back({.start = start, .word = word, .exact = static_cast<std::uint32_t>(length)});
    start += word & kBlockSizeMask;
  }
}

// Every block and fragment that the tree uses, each once, ascending. Fragments that nothing uses
// are skipped: no reader ever looks at them.
std::vector<Stored> list_stored(const ImageIndex& index) {
  std::vector<Stored> all;
  std::vector<std::uint32_t> furthest(index.fragments.size(), 0);
  for (const Node& node : index.nodes) {
    if (node.type != FileType::file) continue;
    append_blocks(index, node, all);
    if (node.fragment == kNoFragment) continue;
    const auto tail = static_cast<std::uint32_t>(node.size % index.superblock.block_size);
    furthest[node.fragment] = std::max(furthest[node.fragment], node.fragment_offset + tail);
  }
  for (std::size_t i = 0; i < furthest.size(); ++i) {
    const FragmentEntry& entry = index.fragments[i];
    if (furthest[i] > 0) {
      all.push_back({.start = entry.start, .word = entry.word, .at_least = furthest[i]});
    }
  }
  std::ranges::sort(
      all, {}, [](const Stored& s) { return std::tuple(s.start, s.word, s.exact, s.at_least); });
  const auto same = [](const Stored& a, const Stored& b) {
    return a.start == b.start && a.word == b.word && a.exact == b.exact && a.at_least == b.at_least;
  };
  all.erase(std::ranges::unique(all, same).begin(), all.end());
  return all;
}

// The same extent may be used as a block and as a fragment; anything else must not overlap.
void check_overlaps(const std::vector<Stored>& all, std::uint64_t data_end) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].end() > data_end) {
      throw Error(ErrorKind::corrupt, "the block at offset " + std::to_string(all[i].start) +
                                          " reaches into the metadata");
    }
    if (i == 0 || all[i].start >= all[i - 1].end()) continue;
    if (all[i].start != all[i - 1].start || all[i].word != all[i - 1].word) {
      throw Error(ErrorKind::corrupt, "the blocks at offsets " + std::to_string(all[i - 1].start) +
                                          " and " + std::to_string(all[i].start) + " overlap");
    }
  }
}

void check_produced(const Stored& stored, std::size_t produced) {
  const bool fits = stored.exact != 0 ? produced == stored.exact : produced >= stored.at_least;
  if (!fits) {
    throw Error(ErrorKind::corrupt, "the block at offset " + std::to_string(stored.start) +
                                        " holds " + std::to_string(produced) +
                                        " bytes instead of " +
                                        std::to_string(std::max(stored.exact, stored.at_least)));
  }
}

// NFS finds inodes by number through the export table; nothing else notices when it is wrong.
void check_exports(const Image& image) {
  const ImageIndex& index = image.index();
  if (index.export_index.units.empty()) return;
  const auto decompressor = make_decompressor(image.codec(), index.superblock.block_size);
  const auto table = read_indexed_table(image.bytes(), index.export_index,
                                        std::uint64_t{index.superblock.inode_count} * 8,
                                        *decompressor, "export table");
  for (std::uint32_t i = 0; i < index.nodes.size(); ++i) {
    const Node& node = index.nodes[i];
    const auto exported = load_le<std::uint64_t>(table.data() + (std::size_t{node.number} - 1) * 8);
    if (exported != index.inode_chain.reference(node.position)) {
      throw Error(ErrorKind::corrupt,
                  index.path(i) + ": the export table leads elsewhere for its inode number");
    }
  }
}

}  // namespace

VerifyResult verify_image(const Image& image, unsigned jobs, Monitor& monitor) {
  const ImageIndex& index = image.index();
  check_exports(image);
  const std::vector<Stored> all = list_stored(index);
  check_overlaps(all, index.superblock.inode_table);

  VerifyResult result;
  result.blocks = all.size();
  result.files =
      static_cast<std::uint64_t>(std::ranges::count(index.nodes, FileType::file, &Node::type));
  std::uint64_t stored_bytes = 0;
  for (const Stored& stored : all) stored_bytes += stored.end() - stored.start;

  std::atomic<std::uint64_t> done{0};
  std::atomic<std::uint64_t> produced_bytes{0};
  const auto make_worker = [&]() -> Job {
    struct Worker {
      std::unique_ptr<Decompressor> decompressor;
      std::vector<std::byte> scratch;
      std::vector<std::byte> out;
    };
    auto worker = std::make_shared<Worker>();
    worker->decompressor = make_decompressor(image.codec(), index.superblock.block_size);
    worker->out.resize(index.superblock.block_size);
    return [&, worker](std::uint64_t number) {
      const Stored& stored = all[number];
      const std::size_t produced = image.read_stored(
          stored.start, stored.word, *worker->decompressor, worker->scratch, worker->out);
      check_produced(stored, produced);
      produced_bytes += produced;
      done += stored.end() - stored.start;
    };
  };
  run_parallel(jobs, all.size(), make_worker, monitor, [&] {
    return Progress{.stage = "verify", .done_bytes = done, .total_bytes = stored_bytes};
  });
  result.bytes = produced_bytes;
  result.seal = image.check_seal(monitor);
  return result;
}

}  // namespace bootpress
