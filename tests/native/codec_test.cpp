// SPDX-License-Identifier: GPL-2.0-or-later
//
// Spec: every codec gives back what it was given, writes nowhere else, forgets what it saw before,
// and its decoder survives any input.
#include "codec/codec.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "codec/bcj.hpp"
#include "codec/noise.hpp"

namespace bootpress {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::byte kCanary{0xa5};
constexpr std::size_t kCanaryBytes = 64;
constexpr std::uint32_t kBlock = 131072;
constexpr std::uint32_t kLargest = 1048576;

Bytes random_bytes(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

// Words of a small vocabulary: compresses about four to one.
Bytes text_bytes(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < size) {
    text += "word" + std::to_string(random() % 997) + (random() % 9 == 0 ? "\n" : " ");
  }
  text.resize(size);
  const ByteView view = as_view(text);
  return {view.begin(), view.end()};
}

// Something like x86 code: calls of a few functions from many places, between varied bytes.
Bytes code_bytes(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes;
  while (bytes.size() < size) {
    const std::uint32_t length = 4 + random() % 16;
    for (std::uint32_t i = 0; i < length; ++i) {
      bytes.push_back(static_cast<std::byte>(random() % 48));
    }
    const auto target = static_cast<std::int32_t>(random() % 64 * 4096);
    const auto from = static_cast<std::int32_t>(bytes.size() + 5);
    bytes.push_back(std::byte{0xe8});
    const std::size_t at = bytes.size();
    bytes.resize(at + 4);
    store_le(bytes.data() + at, target - from);
  }
  bytes.resize(size);
  return bytes;
}

// Compresses into exactly in.size() bytes and checks that nothing past them is touched.
Bytes compress(Compressor& compressor, ByteView in) {
  Bytes out(in.size() + kCanaryBytes, kCanary);
  const std::size_t size = compressor.compress(in, ByteSpan(out).first(in.size()));
  EXPECT_TRUE(std::all_of(out.end() - kCanaryBytes, out.end(),
                          [](std::byte byte) { return byte == kCanary; }));
  if (size != 0) {
    EXPECT_LT(size, in.size());
  }
  out.resize(size);
  return out;
}

// Decompresses into exactly `size` bytes and checks that nothing past them is touched.
Bytes decompress(Decompressor& decompressor, ByteView in, std::size_t size) {
  Bytes out(size + kCanaryBytes, kCanary);
  std::size_t produced = 0;
  try {
    produced = decompressor.decompress(in, ByteSpan(out).first(size));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt) << error.what();
    EXPECT_TRUE(std::all_of(out.end() - kCanaryBytes, out.end(),
                            [](std::byte byte) { return byte == kCanary; }));
    throw;
  }
  EXPECT_LE(produced, size);
  EXPECT_TRUE(std::all_of(out.end() - kCanaryBytes, out.end(),
                          [](std::byte byte) { return byte == kCanary; }));
  out.resize(produced);
  return out;
}

struct Case {
  CodecOptions options;
  std::string name;
};

CodecOptions with(CodecId id, int level, std::uint32_t block_size = kBlock, Bcj bcj = Bcj::none) {
  return {.id = id, .level = level, .block_size = block_size, .bcj = bcj};
}

std::vector<Case> every_level() {
  std::vector<Case> cases;
  for (const CodecId id : {CodecId::gzip, CodecId::lzo, CodecId::xz, CodecId::lz4, CodecId::zstd}) {
    for (int level = level_range(id).lowest; level <= level_range(id).highest; ++level) {
      // Small blocks, so that slow levels take no minutes; the standard ones follow at full size.
      constexpr std::uint32_t kSmall = 32768;
      cases.push_back(
          {with(id, level, kSmall), std::string(codec_name(id)) + "_" + std::to_string(level)});
    }
    cases.push_back(
        {with(id, level_range(id).standard), std::string(codec_name(id)) + "_standard_blocks"});
    cases.push_back({with(id, level_range(id).standard, kLargest),
                     std::string(codec_name(id)) + "_largest_blocks"});
    cases.push_back({with(id, level_range(id).standard, 4096),
                     std::string(codec_name(id)) + "_smallest_blocks"});
  }
  for (const Bcj bcj : {Bcj::automatic, Bcj::x86, Bcj::powerpc, Bcj::ia64, Bcj::arm, Bcj::armthumb,
                        Bcj::sparc, Bcj::arm64}) {
    cases.push_back(
        {with(CodecId::xz, 6, kBlock, bcj), "xz_" + std::string(bcj_name(bcj)) + "_filter"});
  }
  return cases;
}

