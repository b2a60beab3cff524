// SPDX-License-Identifier: GPL-2.0-or-later
//
// Judges which branch filter a block profits from, by looking at its bytes only.
#pragma once

#include <array>

#include "base/bytes.hpp"
#include "codec/codec.hpp"

namespace bootpress {

// What judge_block() may answer besides `none`. arm64 is not among them: kernels before 6.12
// cannot decode it, so it must be asked for by name.
inline constexpr std::array<Bcj, 5> kJudgedFilters = {Bcj::x86, Bcj::powerpc, Bcj::arm,
                                                      Bcj::armthumb, Bcj::sparc};

// Returns the filter that makes `block` smaller under xz, or Bcj::none.
[[nodiscard]] Bcj judge_block(ByteView block);

}  // namespace bootpress
