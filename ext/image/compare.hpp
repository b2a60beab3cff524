// SPDX-License-Identifier: GPL-2.0-or-later
//
// Compares two trees, wherever they come from, and checks one image from end to end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/monitor.hpp"
#include "image/image.hpp"

namespace bootpress {

struct Difference {
  std::string path;  // "" is the root
  std::string what;  // "only in a", "only in b", "type", "mode", "owner", "mtime", "size",
                     // "content", "target", "device", "xattrs", "hard links"
  std::string a;     // what stands in each, as text; empty where there is nothing to show
  std::string b;
};

struct CompareOptions {
  unsigned jobs = 1;
  bool xattrs = true;
  bool owners = true;
  bool times = true;
};

// Differences ordered by path, then by the order of `what` above. Content is compared byte by
// byte, on all workers; two files of one source with the same blocks are read once.
[[nodiscard]] std::vector<Difference> compare_trees(const Tree& a, const Tree& b,
                                                    const CompareOptions& options,
                                                    Monitor& monitor);

struct VerifyResult {
  std::uint64_t files = 0;
  std::uint64_t blocks = 0;  // data blocks and fragments decompressed
  std::uint64_t bytes = 0;   // decompressed
  Image::SealState seal = Image::SealState::absent;
};

// Decompresses every block and fragment once, checks that each has the size that its files need,
// that no two stored extents overlap partly, and the seal. Throws `corrupt` at the first damage.
VerifyResult verify_image(const Image& image, unsigned jobs, Monitor& monitor);

}  // namespace bootpress