class EveryCodec : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Codec, EveryCodec, testing::ValuesIn(every_level()),
                         [](const auto& test) { return test.param.name; });

std::vector<Bytes> inputs(std::uint32_t block_size) {
  std::vector<Bytes> all;
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{2}, std::size_t{17}, std::size_t{4096}, std::size_t{8192},
        std::size_t{block_size - 1}, std::size_t{block_size}}) {
    if (size > block_size) {
      continue;
    }
    all.push_back(text_bytes(size, 1));
    all.push_back(code_bytes(size, 2));
    all.push_back(random_bytes(size, 3));
    all.emplace_back(size, std::byte{0});
  }
  return all;
}

TEST_P(EveryCodec, gives_back_what_it_was_given) {
  const CodecOptions& options = GetParam().options;
  const auto compressor = make_compressor(options);
  const auto decompressor = make_decompressor(options.id, options.block_size);
  for (const Bytes& in : inputs(options.block_size)) {
    const Bytes packed = compress(*compressor, in);
    if (!packed.empty()) {
      EXPECT_EQ(decompress(*decompressor, packed, in.size()), in);
      // Room to spare changes nothing.
      EXPECT_EQ(decompress(*decompressor, packed, in.size() + 100), in);
    }
  }
}

TEST_P(EveryCodec, shrinks_what_can_shrink_and_refuses_the_rest) {
  const CodecOptions& options = GetParam().options;
  const auto compressor = make_compressor(options);
  const std::size_t size = options.block_size;
  EXPECT_FALSE(compress(*compressor, text_bytes(size, 1)).empty());
  EXPECT_FALSE(compress(*compressor, Bytes(size)).empty());
  EXPECT_TRUE(compress(*compressor, random_bytes(size, 1)).empty());
  EXPECT_TRUE(compress(*compressor, random_bytes(1, 1)).empty());
}

TEST_P(EveryCodec, does_not_depend_on_earlier_blocks) {
  const CodecOptions& options = GetParam().options;
  // Blocks of 1 MiB would only take long; what they add is in gives_back_what_it_was_given.
  const auto all = inputs(std::min(options.block_size, kBlock));
  const auto used = make_compressor(options);
  // Forwards, then backwards, so that each follows both smaller and larger, easier and harder ones.
  for (const Bytes& in : all) {
    compress(*used, in);
  }
  for (auto in = all.rbegin(); in != all.rend(); ++in) {
    EXPECT_EQ(compress(*used, *in), compress(*make_compressor(options), *in));
  }
}

TEST_P(EveryCodec, does_not_depend_on_room_to_spare) {
  const CodecOptions& options = GetParam().options;
  const auto compressor = make_compressor(options);
  const Bytes in = text_bytes(options.block_size, 4);
  Bytes roomy(in.size() * 2);
  const std::size_t size = compressor->compress(in, roomy);
  roomy.resize(size);
  EXPECT_EQ(roomy, compress(*compressor, in));
}

class EveryDecoder : public testing::TestWithParam<CodecId> {};
INSTANTIATE_TEST_SUITE_P(Codec, EveryDecoder,
                         testing::Values(CodecId::gzip, CodecId::lzo, CodecId::xz, CodecId::lz4,
                                         CodecId::zstd),
                         [](const auto& test) { return std::string(codec_name(test.param)); });

