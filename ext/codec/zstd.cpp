// SPDX-License-Identifier: GPL-2.0-or-later
//
// SquashFS' zstd blocks are single frames with a known content size, without checksum or
// dictionary id. The kernel refuses a window above the image's block size
// (fs/squashfs/zstd_wrapper.c); ours never exceeds the block itself.
#include <zstd.h>
#include <zstd_errors.h>

#include <memory>
#include <new>
#include <string>

#include "codec/backends.hpp"

namespace bootpress {
namespace {

void check(std::size_t result, const char* what) {
  if (ZSTD_isError(result) != 0) {
    throw Error(ErrorKind::unsupported,
                std::string("libzstd refuses ") + what + ": " + ZSTD_getErrorName(result));
  }
}

class ZstdCompressor final : public Compressor {
 public:
  explicit ZstdCompressor(const CodecOptions& options) : state_(ZSTD_createCCtx()) {
    if (state_ == nullptr) {
      throw std::bad_alloc();
    }
    set(ZSTD_c_compressionLevel, options.level);
    set(ZSTD_c_contentSizeFlag, 1);
    set(ZSTD_c_checksumFlag, 0);
    set(ZSTD_c_dictIDFlag, 0);
  }

  std::size_t compress(ByteView in, ByteSpan out) override {
    // Ends the frame of a block that did not fit; parameters stay.
    check(ZSTD_CCtx_reset(state_.get(), ZSTD_reset_session_only), "a new frame");
    const std::size_t produced =
        ZSTD_compress2(state_.get(), out.data(), in.size() - 1, in.data(), in.size());
    if (ZSTD_isError(produced) != 0) {
      if (ZSTD_getErrorCode(produced) == ZSTD_error_dstSize_tooSmall) {
        return 0;
      }
      if (ZSTD_getErrorCode(produced) == ZSTD_error_memory_allocation) {
        throw std::bad_alloc();
      }
      check(produced, "a block");
    }
    return produced;
  }

 private:
  struct Free {
    void operator()(ZSTD_CCtx* state) const { ZSTD_freeCCtx(state); }
  };

  void set(ZSTD_cParameter parameter, int value) {
    check(ZSTD_CCtx_setParameter(state_.get(), parameter, value), "a parameter");
  }

  std::unique_ptr<ZSTD_CCtx, Free> state_;
};

// The window that a frame's header asks for in bytes; 0 for a single segment, whose window is its
// content and so bounded by the output. RFC 8878, section 3.1.1.1.
std::uint64_t window_size(ByteView frame) {
  constexpr std::size_t kShortestHeader = 6;  // magic, descriptor, window or one byte of size
  if (frame.size() < kShortestHeader || load_le<std::uint32_t>(frame.data()) != ZSTD_MAGICNUMBER) {
    // Also keeps skippable frames and the formats before 1.0 from the library.
    throw_damaged_block(CodecId::zstd, "no zstd frame starts it");
  }
  const auto descriptor = static_cast<unsigned>(frame[4]);
  const bool single_segment = (descriptor & 0x20) != 0;
  if (single_segment) {
    return 0;
  }
  const auto window = static_cast<unsigned>(frame[5]);
  const std::uint64_t base = 1ULL << (10 + (window >> 3));
  return base + base / 8 * (window & 7);
}

class ZstdDecompressor final : public Decompressor {
 public:
  explicit ZstdDecompressor(std::uint32_t block_size)
      : block_size_(block_size), state_(ZSTD_createDCtx()) {
    if (state_ == nullptr) {
      throw std::bad_alloc();
    }
  }

  std::size_t decompress(ByteView in, ByteSpan out) override {
    if (window_size(in) > block_size_) {
      throw_damaged_block(CodecId::zstd, "its window is larger than the image's block size");
    }
    // The library would go on with a second frame.
    if (ZSTD_findFrameCompressedSize(in.data(), in.size()) != in.size()) {
      throw_damaged_block(CodecId::zstd, "its frame does not end where it does");
    }
    // One shot into `out`: needs no window of its own, so memory does not depend on the frame.
    const std::size_t produced =
        ZSTD_decompressDCtx(state_.get(), out.data(), out.size(), in.data(), in.size());
    if (ZSTD_isError(produced) != 0) {
      throw_damaged_block(CodecId::zstd, ZSTD_getErrorName(produced));
    }
    return produced;
  }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* state) const { ZSTD_freeDCtx(state); }
  };
  std::uint32_t block_size_;
  std::unique_ptr<ZSTD_DCtx, Free> state_;
};

}  // namespace

std::unique_ptr<Compressor> make_zstd_compressor(const CodecOptions& options) {
  return std::make_unique<ZstdCompressor>(options);
}

std::unique_ptr<Decompressor> make_zstd_decompressor(std::uint32_t block_size) {
  return std::make_unique<ZstdDecompressor>(block_size);
}

std::string zstd_library_version() { return std::string("libzstd ") + ZSTD_versionString(); }

}  // namespace bootpress
