// SPDX-License-Identifier: GPL-2.0-or-later
//
// Recognises blocks that no codec can shrink (compressed or encrypted content), so that no slow
// codec is run over them only to be told so.
#pragma once

#include "base/bytes.hpp"

namespace bootpress {

// True where the block's bytes are spread evenly and nothing in it comes again. Errs towards
// false; blocks below about 32 KiB are too small to tell.
[[nodiscard]] bool is_noise(ByteView block);

}  // namespace bootpress
