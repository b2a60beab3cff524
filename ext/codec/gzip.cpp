// SPDX-License-Identifier: GPL-2.0-or-later
//
// SquashFS' gzip blocks are zlib streams (RFC 1950). libdeflate makes them 2.5 times as fast as
// zlib 9 at a smaller size, since it sees whole blocks.
#include <libdeflate.h>

#include <memory>
#include <new>
#include <string>

#include "codec/backends.hpp"

namespace bootpress {
namespace {

class GzipCompressor final : public Compressor {
 public:
  explicit GzipCompressor(int level) : state_(libdeflate_alloc_compressor(level)) {
    if (state_ == nullptr) {
      throw std::bad_alloc();
    }
  }

  std::size_t compress(ByteView in, ByteSpan out) override {
    // 0 where the stream does not fit: exactly the contract.
    return libdeflate_zlib_compress(state_.get(), in.data(), in.size(), out.data(), in.size() - 1);
  }

 private:
  struct Free {
    void operator()(libdeflate_compressor* state) const { libdeflate_free_compressor(state); }
  };
  std::unique_ptr<libdeflate_compressor, Free> state_;
};

class GzipDecompressor final : public Decompressor {
 public:
  GzipDecompressor() : state_(libdeflate_alloc_decompressor()) {
    if (state_ == nullptr) {
      throw std::bad_alloc();
    }
  }

  std::size_t decompress(ByteView in, ByteSpan out) override {
    std::size_t consumed = 0;
    std::size_t produced = 0;
    switch (libdeflate_zlib_decompress_ex(state_.get(), in.data(), in.size(), out.data(),
                                          out.size(), &consumed, &produced)) {
      case LIBDEFLATE_SUCCESS:
        break;
      case LIBDEFLATE_INSUFFICIENT_SPACE:
        throw_damaged_block(CodecId::gzip, "it holds more than it may");
      default:
        throw_damaged_block(CodecId::gzip, "not a valid zlib stream");
    }
    if (consumed != in.size()) {
      throw_damaged_block(CodecId::gzip, "bytes follow the end of its stream");
    }
    return produced;
  }

 private:
  struct Free {
    void operator()(libdeflate_decompressor* state) const { libdeflate_free_decompressor(state); }
  };
  std::unique_ptr<libdeflate_decompressor, Free> state_;
};

}  // namespace

std::unique_ptr<Compressor> make_gzip_compressor(const CodecOptions& options) {
  return std::make_unique<GzipCompressor>(options.level);
}

std::unique_ptr<Decompressor> make_gzip_decompressor() {
  return std::make_unique<GzipDecompressor>();
}

// libdeflate cannot be asked at run time; its soname has been 0 since 2016, so this is the
// version that was compiled against.
std::string gzip_library_version() { return "libdeflate " LIBDEFLATE_VERSION_STRING; }

}  // namespace bootpress
