// SPDX-License-Identifier: GPL-2.0-or-later
//
// One block in, one block out: the compressors that SquashFS knows.
//
// A codec's bytes depend on its options and library version only, never on the
// blocks it saw before, so any worker may take any block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace bootpress {

// Values are the superblock's compressor ids (`none` is ours: everything stored raw, written as
// gzip with the "uncompressed" flags set).
enum class CodecId : std::uint16_t {
  none = 0,
  gzip = 1,
  lzma = 2,
  lzo = 3,
  xz = 4,
  lz4 = 5,
  zstd = 6
};

// Branch-call-jump filters ahead of LZMA2. `automatic` judges each block by its content.
enum class Bcj : std::uint8_t { none, automatic, x86, powerpc, ia64, arm, armthumb, sparc, arm64 };

struct CodecOptions {
  CodecId id = CodecId::zstd;
  int level = 15;                     // see level_range()
  std::uint32_t block_size = 131072;  // bytes; the xz dictionary, the zstd window
  Bcj bcj = Bcj::none;                // xz only
};

struct LevelRange {
  int lowest;
  int highest;
  int standard;  // what is used when the user names none
};

// gzip 1..12 (libdeflate), zstd 1..22, xz 0..9, lz4 1 (fast) or 2..12 (HC), lzo 0 (1x_1) or 1..9
// (1x_999), none 0.
[[nodiscard]] LevelRange level_range(CodecId id);

// "gzip", "xz", …; codec_from_name throws `usage` with the list of names.
[[nodiscard]] std::string_view codec_name(CodecId id);
[[nodiscard]] CodecId codec_from_name(std::string_view name);
[[nodiscard]] std::string_view bcj_name(Bcj bcj);
[[nodiscard]] Bcj bcj_from_name(std::string_view name);

// The library and its run-time version, e.g. "libdeflate 1.14".
[[nodiscard]] std::string codec_version(CodecId id);

// Throws `usage` where level, bcj or block size do not go together.
void check_codec_options(const CodecOptions& options);

// Compresses one block at a time. Owns codec state, so one instance per thread.
class Compressor {
 public:
  virtual ~Compressor() = default;
  // Returns the bytes used in `out`, or 0 when the result would not be smaller than `in`; the
  // caller then stores the block raw.
  // REQUIRES: 0 < in.size() <= max(options.block_size, one metadata unit of 8 KiB), and
  // out.size() >= in.size().
  virtual std::size_t compress(ByteView in, ByteSpan out) = 0;
};

// Decompresses one block at a time from untrusted bytes. One instance per thread.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  // Returns the bytes produced; never writes past `out`. A damaged block, or one that would
  // produce more than out.size(), is a `corrupt` error. A stream that ends before `in` does is
  // `corrupt` too: the kernel's decoders differ there, and no writer produces it.
  virtual std::size_t decompress(ByteView in, ByteSpan out) = 0;
};

[[nodiscard]] std::unique_ptr<Compressor> make_compressor(const CodecOptions& options);

// Throws `unsupported` for lzma (the legacy alone format no kernel mounts).
// `block_size` bounds what one block may need (the xz dictionary and zstd window are refused
// above what the kernel would accept).
[[nodiscard]] std::unique_ptr<Decompressor> make_decompressor(CodecId id, std::uint32_t block_size);

// The compressor-options record that follows the superblock, without its metadata header; empty
// when the codec's defaults hold and none is needed (LZ4 always needs one).
[[nodiscard]] std::vector<std::byte> encode_codec_options(const CodecOptions& options);

// What a record (empty: none) tells of the options that an image was made with. What it does not
// tell, or tells in a way that is not known here, is the codec's standard: xz records no level,
// gzip none above 9, lz4 only whether it was HC (12, what mksquashfs means by that).
[[nodiscard]] CodecOptions decode_codec_options(CodecId id, ByteView record,
                                                std::uint32_t block_size);

}  // namespace bootpress
