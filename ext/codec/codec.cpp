// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/codec.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include "codec/backends.hpp"
#include "codec/bcj.hpp"
#include "codec/noise.hpp"
#include "squashfs/format.hpp"

namespace bootpress {
namespace {

struct CodecName {
  CodecId id;
  std::string_view name;
  bool writable;  // offered to the user
};
constexpr std::array<CodecName, 7> kCodecs = {{
    {CodecId::zstd, "zstd", true},
    {CodecId::xz, "xz", true},
    {CodecId::gzip, "gzip", true},
    {CodecId::lz4, "lz4", true},
    {CodecId::lzo, "lzo", true},
    {CodecId::none, "none", true},
    {CodecId::lzma, "lzma", false},
}};

struct BcjName {
  Bcj bcj;
  std::string_view name;
};
constexpr std::array<BcjName, 9> kFilters = {{
    {Bcj::none, "none"},
    {Bcj::automatic, "auto"},
    {Bcj::x86, "x86"},
    {Bcj::powerpc, "powerpc"},
    {Bcj::ia64, "ia64"},
    {Bcj::arm, "arm"},
    {Bcj::armthumb, "armthumb"},
    {Bcj::sparc, "sparc"},
    {Bcj::arm64, "arm64"},
}};

// Bits of the xz record's filter field, in the order of squashfs-tools' filter table. The kernel
// does not read them: every stream names its own filters.
std::uint32_t filter_bits(Bcj bcj) {
  switch (bcj) {
    case Bcj::none:
      return 0;
    case Bcj::automatic: {
      std::uint32_t bits = 0;
      for (const Bcj candidate : kJudgedFilters) {
        bits |= filter_bits(candidate);
      }
      return bits;
    }
    case Bcj::x86:
      return 1U << 0;
    case Bcj::powerpc:
      return 1U << 1;
    case Bcj::ia64:
      return 1U << 2;
    case Bcj::arm:
      return 1U << 3;
    case Bcj::armthumb:
      return 1U << 4;
    case Bcj::sparc:
      return 1U << 5;
    case Bcj::arm64:
      return 1U << 6;
  }
  return 0;
}

// The record's names for lzo's algorithms.
constexpr std::uint32_t kLzo1x1 = 0;
constexpr std::uint32_t kLzo1x999 = 4;

[[noreturn]] void throw_unreadable_lzma() {
  throw Error(ErrorKind::unsupported, "lzma is a legacy compressor that no kernel can mount",
              "pack the tree again with xz or zstd");
}

class NoCompressor final : public Compressor {
 public:
  std::size_t compress(ByteView /*in*/, ByteSpan /*out*/) override { return 0; }
};

// Spares a slow codec the blocks that it could not shrink.
class NoiseSkipper final : public Compressor {
 public:
  explicit NoiseSkipper(std::unique_ptr<Compressor> codec) : codec_(std::move(codec)) {}
  std::size_t compress(ByteView in, ByteSpan out) override {
    return is_noise(in) ? 0 : codec_->compress(in, out);
  }

