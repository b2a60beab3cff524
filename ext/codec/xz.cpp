// SPDX-License-Identifier: GPL-2.0-or-later
//
// SquashFS' xz blocks are .xz files: one stream, CRC32 check, LZMA2, optionally a branch filter
// ahead of it. The kernel's decoder (lib/xz) has no other check type and holds a dictionary of one
// image block (fs/squashfs/xz_wrapper.c).
#include <lzma.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "codec/backends.hpp"
#include "codec/bcj.hpp"
#include "squashfs/format.hpp"

namespace bootpress {
namespace {

// Keeps what liblzma frees for its next request of the same size. Each block asks for the same
// dozen pieces (2 MB at 128 KiB blocks, 15 MB at 1 MiB), which malloc would return to the system
// and fault in again.
class RecyclingAllocator {
 public:
  RecyclingAllocator() : hooks_{&allocate, &release, this} {}
  RecyclingAllocator(const RecyclingAllocator&) = delete;
  RecyclingAllocator& operator=(const RecyclingAllocator&) = delete;
  ~RecyclingAllocator() = default;

  [[nodiscard]] const lzma_allocator* hooks() const { return &hooks_; }

 private:
  struct Piece {
    std::unique_ptr<std::byte[]> memory;
    std::size_t size = 0;
    bool idle = false;
  };
  // More pieces than one encoder and one decoder of each filter chain have.
  static constexpr std::size_t kMostPieces = 64;