Bytes packed_text(CodecId id, std::size_t size) {
  const Bcj bcj = id == CodecId::xz ? Bcj::x86 : Bcj::none;
  const auto compressor = make_compressor(with(id, level_range(id).standard, kBlock, bcj));
  return compress(*compressor, text_bytes(size, 5));
}

// Any of the library's answers is fine as long as it stays within `out`.
void survive(Decompressor& decompressor, ByteView in, std::size_t room) {
  try {
    decompress(decompressor, in, room);
  } catch (const Error&) {
    // decompress() has checked the kind.
  }
}

TEST_P(EveryDecoder, refuses_a_block_cut_short) {
  const auto decompressor = make_decompressor(GetParam(), kBlock);
  const Bytes packed = packed_text(GetParam(), 20000);
  for (std::size_t size = 0; size < packed.size(); size += size < 64 ? 1 : 97) {
    // A copy, so that the sanitizer sees every read past the end.
    const Bytes cut(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size));
    if (GetParam() == CodecId::lz4) {
      survive(*decompressor, cut, 20000);  // the format has no end mark: a prefix may be valid
    } else {
      EXPECT_THROW(decompress(*decompressor, cut, 20000), Error) << size;
    }
  }
}

TEST_P(EveryDecoder, refuses_bytes_after_the_end) {
  const auto decompressor = make_decompressor(GetParam(), kBlock);
  for (const std::size_t extra : {1, 4, 64}) {
    Bytes packed = packed_text(GetParam(), 20000);
    packed.resize(packed.size() + extra);
    EXPECT_THROW(decompress(*decompressor, packed, 20000), Error) << extra;
  }
  Bytes twice = packed_text(GetParam(), 20000);
  const Bytes once = twice;
  twice.insert(twice.end(), once.begin(), once.end());
  EXPECT_THROW(decompress(*decompressor, twice, 20000), Error);
  EXPECT_THROW(decompress(*decompressor, twice, 40000), Error);
}

TEST_P(EveryDecoder, refuses_more_than_the_room_it_has) {
  const auto decompressor = make_decompressor(GetParam(), kBlock);
  const Bytes packed = packed_text(GetParam(), 20000);
  for (const std::size_t room : {0, 1, 19999}) {
    EXPECT_THROW(decompress(*decompressor, packed, room), Error) << room;
  }
}

TEST_P(EveryDecoder, survives_flipped_bits) {
  const auto decompressor = make_decompressor(GetParam(), kBlock);
  const Bytes packed = packed_text(GetParam(), 6000);
  for (std::size_t at = 0; at < packed.size(); ++at) {
    Bytes damaged = packed;
    damaged[at] ^= std::byte(1U << (at % 8));
    survive(*decompressor, damaged, 6000);
    survive(*decompressor, damaged, 20000);
  }
  EXPECT_EQ(decompress(*decompressor, packed, 6000), text_bytes(6000, 5)) << "it must recover";
}

TEST_P(EveryDecoder, survives_noise) {
  const auto decompressor = make_decompressor(GetParam(), kBlock);
  const Bytes packed = packed_text(GetParam(), 6000);
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    Bytes noise = random_bytes(1 + seed * 7, seed);
    survive(*decompressor, noise, 6000);
    // Past the magic numbers and header checks.
    const std::size_t header = std::min<std::size_t>({seed % 32, noise.size(), packed.size()});
    std::copy_n(packed.begin(), header, noise.begin());
    survive(*decompressor, noise, kBlock);
  }
}

TEST(XzDecoder, refuses_a_dictionary_that_the_kernel_would_not_hold) {
  const auto compressor = make_compressor(with(CodecId::xz, 6, kLargest));
  const Bytes packed = compress(*compressor, text_bytes(kLargest, 1));
  EXPECT_THROW(decompress(*make_decompressor(CodecId::xz, kBlock), packed, kLargest), Error);
  EXPECT_EQ(decompress(*make_decompressor(CodecId::xz, kLargest), packed, kLargest).size(),
            kLargest);
}

