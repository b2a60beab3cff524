// SPDX-License-Identifier: GPL-2.0-or-later
//
// Why a branch filter helps: a call's operand is relative, so calls of one function from many
// places differ; the filter makes the operands absolute, and they become repeats that LZMA finds.
// So the judge measures just that. It converts the branches that it sees as the filter would, and
// counts how often an absolute target comes again and how often a relative one does. Where the
// first number is larger by some margin, the filter pays. Unlike the density of opcodes, this
// tells code from tables of small integers, and it needs no header, so it works on a file's middle
// and on fragments of many files.
//
// Measured on a Debian 12 desktop tree with liblzma 6, total size against the better of "none" and
// "x86" for each block (a random 11% of the blocks, 1,166 of 128 KiB and 141 of 1 MiB):
//
//   rule                                       128 KiB   1 MiB
//   never                                       +1.64%  +2.14%
//   always x86                                  +1.22%  +1.73%
//   E8/E9 with a near target, 1 per 128 bytes   +0.73%  +0.79%
//   the same with negative targets only         +0.41%  +0.34%
//   repeated targets, as here                   +0.02%  +0.02%
//
// The x86 rule is flat around its constants: margins from 1 per 512 to 1 per 8192 bytes, weights of
// the relative repeats from 0.75 to 1.5 and 2^10 to 2^14 slots all stay within +0.03% at 128 KiB.
#include "codec/bcj.hpp"

#include <array>
#include <cstdint>

#include "base/bytes.hpp"

namespace bootpress {
namespace {

// Counts values that were seen before. Lossy: one value a slot, the latest wins, so that a judge
// costs the clearing of 4 KiB instead of a hash map.
class RepeatCounter {
 public:
  void add(std::uint32_t value) {
    constexpr std::uint32_t kHashFactor = 0x9e3779b1;  // 2^32 / golden ratio, odd
    std::uint32_t& slot = slots_[(value * kHashFactor) >> (32 - kSlotBits)];
    const std::uint32_t mark = ~value;  // so that 0, an empty slot, is a displacement of -1
    repeats_ += static_cast<std::size_t>(slot == mark);
    slot = mark;
  }
  [[nodiscard]] std::size_t repeats() const { return repeats_; }

 private:
  static constexpr unsigned kSlotBits = 10;
  std::array<std::uint32_t, 1U << kSlotBits> slots_{};
  std::size_t repeats_ = 0;
};

struct Evidence {
  RepeatCounter absolute;
  RepeatCounter relative;

  void add(std::uint32_t displacement, std::size_t at) {
    absolute.add(displacement + static_cast<std::uint32_t>(at));
    relative.add(displacement);
  }
};

std::uint32_t byte_at(ByteView block, std::size_t at) {
  return static_cast<std::uint32_t>(block[at]);
}

// The patterns below are what each of liblzma's filters converts (src/liblzma/simple/*.c, the
// same as the kernel's lib/xz/xz_dec_bcj.c).

// CALL and JMP with a 32-bit displacement of less than 16 MiB either way.
void collect_x86(ByteView block, Evidence& evidence) {
  for (std::size_t at = 0; at + 5 <= block.size(); ++at) {
    if ((byte_at(block, at) & 0xfe) == 0xe8) {
      const auto displacement = load_le<std::uint32_t>(block.data() + at + 1);
      if (((displacement + 0x01000000) >> 25) == 0) {
        evidence.add(displacement, at);
      }
    }
  }
}

// One pass for the architectures whose instructions are aligned to 4 bytes.
void collect_words(ByteView block, Evidence& arm, Evidence& powerpc, Evidence& sparc) {
  for (std::size_t at = 0; at + 4 <= block.size(); at += 4) {
    const auto word = load_le<std::uint32_t>(block.data() + at);
    if ((word >> 24) == 0xeb) {  // BL, always
      arm.add((word & 0xffffff) << 2, at);
    }
    const std::uint32_t first = word & 0xff;
    if (first == 0x40 || first == 0x7f || (first & 0xfc) == 0x48) {
      const std::uint32_t instruction = __builtin_bswap32(word);  // these two are big-endian
      if ((instruction & 0xfc000003) == 0x48000001) {             // bl
        powerpc.add(instruction & 0x03fffffc, at);
      } else if ((instruction & 0xffc00000) == 0x40000000 ||
                 (instruction & 0xffc00000) == 0x7fc00000) {  // call, within 16 MiB
        sparc.add(instruction << 2, at);
      }
    }
  }
}

// BL as a pair of halfwords, aligned to 2 bytes.
void collect_thumb(ByteView block, Evidence& evidence) {
  for (std::size_t at = 0; at + 4 <= block.size(); at += 2) {
    const auto pair = load_le<std::uint32_t>(block.data() + at);
    if ((pair & 0xf800f800) == 0xf800f000) {
      evidence.add((((pair & 0x7ff) << 11) | ((pair >> 16) & 0x7ff)) << 1, at);
      at += 2;
    }
  }
}

// How many more repeats the filter makes than it breaks.
std::ptrdiff_t gain(const Evidence& evidence) {
  return static_cast<std::ptrdiff_t>(evidence.absolute.repeats()) -
         static_cast<std::ptrdiff_t>(evidence.relative.repeats());
}

}  // namespace

Bcj judge_block(ByteView block) {
  const auto size = static_cast<std::ptrdiff_t>(block.size());
  Evidence x86;
  collect_x86(block, x86);
  // What a filter breaks costs about as much as it saves elsewhere: ask for one repeat per KiB.
  if (gain(x86) * 1024 > size) {
    return Bcj::x86;
  }
  // The others are rare on a tree and their patterns are weaker, so they must show several times
  // as much, and at least two absolute repeats for each relative one.
  Evidence arm;
  Evidence powerpc;
  Evidence sparc;
  Evidence thumb;
  collect_words(block, arm, powerpc, sparc);
  collect_thumb(block, thumb);
  Bcj best = Bcj::none;
  std::ptrdiff_t best_gain = size / 256;
  const auto consider = [&](Bcj filter, const Evidence& evidence) {
    if (gain(evidence) > best_gain &&
        evidence.absolute.repeats() >= 2 * evidence.relative.repeats()) {
      best = filter;
      best_gain = gain(evidence);
    }
  };
  consider(Bcj::arm, arm);
  consider(Bcj::armthumb, thumb);
  consider(Bcj::powerpc, powerpc);
  consider(Bcj::sparc, sparc);
  return best;
}

}  // namespace bootpress
