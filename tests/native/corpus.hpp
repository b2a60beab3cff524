// SPDX-License-Identifier: GPL-2.0-or-later
//
// The small images in tests/fuzz/corpus/reader, made by mksquashfs 4.5.1 and squashfs-tools-ng
// 1.2.0 from one tree with every type of file, and how tests damage them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "image/image.hpp"

namespace bootpress::test {

inline std::filesystem::path corpus_directory() {
  return std::filesystem::path(__FILE__).parent_path().parent_path() / "fuzz" / "corpus" / "reader";
}

inline std::vector<std::byte> read_corpus(const std::string& name) {
  std::ifstream in(corpus_directory() / name, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (text.empty()) throw std::runtime_error("no corpus image " + name);
  const ByteView bytes = as_view(text);
  return {bytes.begin(), bytes.end()};
}

// The names of the images that other tools made.
inline std::vector<std::string> corpus_images() {
  return {"empty.sqfs",          "gensquashfs.sqfs",    "mksquashfs-gzip.sqfs",
          "mksquashfs-lz4.sqfs", "mksquashfs-lzo.sqfs", "mksquashfs-plain.sqfs",
          "mksquashfs-raw.sqfs", "mksquashfs-xz.sqfs",  "mksquashfs-zstd.sqfs",
          "tar2sqfs.sqfs"};
}

inline std::shared_ptr<const Image> open_bytes(const std::vector<std::byte>& bytes) {
  return Image::open(image_in_memory(bytes));
}

// An image whose metadata are stored raw, so that any field can be changed in place.
class RawImage {
 public:
  RawImage() : bytes_(read_corpus("mksquashfs-raw.sqfs")), image_(open_bytes(original_)) {}

  [[nodiscard]] std::vector<std::byte>& bytes() { return bytes_; }
  [[nodiscard]] const squashfs::Superblock& superblock() const { return image_->superblock(); }

  template <typename T>
  RawImage& put(std::uint64_t offset, T value) {
    store_le(bytes_.data() + offset, value);
    return *this;
  }
  template <typename T>
  [[nodiscard]] T get(std::uint64_t offset) const {
    return load_le<T>(bytes_.data() + offset);
  }
  // Where an inode begins, as an offset in the image.
  [[nodiscard]] std::uint64_t inode(std::string_view path) const {
    const std::uint64_t reference = extents(path).reference;
    return superblock().inode_table + (reference >> 16) + 2 + (reference & 0xffff);
  }
  [[nodiscard]] InodeExtents extents(std::string_view path) const {
    const Tree tree = image_->tree();
    return image_->extents(tree[tree.find(path).value()].data);
  }
  // Where the directory entry of this name begins (its 8 bytes of fields, then the name).
  [[nodiscard]] std::uint64_t entry(std::string_view name) const {
    std::string field(2, '\0');
    field[0] = static_cast<char>(name.size() - 1);
    field += name;
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(superblock().directory_table);
    const ByteView wanted = as_view(field);
    const auto found = std::search(begin, bytes_.end(), wanted.begin(), wanted.end());
    if (found == bytes_.end()) throw std::runtime_error("no such entry");
    return static_cast<std::uint64_t>(found - bytes_.begin()) - 6;
  }
  // Gives an entry another name of the same length.
  RawImage& rename(std::string_view from, std::string_view to) {
    const ByteView name = as_view(to);
    std::ranges::copy(name, bytes_.begin() + static_cast<std::ptrdiff_t>(entry(from)) + 8);
    return *this;
  }
  // Lets the entry `name`, which must be alone in its directory, lead to the inode at `path`.
  RawImage& redirect(std::string_view name, std::string_view path) {
    const InodeExtents to = extents(path);
    const std::uint64_t at = entry(name);
    put(at - 4, to.number);  // the header's base number
    put(at - 8, static_cast<std::uint32_t>(to.reference >> 16));
    put(at, static_cast<std::uint16_t>(to.reference & 0xffff));
    return put(at + 2, std::int16_t{0});
  }

 private:
  std::vector<std::byte> original_ = read_corpus("mksquashfs-raw.sqfs");
  std::vector<std::byte> bytes_;
  std::shared_ptr<const Image> image_;
};

}  // namespace bootpress::test
