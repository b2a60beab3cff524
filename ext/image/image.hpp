// SPDX-License-Identifier: GPL-2.0-or-later
//
// The independent reader: decodes a SquashFS image by whomever it was made. Everything in the
// image is untrusted: every offset, count and length is checked before it is used, and what an
// image may make the reader allocate is bounded by the image's own size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/monitor.hpp"
#include "codec/codec.hpp"
#include "squashfs/format.hpp"
#include "squashfs/seal.hpp"
#include "tree/tree.hpp"

namespace bootpress {

// The bytes an image is made of. Thread-safe.
class ImageBytes {
 public:
  virtual ~ImageBytes() = default;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  // REQUIRES: nothing; reading past the end is a `corrupt` error ("the image is cut short").
  virtual void read(std::uint64_t offset, ByteSpan out) const = 0;
};
// A part of a file or device: an image on a disk, or in an ISO.
struct FilePart {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  // 0: to the end
};
[[nodiscard]] std::shared_ptr<const ImageBytes> open_image_file(const std::filesystem::path& path,
                                                                FilePart part = {});
// An image that is open already, under no name yet perhaps; the descriptor stays the caller's.
[[nodiscard]] std::shared_ptr<const ImageBytes> open_image_descriptor(int descriptor,
                                                                      const std::string& name);
[[nodiscard]] std::shared_ptr<const ImageBytes> image_in_memory(ByteView bytes);  // not copied

struct FragmentEntry {
  std::uint64_t start = 0;  // bytes from the image's start
  std::uint32_t word = 0;   // stored bytes; kBlockRaw where stored raw
};

// Where one regular file's content lies.
struct FileBlocks {
  std::uint64_t start = 0;               // of the first block, bytes from the image's start
  std::span<const std::uint32_t> words;  // one per full block (and the tail where there is no
                                         // fragment); 0: a hole
  std::uint32_t fragment = squashfs::kNoFragment;  // only where the file has a tail in it
  std::uint32_t fragment_offset = 0;               // bytes, in the decompressed fragment
  std::uint64_t size = 0;                          // of the file, bytes
};

// Whether two files of one image share all of it, so that their contents are equal; and a hash of
// where that lies, of the fixed fields alone: equal places have equal hashes.
[[nodiscard]] bool same_place(const FileBlocks& a, const FileBlocks& b);
[[nodiscard]] std::uint64_t hash_place(const FileBlocks& blocks);

// Where one inode's metadata lies, as extents of the image (units, header included).
struct InodeExtents {
  std::uint32_t number = 0;     // the inode number that stat() shows
  std::uint64_t reference = 0;  // as in the superblock's root_inode
  Extent inode;                 // the unit or units that hold the inode
  Extent listing;               // directories: the units that hold the listing; else length 0
  // Where the listing begins, as in `reference`, and its decompressed bytes; 0 where there is none.
  std::uint64_t listing_reference = 0;
  std::uint32_t listing_bytes = 0;
};

struct ImageIndex;
class BlockStore;

class Image : public Source, public std::enable_shared_from_this<Image> {
 public:
  // Reads and checks all metadata. Throws `corrupt`, `unsupported`, `source`.
  [[nodiscard]] static std::shared_ptr<const Image> open(std::shared_ptr<const ImageBytes> bytes);

  [[nodiscard]] const squashfs::Superblock& superblock() const;
  [[nodiscard]] CodecId codec() const;
  // The compressor-options record as stored, empty where there is none.
  [[nodiscard]] ByteView codec_record() const;
  [[nodiscard]] const ImageBytes& bytes() const;

  // The tree it holds; Inode::data is the index for blocks() and extents(). Its source is this
  // image (it shares ownership).
  [[nodiscard]] Tree tree() const;
  [[nodiscard]] std::size_t inode_count() const;
  [[nodiscard]] FileBlocks blocks(std::uint64_t data) const;  // regular files only
  [[nodiscard]] InodeExtents extents(std::uint64_t data) const;
  [[nodiscard]] std::span<const FragmentEntry> fragments() const;

  // Source: reads through a small cache of decompressed fragments shared by all threads.
  [[nodiscard]] std::unique_ptr<FileReader> open(const Tree& tree, InodeId file) const override;
  [[nodiscard]] std::vector<Extent> data_extents(const Tree& tree, InodeId file) const override;

  // Reads and decompresses the block or fragment at `start` into `out`, with the caller's
  // decompressor; returns the bytes produced. `scratch` holds the stored bytes.
  std::size_t read_stored(std::uint64_t start, std::uint32_t word, Decompressor& decompressor,
                          std::vector<std::byte>& scratch, ByteSpan out) const;

  enum class SealState { absent, intact, broken };
  // Compares the seal with the image's bytes (reads all of them; stage "check").
  [[nodiscard]] SealState check_seal(Monitor& monitor) const;

  // The decoded metadata, for the files in this folder.
  [[nodiscard]] const ImageIndex& index() const;

  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
  ~Image() override;

 private:
  Image(std::shared_ptr<const ImageBytes> bytes, std::unique_ptr<const ImageIndex> index);

  std::shared_ptr<const ImageBytes> bytes_;
  std::unique_ptr<const ImageIndex> index_;
  std::unique_ptr<BlockStore> store_;  // decompressors and fragments that readers share
};

}  // namespace bootpress
