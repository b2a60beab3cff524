// SPDX-License-Identifier: GPL-2.0-or-later
//
// Writes the content of files, job by job. One per thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "image/attributes.hpp"
#include "image/beneath.hpp"
#include "image/image.hpp"
#include "image/unpack_plan.hpp"

namespace bootpress {

// A file that several jobs write: whoever comes first makes it, the last one finishes it.
struct SplitFile {
  std::mutex mutex;
  bool made = false;
  dev_t device = 0;  // of the file that was made, so that no other is written to in its place
  ino_t inode = 0;
  std::atomic<std::uint32_t> left{0};  // items
};

// What all writers of one run share.
struct UnpackState {
  const Image& image;
  const Tree& tree;
  int root;
  const UnpackPlan& plan;
  const AttributeSetter& attributes;
  std::vector<SplitFile>& splits;
  std::vector<std::uint8_t>& made;  // per inode: 1 once it exists in the target
  std::atomic<std::uint64_t>& done_bytes;
  std::atomic<std::uint64_t>& done_files;
};

class FileWriter {
 public:
  explicit FileWriter(const UnpackState& state);

  void run(const UnpackJob& job);

 private:
  void load_fragment(std::uint32_t number);
  void write_item(const UnpackItem& item);
  [[nodiscard]] Fd make_file(InodeId id);
  [[nodiscard]] Fd open_split(const UnpackItem& item);
  // Writes an item's blocks; holes stay holes. Returns where the last byte written ends.
  std::uint64_t write_blocks(int fd, const UnpackItem& item, const FileBlocks& blocks);
  void write_tail(int fd, InodeId id, const FileBlocks& blocks);
  void write_all(int fd, ByteView bytes, std::uint64_t offset, InodeId id);
  void set_size(int fd, InodeId id);
  [[noreturn]] void fail(std::string_view action, InodeId id) const;

  UnpackState state_;
  DirectoryCache directories_;
  std::unique_ptr<Decompressor> decompressor_;
  std::vector<std::byte> scratch_;
  std::vector<std::byte> block_;
  std::vector<std::byte> fragment_;
  std::size_t fragment_size_ = 0;
};

}  // namespace bootpress
