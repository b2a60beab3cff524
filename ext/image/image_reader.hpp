// SPDX-License-Identifier: GPL-2.0-or-later
//
// Reads one file of an image.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "image/block_store.hpp"
#include "image/image.hpp"

namespace bootpress {

class ImageReader final : public FileReader {
 public:
  ImageReader(std::shared_ptr<const Image> image, BlockStore& store, const FileBlocks& blocks);
  ImageReader(const ImageReader&) = delete;
  ImageReader& operator=(const ImageReader&) = delete;
  ~ImageReader() override;

  void read(std::uint64_t offset, ByteSpan out) override;

 private:
  // The bytes of one block from `within` on.
  void read_block(std::uint64_t block, std::size_t within, ByteSpan out);
  void read_tail(std::size_t within, ByteSpan out);
  void load_block(std::uint64_t block, ByteSpan out);
  [[nodiscard]] std::uint64_t block_start(std::uint64_t block);
  [[nodiscard]] std::size_t block_length(std::uint64_t block) const;
  [[nodiscard]] Decompressor& decompressor();

  std::shared_ptr<const Image> image_;
  BlockStore& store_;  // the image's own
  FileBlocks blocks_;
  std::uint64_t block_size_;
  std::unique_ptr<Decompressor> decompressor_;  // taken from the store when first needed
  std::vector<std::byte> scratch_;
  std::vector<std::byte> cached_;  // the content of block cached_block_
  std::uint64_t cached_block_ = UINT64_MAX;
  std::uint64_t walked_block_ = 0;  // blocks are found by adding up sizes: where that stands
  std::uint64_t walked_start_ = 0;
};

}  // namespace bootpress