 private:
  std::unique_ptr<Compressor> codec_;
};

class NoDecompressor final : public Decompressor {
 public:
  std::size_t decompress(ByteView /*in*/, ByteSpan /*out*/) override {
    throw_damaged_block(CodecId::none, "it claims to be compressed");
  }
};

std::unique_ptr<Compressor> make_codec(const CodecOptions& options) {
  switch (options.id) {
    case CodecId::none:
      return std::make_unique<NoCompressor>();
    case CodecId::gzip:
      return make_gzip_compressor(options);
    case CodecId::lzo:
      return make_lzo_compressor(options);
    case CodecId::xz:
      return make_xz_compressor(options);
    case CodecId::lz4:
      return make_lz4_compressor(options);
    case CodecId::zstd:
      return make_zstd_compressor(options);
    case CodecId::lzma:
      break;
  }
  throw_unreadable_lzma();
}

}  // namespace

LevelRange level_range(CodecId id) {
  switch (id) {
    case CodecId::none:
      return {0, 0, 0};
    case CodecId::gzip:
      return {1, 12, 9};
    case CodecId::lzo:
      return {0, 9, 8};
    case CodecId::xz:
      return {0, 9, 6};
    case CodecId::lz4:
      return {1, 12, 1};
    case CodecId::zstd:
      return {1, 22, 15};
    case CodecId::lzma:
      break;
  }
  throw_unreadable_lzma();
}

std::string_view codec_name(CodecId id) {
  const auto* found = std::ranges::find(kCodecs, id, &CodecName::id);
  return found == kCodecs.end() ? "unknown" : found->name;
}

CodecId codec_from_name(std::string_view name) {
  std::string names;
  for (const CodecName& codec : kCodecs) {
    if (codec.writable) {
      if (codec.name == name) {
        return codec.id;
      }
      names.append(names.empty() ? "" : ", ").append(codec.name);
    }
  }
  throw Error(ErrorKind::usage, "there is no codec named '" + std::string(name) + "'",
              "choose one of: " + names);
}

std::string_view bcj_name(Bcj bcj) {
  const auto* found = std::ranges::find(kFilters, bcj, &BcjName::bcj);
  return found == kFilters.end() ? "unknown" : found->name;
}

Bcj bcj_from_name(std::string_view name) {
  std::string names;
  for (const BcjName& filter : kFilters) {
    if (filter.name == name) {
      return filter.bcj;
    }
    names.append(names.empty() ? "" : ", ").append(filter.name);
  }
  throw Error(ErrorKind::usage, "there is no filter named '" + std::string(name) + "'",
              "choose one of: " + names);
}

std::string codec_version(CodecId id) {
  switch (id) {
    case CodecId::none:
      return "none";
    case CodecId::gzip:
      return gzip_library_version();
    case CodecId::lzo:
      return lzo_library_version();
    case CodecId::xz:
      return xz_library_version();
    case CodecId::lz4:
      return lz4_library_version();
    case CodecId::zstd:
      return zstd_library_version();
    case CodecId::lzma:
      break;
  }
  throw_unreadable_lzma();
}

void check_codec_options(const CodecOptions& options) {
  if (options.id == CodecId::lzma) {
    throw Error(ErrorKind::usage, "lzma images cannot be written: no kernel can mount them",
                "choose xz");
  }
  const LevelRange range = level_range(options.id);
  const std::string name(codec_name(options.id));
  if (options.level < range.lowest || options.level > range.highest) {
    throw Error(ErrorKind::usage, name + " has no level " + std::to_string(options.level),
                range.lowest == range.highest
                    ? name + " has no levels: leave it out"
                    : "choose " + std::to_string(range.lowest) + " to " +
                          std::to_string(range.highest) + "; the standard is " +
                          std::to_string(range.standard));
  }
  if (!std::has_single_bit(options.block_size) || options.block_size < squashfs::kMinBlockSize ||
      options.block_size > squashfs::kMaxBlockSize) {
    throw Error(ErrorKind::usage,
                "a block size of " + std::to_string(options.block_size) + " bytes is impossible",
                "choose a power of two from 4 KiB to 1 MiB");
  }
  if (options.bcj != Bcj::none && options.id != CodecId::xz) {
    throw Error(ErrorKind::usage, name + " has no branch filters", "only xz has: use --codec xz");
  }
  if (!xz_has_filter(options.bcj)) {
    throw Error(ErrorKind::unsupported, codec_version(CodecId::xz) + " has no filter named '" +
                                            std::string(bcj_name(options.bcj)) + "'");
  }
}

std::unique_ptr<Compressor> make_compressor(const CodecOptions& options) {
  check_codec_options(options);
  auto codec = make_codec(options);
  // lz4's fast level passes over noise faster than it can be recognised.
  const bool slow =
      options.id != CodecId::none && !(options.id == CodecId::lz4 && options.level == 1);
  if (slow) {
    codec = std::make_unique<NoiseSkipper>(std::move(codec));
  }
  return codec;
}

std::unique_ptr<Decompressor> make_decompressor(CodecId id, std::uint32_t block_size) {
  switch (id) {
    case CodecId::none:
      return std::make_unique<NoDecompressor>();
    case CodecId::gzip:
      return make_gzip_decompressor();
    case CodecId::lzo:
      return make_lzo_decompressor();
    case CodecId::xz:
      return make_xz_decompressor(block_size);
    case CodecId::lz4:
      return make_lz4_decompressor();
    case CodecId::zstd:
      return make_zstd_decompressor(block_size);
    case CodecId::lzma:
      break;
  }
  throw_unreadable_lzma();
}

// Records, all little-endian (the `*_comp_opts` structs of squashfs-tools):
//   gzip  u32 level, u16 window bits, u16 strategies     lz4   u32 version (1), u32 flags (1: HC)
//   lzo   u32 algorithm, u32 level                       zstd  u32 level
//   xz    u32 dictionary bytes, u32 filter bits
// Only lz4's version and xz' dictionary matter to the kernel; the rest is for whoever appends or
// asks. unsquashfs refuses values outside the ranges that mksquashfs offers.
std::vector<std::byte> encode_codec_options(const CodecOptions& options) {
  check_codec_options(options);
  const auto level = static_cast<std::uint32_t>(options.level);
  ByteWriter record;
  switch (options.id) {
    case CodecId::gzip: {
      // Levels above 9 are libdeflate's own, and refused by unsquashfs: recorded as 9, which is
      // what the absence of a record means.
      constexpr std::uint16_t kWindowBits = 15;
      if (level < 9) {
        record.put(level).put(kWindowBits).put(std::uint16_t{0});
      }
      break;
    }
    case CodecId::lzo:
      if (options.level != level_range(CodecId::lzo).standard) {
        record.put(level == 0 ? kLzo1x1 : kLzo1x999).put(level);
      }
      break;
    case CodecId::xz:
      // Without a record the kernel assumes one block as the dictionary.
      if (const std::uint32_t filters = filter_bits(options.bcj); filters != 0) {
        record.put(std::max<std::uint32_t>(options.block_size, squashfs::kMetadataUnit))
            .put(filters);
      }
      break;
    case CodecId::lz4:
      record.put(std::uint32_t{1}).put(std::uint32_t{level > 1 ? 1U : 0U});
      break;
    case CodecId::zstd:
      if (options.level != level_range(CodecId::zstd).standard) {
        record.put(level);
      }
      break;
    case CodecId::none:
    case CodecId::lzma:
      break;
  }
  return record.take();
}

CodecOptions decode_codec_options(CodecId id, ByteView record, std::uint32_t block_size) {
  const LevelRange range = level_range(id);
  CodecOptions options{.id = id, .level = range.standard, .block_size = block_size};
  const std::size_t words = record.size() / 4;
  const auto word = [&](std::size_t index) {
    return load_le<std::uint32_t>(record.data() + 4 * index);
  };
  const auto set_level = [&](std::uint32_t level) {
    if (std::cmp_less_equal(range.lowest, level) && std::cmp_less_equal(level, range.highest)) {
      options.level = static_cast<int>(level);
    }
  };
  switch (id) {
    case CodecId::gzip:
    case CodecId::zstd:
      if (words >= 1) set_level(word(0));
      break;
    case CodecId::lzo:
      // The other algorithms are faster kinds of the first.
      if (words >= 2) set_level(word(0) == kLzo1x999 ? word(1) : 0);
      break;
    case CodecId::lz4:
      if (words >= 2) set_level((word(1) & 1) != 0 ? 12 : 1);
      break;
    case CodecId::xz:
      if (words >= 2 && word(1) != 0) {
        const auto* only = std::ranges::find_if(
            kFilters, [&](const BcjName& filter) { return filter_bits(filter.bcj) == word(1); });
        // mksquashfs tries all that are named and keeps the best, as `automatic` means to.
        options.bcj = only == kFilters.end() ? Bcj::automatic : only->bcj;
        if (!xz_has_filter(options.bcj)) options.bcj = Bcj::automatic;
      }
      break;
    case CodecId::none:
    case CodecId::lzma:
      break;
  }
  return options;
}

void throw_damaged_block(CodecId id, std::string_view why) {
  throw Error(ErrorKind::corrupt, "a block stored with " + std::string(codec_name(id)) +
                                      " is damaged: " + std::string(why));
}

}  // namespace bootpress
