// SPDX-License-Identifier: GPL-2.0-or-later
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>

#include "base/file.hpp"
#include "base/parallel.hpp"
#include "tree/gather.hpp"

namespace bootpress {

namespace {

FileType type_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return FileType::directory;
    case S_IFLNK:
      return FileType::symlink;
    case S_IFBLK:
      return FileType::block_device;
    case S_IFCHR:
      return FileType::char_device;
    case S_IFIFO:
      return FileType::fifo;
    case S_IFSOCK:
      return FileType::socket;
    default:
      return FileType::file;
  }
}

// What must still hold when a file is read: which file it is and when it was last written, to the
// nanosecond. Not ctime: a hard link made by a backup running meanwhile changes no content.
std::uint64_t fingerprint(const struct stat& status) {
  const std::array<std::uint64_t, 5> fields = {status.st_dev, status.st_ino,
                                               static_cast<std::uint64_t>(status.st_size),
                                               static_cast<std::uint64_t>(status.st_mtim.tv_sec),
                                               static_cast<std::uint64_t>(status.st_mtim.tv_nsec)};
  return XXH3_64bits(fields.data(), sizeof fields);
}

[[noreturn]] void throw_changed(const std::string& path) {
  throw Error(ErrorKind::changed, path + " changed while it was being packed",
              "pack a tree that nothing writes to (a snapshot or a copy)");
}

class DirectoryFile final : public FileReader {
 public:
  DirectoryFile(Fd fd, std::string path, std::uint64_t expected)
      : fd_(std::move(fd)), path_(std::move(path)), expected_(expected) {}

  void read(std::uint64_t offset, ByteSpan out) override {
    const std::int64_t got = read_at(fd_.get(), offset, out);
    if (got < 0) throw system_error(ErrorKind::source, "cannot read", path_);
    // Checked after each read: what was read before a change was still the old content.
    struct stat status{};
    if (fstat(fd_.get(), &status) != 0) throw system_error(ErrorKind::source, "cannot stat", path_);
    if (static_cast<std::size_t>(got) != out.size() || fingerprint(status) != expected_) {
      throw_changed(path_);
    }
  }

 private:
  Fd fd_;
  std::string path_;
  std::uint64_t expected_;
};

class DirectorySource final : public Source {
 public:
  DirectorySource(Fd root, std::string path) : root_(std::move(root)), path_(std::move(path)) {}

  [[nodiscard]] std::unique_ptr<FileReader> open(const Tree& tree, InodeId file) const override {
    std::string whole = path_ + "/" + tree.path(file);
    return std::make_unique<DirectoryFile>(open_file(tree, file), std::move(whole),
                                           tree[file].data);
  }

  [[nodiscard]] std::vector<Extent> data_extents(const Tree& tree, InodeId file) const override {
    const std::uint64_t size = tree[file].size;
    if (!tree[file].sparse) return Source::data_extents(tree, file);
    const Fd fd = open_file(tree, file);
    std::vector<Extent> extents;
    std::uint64_t at = 0;
    while (at < size) {
      const off_t data = lseek(fd.get(), static_cast<off_t>(at), SEEK_DATA);
      if (data < 0 && errno == ENXIO) break;
      // A file system that knows no holes: everything is data.
      if (data < 0) return Source::data_extents(tree, file);
      const off_t hole = lseek(fd.get(), data, SEEK_HOLE);
      if (hole < 0) return Source::data_extents(tree, file);
      const auto start = std::min(static_cast<std::uint64_t>(data), size);
      const auto end = std::min(static_cast<std::uint64_t>(hole), size);
      if (end > start) extents.push_back({.offset = start, .length = end - start});
      at = static_cast<std::uint64_t>(hole);
    }
    return extents;
  }

