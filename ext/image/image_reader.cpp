// SPDX-License-Identifier: GPL-2.0-or-later
#include "image/image_reader.hpp"

#include <algorithm>
#include <cstring>

namespace bootpress {

using squashfs::kBlockSizeMask;
using squashfs::kNoFragment;

ImageReader::ImageReader(std::shared_ptr<const Image> image, BlockStore& store,
                         const FileBlocks& blocks)
    : image_(std::move(image)),
      store_(store),
      blocks_(blocks),
      block_size_(image_->superblock().block_size),
      walked_start_(blocks.start) {}

ImageReader::~ImageReader() {
  if (decompressor_) store_.give_back(std::move(decompressor_));
}

Decompressor& ImageReader::decompressor() {
  if (!decompressor_) decompressor_ = store_.take_decompressor();
  return *decompressor_;
}

void ImageReader::read(std::uint64_t offset, ByteSpan out) {
  if (offset > blocks_.size || out.size() > blocks_.size - offset) {
    throw Error(ErrorKind::changed, "a read behind the end of a file in the image");
  }
  while (!out.empty()) {
    const std::uint64_t block = offset / block_size_;
    const std::size_t within = offset % block_size_;
    const std::size_t length = std::min(out.size(), block_length(block) - within);
    if (block < blocks_.words.size()) {
      read_block(block, within, out.first(length));
    } else {
      read_tail(within, out.first(length));
    }
    out = out.subspan(length);
    offset += length;
  }
}

std::size_t ImageReader::block_length(std::uint64_t block) const {
  return std::min(block_size_, blocks_.size - block * block_size_);
}

void ImageReader::read_block(std::uint64_t block, std::size_t within, ByteSpan out) {
  if (blocks_.words[block] == 0) {
    std::memset(out.data(), 0, out.size());
    return;
  }
  if (out.size() == block_length(block)) {
    load_block(block, out);
    return;
  }
  if (cached_block_ != block) {
    cached_block_ = UINT64_MAX;
    cached_.resize(block_length(block));
    load_block(block, cached_);
    cached_block_ = block;
  }
  std::memcpy(out.data(), cached_.data() + within, out.size());
}

void ImageReader::load_block(std::uint64_t block, ByteSpan out) {
  const std::uint64_t start = block_start(block);
  const std::size_t produced =
      image_->read_stored(start, blocks_.words[block], decompressor(), scratch_, out);
  if (produced != out.size()) {
    throw Error(ErrorKind::corrupt,
                "the block at offset " + std::to_string(start) + " holds too few bytes");
  }
}

std::uint64_t ImageReader::block_start(std::uint64_t block) {
  if (block < walked_block_) {
    walked_block_ = 0;
    walked_start_ = blocks_.start;
  }
  for (; walked_block_ < block; ++walked_block_) {
    walked_start_ += blocks_.words[walked_block_] & kBlockSizeMask;
  }
  return walked_start_;
}

void ImageReader::read_tail(std::size_t within, ByteSpan out) {
  const std::shared_ptr<BlockStore::Fragment> fragment = store_.fragment(blocks_.fragment);
  const std::lock_guard lock(fragment->mutex);
  const FragmentEntry& entry = image_->fragments()[blocks_.fragment];
  if (!fragment->filled) {
    fragment->content.resize(block_size_);
    fragment->content.resize(
        image_->read_stored(entry.start, entry.word, decompressor(), scratch_, fragment->content));
    fragment->filled = true;
  }
  const std::size_t from = blocks_.fragment_offset + within;
  if (from > fragment->content.size() || out.size() > fragment->content.size() - from) {
    throw Error(ErrorKind::corrupt,
                "the fragment at offset " + std::to_string(entry.start) + " holds too few bytes");
  }
  std::memcpy(out.data(), fragment->content.data() + from, out.size());
}

}  // namespace bootpress
