// SPDX-License-Identifier: GPL-2.0-or-later
#include <archive.h>
#include <archive_entry.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <clocale>
#include <map>
#include <memory>
#include <unordered_map>

#include "base/file.hpp"
#include "tree/gather.hpp"

namespace bootpress {

namespace {

constexpr std::size_t kReadSize = 1 << 18;  // bytes asked of the archive's file descriptor at once
constexpr std::uint64_t kTarBlock = 512;

// Content copied out of the archive, one file after another; Inode::data is the start.
class SpoolFile final : public FileReader {
 public:
  SpoolFile(int fd, std::uint64_t start) : fd_(fd), start_(start) {}
  void read(std::uint64_t offset, ByteSpan out) override {
    const std::int64_t got = read_at(fd_, start_ + offset, out);
    if (got < 0 || static_cast<std::size_t>(got) != out.size()) {
      throw system_error(ErrorKind::source, "cannot read back", "the archive's spooled content");
    }
  }

 private:
  int fd_;
  std::uint64_t start_;
};

class SpoolSource final : public Source {
 public:
  explicit SpoolSource(Fd fd) : fd_(std::move(fd)) {}
  [[nodiscard]] std::unique_ptr<FileReader> open(const Tree& tree, InodeId file) const override {
    return std::make_unique<SpoolFile>(fd_.get(), tree[file].data);
  }

