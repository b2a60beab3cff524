// SPDX-License-Identifier: GPL-2.0-or-later
//
// Checks the seal behind an image; see squashfs/seal.hpp.
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "image/image.hpp"

namespace bootpress {

namespace {

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

class SealSum {
 public:
  SealSum() : state_(XXH3_createState()), buffer_(std::size_t{1} << 20) {
    if (!state_) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }

  void add(const ImageBytes& bytes, std::uint64_t begin, std::uint64_t end) {
    while (begin < end) {
      const ByteSpan piece =
          ByteSpan(buffer_).first(std::min<std::uint64_t>(buffer_.size(), end - begin));
      bytes.read(begin, piece);
      XXH3_128bits_update(state_.get(), piece.data(), piece.size());
      begin += piece.size();
    }
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

Image::SealState Image::check_seal() const {
  const std::uint64_t used = superblock().bytes_used;
  if (bytes_->size() - used < squashfs::kSealSize) return SealState::absent;
  std::array<std::byte, squashfs::kSealSize> stored{};
  bytes_->read(used, stored);
  const ByteView magic = ByteView(stored).first(squashfs::kSealMagic.size());
  if (as_text(magic) != squashfs::kSealMagic) return SealState::absent;

  SealSum sum;
  sum.add(*bytes_, squashfs::kSuperblockSize, used);
  sum.add(*bytes_, 0, squashfs::kSuperblockSize);
  const squashfs::SealDigest digest = sum.digest();
  const bool same = std::ranges::equal(digest, ByteView(stored).subspan(magic.size()));
  return same ? SealState::intact : SealState::broken;
}

}  // namespace bootpress