 private:
  [[nodiscard]] Fd open_file(const Tree& tree, InodeId file) const {
    const std::string path = tree.path(file);
    Fd fd(openat(root_.get(), path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (fd) return fd;
    // Gone, or replaced by something else: it was there when the tree was scanned.
    if (errno == ENOENT || errno == ELOOP || errno == ENOTDIR) throw_changed(path_ + "/" + path);
    throw system_error(ErrorKind::source, "cannot open", path_ + "/" + path);
  }

  Fd root_;
  std::string path_;
};

// One name found in a directory, with all that is to be known of it.
struct Found {
  std::string name;
  Inode inode;
  std::vector<Xattr> xattrs;
  std::string target;  // symlinks only
  std::pair<dev_t, ino_t> identity;
  bool linked = false;  // may have other names
};

// Reads directories; one per thread, since it owns the buffers that xattrs are read into.
class DirectoryScanner {
 public:
  DirectoryScanner(int root, const std::string& root_path, const Selection& selection)
      : root_(root), root_path_(root_path), selection_(selection) {}

  // The names in `directory` (relative to the root) that are not excluded, ascending.
  std::vector<Found> scan(const std::string& directory) {
    const char* relative = directory.empty() ? "." : directory.c_str();
    Fd fd(openat(root_, relative, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) throw system_error(ErrorKind::source, "cannot open the directory", shown(directory));
    std::vector<Found> found;
    std::string path = directory.empty() ? "" : directory + "/";
    const std::size_t above = path.size();
    for (std::string& name : names_in(fd.get(), directory)) {
      path.resize(above);
      path += name;
      if (!selection_.excluded(path)) found.push_back(look_at(fd.get(), std::move(name), path));
    }
    return found;
  }

  Found look_at_root() {
    Found found;
    struct stat status{};
    if (fstat(root_, &status) != 0)
      throw system_error(ErrorKind::source, "cannot stat", root_path_);
    found.inode = inode_of(status);
    found.xattrs = xattrs_of("");
    return found;
  }

 private:
  [[nodiscard]] std::vector<std::string> names_in(int directory, const std::string& path) const {
    // The stream closes its descriptor, and `directory` is still wanted.
    Fd own(fcntl(directory, F_DUPFD_CLOEXEC, 0));
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(own.get()), closedir);
    if (!stream) throw system_error(ErrorKind::source, "cannot list", shown(path));
    (void)own.release();
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(stream.get())) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    if (errno != 0) throw system_error(ErrorKind::source, "cannot list", shown(path));
    std::ranges::sort(names);
    return names;
  }

  Found look_at(int directory, std::string name, const std::string& path) {
    struct stat status{};
    if (fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      throw system_error(ErrorKind::source, "cannot stat", shown(path));
    }
    Found found;
    found.inode = inode_of(status);
    found.identity = {status.st_dev, status.st_ino};
    found.linked = !S_ISDIR(status.st_mode) && status.st_nlink > 1;
    if (S_ISLNK(status.st_mode)) found.target = target_of(directory, name, path);
    found.xattrs = xattrs_of(path);
    found.name = std::move(name);
    return found;
  }

  static Inode inode_of(const struct stat& status) {
    Inode inode;
    inode.type = type_of(status.st_mode);
    inode.mode = static_cast<std::uint16_t>(status.st_mode & 07777);
    inode.uid = status.st_uid;
    inode.gid = status.st_gid;
    inode.mtime = status.st_mtim.tv_sec;
    if (inode.type == FileType::file) {
      inode.size = static_cast<std::uint64_t>(status.st_size);
      inode.data = fingerprint(status);
      inode.sparse = status.st_blocks * 512 < status.st_size;
    }
    if (inode.type == FileType::block_device || inode.type == FileType::char_device) {
      inode.device_major = major(status.st_rdev);
      inode.device_minor = minor(status.st_rdev);
    }
    return inode;
  }

  std::string target_of(int directory, const std::string& name, const std::string& path) {
    const ssize_t length = readlinkat(directory, name.c_str(), value_.data(), value_.size());
    if (length < 0) throw system_error(ErrorKind::source, "cannot read the symlink", shown(path));
    return {value_.data(), static_cast<std::size_t>(length)};
  }

  std::vector<Xattr> xattrs_of(const std::string& path) {
    if (!selection_.xattrs) return {};
    const std::string whole = shown(path);
    std::vector<Xattr> found;
    const ssize_t length = llistxattr(whole.c_str(), names_.data(), names_.size());
    if (length < 0 && errno == ENOTSUP) return {};
    if (length < 0) throw system_error(ErrorKind::source, "cannot list the xattrs of", whole);
    std::string_view rest(names_.data(), static_cast<std::size_t>(length));
    while (!rest.empty()) {
      const std::string name(rest.substr(0, rest.find('\0')));
      rest.remove_prefix(name.size() + 1);
      const ssize_t size = lgetxattr(whole.c_str(), name.c_str(), value_.data(), value_.size());
      if (size < 0 && errno == ENODATA) continue;  // listed, but not for this user to see
      if (size < 0) {
        throw system_error(ErrorKind::source, "cannot read the xattr " + name + " of", whole);
      }
      found.push_back({.name = name, .value = {value_.data(), static_cast<std::size_t>(size)}});
    }
    return found;
  }

  [[nodiscard]] std::string shown(const std::string& path) const {
    return path.empty() ? root_path_ : root_path_ + "/" + path;
  }

  int root_;
  const std::string& root_path_;
  const Selection& selection_;
  std::vector<char> names_ = std::vector<char>(65536);  // XATTR_LIST_MAX
  std::vector<char> value_ = std::vector<char>(65536);  // XATTR_SIZE_MAX, beyond PATH_MAX
};

// Scans level by level: the directories of one level in parallel, then their names into the tree,
// in order. No recursion, since a tree may be deeper than a stack, and no result that depends on
// the threads.
class Scanner {
 public:
  Scanner(std::string path, const Selection& selection, unsigned jobs, Monitor& monitor)
      : path_(std::move(path)), builder_(selection), jobs_(jobs), monitor_(monitor) {}

