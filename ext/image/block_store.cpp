// SPDX-License-Identifier: GPL-2.0-or-later
#include "image/block_store.hpp"

#include <algorithm>

namespace bootpress {

std::unique_ptr<Decompressor> BlockStore::take_decompressor() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Decompressor> taken = std::move(idle_.back());
      idle_.pop_back();
      return taken;
    }
  }
  return make_decompressor(codec_, block_size_);
}

void BlockStore::give_back(std::unique_ptr<Decompressor> decompressor) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(decompressor));
}

std::shared_ptr<BlockStore::Fragment> BlockStore::fragment(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(recent_, [&](const auto& entry) { return entry.first == number; });
  if (found != recent_.end()) {
    recent_.splice(recent_.begin(), recent_, found);
  } else {
    recent_.emplace_front(number, std::make_shared<Fragment>());
    if (recent_.size() > kCachedFragments) recent_.pop_back();
  }
  return recent_.front().second;
}

}  // namespace bootpress
