// SPDX-License-Identifier: GPL-2.0-or-later
//
// Unpacks an image: directories, file content in parallel, the other types, hard links, and the
// directories' attributes last, because writing into a directory changes its time.
#include "image/unpack.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <chrono>

#include "base/parallel.hpp"
#include "image/attributes.hpp"
#include "image/beneath.hpp"
#include "image/file_writer.hpp"
#include "image/unpack_plan.hpp"
#include "image/unpack_target.hpp"

namespace bootpress {

namespace {

mode_t node_type(FileType type) {
  switch (type) {
    case FileType::block_device:
      return S_IFBLK;
    case FileType::char_device:
      return S_IFCHR;
    case FileType::fifo:
      return S_IFIFO;
    default:
      return S_IFSOCK;
  }
}

class Unpacker {
 public:
  Unpacker(const Image& image, const Tree& tree, UnpackTarget& target, const UnpackOptions& options,
           Monitor& monitor)
      : image_(image),
        tree_(tree),
        target_(target),
        options_(options),
        monitor_(monitor),
        attributes_(tree, options, skipped_),
        directories_(tree, target.fd()),
        made_(tree.size(), 0) {
    for (InodeId id = 0; id < tree.size(); ++id) {
      if (tree[id].type == FileType::file) total_bytes_ += tree[id].size;
    }
  }

  UnpackResult run() {
    try {
      make_directories();
      monitor_.tick(progress());
      write_files();
      monitor_.tick(progress());
      make_others();
      make_hard_links();
      finish_directories();
    } catch (...) {
      remove_everything();
      throw;
    }
    return {.files = done_files_, .bytes = done_bytes_, .skipped = skipped_.take()};
  }

 private:
  [[nodiscard]] std::string name_of(InodeId id) const {
    return std::string(tree_.text(tree_[id].name));
  }

  [[noreturn]] void fail(std::string_view action, InodeId id) const {
    throw system_error(ErrorKind::target, action, "/" + tree_.path(id));
  }

  [[nodiscard]] Progress progress() const {
    return {.stage = "unpack",
            .done_bytes = done_bytes_,
            .total_bytes = total_bytes_,
            .done_files = done_files_,
            .total_files = tree_.size()};
  }

  // Between two steps of the calling thread.
  void tick() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_tick_ < std::chrono::milliseconds(100)) return;
    last_tick_ = now;
    monitor_.tick(progress());
  }

  void make_directories() {
    monitor_.tick(progress());
    for (InodeId id = 1; id < tree_.size(); ++id) {
      if (tree_[id].type != FileType::directory) continue;
      const int parent = directories_.open(tree_[id].parent);
      if (::mkdirat(parent, name_of(id).c_str(), kWhileWorking) != 0) fail("creating", id);
      made_[id] = 1;
      tick();
    }
  }

  void write_files() {
    const UnpackPlan plan = plan_unpack(image_, tree_);
    std::vector<SplitFile> splits(plan.split_items.size());
    for (std::size_t i = 0; i < splits.size(); ++i) splits[i].left = plan.split_items[i];
    const UnpackState state{.image = image_,
                            .tree = tree_,
                            .root = target_.fd(),
                            .plan = plan,
                            .attributes = attributes_,
                            .splits = splits,
                            .made = made_,
                            .done_bytes = done_bytes_,
                            .done_files = done_files_};
    const auto make_worker = [&]() -> Job {
      const auto writer = std::make_shared<FileWriter>(state);
      return [writer, &plan](std::uint64_t number) { writer->run(plan.jobs[number]); };
    };
    run_parallel(options_.jobs, plan.jobs.size(), make_worker, monitor_,
                 [&] { return progress(); });
  }

  void make_others() {
    for (InodeId id = 0; id < tree_.size(); ++id) {
      const FileType type = tree_[id].type;
      if (type == FileType::directory || type == FileType::file) continue;
      const int parent = directories_.open(tree_[id].parent);
      const std::string name = name_of(id);
      if (type == FileType::symlink) {
        const std::string link_target(tree_.text(tree_[id].target));
        if (::symlinkat(link_target.c_str(), parent, name.c_str()) != 0) fail("creating", id);
      } else if (!make_node(parent, name, id)) {
        continue;
      }
      made_[id] = 1;
      attributes_.set_at(parent, name, id);
      ++done_files_;
      tick();
    }
  }