  // Called from C: never throws, nullptr is "out of memory".
  static void* allocate(void* opaque, std::size_t count, std::size_t size) noexcept {
    try {
      // liblzma checks for overflow, and passes count 1.
      return static_cast<RecyclingAllocator*>(opaque)->take(count * size);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  static void release(void* opaque, void* memory) noexcept {
    std::vector<Piece>& pieces = static_cast<RecyclingAllocator*>(opaque)->pieces_;
    const auto found = std::ranges::find_if(
        pieces, [&](const Piece& piece) { return piece.memory.get() == memory; });
    if (found != pieces.end()) found->idle = true;
  }

  void* take(std::size_t bytes) {
    const auto found = std::ranges::find_if(
        pieces_, [&](const Piece& piece) { return piece.idle && piece.size == bytes; });
    if (found != pieces_.end()) {
      found->idle = false;
      return found->memory.get();
    }
    if (pieces_.size() >= kMostPieces)
      std::erase_if(pieces_, [](const Piece& piece) { return piece.idle; });
    pieces_.push_back({std::make_unique_for_overwrite<std::byte[]>(bytes), bytes, false});
    return pieces_.back().memory.get();
  }

  lzma_allocator hooks_;
  std::vector<Piece> pieces_;
};

// A reusable lzma_stream; starting a coder on it again keeps the memory of the one before.
class Stream {
 public:
  Stream() { stream_.allocator = allocator_.hooks(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { lzma_end(&stream_); }

  lzma_stream* get() { return &stream_; }

  // Runs the coder that was started over the whole of `in`.
  lzma_ret run(ByteView in, ByteSpan out) {
    stream_.next_in = reinterpret_cast<const std::uint8_t*>(in.data());
    stream_.avail_in = in.size();
    stream_.next_out = reinterpret_cast<std::uint8_t*>(out.data());
    stream_.avail_out = out.size();
    return lzma_code(&stream_, LZMA_FINISH);
  }

 private:
  RecyclingAllocator allocator_;
  lzma_stream stream_ = LZMA_STREAM_INIT;
};

lzma_vli filter_id(Bcj bcj) {
  switch (bcj) {
    case Bcj::x86:
      return LZMA_FILTER_X86;
    case Bcj::powerpc:
      return LZMA_FILTER_POWERPC;
    case Bcj::ia64:
      return LZMA_FILTER_IA64;
    case Bcj::arm:
      return LZMA_FILTER_ARM;
    case Bcj::armthumb:
      return LZMA_FILTER_ARMTHUMB;
    case Bcj::sparc:
      return LZMA_FILTER_SPARC;
    case Bcj::arm64:
      return 0x0a;  // LZMA_FILTER_ARM64, which headers before 5.4 do not name
    case Bcj::none:
    case Bcj::automatic:
      break;
  }
  return LZMA_VLI_UNKNOWN;
}

// How many low bits of the position LZMA models matches with. The preset's 2 is for records of
// four bytes; text has no alignment, code and mixed data have little. The share of zero bytes tells
// them apart as well as any autocorrelation did, and costs nothing. Measured with liblzma 6 on a
// Debian 12 desktop tree: 0.13% smaller at 128 KiB and 1 MiB alike, 0.4% on text alone, and the
// encoder gets no slower.
std::uint32_t position_bits(ByteView block, std::uint32_t standard) {
  const auto zeros = static_cast<std::size_t>(std::ranges::count(block, std::byte{0}));
  if (zeros * 512 < block.size()) {
    return 0;
  }
  return zeros * 3 < block.size() ? std::min<std::uint32_t>(standard, 1) : standard;
}

class XzCompressor final : public Compressor {
 public:
  explicit XzCompressor(const CodecOptions& options) : bcj_(options.bcj) {
    if (lzma_lzma_preset(&lzma_, static_cast<std::uint32_t>(options.level))) {
      throw Error(ErrorKind::usage, "liblzma has no preset " + std::to_string(options.level));
    }
    standard_pb_ = lzma_.pb;
  }

  std::size_t compress(ByteView in, ByteSpan out) override {
    // A dictionary beyond the block finds nothing more, and the match finder's tables are cleared
    // for every block. Metadata units have 8 KiB even where blocks have 4.
    lzma_.dict_size = static_cast<std::uint32_t>(
        std::bit_ceil(std::max<std::size_t>(in.size(), squashfs::kMetadataUnit)));
    lzma_.pb = position_bits(in, standard_pb_);
    const lzma_vli filter = filter_id(bcj_ == Bcj::automatic ? judge_block(in) : bcj_);
    const lzma_filter lzma2{LZMA_FILTER_LZMA2, &lzma_};
    const lzma_filter end{LZMA_VLI_UNKNOWN, nullptr};
    std::array<lzma_filter, 3> chain = {lzma2, end, end};
    if (filter != LZMA_VLI_UNKNOWN) {
      chain = {lzma_filter{filter, nullptr}, lzma2, end};
    }
    // The streaming encoder leaves both sizes out of the block header, which saves 8 bytes a
    // block against lzma_stream_buffer_encode().
    lzma_ret result = lzma_stream_encoder(stream_.get(), chain.data(), LZMA_CHECK_CRC32);
    if (result == LZMA_OK) {
      result = stream_.run(in, out.first(in.size() - 1));
    }
    switch (result) {
      case LZMA_STREAM_END:
        return static_cast<std::size_t>(stream_.get()->total_out);
      case LZMA_OK:  // the output is full: the next block starts the encoder anew
      case LZMA_BUF_ERROR:
        return 0;
      case LZMA_MEM_ERROR:
        throw std::bad_alloc();
      default:
        throw Error(ErrorKind::unsupported,
                    "liblzma fails with code " + std::to_string(static_cast<int>(result)));
    }
  }

 private:
  Bcj bcj_;
  lzma_options_lzma lzma_{};
  std::uint32_t standard_pb_ = 0;
  Stream stream_;
};

class XzDecompressor final : public Decompressor {
 public:
  explicit XzDecompressor(std::uint32_t block_size) {
    // The kernel's dictionary: one block, or one metadata unit.
    lzma_options_lzma largest{};
    lzma_lzma_preset(&largest, LZMA_PRESET_DEFAULT);
    largest.dict_size = std::max<std::uint32_t>(block_size, squashfs::kMetadataUnit);
    const std::array<lzma_filter, 3> chain = {lzma_filter{LZMA_FILTER_X86, nullptr},
                                              lzma_filter{LZMA_FILTER_LZMA2, &largest},
                                              lzma_filter{LZMA_VLI_UNKNOWN, nullptr}};
    memory_limit_ = lzma_raw_decoder_memusage(chain.data());
  }

  std::size_t decompress(ByteView in, ByteSpan out) override {
    constexpr std::uint32_t kOneStream = 0;  // no LZMA_CONCATENATED
    lzma_ret result = lzma_stream_decoder(stream_.get(), memory_limit_, kOneStream);
    if (result == LZMA_OK) {
      result = stream_.run(in, out);
    }
    switch (result) {
      case LZMA_STREAM_END:
        break;
      case LZMA_MEM_ERROR:
        throw std::bad_alloc();
      case LZMA_MEMLIMIT_ERROR:
        throw_damaged_block(CodecId::xz, "its dictionary is larger than the image's block size");
      case LZMA_OK:
      case LZMA_BUF_ERROR:
        throw_damaged_block(CodecId::xz, "it ends early, or holds more than it may");
      default:
        throw_damaged_block(CodecId::xz, "not a valid .xz stream");
    }
    if (stream_.get()->avail_in != 0) {
      throw_damaged_block(CodecId::xz, "bytes follow the end of its stream");
    }
    return static_cast<std::size_t>(stream_.get()->total_out);
  }

 private:
  std::uint64_t memory_limit_;
  Stream stream_;
};

}  // namespace

bool xz_has_filter(Bcj bcj) {
  const lzma_vli id = filter_id(bcj);
  return id == LZMA_VLI_UNKNOWN || lzma_filter_encoder_is_supported(id);
}

std::unique_ptr<Compressor> make_xz_compressor(const CodecOptions& options) {
  return std::make_unique<XzCompressor>(options);
}

std::unique_ptr<Decompressor> make_xz_decompressor(std::uint32_t block_size) {
  return std::make_unique<XzDecompressor>(block_size);
}

std::string xz_library_version() { return std::string("liblzma ") + lzma_version_string(); }

}  // namespace bootpress
