// SPDX-License-Identifier: GPL-2.0-or-later
#include "pack/pack.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "image/image.hpp"
#include "pack/check.hpp"
#include "pack/dedupe.hpp"
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

void append_codec_options(ImageSink& sink, const CodecOptions& codec) {
  const std::vector<std::byte> record = encode_codec_options(codec);
  if (record.empty()) return;
  ByteWriter unit;
  unit.put(static_cast<std::uint16_t>(record.size() | squashfs::kMetadataRaw)).put(record);
  sink.append(unit.view());
}

CompressorFactory compressor_factory(const CodecOptions& codec) {
  return [codec]() -> std::unique_ptr<Compressor> {
    return codec.id == CodecId::none ? nullptr : make_compressor(codec);
  };
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
                                   .metadata_only = options.metadata_only,
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

  ImageSink sink(output, squashfs::kSuperblockSize);
  append_codec_options(sink, options.codec);
  const StoredBlocks stored = compress_blocks(tree, plan, sink,
                                              {.make_compressor = compressor_factory(options.codec),
                                               .jobs = options.jobs,
                                               .memory = options.memory,
                                               .keep_hashes = options.verify},
                                              monitor);
  result.blocks = stored.statistics;
  stopwatch.end_stage("compress");

  const std::uint64_t data_end = sink.position();
  const squashfs::Superblock superblock =
      write_metadata(tree, plan, stored, inode_order,
                     {.codec = options.codec,
                      .mkfs_time = options.mkfs_time.value_or(newest_mtime(tree)),
                      .fragments = options.fragments,
                      .dedupe = options.dedupe},
                     sink);
  result.metadata_bytes = sink.position() - data_end;
  result.used_bytes = superblock.bytes_used;
  result.seal = sink.finish(squashfs::encode(superblock));
  stopwatch.end_stage("write");

  const auto written = open_image_descriptor(output.fd(), target);
  result.image_bytes = written->size();
  if (options.verify) {
    check_packed(*Image::open(written), tree, plan, stored, options.jobs, monitor);
    stopwatch.end_stage("verify");
  }
  output.commit();
  stopwatch.end_stage("flush");
  return result;
}

}  // namespace bootpress
