// SPDX-License-Identifier: GPL-2.0-or-later
#include "pack/check.hpp"

#include <xxhash.h>

#include <algorithm>
#include <atomic>

#include "base/parallel.hpp"

namespace bootpress {

namespace {

[[noreturn]] void mismatch(const std::string& what) {
  throw Error(ErrorKind::corrupt, "the image does not read back as it was packed: " + what,
              "this is a defect of bootpress or of this machine's memory or disk; no image was "
              "written");
}

void require(bool holds, const std::string& path, const char* what) {
  if (!holds) mismatch("/" + path + " (" + what + ")");
}

void check_blocks(const Image& image, const Inode& read, const Tree& tree, InodeId id,
                  const Plan& plan, const std::string& path) {
  const FileBlocks found = image.blocks(read.data);
  const std::uint32_t index = plan.content_of[id];
  if (index == Plan::kNoContent) {
    require(tree[id].size == 0 && found.words.empty(), path, "blocks");
    return;
  }
  const Content& content = plan.contents[index];
  const auto words = std::span(plan.words).subspan(content.first_word, content.word_count);
  require(found.start == content.start && std::ranges::equal(found.words, words), path, "blocks");
  require(found.fragment == content.fragment, path, "fragment");
  require(
      content.fragment == squashfs::kNoFragment || found.fragment_offset == content.fragment_offset,
      path, "place in its fragment");
}

void check_names(const Image& image, const Tree& tree, const Plan& plan) {
  const Tree read = image.tree();
  if (read.size() != tree.size()) mismatch("the number of inodes");
  // Names may lead to inodes in another order; each pair must be one and the same everywhere.
  std::vector<InodeId> counterpart(tree.size(), kNoInode);
  std::vector<std::pair<InodeId, InodeId>> todo{{0, 0}};
  while (!todo.empty()) {
    const auto [mine, its] = todo.back();
    todo.pop_back();
    if (counterpart[mine] != kNoInode) {
      if (counterpart[mine] != its) mismatch("/" + tree.path(mine) + " (hard links)");
      continue;
    }
    counterpart[mine] = its;
    const Inode& a = tree[mine];
    const Inode& b = read[its];
    const std::string path = tree.path(mine);
    require(a.type == b.type, path, "type");
    require(a.mode == b.mode, path, "mode");
    require(a.uid == b.uid && a.gid == b.gid, path, "owner");
    require(a.mtime == b.mtime, path, "time");
    require(a.links == b.links, path, "links");
    require(a.size == b.size, path, "size");
    require(a.device_major == b.device_major && a.device_minor == b.device_minor, path, "device");
    require(tree.text(a.target) == read.text(b.target), path, "target");
    require(std::ranges::equal(tree.xattrs(mine), read.xattrs(its)), path, "xattrs");
    if (a.type == FileType::file) check_blocks(image, b, tree, mine, plan, path);
    if (a.type != FileType::directory) continue;
    const auto names = tree.entries(mine);
    const auto read_names = read.entries(its);
    require(names.size() == read_names.size(), path, "names");
    for (std::size_t i = 0; i < names.size(); ++i) {
      require(tree.text(names[i].name) == read.text(read_names[i].name), path, "names");
      todo.emplace_back(names[i].inode, read_names[i].inode);
    }
  }
}

struct StoredExtent {
  std::uint64_t start;
  std::uint32_t word;
};

std::vector<StoredExtent> stored_extents(const Plan& plan, const StoredBlocks& stored) {
  std::vector<StoredExtent> extents;
  extents.reserve(plan.jobs.size());
  std::uint64_t next = 0;
  for (const BlockJob& job : plan.jobs) {
    if (const FragmentEntry source = plan.stored_source(job); source.word != 0) {
      // What was copied is compared as it is stored: read raw, whatever it is.
      extents.push_back({.start = job.is_copy() ? stored.copy_starts[job.subject]
                                                : stored.fragment_starts[job.subject],
                         .word = source.word | squashfs::kBlockRaw});
    } else if (job.is_fragment()) {
      extents.push_back({.start = stored.fragment_starts[job.subject],
                         .word = stored.fragment_words[job.subject]});
    } else {
      const Content& content = plan.contents[plan.content_of[job.subject]];
      if (extents.empty()) next = content.start;
      extents.push_back({.start = next, .word = plan.words[content.first_word + job.block]});
    }
    next = extents.back().start + (extents.back().word & squashfs::kBlockSizeMask);
  }
  return extents;
}

void check_content(const Image& image, const Plan& plan, const StoredBlocks& stored, unsigned jobs,
                   Monitor& monitor) {
  const std::vector<StoredExtent> extents = stored_extents(plan, stored);
  const CodecId codec = image.codec();
  std::atomic<std::uint64_t> done{0};
  struct Worker {
    std::unique_ptr<Decompressor> decompressor;
    std::vector<std::byte> scratch;
    std::vector<std::byte> block;
  };
  run_parallel(
      jobs, extents.size(),
      [&]() -> Job {
        auto worker = std::make_shared<Worker>();
        worker->decompressor = make_decompressor(codec, plan.block_size);
        worker->block.resize(plan.block_size);
        return [&, worker](std::uint64_t number) {
          const StoredExtent& extent = extents[number];
          if (extent.word == 0) return;
          const std::size_t size = image.read_stored(
              extent.start, extent.word, *worker->decompressor, worker->scratch, worker->block);
          if (XXH3_64bits(worker->block.data(), size) != stored.job_hashes[number]) {
            mismatch("the block at byte " + std::to_string(extent.start));
          }
          done += size;
        };
      },
      monitor,
      [&] {
        return Progress{.stage = "verify",
                        .done_bytes = done,
                        .total_bytes = plan.total_bytes,
                        .done_files = 0,
                        .total_files = 0};
      });
}

}  // namespace

void check_packed(const Image& image, const Tree& tree, const Plan& plan,
                  const StoredBlocks& stored, unsigned jobs, Monitor& monitor) {
  if (image.check_seal(monitor) != Image::SealState::intact) mismatch("the seal");
  check_names(image, tree, plan);
  check_content(image, plan, stored, jobs, monitor);
}

}  // namespace bootpress