  Tree run() {
    root_ = Fd(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root_) throw system_error(ErrorKind::source, "cannot open the directory", path_);
    Found root = make_scanner()->look_at_root();
    builder_.set_root(root.inode, std::move(root.xattrs));
    std::vector<Directory> level{{.id = 0, .path = ""}};
    while (!level.empty()) level = add_level(level, scan_level(level));
    return builder_.finish(std::make_shared<DirectorySource>(std::move(root_), path_));
  }

 private:
  struct Directory {
    InodeId id;
    std::string path;  // relative to the root
  };

  [[nodiscard]] std::shared_ptr<DirectoryScanner> make_scanner() const {
    return std::make_shared<DirectoryScanner>(root_.get(), path_, builder_.selection());
  }

  std::vector<std::vector<Found>> scan_level(const std::vector<Directory>& level) {
    std::vector<std::vector<Found>> found(level.size());
    const auto make_worker = [&]() -> Job {
      return [&, scanner = make_scanner()](std::uint64_t number) {
        found[number] = scanner->scan(level[number].path);
        files_ += found[number].size();
      };
    };
    run_parallel(jobs_, level.size(), make_worker, monitor_,
                 [&] { return Progress{.stage = "gather", .done_files = files_}; });
    return found;
  }

  // Returns the next level.
  std::vector<Directory> add_level(const std::vector<Directory>& level,
                                   std::vector<std::vector<Found>> found) {
    std::vector<Directory> next;
    for (std::size_t i = 0; i < level.size(); ++i) {
      for (Found& entry : found[i]) {
        const InodeId id = add(level[i].id, entry);
        if (id == kNoInode || entry.inode.type != FileType::directory) continue;
        const std::string& above = level[i].path;
        next.push_back({.id = id, .path = above.empty() ? entry.name : above + "/" + entry.name});
      }
    }
    return next;
  }

  // Returns kNoInode for one more name of an inode that is there already.
  InodeId add(InodeId parent, Found& found) {
    if (found.linked) {
      if (const auto known = hard_links_.find(found.identity); known != hard_links_.end()) {
        builder_.link(parent, found.name, known->second);
        return kNoInode;
      }
    }
    const InodeId id =
        builder_.add(parent, found.name, found.inode, std::move(found.xattrs), found.target);
    if (found.linked) hard_links_.emplace(found.identity, id);
    return id;
  }

  std::string path_;
  TreeBuilder builder_;
  unsigned jobs_;
  Monitor& monitor_;
  Fd root_;
  std::map<std::pair<dev_t, ino_t>, InodeId> hard_links_;
  std::atomic<std::uint64_t> files_{0};
};

}  // namespace

Tree scan_directory(const std::string& path, const Selection& selection, unsigned jobs,
                    Monitor& monitor) {
  return Scanner(path, selection, jobs, monitor).run();
}

}  // namespace bootpress
