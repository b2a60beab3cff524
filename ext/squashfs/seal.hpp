// SPDX-License-Identifier: GPL-2.0-or-later
//
// The seal: a checksum of the image in the padding behind it, where every other reader looks away.
//
//   0  8 bytes  "BPSEAL01"
//   8 16 bytes  xxh3-128 (canonical, big-endian) over bytes 96..bytes_used, then bytes 0..96
//
// It stands at offset bytes_used. SquashFS itself has no checksum of raw units or of lz4, lzo and
// zstd blocks, so a flipped owner or time would pass unnoticed; with the seal, `verify` sees it.
// The superblock comes last in the sum because it is written last.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace bootpress::squashfs {

inline constexpr std::string_view kSealMagic = "BPSEAL01";
inline constexpr std::size_t kSealSize = 24;
using SealDigest = std::array<std::byte, 16>;

}  // namespace bootpress::squashfs
