// SPDX-License-Identifier: GPL-2.0-or-later
#include "pack/pipeline.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/parallel.hpp"
#include "squashfs/seal.hpp"

namespace bootpress {

namespace {

// Below this, blocks of 1 MiB and many workers leave no slack between a slow block and the next.
constexpr std::uint64_t kLeastMemory = 16U << 20;
constexpr std::uint64_t kBlocksPerWorker = 4;
// Blocks placed before they are written: enough to catch up, few enough to spread the writing.
constexpr std::size_t kRun = 4;

using Buffer = std::unique_ptr<std::byte[]>;

// Of a job that compresses.
std::uint32_t job_size(const Tree& tree, const Plan& plan, const BlockJob& job) {
  if (job.is_fragment()) {
    std::uint32_t size = 0;
    for (const Piece& piece : plan.fragment(job.subject)) size += piece.length;
    return size;
  }
  const std::uint64_t rest = tree[job.subject].size - std::uint64_t{job.block} * plan.block_size;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(rest, plan.block_size));
}

// A finished block that waits for its turn to be written.
struct Slot {
  Buffer bytes;
  std::uint32_t word = 0;  // stored bytes | kBlockRaw, 0: a hole
  bool ready = false;
  [[nodiscard]] ByteView stored() const { return {bytes.get(), word & squashfs::kBlockSizeMask}; }
};

class Pipeline {
 public:
  Pipeline(const Tree& tree, Plan& plan, ImageSink& sink, const PipelineOptions& options)
      : tree_(tree), plan_(plan), sink_(sink), options_(options) {
    std::uint64_t memory = options.memory;
    if (memory == 0) {
      memory = std::max(kLeastMemory, kBlocksPerWorker * options.jobs * plan.block_size);
    }
    // One slot more than workers, so that the one that writes does not stop the others.
    slots_.resize(std::max<std::uint64_t>(memory / plan.block_size, options.jobs + 1));
    stored_.fragment_starts.resize(plan.fragment_count());
    stored_.fragment_words.resize(plan.fragment_count());
    stored_.copy_starts.resize(plan.copies.size());
    if (options.keep_hashes) stored_.job_hashes.resize(plan.jobs.size());
  }

  StoredBlocks run(Monitor& monitor) {
    run_parallel(
        options_.jobs, plan_.jobs.size(), [this] { return make_worker(); }, monitor,
        [this] {
          return Progress{.stage = plan_.copies.empty() ? "compress" : "copy",
                          .done_bytes = done_bytes_,
                          .total_bytes = plan_.total_bytes,
                          .done_files = 0,
                          .total_files = 0};
        });
    count_blocks();
    return std::move(stored_);
  }

 private:
  struct Worker {
    std::unique_ptr<Compressor> compressor;
    Buffer input;
    Buffer output;
    InodeId file = kNoInode;  // the file that `reader` reads: blocks of one come in a row
    std::unique_ptr<FileReader> reader;
  };

  Job make_worker() {
    auto worker = std::make_shared<Worker>();
    worker->compressor = options_.make_compressor();
    worker->input = new_buffer();
    worker->output = new_buffer();
    return [this, worker](std::uint64_t number) {
      try {
        if (wait_for_slot(number)) do_job(*worker, number);
      } catch (...) {
        abort();
        throw;
      }
    };
  }

  [[nodiscard]] Buffer new_buffer() const {
    return std::make_unique_for_overwrite<std::byte[]>(plan_.block_size);
  }

  bool wait_for_slot(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    advanced_.wait(lock, [&] { return aborted_ || number < next_ + slots_.size(); });
    return !aborted_;
  }

  void abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    advanced_.notify_all();
  }

  void do_job(Worker& worker, std::uint64_t number) {
    const BlockJob& job = plan_.jobs[number];
    if (const FragmentEntry source = plan_.stored_source(job); source.word != 0) {
      copy_stored(worker, number, source);
      return;
    }
    const std::uint32_t size = job_size(tree_, plan_, job);
    const ByteSpan input(worker.input.get(), size);
    read_job(worker, job, input);
    if (options_.keep_hashes) {
      stored_.job_hashes[number] = XXH3_64bits(input.data(), input.size());
    }
    std::uint32_t word = 0;
    Buffer* result = &worker.output;
    if (job.is_fragment() || !all_zero(input)) {
      const std::size_t packed =
          worker.compressor ? worker.compressor->compress(input, {worker.output.get(), size}) : 0;
      word = packed > 0 ? static_cast<std::uint32_t>(packed) : size | squashfs::kBlockRaw;
      if (packed == 0) result = &worker.input;
    }
    done_bytes_ += size;
    hand_over(number, word, *result);
  }

  void copy_stored(Worker& worker, std::uint64_t number, const FragmentEntry& source) {
    const ByteSpan input(worker.input.get(), source.word & squashfs::kBlockSizeMask);
    options_.copied_from->read(source.start, input);
    if (options_.keep_hashes) {
      stored_.job_hashes[number] = XXH3_64bits(input.data(), input.size());
    }
    done_bytes_ += input.size();
    hand_over(number, source.word, worker.input);
  }

  void read_job(Worker& worker, const BlockJob& job, ByteSpan out) {
    if (!job.is_fragment()) {
      if (worker.file != job.subject) {
        worker.reader = tree_.source().open(tree_, job.subject);
        worker.file = job.subject;
      }
      worker.reader->read(std::uint64_t{job.block} * plan_.block_size, out);
      return;
    }
    for (const Piece& piece : plan_.fragment(job.subject)) {
      const std::uint64_t tail = tree_[piece.file].size - piece.length;
      tree_.source().open(tree_, piece.file)->read(tail, out.first(piece.length));
      out = out.subspan(piece.length);
    }
  }

