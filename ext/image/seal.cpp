// SPDX-License-Identifier: GPL-2.0-or-later
//
// Checks the seal behind an image; see squashfs/seal.hpp.
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/parallel.hpp"
#include "image/image.hpp"

namespace bootpress {

namespace {

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

constexpr std::uint64_t kPiece = 1 << 20;  // bytes read at once

class SealSum {
 public:
  SealSum() : state_(XXH3_createState()), buffer_(kPiece) {
    if (!state_) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }

  // REQUIRES: at most kPiece bytes.
  void add(const ImageBytes& bytes, std::uint64_t begin, std::uint64_t end) {
    const ByteSpan piece = ByteSpan(buffer_).first(end - begin);
    bytes.read(begin, piece);
    XXH3_128bits_update(state_.get(), piece.data(), piece.size());
  }

  [[nodiscard]] squashfs::SealDigest digest() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    squashfs::SealDigest digest;
    static_assert(sizeof canonical == sizeof digest);
    std::memcpy(digest.data(), &canonical, sizeof canonical);
    return digest;
  }

 private:
  std::unique_ptr<XXH3_state_t, FreeState> state_;
  std::vector<std::byte> buffer_;
};

}  // namespace

Image::SealState Image::check_seal(Monitor& monitor) const {
  const std::uint64_t used = superblock().bytes_used;
  if (bytes_->size() - used < squashfs::kSealSize) return SealState::absent;
  std::array<std::byte, squashfs::kSealSize> stored{};
  bytes_->read(used, stored);
  const ByteView magic = ByteView(stored).first(squashfs::kSealMagic.size());
  if (as_text(magic) != squashfs::kSealMagic) return SealState::absent;

  SealSum sum;
  std::atomic<std::uint64_t> done = squashfs::kSuperblockSize;
  const std::uint64_t pieces = (used - done + kPiece - 1) / kPiece;
  // One worker, which gets the pieces in order: the sum has no parts, but reading takes its time.
  run_parallel(
      1, pieces,
      [&]() -> Job {
        return [&](std::uint64_t) {
          const std::uint64_t end = std::min(used, done + kPiece);
          sum.add(*bytes_, done, end);
          done = end;
        };
      },
      monitor, [&] { return Progress{.stage = "check", .done_bytes = done, .total_bytes = used}; });
  sum.add(*bytes_, 0, squashfs::kSuperblockSize);
  const squashfs::SealDigest digest = sum.digest();
  const bool same = std::ranges::equal(digest, ByteView(stored).subspan(magic.size()));
  return same ? SealState::intact : SealState::broken;
}

}  // namespace bootpress
