// SPDX-License-Identifier: GPL-2.0-or-later
#include "pack/dedupe.hpp"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "base/parallel.hpp"

namespace bootpress {

namespace {

constexpr std::size_t kChunk =
    1 << 17;  // bytes read at once, the usual block: stays in the L2 cache

struct Candidate {
  InodeId inode = 0;
  std::uint64_t size = 0;
  XXH128_hash_t hash{};
};

bool same_key(const Candidate& a, const Candidate& b) {
  return a.size == b.size && XXH128_isEqual(a.hash, b.hash) != 0;
}

// Files that share their size with another, by size, as gathered among equals.
std::vector<Candidate> same_sized(const Tree& tree) {
  std::vector<Candidate> files;
  for (InodeId id = 0; id < tree.size(); ++id) {
    if (tree[id].type == FileType::file && tree[id].size > 0) {
      files.push_back({.inode = id, .size = tree[id].size});
    }
  }
  std::ranges::stable_sort(files, {}, &Candidate::size);
  std::vector<Candidate> shared;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const bool before = i > 0 && files[i - 1].size == files[i].size;
    const bool after = i + 1 < files.size() && files[i + 1].size == files[i].size;
    if (before || after) shared.push_back(files[i]);
  }
  return shared;
}

XXH128_hash_t hash_file(const Tree& tree, InodeId id, std::vector<std::byte>& buffer) {
  const std::unique_ptr<FileReader> reader = tree.source().open(tree, id);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_128bits_reset(state.get());
  const std::uint64_t size = tree[id].size;
  for (std::uint64_t at = 0; at < size; at += kChunk) {
    const ByteSpan chunk(buffer.data(), std::min<std::uint64_t>(kChunk, size - at));
    reader->read(at, chunk);
    XXH3_128bits_update(state.get(), chunk.data(), chunk.size());
  }
  return XXH3_128bits_digest(state.get());
}

bool same_content(const Tree& tree, InodeId a, InodeId b, std::vector<std::byte>& buffer) {
  const std::unique_ptr<FileReader> first = tree.source().open(tree, a);
  const std::unique_ptr<FileReader> second = tree.source().open(tree, b);
  const std::uint64_t size = tree[a].size;
  for (std::uint64_t at = 0; at < size; at += kChunk) {
    const std::size_t length = std::min<std::uint64_t>(kChunk, size - at);
    const ByteSpan one(buffer.data(), length);
    const ByteSpan other(buffer.data() + kChunk, length);
    first->read(at, one);
    second->read(at, other);
    if (!std::ranges::equal(one, other)) return false;
  }
  return true;
}

}  // namespace

std::vector<InodeId> find_duplicates(const Tree& tree, unsigned jobs, Monitor& monitor) {
  std::vector<InodeId> original(tree.size());
  std::iota(original.begin(), original.end(), InodeId{0});

  std::vector<Candidate> candidates = same_sized(tree);
  std::atomic<std::uint64_t> done{0};
  const auto progress = [&] {
    return Progress{.stage = "dedupe", .done_files = done, .total_files = 2 * candidates.size()};
  };
  run_parallel(
      jobs, candidates.size(),
      [&]() -> Job {
        return [&, buffer = std::vector<std::byte>(kChunk)](std::uint64_t i) mutable {
          candidates[i].hash = hash_file(tree, candidates[i].inode, buffer);
          ++done;
        };
      },
      monitor, progress);

  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    if (a.size != b.size) return a.size < b.size;
    return XXH128_cmp(&a.hash, &b.hash) < 0;
  });
  // Each is compared with the first of its run: 128 bits do not collide by accident, so a run
  // whose members differ is an attack on the hash, and what differs just stays itself.
  std::vector<std::size_t> first(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    first[i] = i > 0 && same_key(candidates[i - 1], candidates[i]) ? first[i - 1] : i;
  }
  run_parallel(
      jobs, candidates.size(),
      [&]() -> Job {
        return [&, buffer = std::vector<std::byte>(2 * kChunk)](std::uint64_t i) mutable {
          ++done;
          if (first[i] == i) return;
          const InodeId one = candidates[first[i]].inode;
          const InodeId other = candidates[i].inode;
          if (same_content(tree, one, other, buffer)) original[other] = one;
        };
      },
      monitor, progress);
  return original;
}

}  // namespace bootpress