 private:
  Fd fd_;
};

// Names in archives are bytes; libarchive converts them through the locale of the thread.
class Utf8Locale {
 public:
  Utf8Locale() : locale_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {
    if (locale_ != nullptr) previous_ = uselocale(locale_);
  }
  ~Utf8Locale() {
    if (locale_ == nullptr) return;
    uselocale(previous_);
    freelocale(locale_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

 private:
  locale_t locale_;
  locale_t previous_ = nullptr;
};

std::string bytes_of(const char* raw, const char* utf8) {
  if (raw != nullptr) return raw;
  return utf8 != nullptr ? utf8 : "";
}

class ArchiveReader {
 public:
  ArchiveReader(int fd, std::string name, const std::string& spool_directory, Monitor& monitor)
      : name_(std::move(name)), monitor_(monitor), archive_(archive_read_new(), archive_read_free) {
    archive* a = archive_.get();
    archive_read_support_format_tar(a);
    archive_read_support_format_cpio(a);
    archive_read_support_filter_gzip(a);
    archive_read_support_filter_xz(a);
    archive_read_support_filter_zstd(a);
    archive_read_support_filter_lz4(a);
    archive_read_support_filter_bzip2(a);
    if (archive_read_open_fd(a, fd, kReadSize) != ARCHIVE_OK) fail();
    spool_ = open_unnamed(spool_directory);
  }

  Tree run() {
    while (next_entry()) take_entry();
    check_end_mark();
    for (std::size_t i = 0; i < nodes_.size(); ++i) place(i);
    for (const auto& [kind, path] : losses_) builder_.record_loss(kind, path);
    return builder_.finish(std::make_shared<SpoolSource>(std::move(spool_)));
  }

 private:
  struct Node {
    std::string path;
    Inode inode;
    std::vector<Xattr> xattrs;
    std::string target;
    std::size_t link_to = SIZE_MAX;  // another node, for a hard link
    InodeId placed = kNoInode;
  };

  [[noreturn]] void fail() {
    const char* said = archive_error_string(archive_.get());
    const std::string why = said != nullptr ? ": " + std::string(said) : "";
    if (archive_format(archive_.get()) == 0 && nodes_.empty()) {
      throw Error(ErrorKind::source, name_ + " is not an archive that can be read" + why,
                  "give a directory, a tar or cpio archive, or a SquashFS image");
    }
    throw Error(ErrorKind::source, "the archive " + name_ + " is damaged or cut short" + why,
                "fetch or make the archive again");
  }

  bool next_entry() {
    const int status = archive_read_next_header(archive_.get(), &entry_);
    if (status == ARCHIVE_EOF) return false;
    if (status != ARCHIVE_OK && status != ARCHIVE_WARN) fail();
    tick();
    return true;
  }

  void take_entry() {
    Node node;
    node.path =
        normal_path(bytes_of(archive_entry_pathname(entry_), archive_entry_pathname_utf8(entry_)));
    node.xattrs = xattrs();
    node.inode = attributes(node.path);
    const std::string link =
        bytes_of(archive_entry_hardlink(entry_), archive_entry_hardlink_utf8(entry_));
    if (!link.empty()) {
      take_link(std::move(node), normal_path(link));
      return;
    }
    if (node.inode.type == FileType::symlink) {
      node.target = bytes_of(archive_entry_symlink(entry_), archive_entry_symlink_utf8(entry_));
    }
    if (node.inode.type == FileType::file) spool_content(node.inode);
    remember(std::move(node));
  }

  void take_link(Node node, const std::string& to) {
    const auto found = by_path_.find(to);
    if (found == by_path_.end()) {
      throw Error(ErrorKind::source, "the archive " + name_ + " has a hard link " + node.path +
                                         " to " + to + ", which is not in it before");
    }
    std::size_t target = found->second;
    if (nodes_[target].link_to != SIZE_MAX) target = nodes_[target].link_to;
    if (node.path == nodes_[target].path) return;
    // A link that carries the content itself (cpio's newc puts it on the last name).
    if (archive_entry_size_is_set(entry_) && archive_entry_size(entry_) > 0) {
      spool_content(nodes_[target].inode);
    }
    node.link_to = target;
    remember(std::move(node));
  }

  // Drops "./" and "/" in front; a path that climbs out is refused.
  std::string normal_path(std::string_view given) {
    std::string path;
    while (!given.empty()) {
      const std::size_t slash = given.find('/');
      const std::string_view part = given.substr(0, slash);
      given = slash == std::string_view::npos ? std::string_view{} : given.substr(slash + 1);
      if (part.empty() || part == ".") continue;
      if (part == "..") {
        throw Error(ErrorKind::source, "the archive " + name_ + " names a path with '..': refused");
      }
      if (!path.empty()) path += '/';
      path += part;
    }
    return path;
  }

  Inode attributes(const std::string& path) {
    Inode inode;
    switch (archive_entry_filetype(entry_)) {
      case AE_IFDIR:
        inode.type = FileType::directory;
        break;
      case AE_IFLNK:
        inode.type = FileType::symlink;
        break;
      case AE_IFBLK:
        inode.type = FileType::block_device;
        break;
      case AE_IFCHR:
        inode.type = FileType::char_device;
        break;
      case AE_IFIFO:
        inode.type = FileType::fifo;
        break;
      case AE_IFSOCK:
        inode.type = FileType::socket;
        break;
      default:
        inode.type = FileType::file;
    }
    inode.mode = static_cast<std::uint16_t>(archive_entry_perm(entry_) & 07777);
    inode.uid = checked_cast<std::uint32_t>(archive_entry_uid(entry_), "the owner of " + path);
    inode.gid = checked_cast<std::uint32_t>(archive_entry_gid(entry_), "the group of " + path);
    inode.mtime = archive_entry_mtime(entry_);
    if (inode.type == FileType::block_device || inode.type == FileType::char_device) {
      inode.device_major = static_cast<std::uint32_t>(archive_entry_rdevmajor(entry_));
      inode.device_minor = static_cast<std::uint32_t>(archive_entry_rdevminor(entry_));
    }
    const int acls = archive_entry_acl_types(entry_);
    if ((acls & (ARCHIVE_ENTRY_ACL_TYPE_POSIX1E | ARCHIVE_ENTRY_ACL_TYPE_NFS4)) != 0) {
      losses_.emplace_back("POSIX ACL", path);
    }
    return inode;
  }

  std::vector<Xattr> xattrs() {
    std::map<std::string, std::string> found;  // bsdtar writes each one twice, in two notations
    archive_entry_xattr_reset(entry_);
    const char* name = nullptr;
    const void* value = nullptr;
    std::size_t size = 0;
    while (archive_entry_xattr_next(entry_, &name, &value, &size) == ARCHIVE_OK) {
      if (name == nullptr) continue;
      const std::string_view key = name;
      // ACLs are counted where libarchive has parsed them.
      if (key.starts_with("system.posix_acl_")) continue;
      found[name] = std::string(static_cast<const char*>(value), size);
    }
    std::vector<Xattr> list;
    list.reserve(found.size());
    for (auto& [key, bytes] : found) list.push_back({.name = key, .value = std::move(bytes)});
    return list;
  }

  void spool_content(Inode& inode) {
    inode.data = spooled_;
    const void* block = nullptr;
    std::size_t length = 0;
    std::int64_t offset = 0;
    std::uint64_t end = 0;
    for (;;) {
      const int status = archive_read_data_block(archive_.get(), &block, &length, &offset);
      if (status == ARCHIVE_EOF) break;
      if (status != ARCHIVE_OK && status != ARCHIVE_WARN) fail();
      const ByteView bytes(static_cast<const std::byte*>(block), length);
      if (!write_at(spool_.get(), spooled_ + static_cast<std::uint64_t>(offset), bytes)) {
        throw system_error(ErrorKind::target, "cannot spool the content of", name_);
      }
      end = static_cast<std::uint64_t>(offset) + length;
      bytes_ += length;
      tick();
    }
    // A sparse member may end in a hole that no block covers.
    inode.size = archive_entry_size_is_set(entry_)
                     ? std::max(end, static_cast<std::uint64_t>(archive_entry_size(entry_)))
                     : end;
    spooled_ += inode.size;
    if (ftruncate(spool_.get(), static_cast<off_t>(spooled_)) != 0) {
      throw system_error(ErrorKind::target, "cannot spool the content of", name_);
    }
    content_end_ = archive_filter_bytes(archive_.get(), 0);
  }

  void remember(Node node) {
    content_end_ = archive_filter_bytes(archive_.get(), 0);
    const auto [found, added] = by_path_.try_emplace(node.path, nodes_.size());
    if (added) {
      nodes_.push_back(std::move(node));
      return;
    }
    Node& known = nodes_[found->second];
    const bool directories =
        known.inode.type == FileType::directory && node.inode.type == FileType::directory;
    if (!directories && known.inode.type == FileType::directory) {
      throw Error(ErrorKind::source, "the archive " + name_ + " has " + node.path +
                                         " both as a directory and as something else");
    }
    if (directories || known.link_to == SIZE_MAX) {
      move_links(found->second);
    }
    known = std::move(node);
  }

  // Before the first name of a hard-linked file is replaced, the next name takes the content over.
  void move_links(std::size_t replaced) {
    std::size_t heir = SIZE_MAX;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].link_to != replaced) continue;
      if (heir == SIZE_MAX) {
        heir = i;
        const std::string path = nodes_[i].path;
        nodes_[i] = nodes_[replaced];
        nodes_[i].path = path;
        nodes_[i].link_to = SIZE_MAX;
      } else {
        nodes_[i].link_to = heir;
      }
    }
  }

