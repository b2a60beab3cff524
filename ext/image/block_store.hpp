// SPDX-License-Identifier: GPL-2.0-or-later
//
// What all readers of one image share: idle decompressors and the last few fragments.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.hpp"
#include "codec/codec.hpp"

namespace bootpress {

class BlockStore {
 public:
  BlockStore(CodecId codec, std::uint32_t block_size) : codec_(codec), block_size_(block_size) {}

  [[nodiscard]] std::unique_ptr<Decompressor> take_decompressor();
  void give_back(std::unique_ptr<Decompressor> decompressor);

  // One decompressed fragment. Whoever holds `mutex` may fill it.
  struct Fragment {
    std::mutex mutex;
    bool filled = false;
    std::vector<std::byte> content;
  };
  // The fragment's place in the cache, new and empty or filled by an earlier reader. It stays
  // valid for as long as it is held, also when the cache lets go of it.
  [[nodiscard]] std::shared_ptr<Fragment> fragment(std::uint32_t number);

 private:
  // More than the threads that read at a time need; 8 MiB with blocks of 1 MiB.
  static constexpr std::size_t kCachedFragments = 8;

  CodecId codec_;
  std::uint32_t block_size_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Decompressor>> idle_;
  std::list<std::pair<std::uint32_t, std::shared_ptr<Fragment>>> recent_;  // latest first
};

}  // namespace bootpress
