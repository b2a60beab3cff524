// SPDX-License-Identifier: GPL-2.0-or-later
//
// Feeds anything to the reader: it either refuses with an Error, or everything it shows can be
// walked, read and verified.
#include <cstdint>

#include "image/compare.hpp"
#include "image/image.hpp"

namespace {

using namespace bootpress;  // NOLINT(google-build-using-namespace): one function below

constexpr std::uint64_t kReadCap = 4 << 20;  // bytes per input: holes may claim terabytes

void read_files(const Image& image, const Tree& tree) {
  std::uint64_t left = kReadCap;
  for (InodeId id = 0; id < tree.size(); ++id) {
    (void)tree.path(id);
    (void)image.extents(tree[id].data);
    if (tree[id].type != FileType::file) continue;
    (void)image.data_extents(tree, id);
    const std::uint64_t length = std::min(left, tree[id].size);
    left -= length;
    std::vector<std::byte> content(length);
    try {
      image.open(tree, id)->read(tree[id].size - length, content);
    } catch (const Error&) {  // one damaged file; the next one may be whole
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteView bytes = std::as_bytes(std::span(data, size));
  try {
    const auto image = Image::open(image_in_memory(bytes));
    const Tree tree = image->tree();
    tree.walk([](const std::string&, InodeId) {});
    read_files(*image, tree);
    SilentMonitor monitor;
    verify_image(*image, 1, monitor);
  } catch (const Error&) {  // what a damaged image is for
  }
  return 0;
}
