// SPDX-License-Identifier: GPL-2.0-or-later
//
// The gathered root file system: inodes and names, without data. A directory, an archive and an
// image all become one of these, so packing, unpacking and comparing know one shape.
//
// Inodes live in one array and names in one pool: about 100 bytes and the name per file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"

namespace bootpress {

using InodeId =
    std::uint32_t;  // index into Tree; the root is 0, a parent comes before its children
inline constexpr InodeId kNoInode = 0xffffffff;

enum class FileType : std::uint8_t {
  directory,
  file,
  symlink,
  block_device,
  char_device,
  fifo,
  socket,
};

[[nodiscard]] std::string_view file_type_name(FileType type);  // "directory", "file", …

struct Xattr {
  std::string name;   // with its prefix: "security.capability"
  std::string value;  // bytes
  auto operator<=>(const Xattr&) const = default;
};

// A reference into the tree's pool of names.
struct NameRef {
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
};

struct Inode {
  FileType type = FileType::file;
  bool sparse = false;     // files: may have holes (ask Source::data_extents)
  std::uint16_t mode = 0;  // permission bits, 07777
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t links = 1;         // names that lead here (directories: 2 + subdirectories)
  std::uint32_t device_major = 0;  // devices only
  std::uint32_t device_minor = 0;
  std::uint32_t xattrs = 0;   // index of a set in the tree, 0: none
  InodeId parent = kNoInode;  // the first directory that names it; the root's own is kNoInode
  NameRef name;               // its name there
  NameRef target;             // symlinks only
  std::int64_t mtime = 0;     // seconds since 1970
  std::uint64_t size = 0;     // files: bytes; symlinks: the target's length; otherwise 0
  std::uint64_t data = 0;     // the source's own handle of the content
};

struct Entry {
  NameRef name;
  InodeId inode = kNoInode;
};

// Where the content of a tree's files comes from. Thread-safe.
class Tree;
class FileReader {
 public:
  virtual ~FileReader() = default;
  // Fills `out` from `offset`. Throws `changed` where the file is not as it was gathered (shorter,
  // longer, rewritten), `source` on an I/O error, `corrupt` for a damaged image.
  virtual void read(std::uint64_t offset, ByteSpan out) = 0;
};
struct Extent {
  std::uint64_t offset = 0;  // bytes
  std::uint64_t length = 0;
};
class Source {
 public:
  virtual ~Source() = default;
  [[nodiscard]] virtual std::unique_ptr<FileReader> open(const Tree& tree, InodeId file) const = 0;
  // The parts of a sparse file that hold data, ascending; the rest reads as zeros. One extent
  // (0, size) where nothing is known of holes.
  [[nodiscard]] virtual std::vector<Extent> data_extents(const Tree& tree, InodeId file) const;
};

// What the gathered tree had that a SquashFS image cannot hold: reported once, with a count.
struct Loss {
  std::string kind;     // "POSIX ACL", "time after 2106", …
  std::uint64_t count;  // files concerned
  std::string example;  // the first path
};

class Tree {
 public:
  [[nodiscard]] std::size_t size() const { return inodes_.size(); }
  [[nodiscard]] const Inode& operator[](InodeId id) const { return inodes_[id]; }
  // Names in a directory, ascending bytewise.
  [[nodiscard]] std::span<const Entry> entries(InodeId directory) const;
  [[nodiscard]] std::string_view text(NameRef name) const {
    return std::string_view(names_).substr(name.offset, name.length);
  }
  // Sorted by name; empty for none.
  [[nodiscard]] std::span<const Xattr> xattrs(InodeId id) const {
    return xattr_sets_[inodes_[id].xattrs];
  }
  // The distinct sets that occur; Inode::xattrs counts them from one.
  [[nodiscard]] std::span<const std::vector<Xattr>> xattr_sets() const {
    return std::span(xattr_sets_).subspan(1);
  }
  // By the first name, relative to the root and without a leading slash; the root is "".
  [[nodiscard]] std::string path(InodeId id) const;
  [[nodiscard]] std::optional<InodeId> find(std::string_view path) const;
  // Calls visit(path, inode) for every name, depth first, names ascending; the root first as "".
  void walk(const std::function<void(const std::string&, InodeId)>& visit) const;
  [[nodiscard]] const std::vector<Loss>& losses() const { return losses_; }
  [[nodiscard]] const Source& source() const { return *source_; }
  [[nodiscard]] const std::shared_ptr<const Source>& shared_source() const { return source_; }

 private:
  friend class TreeBuilder;
  std::vector<Inode> inodes_;
  std::vector<Entry> entries_;  // all directories', each one's together
  std::vector<std::pair<std::uint32_t, std::uint32_t>> spans_;  // per inode: first entry, count
  std::string names_;
  std::vector<std::vector<Xattr>> xattr_sets_;  // the first is the empty one
  std::vector<Loss> losses_;
  std::shared_ptr<const Source> source_;
};

// What to take from a source, and what to change on the way in.
struct Selection {
  std::vector<std::string> excludes;  // see excluded()
  bool xattrs = true;
  std::optional<std::pair<std::uint32_t, std::uint32_t>> owner;  // uid, gid for everything
  std::optional<std::int64_t> newest_mtime;  // later times become this (SOURCE_DATE_EPOCH)

  // A pattern without a slash matches a name at any depth; one with a slash matches the path from
  // the root, where * and ? stop at a slash (fnmatch with FNM_PATHNAME).
  [[nodiscard]] bool excluded(std::string_view path) const;
};

// The only way to make a Tree. Names may come in any order; a directory before what is in it.
class TreeBuilder {
 public:
  explicit TreeBuilder(Selection selection = {});

  [[nodiscard]] const Selection& selection() const { return selection_; }
  // Gives the root its attributes (otherwise 0755, root, mtime 0).
  void set_root(Inode inode, std::vector<Xattr> xattrs);
  // Adds an inode under its first name. REQUIRES: the path is not excluded.
  InodeId add(InodeId parent, std::string_view name, Inode inode, std::vector<Xattr> xattrs,
              std::string_view target = {});
  // Gives an inode another name (a hard link).
  void link(InodeId parent, std::string_view name, InodeId inode);
  void record_loss(std::string_view kind, std::string_view path);
  [[nodiscard]] Inode& operator[](InodeId id) { return tree_.inodes_[id]; }
  [[nodiscard]] std::size_t size() const { return tree_.inodes_.size(); }
  // Sorts names, counts links, refuses what no image can hold. Throws `source` for a name that
  // occurs twice in a directory.
  Tree finish(std::shared_ptr<const Source> source);

 private:
  void attach(InodeId parent, std::string_view name, InodeId inode);
  void apply(Inode& inode, std::vector<Xattr> xattrs, std::string_view path_hint);

  Selection selection_;
  Tree tree_;
  std::vector<std::pair<InodeId, Entry>> pending_;  // (directory, entry)
  std::map<std::vector<Xattr>, std::uint32_t> known_xattrs_;
  std::map<std::string, Loss, std::less<>> losses_;
};

// A copy of `tree` with the selection applied (excludes, owner, times); the source stays.
[[nodiscard]] Tree select(const Tree& tree, const Selection& selection);

}  // namespace bootpress
