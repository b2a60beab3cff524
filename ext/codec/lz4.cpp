// SPDX-License-Identifier: GPL-2.0-or-later
//
// SquashFS' lz4 blocks are bare LZ4 sequences without a frame. Level 1 is the fast compressor,
// 2 and above the HC family; both make the same format.
#include <lz4.h>
#include <lz4hc.h>

#include <memory>
#include <string>
#include <vector>

#include "codec/backends.hpp"

namespace bootpress {
namespace {

// Block sizes end at 1 MiB, so sizes always fit lz4's int.
int to_int(std::size_t size) { return static_cast<int>(size); }

// The allocator aligns for max_align_t, which is more than the 8 bytes that lz4 asks for.
using State = std::vector<std::byte>;

class FastCompressor final : public Compressor {
 public:
  std::size_t compress(ByteView in, ByteSpan out) override {
    constexpr int kAcceleration = 1;  // as LZ4_compress_default()
    // The plain call clears its 16 KiB state each time; the one that does not ("fastReset")
    // finds other matches depending on what came before.
    return static_cast<std::size_t>(
        LZ4_compress_fast_extState(state_.data(), reinterpret_cast<const char*>(in.data()),
                                   reinterpret_cast<char*>(out.data()), to_int(in.size()),
                                   to_int(in.size() - 1), kAcceleration));
  }

 private:
  State state_ = State(static_cast<std::size_t>(LZ4_sizeofState()));
};

class HighCompressor final : public Compressor {
 public:
  explicit HighCompressor(int level) : level_(level) {}

  std::size_t compress(ByteView in, ByteSpan out) override {
    return static_cast<std::size_t>(LZ4_compress_HC_extStateHC(
        state_.data(), reinterpret_cast<const char*>(in.data()),
        reinterpret_cast<char*>(out.data()), to_int(in.size()), to_int(in.size() - 1), level_));
  }

 private:
  int level_;
  State state_ = State(static_cast<std::size_t>(LZ4_sizeofStateHC()));
};

class Lz4Decompressor final : public Decompressor {
 public:
  std::size_t decompress(ByteView in, ByteSpan out) override {
    // Succeeds only where the sequences end with the input's last byte.
    const int produced = LZ4_decompress_safe(reinterpret_cast<const char*>(in.data()),
                                             reinterpret_cast<char*>(out.data()),
                                             checked_cast<int>(in.size(), "a stored block's size"),
                                             checked_cast<int>(out.size(), "a block's size"));
    if (produced < 0) {
      throw_damaged_block(CodecId::lz4, "not a valid LZ4 block, or it holds more than it may");
    }
    return static_cast<std::size_t>(produced);
  }
};

}  // namespace

std::unique_ptr<Compressor> make_lz4_compressor(const CodecOptions& options) {
  if (options.level == 1) {
    return std::make_unique<FastCompressor>();
  }
  return std::make_unique<HighCompressor>(options.level);
}

std::unique_ptr<Decompressor> make_lz4_decompressor() {
  return std::make_unique<Lz4Decompressor>();
}

std::string lz4_library_version() { return std::string("liblz4 ") + LZ4_versionString(); }

}  // namespace bootpress