  // False where making it takes a privilege that the caller lacks.
  bool make_node(int parent, const std::string& name, InodeId id) {
    const Inode& inode = tree_[id];
    const dev_t device = ::makedev(inode.device_major, inode.device_minor);
    if (::mknodat(parent, name.c_str(), node_type(inode.type) | 0600U, device) == 0) return true;
    if (errno != EPERM) fail("creating", id);
    skipped_.add(file_type_name(inode.type), tree_.path(id));
    return false;
  }

  void make_hard_links() {
    for (InodeId directory = 0; directory < tree_.size(); ++directory) {
      if (tree_[directory].type != FileType::directory) continue;
      for (const Entry& entry : tree_.entries(directory)) {
        const Inode& inode = tree_[entry.inode];
        const bool first = inode.parent == directory && inode.name.offset == entry.name.offset;
        if (!first && inode.type != FileType::directory) make_hard_link(directory, entry);
      }
      tick();
    }
  }

  void make_hard_link(InodeId directory, const Entry& entry) {
    if (made_[entry.inode] == 0) {  // a device that was skipped
      skipped_.add(file_type_name(tree_[entry.inode].type), tree_.path(entry.inode));
      return;
    }
    // The cache may drop one directory when it opens the other: this one is held apart.
    const Fd from(::fcntl(directories_.open(tree_[entry.inode].parent), F_DUPFD_CLOEXEC, 0));
    const std::string name(tree_.text(entry.name));
    if (::linkat(from.get(), name_of(entry.inode).c_str(), directories_.open(directory),
                 name.c_str(), 0) != 0) {
      const std::string path = tree_.path(directory) + "/" + name;
      throw system_error(ErrorKind::target, "linking", path);
    }
    links_.emplace_back(directory, entry.name);
  }

  void finish_directories() {
    finishing_ = true;
    for (auto id = static_cast<InodeId>(tree_.size()); id-- > 0;) {
      if (tree_[id].type != FileType::directory) continue;
      const Fd fd(::openat(directories_.open(id), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!fd) fail("opening", id);
      attributes_.set(fd.get(), id);
      ++done_files_;
      tick();
    }
  }

  // Removes what this run made and nothing else. Never throws: the first error is the one to tell.
  void remove_everything() noexcept {
    if (finishing_) reopen_directories();
    for (const auto& [directory, name] : links_) {
      remove(directory, std::string(tree_.text(name)), 0);
    }
    for (auto id = static_cast<InodeId>(tree_.size()); id-- > 1;) {
      if (made_[id] == 0) continue;
      const bool is_directory = tree_[id].type == FileType::directory;
      remove(tree_[id].parent, name_of(id), is_directory ? AT_REMOVEDIR : 0);
    }
    target_.give_up();
  }

  // Where the directory is gone, so is what was in it.
  void remove(InodeId parent, const std::string& name, int flags) noexcept {
    const int directory = directories_.try_open(parent);
    if (directory >= 0) (void)::unlinkat(directory, name.c_str(), flags);
  }

  // Directories that have their final mode may refuse to be emptied.
  void reopen_directories() noexcept {
    (void)::fchmod(target_.fd(), kWhileWorking);
    for (InodeId id = 1; id < tree_.size(); ++id) {
      if (tree_[id].type != FileType::directory) continue;
      const int parent = directories_.try_open(tree_[id].parent);
      if (parent < 0) continue;
      (void)::fchmodat(parent, name_of(id).c_str(), kWhileWorking, AT_SYMLINK_NOFOLLOW);
    }
  }

  const Image& image_;
  const Tree& tree_;
  UnpackTarget& target_;
  UnpackOptions options_;
  Monitor& monitor_;
  SkipList skipped_;
  AttributeSetter attributes_;
  DirectoryCache directories_;
  std::vector<std::uint8_t> made_;
  std::vector<std::pair<InodeId, NameRef>> links_;  // the hard links made so far
  bool finishing_ = false;
  std::uint64_t total_bytes_ = 0;
  std::atomic<std::uint64_t> done_bytes_{0};
  std::atomic<std::uint64_t> done_files_{0};
  std::chrono::steady_clock::time_point last_tick_;
};

}  // namespace

UnpackResult unpack(const std::shared_ptr<const Image>& image,
                    const std::filesystem::path& directory, const UnpackOptions& options,
                    Monitor& monitor) {
  const Tree tree = image->tree();
  UnpackTarget target(directory);
  return Unpacker(*image, tree, target, options, monitor).run();
}

}  // namespace bootpress