TEST(XzEncoder, packs_metadata_units_larger_than_the_block_size) {
  const auto compressor = make_compressor(with(CodecId::xz, 6, 4096));
  const Bytes unit = text_bytes(8192, 1);
  const Bytes packed = compress(*compressor, unit);
  EXPECT_EQ(decompress(*make_decompressor(CodecId::xz, 4096), packed, 8192), unit);
}

TEST(ZstdDecoder, refuses_a_window_above_the_block_size) {
  // Hand-made (RFC 8878): magic, descriptor 0 (no content size, a window byte), a window of
  // 1 KiB << exponent, and one last raw block of one byte.
  const auto frame = [](unsigned exponent) {
    return Bytes{std::byte{0x28}, std::byte{0xb5}, std::byte{0x2f},
                 std::byte{0xfd}, std::byte{0},    std::byte(exponent << 3),
                 std::byte{0x09}, std::byte{0},    std::byte{0},
                 std::byte{'x'}};
  };
  const auto decompressor = make_decompressor(CodecId::zstd, kBlock);
  EXPECT_EQ(decompress(*decompressor, frame(7), 10), Bytes{std::byte{'x'}});
  EXPECT_THROW(decompress(*decompressor, frame(8), 10), Error);
}

TEST(ZstdEncoder, writes_one_segment_with_a_known_size_and_no_checksum) {
  const auto compressor = make_compressor(with(CodecId::zstd, 15));
  for (const std::size_t size : {200U, 5000U, 131072U}) {
    const Bytes packed = compress(*compressor, text_bytes(size, 1));
    ASSERT_GT(packed.size(), 5U);
    EXPECT_EQ(static_cast<unsigned>(packed[4]) & 0x27U, 0x20U) << size;
  }
}

TEST(NoCodec, stores_everything_raw) {
  const auto compressor = make_compressor(with(CodecId::none, 0));
  EXPECT_TRUE(compress(*compressor, Bytes(4096)).empty());
  EXPECT_THROW(decompress(*make_decompressor(CodecId::none, kBlock), Bytes(10), 10), Error);
}

TEST(LegacyLzma, is_refused) {
  EXPECT_THROW(make_decompressor(CodecId::lzma, kBlock), Error);
  EXPECT_THROW(make_compressor(with(CodecId::lzma, 1)), Error);
  EXPECT_EQ(codec_name(CodecId::lzma), "lzma");
  EXPECT_THROW((void)codec_from_name("lzma"), Error);
}

TEST(Noise, is_what_no_codec_shrinks) {
  EXPECT_TRUE(is_noise(random_bytes(kBlock, 1)));
  EXPECT_TRUE(is_noise(random_bytes(kLargest, 1)));
  EXPECT_FALSE(is_noise(text_bytes(kBlock, 1)));
  EXPECT_FALSE(is_noise(Bytes(kBlock)));
  EXPECT_FALSE(is_noise(Bytes(1)));
  EXPECT_FALSE(is_noise({}));
}

TEST(Noise, is_not_what_comes_again_however_far_away) {
  for (const std::uint32_t size : {kBlock, kLargest}) {
    const Bytes half = random_bytes(size / 2, 1);
    Bytes twice = half;
    twice.insert(twice.end(), half.begin(), half.end());
    EXPECT_FALSE(is_noise(twice));
    // One part in 64 only, from the start to the end.
    Bytes little = random_bytes(size, 2);
    std::copy_n(little.begin(), size / 64, little.end() - size / 64);
    EXPECT_FALSE(is_noise(little));
    EXPECT_LT(compress(*make_compressor(with(CodecId::xz, 0, size)), twice).size(), size * 3 / 5);
  }
}

TEST(Noise, is_not_what_is_spread_unevenly) {
  Bytes uneven = random_bytes(kBlock, 1);
  for (std::size_t at = 0; at < uneven.size(); at += 20) {
    uneven[at] = std::byte{'e'};
  }
  EXPECT_FALSE(is_noise(uneven));
}

