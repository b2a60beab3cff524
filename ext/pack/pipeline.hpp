// SPDX-License-Identifier: GPL-2.0-or-later
//
// Compresses the plan's blocks on all workers, or copies them, and writes them in the plan's order.
//
// Workers take jobs in order, read their own bytes and compress; whoever finishes the block that
// is next in the image gives it, and those ready behind it, their places, and writes them while
// the others go on. Bytes in flight are bounded: a worker too far ahead of the next block waits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/file.hpp"
#include "base/monitor.hpp"
#include "codec/codec.hpp"
#include "pack/plan.hpp"

namespace bootpress {

using CompressorFactory = std::function<std::unique_ptr<Compressor>()>;

// Hands out places at the end of the image and keeps the seal's checksum of all that goes there.
class ImageSink {
 public:
  // Everything from byte `start` on (the superblock before it is written last).
  ImageSink(OutputFile& output, std::uint64_t start);
  ~ImageSink();
  ImageSink(const ImageSink&) = delete;
  ImageSink& operator=(const ImageSink&) = delete;

  [[nodiscard]] std::uint64_t position() const { return position_; }
  // Takes the next place for `bytes` and returns it. One thread at a time.
  std::uint64_t claim(ByteView bytes);
  // Writes to a claimed place. Any thread at any time.
  void write(std::uint64_t place, ByteView bytes) { output_.write(place, bytes); }
  void append(ByteView bytes) { write(claim(bytes), bytes); }
  // Writes the superblock, the seal and the padding; returns the seal's digest.
  std::vector<std::byte> finish(ByteView superblock);

 private:
  struct Checksum;
  OutputFile& output_;
  std::uint64_t position_;
  std::unique_ptr<Checksum> checksum_;
};

struct BlockStatistics {
  std::uint64_t data_blocks = 0;  // with data in the image
  std::uint64_t raw_blocks = 0;   // data blocks and fragments that did not shrink
  std::uint64_t hole_blocks = 0;
  std::uint64_t hot_bytes = 0;     // stored bytes of the hot region
  std::uint64_t copied_bytes = 0;  // data blocks and fragments taken as stored elsewhere
  std::uint64_t copied_fragments = 0;
};

struct StoredBlocks {
  // Per fragment: where it lies, and its size word (kBlockRaw where raw).
  std::vector<std::uint64_t> fragment_starts;
  std::vector<std::uint32_t> fragment_words;
  std::vector<std::uint64_t> copy_starts;  // where each of Plan::copies lies now
  // Per job: xxh3-64 of the bytes before compression (of what is copied: as stored), for the check
  // that follows.
  std::vector<std::uint64_t> job_hashes;
  BlockStatistics statistics;
};

struct PipelineOptions {
  CompressorFactory make_compressor;  // returns null: store everything raw
  unsigned jobs = 1;
  std::uint64_t memory = 0;  // bytes of blocks in flight; 0: enough for four per worker
  bool keep_hashes = true;
  const ImageBytes* copied_from = nullptr;  // where what the plan copies is stored
};

// Fills plan.words and the contents' starts, except for what is copied; see relocate_contents().
[[nodiscard]] StoredBlocks compress_blocks(const Tree& tree, Plan& plan, ImageSink& sink,
                                           const PipelineOptions& options, Monitor& monitor);

}  // namespace bootpress
