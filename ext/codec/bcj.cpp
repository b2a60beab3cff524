// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/bcj.hpp"

namespace bootpress {

Bcj judge_block(ByteView block) {
  // Calls and jumps (E8, E9) whose 32-bit displacement stays within 16 MiB either way.
  std::size_t branches = 0;
  for (std::size_t at = 0; at + 5 <= block.size(); ++at) {
    const auto opcode = static_cast<unsigned>(block[at]) & 0xfe;
    const auto top = static_cast<unsigned>(block[at + 4]);
    branches += static_cast<std::size_t>(opcode == 0xe8 && (top == 0 || top == 0xff));
  }
  return branches * 256 > block.size() ? Bcj::x86 : Bcj::none;
}

}  // namespace bootpress