  InodeId place(std::size_t index) {
    Node& node = nodes_[index];
    if (node.placed != kNoInode) return node.placed;
    if (node.path.empty()) {
      if (node.inode.type != FileType::directory) {
        throw Error(ErrorKind::source, "the archive " + name_ + " has a root that is no directory");
      }
      builder_.set_root(node.inode, node.xattrs);
      return node.placed = 0;
    }
    const std::size_t slash = node.path.rfind('/');
    const std::string_view name = std::string_view(node.path).substr(slash + 1);
    const InodeId parent =
        slash == std::string::npos ? 0 : directory(node.path.substr(0, slash), node.inode.mtime);
    if (node.link_to != SIZE_MAX) {
      const InodeId first = place(node.link_to);
      builder_.link(parent, name, first);
      return node.placed = first;
    }
    return node.placed = builder_.add(parent, name, node.inode, node.xattrs, node.target);
  }

  // The directory at `path`; one that the archive only implies gets 0755, root and the time of
  // what is first in it.
  InodeId directory(const std::string& path, std::int64_t mtime) {
    const auto found = by_path_.find(path);
    if (found != by_path_.end()) {
      if (nodes_[found->second].inode.type != FileType::directory) {
        throw Error(ErrorKind::source, "the archive " + name_ + " has entries below " + path +
                                           ", which is no directory");
      }
      return place(found->second);
    }
    const auto known = implied_.find(path);
    if (known != implied_.end()) return known->second;
    const std::size_t slash = path.rfind('/');
    const InodeId parent = slash == std::string::npos ? 0 : directory(path.substr(0, slash), mtime);
    Inode inode;
    inode.type = FileType::directory;
    inode.mode = 0755;
    inode.mtime = mtime;
    const InodeId id = builder_.add(parent, std::string_view(path).substr(slash + 1), inode, {});
    implied_.emplace(path, id);
    return id;
  }

  // libarchive takes the end of the file for the end of a tar archive. A whole one ends in blocks
  // of zeros, so at least one block more than the last member's padding must have been consumed.
  void check_end_mark() {
    const bool tar =
        (archive_format(archive_.get()) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_TAR;
    if (!tar) return;
    const auto rest =
        static_cast<std::uint64_t>(archive_filter_bytes(archive_.get(), 0) - content_end_);
    if (rest < kTarBlock) {
      throw Error(ErrorKind::source, "the archive " + name_ + " is cut short: it has no end mark",
                  "fetch or make the archive again");
    }
  }

  void tick() {
    const auto now = std::chrono::steady_clock::now();
    if (now - ticked_ < std::chrono::milliseconds(100)) return;
    ticked_ = now;
    monitor_.tick({.stage = "gather", .done_bytes = bytes_, .done_files = nodes_.size()});
  }

  std::string name_;
  Monitor& monitor_;
  Utf8Locale locale_;
  std::unique_ptr<archive, int (*)(archive*)> archive_;
  archive_entry* entry_ = nullptr;
  Fd spool_;
  std::uint64_t spooled_ = 0;
  std::uint64_t bytes_ = 0;
  std::int64_t content_end_ = 0;
  std::vector<Node> nodes_;
  std::unordered_map<std::string, std::size_t> by_path_;
  std::unordered_map<std::string, InodeId> implied_;
  std::vector<std::pair<std::string, std::string>> losses_;
  TreeBuilder builder_;
  std::chrono::steady_clock::time_point ticked_ = std::chrono::steady_clock::now();
};

}  // namespace

Tree read_archive(int fd, const std::string& name, const std::string& spool_directory,
                  const Selection& selection, Monitor& monitor) {
  // Gathered whole, then selected: an excluded first name may carry the content of a hard link.
  return select(ArchiveReader(fd, name, spool_directory, monitor).run(), selection);
}

}  // namespace bootpress
