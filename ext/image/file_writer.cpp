// SPDX-License-Identifier: GPL-2.0-or-later
#include "image/file_writer.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace bootpress {

using squashfs::kBlockSizeMask;
using squashfs::kNoFragment;

FileWriter::FileWriter(const UnpackState& state)
    : state_(state),
      directories_(state.tree, state.root),
      decompressor_(make_decompressor(state.image.codec(), state.image.superblock().block_size)),
      block_(state.image.superblock().block_size),
      fragment_(state.image.superblock().block_size) {}

void FileWriter::fail(std::string_view action, InodeId id) const {
  throw system_error(ErrorKind::target, action, "/" + state_.tree.path(id));
}

void FileWriter::run(const UnpackJob& job) {
  if (job.fragment != kNoFragment) load_fragment(job.fragment);
  for (std::uint64_t i = 0; i < job.item_count; ++i) {
    write_item(state_.plan.items[job.first_item + i]);
  }
}

void FileWriter::load_fragment(std::uint32_t number) {
  const FragmentEntry& entry = state_.image.fragments()[number];
  fragment_size_ =
      state_.image.read_stored(entry.start, entry.word, *decompressor_, scratch_, fragment_);
}

Fd FileWriter::make_file(InodeId id) {
  const Inode& inode = state_.tree[id];
  const std::string name(state_.tree.text(inode.name));
  Fd fd(::openat(directories_.open(inode.parent), name.c_str(),
                 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) fail("creating", id);
  state_.made[id] = 1;
  return fd;
}

Fd FileWriter::open_split(const UnpackItem& item) {
  SplitFile& split = state_.splits[item.split];
  const std::lock_guard lock(split.mutex);
  struct stat status{};
  if (!split.made) {
    Fd fd = make_file(item.file);
    if (::fstat(fd.get(), &status) != 0) fail("examining", item.file);
    set_size(fd.get(), item.file);
    split.device = status.st_dev;
    split.inode = status.st_ino;
    split.made = true;
    return fd;
  }
  const Inode& inode = state_.tree[item.file];
  const std::string name(state_.tree.text(inode.name));
  Fd fd(::openat(directories_.open(inode.parent), name.c_str(),
                 O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd || ::fstat(fd.get(), &status) != 0) fail("opening", item.file);
  if (status.st_dev != split.device || status.st_ino != split.inode) {
    throw Error(ErrorKind::target,
                "someone replaced /" + state_.tree.path(item.file) + " while it was unpacked",
                "unpack where nobody else can write");
  }
  return fd;
}

void FileWriter::write_item(const UnpackItem& item) {
  const std::uint64_t size = state_.tree[item.file].size;
  const FileBlocks blocks = state_.image.blocks(state_.tree[item.file].data);
  const bool whole = item.split == kNotSplit;
  const Fd fd = whole ? make_file(item.file) : open_split(item);
  std::uint64_t end = write_blocks(fd.get(), item, blocks);
  if (item.tail) {
    write_tail(fd.get(), item.file, blocks);
    end = size;
  }
  if (whole && end < size) set_size(fd.get(), item.file);
  if (whole || state_.splits[item.split].left.fetch_sub(1) == 1) {
    state_.attributes.set(fd.get(), item.file);
    state_.done_files.fetch_add(1, std::memory_order_relaxed);
  }
}

std::uint64_t FileWriter::write_blocks(int fd, const UnpackItem& item, const FileBlocks& blocks) {
  const std::uint64_t block_size = block_.size();
  std::uint64_t start = item.start;
  std::uint64_t end = 0;
  for (std::uint64_t i = item.first_block; i < item.first_block + item.block_count; ++i) {
    const std::uint32_t word = blocks.words[i];
    if (word == 0) continue;
    const std::uint64_t offset = i * block_size;
    const std::size_t length = std::min(block_size, blocks.size - offset);
    const std::size_t produced =
        state_.image.read_stored(start, word, *decompressor_, scratch_, block_);
    if (produced != length) {
      throw Error(ErrorKind::corrupt, "/" + state_.tree.path(item.file) + ": the block at offset " +
                                          std::to_string(start) + " holds " +
                                          std::to_string(produced) + " bytes instead of " +
                                          std::to_string(length));
    }
    write_all(fd, ByteView(block_).first(length), offset, item.file);
    start += word & kBlockSizeMask;
    end = offset + length;
  }
  return end;
}

void FileWriter::write_tail(int fd, InodeId id, const FileBlocks& blocks) {
  const std::uint64_t offset = blocks.words.size() * block_.size();
  const std::size_t length = blocks.size - offset;
  const std::size_t from = blocks.fragment_offset;
  if (from > fragment_size_ || length > fragment_size_ - from) {
    throw Error(ErrorKind::corrupt,
                "/" + state_.tree.path(id) + ": its tail lies outside its fragment");
  }
  write_all(fd, ByteView(fragment_).subspan(from, length), offset, id);
}

void FileWriter::write_all(int fd, ByteView bytes, std::uint64_t offset, InodeId id) {
  state_.done_bytes.fetch_add(bytes.size(), std::memory_order_relaxed);
  while (!bytes.empty()) {
    const ssize_t wrote = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0) {
      if (errno == EINTR) continue;
      fail("writing", id);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    offset += static_cast<std::uint64_t>(wrote);
  }
}

void FileWriter::set_size(int fd, InodeId id) {
  if (::ftruncate(fd, static_cast<off_t>(state_.tree[id].size)) != 0) fail("writing", id);
}

}  // namespace bootpress