TEST(CodecNames, go_both_ways) {
  for (const char* name : {"gzip", "lzo", "xz", "lz4", "zstd", "none"}) {
    EXPECT_EQ(codec_name(codec_from_name(name)), name);
    EXPECT_FALSE(codec_version(codec_from_name(name)).empty());
  }
  for (const char* name :
       {"none", "auto", "x86", "powerpc", "ia64", "arm", "armthumb", "sparc", "arm64"}) {
    EXPECT_EQ(bcj_name(bcj_from_name(name)), name);
  }
  EXPECT_THROW((void)bcj_from_name("x64"), Error);
  try {
    (void)codec_from_name("bzip2");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(error.hint().find("zstd"), std::string::npos);
  }
}

TEST(CodecOptions, that_do_not_go_together_are_refused) {
  EXPECT_NO_THROW(check_codec_options(with(CodecId::zstd, 22)));
  for (const CodecOptions& wrong :
       {with(CodecId::zstd, 23), with(CodecId::zstd, 0), with(CodecId::gzip, 13),
        with(CodecId::xz, 10), with(CodecId::lz4, 0), with(CodecId::none, 1),
        with(CodecId::zstd, 15, 2048), with(CodecId::zstd, 15, 2097152),
        with(CodecId::zstd, 15, 131073), with(CodecId::zstd, 15, kBlock, Bcj::x86)}) {
    EXPECT_THROW(check_codec_options(wrong), Error);
    EXPECT_THROW(make_compressor(wrong), Error);
  }
}

Bytes words(std::initializer_list<std::uint32_t> values) {
  ByteWriter writer;
  for (const std::uint32_t value : values) {
    writer.put(value);
  }
  return writer.take();
}

TEST(CodecRecord, is_left_out_where_defaults_hold) {
  for (const CodecId id :
       {CodecId::gzip, CodecId::lzo, CodecId::xz, CodecId::zstd, CodecId::none}) {
    EXPECT_TRUE(encode_codec_options(with(id, level_range(id).standard)).empty());
  }
}

TEST(CodecRecord, names_what_differs) {
  EXPECT_EQ(encode_codec_options(with(CodecId::lz4, 1)), words({1, 0}));
  EXPECT_EQ(encode_codec_options(with(CodecId::lz4, 12)), words({1, 1}));
  EXPECT_EQ(encode_codec_options(with(CodecId::zstd, 3)), words({3}));
  EXPECT_EQ(encode_codec_options(with(CodecId::lzo, 0)), words({0, 0}));
  EXPECT_EQ(encode_codec_options(with(CodecId::lzo, 9)), words({4, 9}));
  EXPECT_EQ(encode_codec_options(with(CodecId::gzip, 6)), words({6, 15}));
  EXPECT_TRUE(encode_codec_options(with(CodecId::gzip, 12)).empty());
  EXPECT_EQ(encode_codec_options(with(CodecId::xz, 6, kBlock, Bcj::x86)), words({kBlock, 1}));
  EXPECT_EQ(encode_codec_options(with(CodecId::xz, 6, kBlock, Bcj::arm64)), words({kBlock, 64}));
  // auto: whatever the judge may choose, and never arm64.
  EXPECT_EQ(encode_codec_options(with(CodecId::xz, 6, kLargest, Bcj::automatic)),
            words({kLargest, 1 | 2 | 8 | 16 | 32}));
}