  // Leaves the block to be written in its turn, taking `buffer` for a fresh one.
  void hand_over(std::uint64_t number, std::uint32_t word, Buffer& buffer) {
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[number % slots_.size()];
    slot.word = word;
    slot.ready = true;
    if (word != 0) {
      std::swap(slot.bytes, buffer);
      if (!spare_.empty()) {
        buffer = std::move(spare_.back());
        spare_.pop_back();
      }
    }
    write_ready(lock);
    lock.unlock();
    if (!buffer) buffer = new_buffer();
  }

  // Places the blocks whose turn it is, as long as there are any, and writes them without holding
  // the lock. One worker places at a time; several may be writing.
  void write_ready(std::unique_lock<std::mutex>& lock) {
    while (!aborted_ && !placing_ && next_is_ready()) {
      placing_ = true;
      std::array<std::pair<std::uint64_t, Slot>, kRun> run;
      std::size_t count = 0;
      while (count < kRun && next_is_ready()) {
        auto& [where, slot] = run[count++];
        slot = std::move(slots_[next_ % slots_.size()]);
        slots_[next_ % slots_.size()].ready = false;
        lock.unlock();
        where = place(next_, slot);
        lock.lock();
        ++next_;
      }
      placing_ = false;
      advanced_.notify_all();
      lock.unlock();
      for (const auto& [where, slot] : std::span(run).first(count)) {
        sink_.write(where, slot.stored());
      }
      lock.lock();
      for (auto& [where, slot] : std::span(run).first(count)) {
        if (slot.bytes) spare_.push_back(std::move(slot.bytes));
      }
    }
  }

  [[nodiscard]] bool next_is_ready() const {
    return next_ < plan_.jobs.size() && slots_[next_ % slots_.size()].ready;
  }

  // Gives a block its place in the image and notes it where the metadata will look for it.
  std::uint64_t place(std::uint64_t number, const Slot& slot) {
    const BlockJob& job = plan_.jobs[number];
    const std::uint64_t start = sink_.claim(slot.stored());
    if (job.is_copy()) {
      stored_.copy_starts[job.subject] = start;
    } else if (job.is_fragment()) {
      stored_.fragment_starts[job.subject] = start;
      stored_.fragment_words[job.subject] = slot.word;
    } else {
      Content& content = plan_.contents[plan_.content_of[job.subject]];
      if (content.start == 0) content.start = start;
      plan_.words[content.first_word + job.block] = slot.word;
    }
    if (number < plan_.hot_jobs) stored_.statistics.hot_bytes += slot.stored().size();
    return start;
  }

  void count_blocks() {
    BlockStatistics& statistics = stored_.statistics;
    for (const std::uint32_t word : plan_.words) {
      ++(word == 0 ? statistics.hole_blocks : statistics.data_blocks);
    }
    const auto is_raw = [](std::uint32_t word) { return (word & squashfs::kBlockRaw) != 0; };
    statistics.raw_blocks =
        static_cast<std::uint64_t>(std::ranges::count_if(plan_.words, is_raw) +
                                   std::ranges::count_if(stored_.fragment_words, is_raw));
    for (const Extent& copy : plan_.copies) statistics.copied_bytes += copy.length;
    for (const FragmentEntry& kept : plan_.kept_fragments) {
      if (kept.word == 0) continue;
      ++statistics.copied_fragments;
      statistics.copied_bytes += kept.word & squashfs::kBlockSizeMask;
    }
  }

  const Tree& tree_;
  Plan& plan_;
  ImageSink& sink_;
  const PipelineOptions& options_;
  StoredBlocks stored_;
  std::atomic<std::uint64_t> done_bytes_{0};

  std::mutex mutex_;  // guards what follows; next_ is changed by the placing worker alone
  std::condition_variable advanced_;
  std::vector<Slot> slots_;
  std::vector<Buffer> spare_;
  std::uint64_t next_ = 0;
  bool placing_ = false;
  bool aborted_ = false;
};

}  // namespace

struct ImageSink::Checksum {
  Checksum() { XXH3_128bits_reset(state); }
  ~Checksum() { XXH3_freeState(state); }
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void update(ByteView bytes) const { XXH3_128bits_update(state, bytes.data(), bytes.size()); }
  XXH3_state_t* state = XXH3_createState();
};

ImageSink::ImageSink(OutputFile& output, std::uint64_t start)
    : output_(output), position_(start), checksum_(std::make_unique<Checksum>()) {}

ImageSink::~ImageSink() = default;

std::uint64_t ImageSink::claim(ByteView bytes) {
  checksum_->update(bytes);
  return std::exchange(position_, position_ + bytes.size());
}

std::vector<std::byte> ImageSink::finish(ByteView superblock) {
  checksum_->update(superblock);
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(checksum_->state));
  const ByteView digest_bytes = std::as_bytes(std::span(digest.digest));

  ByteWriter tail;
  tail.put(as_view(squashfs::kSealMagic)).put(digest_bytes);
  const std::uint64_t end = position_ + tail.size();
  const std::uint64_t padded =
      (end + squashfs::kPadding - 1) / squashfs::kPadding * squashfs::kPadding;
  const std::vector<std::byte> zeros(padded - end);
  tail.put(zeros);
  output_.write(position_, tail.view());
  output_.write(0, superblock);
  return {digest_bytes.begin(), digest_bytes.end()};
}

StoredBlocks compress_blocks(const Tree& tree, Plan& plan, ImageSink& sink,
                             const PipelineOptions& options, Monitor& monitor) {
  return Pipeline(tree, plan, sink, options).run(monitor);
}

}  // namespace bootpress
