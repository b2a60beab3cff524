// SPDX-License-Identifier: GPL-2.0-or-later
#include "pack/pack.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "image/image.hpp"
#include "pack/check.hpp"
#include "pack/dedupe.hpp"
#include "pack/repack.hpp"
#include "pack/writer.hpp"

namespace bootpress {

namespace {

// Seconds spent since the last stage ended.
class Stopwatch {
 public:
  explicit Stopwatch(PackResult& result) : result_(result) {}
  void end_stage(std::string name) {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> spent = now - last_;
    result_.stages.emplace_back(std::move(name), spent.count());
    last_ = now;
  }

 private:
  PackResult& result_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

std::vector<InodeId> no_duplicates(const Tree& tree) {
  std::vector<InodeId> original(tree.size());
  std::iota(original.begin(), original.end(), InodeId{0});
  return original;
}

std::uint32_t newest_mtime(const Tree& tree) {
  std::int64_t newest = 0;
  for (InodeId id = 0; id < tree.size(); ++id) newest = std::max(newest, tree[id].mtime);
  return static_cast<std::uint32_t>(newest);
}

void count_input(const Tree& tree, std::span<const InodeId> original, PackResult& result) {
  for (InodeId id = 0; id < tree.size(); ++id) {
    if (tree[id].type != FileType::file) continue;
    ++result.files;
    result.input_bytes += tree[id].size;
    if (original[id] == id) continue;
    ++result.duplicate_files;
    result.duplicate_bytes += tree[id].size;
  }
}

CompressorFactory compressor_factory(const CodecOptions& codec, bool raw) {
  return [codec, raw]() -> std::unique_ptr<Compressor> {
    return raw ? nullptr : make_compressor(codec);
  };
}

// What the image says of itself besides its content.
struct Format {
  CodecOptions codec;
  std::vector<std::byte> record;  // the codec's options as they are stored
  bool raw_fragments = false;
  bool raw_tables = false;
  std::uint16_t flags = 0;  // how the data was made; see MetadataOptions
  std::uint32_t mkfs_time = 0;
};

struct WriteOptions {
  unsigned jobs = 1;
  std::uint64_t memory = 0;
  bool verify = true;
  const ImageBytes* copied_from = nullptr;
};

// The second half of the way, from the plan on.
void write_image(const Tree& tree, Plan& plan, const InodeOrder& inode_order, const Format& format,
                 const WriteOptions& options, OutputFile& output, PackResult& result,
                 Stopwatch& stopwatch, Monitor& monitor) {
  ImageSink sink(output, squashfs::kSuperblockSize);
  if (!format.record.empty()) {
    ByteWriter unit;
    unit.put(static_cast<std::uint16_t>(format.record.size() | squashfs::kMetadataRaw));
    sink.append(unit.put(format.record).view());
  }
  const StoredBlocks stored =
      compress_blocks(tree, plan, sink,
                      {.make_compressor = compressor_factory(format.codec, format.raw_fragments),
                       .jobs = options.jobs,
                       .memory = options.memory,
                       .keep_hashes = options.verify,
                       .copied_from = options.copied_from},
                      monitor);
  if (options.copied_from != nullptr) relocate_contents(plan, stored);
  result.blocks = stored.statistics;
  stopwatch.end_stage(options.copied_from != nullptr ? "copy" : "compress");

  const std::uint64_t data_end = sink.position();
  const squashfs::Superblock superblock = write_metadata(tree, plan, stored, inode_order,
                                                         {.codec = format.codec,
                                                          .raw = format.raw_tables,
                                                          .mkfs_time = format.mkfs_time,
                                                          .flags = format.flags},
                                                         sink);
  result.metadata_bytes = sink.position() - data_end;
  result.used_bytes = superblock.bytes_used;
  result.seal = sink.finish(squashfs::encode(superblock));
  stopwatch.end_stage("write");

  const auto written = open_image_descriptor(output.fd(), output.path());
  result.image_bytes = written->size();
  if (options.verify) {
    check_packed(*Image::open(written), tree, plan, stored, options.jobs, monitor);
    stopwatch.end_stage("verify");
  }
  output.commit();
  stopwatch.end_stage("flush");
}

Format new_format(const Tree& tree, const PackOptions& options) {
  namespace flag = squashfs::flag;
  const bool raw = options.codec.id == CodecId::none;
  Format format{.codec = options.codec,
                .record = encode_codec_options(options.codec),
                .raw_fragments = raw,
                .raw_tables = raw,
                .mkfs_time = options.mkfs_time.value_or(newest_mtime(tree))};
  unsigned flags = options.fragments ? flag::always_fragments : flag::no_fragments;
  if (raw) flags |= flag::raw_data | flag::raw_fragments;
  if (options.dedupe) flags |= flag::duplicates_removed;
  if (!format.record.empty()) flags |= flag::compressor_options;
  format.flags = static_cast<std::uint16_t>(flags);
  return format;
}

// The record stays as it is, except for an xz dictionary smaller than the blocks made anew: the
// kernel reads none beyond the one that is recorded (fs/squashfs/xz_wrapper.c).
std::vector<std::byte> kept_record(const Image& image, const CodecOptions& codec) {
  std::vector<std::byte> record(image.codec_record().begin(), image.codec_record().end());
  if (image.codec() == CodecId::xz && record.size() >= 8) {
    const std::uint32_t needed = std::max<std::uint32_t>(codec.block_size, squashfs::kMetadataUnit);
    store_le(record.data(), std::max(load_le<std::uint32_t>(record.data()), needed));
  }
  return record;
}

Format kept_format(const Image& image, const CodecOptions& codec) {
  namespace flag = squashfs::flag;
  const squashfs::Superblock& superblock = image.superblock();
  constexpr unsigned kKept = flag::raw_data | flag::raw_fragments | flag::no_fragments |
                             flag::always_fragments | flag::duplicates_removed |
                             flag::compressor_options;
  Format format{.codec = codec,
                .record = kept_record(image, codec),
                .raw_fragments = (superblock.flags & flag::raw_fragments) != 0,
                .raw_tables = (superblock.flags & flag::raw_inodes) != 0,
                .flags = static_cast<std::uint16_t>(superblock.flags & kKept),
                .mkfs_time = superblock.mkfs_time};
  format.codec.id = image.codec();
  return format;
}

}  // namespace

PackResult pack_image(const Tree& tree, const std::string& target, const PackOptions& options,
                      Monitor& monitor) {
  check_codec_options(options.codec);
  PackResult result;
  Stopwatch stopwatch(result);
  OutputFile output(target);

  const std::vector<InodeId> original =
      options.dedupe ? find_duplicates(tree, options.jobs, monitor) : no_duplicates(tree);
  count_input(tree, original, result);
  stopwatch.end_stage("dedupe");

  const Order order = order_files(tree, original,
                                  {.hot = options.hot,
                                   .hot_data = options.hot_data,
                                   .last = options.last,
                                   .cold_order = options.cold_order,
                                   .block_size = options.codec.block_size,
                                   .fragments = options.fragments,
                                   .jobs = options.jobs},
                                  monitor);
  const InodeOrder inode_order = order_inodes(tree, order);
  result.hot_files = order.hot.size();
  stopwatch.end_stage("order");

  Plan plan = plan_blocks(tree, original, order, options.codec.block_size, options.fragments);
  result.fragments = plan.fragment_count();
  stopwatch.end_stage("plan");

  write_image(tree, plan, inode_order, new_format(tree, options),
              {.jobs = options.jobs, .memory = options.memory, .verify = options.verify}, output,
              result, stopwatch, monitor);
  return result;
}

CodecOptions recorded_options(const Image& image) {
  namespace flag = squashfs::flag;
  const squashfs::Superblock& superblock = image.superblock();
  constexpr unsigned kAllRaw = flag::raw_data | flag::raw_fragments | flag::raw_inodes;
  if ((superblock.flags & kAllRaw) == kAllRaw) {
    return {.id = CodecId::none, .level = 0, .block_size = superblock.block_size};
  }
  return decode_codec_options(image.codec(), image.codec_record(), superblock.block_size);
}

bool keeps_blocks(const Image& image, const CodecOptions& codec) {
  const CodecOptions recorded = recorded_options(image);
  return codec.id == recorded.id && codec.block_size == recorded.block_size &&
         encode_codec_options(codec) == encode_codec_options(recorded);
}

PackResult repack_image(const Image& image, const Tree& tree, const std::string& target,
                        const RepackOptions& options, Monitor& monitor) {
  check_codec_options(options.codec);
  PackResult result;
  Stopwatch stopwatch(result);
  OutputFile output(target);

  if (image.check_seal(monitor) == Image::SealState::broken) {
    throw Error(ErrorKind::corrupt, "the seal does not match: it was changed after it was made",
                "pack it again, or fetch it again");
  }
  const std::vector<InodeId> original = find_shared(image, tree);
  count_input(tree, original, result);
  stopwatch.end_stage("check");

  const Order order = order_files(tree, original,
                                  {.hot = options.hot,
                                   .hot_data = options.hot_data,
                                   .last = options.last,
                                   .cold_order = ColdOrder::path,
                                   .block_size = options.codec.block_size,
                                   .fragments = false},
                                  monitor);
  const InodeOrder inode_order = order_inodes(tree, order);
  result.hot_files = order.hot.size();
  stopwatch.end_stage("order");

  Plan plan = plan_repack(image, tree, original, order);
  result.fragments = plan.fragment_count();
  stopwatch.end_stage("plan");

  write_image(tree, plan, inode_order, kept_format(image, options.codec),
              {.jobs = options.jobs,
               .memory = options.memory,
               .verify = options.verify,
               .copied_from = &image.bytes()},
              output, result, stopwatch, monitor);
  return result;
}

}  // namespace bootpress
