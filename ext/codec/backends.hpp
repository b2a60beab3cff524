// SPDX-License-Identifier: GPL-2.0-or-later
//
// What codec.cpp chooses from: one pair of constructors per library. Options have been checked by
// check_codec_options() before they come here.
#pragma once

#include <cstdint>
#include <memory>

#include "codec/codec.hpp"

namespace bootpress {

[[nodiscard]] std::unique_ptr<Compressor> make_gzip_compressor(const CodecOptions& options);
[[nodiscard]] std::unique_ptr<Compressor> make_lz4_compressor(const CodecOptions& options);
[[nodiscard]] std::unique_ptr<Compressor> make_lzo_compressor(const CodecOptions& options);
[[nodiscard]] std::unique_ptr<Compressor> make_xz_compressor(const CodecOptions& options);
[[nodiscard]] std::unique_ptr<Compressor> make_zstd_compressor(const CodecOptions& options);

[[nodiscard]] std::unique_ptr<Decompressor> make_gzip_decompressor();
[[nodiscard]] std::unique_ptr<Decompressor> make_lz4_decompressor();
[[nodiscard]] std::unique_ptr<Decompressor> make_lzo_decompressor();
[[nodiscard]] std::unique_ptr<Decompressor> make_xz_decompressor(std::uint32_t block_size);
[[nodiscard]] std::unique_ptr<Decompressor> make_zstd_decompressor(std::uint32_t block_size);

[[nodiscard]] std::string gzip_library_version();
[[nodiscard]] std::string lz4_library_version();
[[nodiscard]] std::string lzo_library_version();
[[nodiscard]] std::string xz_library_version();
[[nodiscard]] std::string zstd_library_version();

// Whether the liblzma at hand can encode the filter (arm64 needs 5.4).
[[nodiscard]] bool xz_has_filter(Bcj bcj);

// The one way in which a decompressor reports damage: "a zstd block is damaged: <why>".
[[noreturn]] void throw_damaged_block(CodecId id, std::string_view why);

}  // namespace bootpress