TEST(CodecRecord, tells_what_the_image_was_made_with) {
  for (const CodecId id : {CodecId::gzip, CodecId::lzo, CodecId::lz4, CodecId::zstd}) {
    for (int level = level_range(id).lowest; level <= level_range(id).highest; ++level) {
      const CodecOptions options = with(id, level);
      const Bytes record = encode_codec_options(options);
      const CodecOptions told = decode_codec_options(id, record, kBlock);
      EXPECT_EQ(told.id, id);
      EXPECT_EQ(told.block_size, kBlock);
      EXPECT_EQ(encode_codec_options(told), record);
      if (id == CodecId::lz4 || (id == CodecId::gzip && level > 9)) continue;
      EXPECT_EQ(told.level, level) << codec_name(id);
    }
  }
  EXPECT_EQ(decode_codec_options(CodecId::lz4, words({1, 1}), kBlock).level, 12);
  EXPECT_EQ(decode_codec_options(CodecId::lzo, words({2, 0}), kBlock).level, 0);
  EXPECT_EQ(decode_codec_options(CodecId::xz, words({kBlock, 1}), kBlock).bcj, Bcj::x86);
  EXPECT_EQ(decode_codec_options(CodecId::xz, words({kBlock, 9}), kBlock).bcj, Bcj::automatic);
  EXPECT_EQ(decode_codec_options(CodecId::xz, words({kBlock, 0}), kBlock).bcj, Bcj::none);
}

TEST(CodecRecord, of_unknown_content_means_the_standard) {
  for (const CodecId id :
       {CodecId::gzip, CodecId::lzo, CodecId::xz, CodecId::lz4, CodecId::zstd, CodecId::none}) {
    const int standard = level_range(id).standard;
    EXPECT_EQ(decode_codec_options(id, {}, kBlock).level, standard);
    EXPECT_EQ(decode_codec_options(id, words({}), kBlock).level, standard);
    const CodecOptions wild = decode_codec_options(id, words({4, 0xffffffff}), kBlock);
    EXPECT_NO_THROW(check_codec_options(wild)) << codec_name(id);
    EXPECT_NO_THROW(check_codec_options(decode_codec_options(id, words({0xffffffff, 4}), kBlock)));
  }
}

TEST(BcjJudge, tells_code_from_data) {
  EXPECT_EQ(judge_block(code_bytes(kBlock, 1)), Bcj::x86);
  EXPECT_EQ(judge_block(text_bytes(kBlock, 1)), Bcj::none);
  EXPECT_EQ(judge_block(random_bytes(kBlock, 1)), Bcj::none);
  EXPECT_EQ(judge_block(Bytes(kBlock)), Bcj::none);
  EXPECT_EQ(judge_block(Bytes(kBlock, std::byte{0xff})), Bcj::none);
  EXPECT_EQ(judge_block(Bytes(1)), Bcj::none);
}

TEST(BcjJudge, tells_arm_from_x86) {
  // BL of a few functions from many places: 0xEB and a signed count of words, relative to pc + 8.
  std::mt19937 random(1);
  Bytes arm(kBlock);
  for (std::size_t at = 0; at < arm.size(); at += 4) {
    const auto target = static_cast<std::uint32_t>(random() % 64 * 4096);
    const bool call = random() % 12 == 0;
    store_le(arm.data() + at,
             call ? 0xeb000000U | (((target - static_cast<std::uint32_t>(at) - 8) >> 2) & 0xffffffU)
                  : static_cast<std::uint32_t>(0xe0000000U | (random() & 0x00ff0fffU)));
  }
  EXPECT_EQ(judge_block(arm), Bcj::arm);
  const auto none = make_compressor(with(CodecId::xz, 6));
  const auto judged = make_compressor(with(CodecId::xz, 6, kBlock, Bcj::automatic));
  EXPECT_LT(compress(*judged, arm).size(), compress(*none, arm).size());
}

TEST(BcjJudge, filtered_code_is_smaller) {
  const Bytes code = code_bytes(kBlock, 1);
  const auto size_with = [&](Bcj bcj) {
    return compress(*make_compressor(with(CodecId::xz, 6, kBlock, bcj)), code).size();
  };
  EXPECT_LT(size_with(Bcj::automatic) + 1000, size_with(Bcj::none));
  EXPECT_EQ(size_with(Bcj::automatic), size_with(Bcj::x86));
}

}  // namespace
}  // namespace bootpress
