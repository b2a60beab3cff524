// SPDX-License-Identifier: GPL-2.0-or-later
//
// SquashFS' lzo blocks are bare LZO1X streams. Level 0 is lzo1x_1 (fast; neither of
// lzo1x_1_11, 12, 15), 1..9 lzo1x_999.
#include <lzo/lzo1x.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "codec/backends.hpp"

namespace bootpress {
namespace {

// Checks that the library was built with the word sizes of its headers.
void start_library() {
  static const int result = lzo_init();
  if (result != LZO_E_OK) {
    throw Error(ErrorKind::unsupported, "liblzo2 does not match the headers it was built with");
  }
}

lzo_bytep as_lzo(ByteSpan bytes) { return reinterpret_cast<lzo_bytep>(bytes.data()); }
// LZO's prototypes predate const-correctness in places, but inputs are only read.
const lzo_byte* as_lzo(ByteView bytes) { return reinterpret_cast<const lzo_byte*>(bytes.data()); }

class LzoCompressor final : public Compressor {
 public:
  explicit LzoCompressor(int level)
      : level_(level), state_(level == 0 ? LZO1X_1_MEM_COMPRESS : LZO1X_999_MEM_COMPRESS) {
    start_library();
  }

  std::size_t compress(ByteView in, ByteSpan out) override {
    // No limit can be given to the library, so it writes into a buffer for the worst case
    // (LZO.FAQ: input + input / 16 + 64 + 3).
    worst_case_.resize(std::max(worst_case_.size(), in.size() + in.size() / 16 + 64 + 3));
    lzo_uint produced = worst_case_.size();
    const int result =
        level_ == 0
            ? lzo1x_1_compress(as_lzo(in), in.size(), as_lzo(ByteSpan(worst_case_)), &produced,
                               state_.data())
            : lzo1x_999_compress_level(as_lzo(in), in.size(), as_lzo(ByteSpan(worst_case_)),
                                       &produced, state_.data(), nullptr, 0, nullptr, level_);
    if (result != LZO_E_OK || produced >= in.size()) {
      return 0;
    }
    std::copy_n(worst_case_.begin(), produced, out.begin());
    return produced;
  }

 private:
  int level_;
  std::vector<std::byte> state_;
  std::vector<std::byte> worst_case_;
};

class LzoDecompressor final : public Decompressor {
 public:
  LzoDecompressor() { start_library(); }

  std::size_t decompress(ByteView in, ByteSpan out) override {
    lzo_uint produced = out.size();
    // LZO_E_INPUT_NOT_CONSUMED is an error here as well.
    const int result =
        lzo1x_decompress_safe(as_lzo(in), in.size(), as_lzo(out), &produced, nullptr);
    if (result != LZO_E_OK) {
      throw_damaged_block(CodecId::lzo, "not a valid LZO1X stream, or it holds more than it may");
    }
    return produced;
  }
};

}  // namespace

std::unique_ptr<Compressor> make_lzo_compressor(const CodecOptions& options) {
  return std::make_unique<LzoCompressor>(options.level);
}

std::unique_ptr<Decompressor> make_lzo_decompressor() {
  return std::make_unique<LzoDecompressor>();
}

std::string lzo_library_version() { return std::string("liblzo2 ") + lzo_version_string(); }

}  // namespace bootpress
