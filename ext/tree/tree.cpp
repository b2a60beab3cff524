// SPDX-License-Identifier: GPL-2.0-or-later
#include "tree/tree.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <numeric>

#include "squashfs/format.hpp"

namespace bootpress {

namespace {

// mtime is an unsigned 32-bit field of every inode.
constexpr std::int64_t kLastTime = 0xffffffff;

bool storable(std::string_view xattr_name) {
  return std::ranges::any_of(squashfs::kXattrPrefixes, [&](std::string_view prefix) {
    return xattr_name.starts_with(prefix) && xattr_name.size() > prefix.size();
  });
}

bool legal_name(std::string_view name) {
  return !name.empty() && name.size() <= squashfs::kMaxNameLength && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

}  // namespace

std::string_view file_type_name(FileType type) {
  switch (type) {
    case FileType::directory:
      return "directory";
    case FileType::file:
      return "file";
    case FileType::symlink:
      return "symlink";
    case FileType::block_device:
      return "block device";
    case FileType::char_device:
      return "char device";
    case FileType::fifo:
      return "fifo";
    case FileType::socket:
      return "socket";
  }
  return "?";
}

std::vector<Extent> Source::data_extents(const Tree& tree, InodeId file) const {
  return {{.offset = 0, .length = tree[file].size}};
}

std::span<const Entry> Tree::entries(InodeId directory) const {
  const auto [first, count] = spans_[directory];
  return std::span(entries_).subspan(first, count);
}

std::string Tree::path(InodeId id) const {
  std::size_t length = 0;
  for (InodeId at = id; inodes_[at].parent != kNoInode; at = inodes_[at].parent) {
    length += inodes_[at].name.length + 1;
  }
  if (length == 0) return {};
  std::string path(length - 1, '/');
  std::size_t end = path.size();
  for (InodeId at = id; inodes_[at].parent != kNoInode; at = inodes_[at].parent) {
    const std::string_view name = text(inodes_[at].name);
    end -= name.size();
    name.copy(path.data() + end, name.size());
    if (end > 0) --end;
  }
  return path;
}

std::optional<InodeId> Tree::find(std::string_view path) const {
  InodeId at = 0;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    path = slash == std::string_view::npos ? std::string_view{} : path.substr(slash + 1);
    if (name.empty()) continue;
    if (inodes_[at].type != FileType::directory) return std::nullopt;
    const std::span<const Entry> names = entries(at);
    const auto found = std::ranges::lower_bound(
        names, name, {}, [&](const Entry& entry) { return text(entry.name); });
    if (found == names.end() || text(found->name) != name) return std::nullopt;
    at = found->inode;
  }
  return at;
}

void Tree::walk(const std::function<void(const std::string&, InodeId)>& visit) const {
  struct Level {
    InodeId directory;
    std::size_t next;
    std::size_t path_length;
  };
  std::string path;
  visit(path, 0);
  std::vector<Level> levels{{.directory = 0, .next = 0, .path_length = 0}};
  while (!levels.empty()) {
    Level& level = levels.back();
    const std::span<const Entry> names = entries(level.directory);
    if (level.next == names.size()) {
      levels.pop_back();
      continue;
    }
    const Entry& entry = names[level.next++];
    path.resize(level.path_length);
    if (!path.empty()) path += '/';
    path += text(entry.name);
    visit(path, entry.inode);
    if (inodes_[entry.inode].type == FileType::directory) {
      levels.push_back({.directory = entry.inode, .next = 0, .path_length = path.size()});
    }
  }
}

bool Selection::excluded(std::string_view path) const {
  if (excludes.empty() || path.empty()) return false;
  const std::string whole(path);
  const std::string name(path.substr(path.rfind('/') + 1));
  return std::ranges::any_of(excludes, [&](const std::string& given) {
    std::string_view pattern = given;
    while (pattern.ends_with('/')) pattern.remove_suffix(1);
    const bool anchored = pattern.find('/') != std::string_view::npos;
    while (pattern.starts_with('/')) pattern.remove_prefix(1);
    const std::string glob(pattern);
    return fnmatch(glob.c_str(), anchored ? whole.c_str() : name.c_str(), FNM_PATHNAME) == 0;
  });
}

TreeBuilder::TreeBuilder(Selection selection) : selection_(std::move(selection)) {
  Inode root;
  root.type = FileType::directory;
  root.mode = 0755;
  tree_.inodes_.push_back(root);
  tree_.xattr_sets_.emplace_back();
  known_xattrs_[{}] = 0;
}

void TreeBuilder::set_root(Inode inode, std::vector<Xattr> xattrs) {
  inode.parent = kNoInode;
  inode.name = {};
  apply(inode, std::move(xattrs), "/");
  tree_.inodes_[0] = inode;
}

void TreeBuilder::apply(Inode& inode, std::vector<Xattr> xattrs, std::string_view path_hint) {
  if (selection_.owner) std::tie(inode.uid, inode.gid) = *selection_.owner;
  if (selection_.newest_mtime) inode.mtime = std::min(inode.mtime, *selection_.newest_mtime);
  if (inode.mtime < 0) record_loss("time before 1970 (stored as 1970-01-01)", path_hint);
  if (inode.mtime > kLastTime) record_loss("time after 2106 (stored as 2106-02-07)", path_hint);
  inode.xattrs = 0;
  if (!selection_.xattrs || xattrs.empty()) return;
  bool acl = false;
  bool foreign = false;
  std::erase_if(xattrs, [&](const Xattr& xattr) {
    if (storable(xattr.name)) return false;
    (xattr.name.starts_with("system.posix_acl_") ? acl : foreign) = true;
    return true;
  });
  if (acl) record_loss("POSIX ACL", path_hint);
  if (foreign) record_loss("xattr outside user, trusted and security", path_hint);
  std::ranges::sort(xattrs);
  const auto next = static_cast<std::uint32_t>(tree_.xattr_sets_.size());
  const auto [found, added] = known_xattrs_.emplace(xattrs, next);
  if (added) tree_.xattr_sets_.push_back(std::move(xattrs));
  inode.xattrs = found->second;
}

InodeId TreeBuilder::add(InodeId parent, std::string_view name, Inode inode,
                         std::vector<Xattr> xattrs, std::string_view target) {
  const auto id = checked_cast<InodeId>(tree_.inodes_.size(), "the number of files");
  inode.parent = parent;
  tree_.inodes_.push_back(inode);
  attach(parent, name, id);
  Inode& placed = tree_.inodes_[id];
  placed.name = pending_.back().second.name;
  if (placed.type == FileType::symlink) {
    placed.target = {.offset = tree_.names_.size(),
                     .length = checked_cast<std::uint32_t>(target.size(), "a symlink's target")};
    tree_.names_ += target;
    placed.size = target.size();
    // The kernel rejects targets longer than a page.
    if (target.empty() || target.size() > squashfs::kMaxSymlinkLength) {
      throw Error(ErrorKind::limit,
                  "the symlink /" + tree_.path(id) + " has a target of " +
                      std::to_string(target.size()) + " bytes; an image holds 1 to 4096",
                  "leave it out with --exclude");
    }
  }
  // The path is only made for the few that have something to report.
  const bool remarkable = !xattrs.empty() || inode.mtime < 0 || inode.mtime > kLastTime;
  apply(placed, std::move(xattrs), remarkable ? tree_.path(id) : std::string());
  return id;
}

void TreeBuilder::link(InodeId parent, std::string_view name, InodeId inode) {
  attach(parent, name, inode);
  ++tree_.inodes_[inode].links;
}

void TreeBuilder::attach(InodeId parent, std::string_view name, InodeId inode) {
  if (!legal_name(name)) {
    throw Error(ErrorKind::source, "an illegal file name ('" + std::string(name.substr(0, 40)) +
                                       "', " + std::to_string(name.size()) + " bytes) in /" +
                                       tree_.path(parent));
  }
  pending_.emplace_back(parent, Entry{.name = {.offset = tree_.names_.size(),
                                               .length = static_cast<std::uint32_t>(name.size())},
                                      .inode = inode});
  tree_.names_ += name;
}

void TreeBuilder::record_loss(std::string_view kind, std::string_view path) {
  const auto [found, added] = losses_.try_emplace(std::string(kind));
  if (added) found->second = {.kind = std::string(kind), .count = 0, .example = std::string(path)};
  ++found->second.count;
}

Tree TreeBuilder::finish(std::shared_ptr<const Source> source) {
  tree_.source_ = std::move(source);
  std::ranges::sort(pending_, [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first < b.first;
    return tree_.text(a.second.name) < tree_.text(b.second.name);
  });
  (void)checked_cast<std::uint32_t>(pending_.size(), "the number of names");
  tree_.spans_.assign(tree_.inodes_.size(), {0, 0});
  tree_.entries_.reserve(pending_.size());
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    const auto& [directory, entry] = pending_[i];
    auto& [first, count] = tree_.spans_[directory];
    if (count == 0) first = static_cast<std::uint32_t>(i);
    if (count > 0 && tree_.text(entry.name) == tree_.text(pending_[i - 1].second.name)) {
      throw Error(ErrorKind::source, "the name '" + std::string(tree_.text(entry.name)) +
                                         "' occurs twice in /" + tree_.path(directory));
    }
    ++count;
    tree_.entries_.push_back(entry);
  }
  pending_ = {};
  for (InodeId id = 0; id < tree_.inodes_.size(); ++id) {
    Inode& inode = tree_.inodes_[id];
    inode.mtime = std::clamp<std::int64_t>(inode.mtime, 0, kLastTime);
    if (inode.type != FileType::directory) continue;
    const auto names = tree_.entries(id);
    inode.links = 2 + static_cast<std::uint32_t>(std::ranges::count_if(names, [&](const Entry& e) {
                    return tree_.inodes_[e.inode].type == FileType::directory;
                  }));
  }
  for (auto& [kind, loss] : losses_) tree_.losses_.push_back(std::move(loss));
  return std::move(tree_);
}

Tree select(const Tree& tree, const Selection& selection) {
  TreeBuilder builder(selection);
  std::vector<InodeId> copies(tree.size(), kNoInode);
  const auto xattrs_of = [&](InodeId id) {
    const auto set = tree.xattrs(id);
    return std::vector<Xattr>(set.begin(), set.end());
  };
  const auto blank_links = [&](InodeId id) {
    Inode inode = tree[id];
    inode.links = 1;
    return inode;
  };
  const auto copy = [&](InodeId id, InodeId parent, NameRef name) {
    return builder.add(parent, tree.text(name), blank_links(id), xattrs_of(id),
                       tree.text(tree[id].target));
  };
  builder.set_root(blank_links(0), xattrs_of(0));
  copies[0] = 0;
  // Directories first: a file gathered early may have another name in a directory gathered late.
  for (InodeId id = 1; id < tree.size(); ++id) {
    if (tree[id].type != FileType::directory) continue;
    const InodeId parent = copies[tree[id].parent];
    if (parent == kNoInode || selection.excluded(tree.path(id))) continue;
    copies[id] = copy(id, parent, tree[id].name);
  }
  // Then every other name, in the order the inodes were gathered, so that a copy keeps that order.
  struct Name {
    InodeId inode;
    InodeId directory;
    NameRef name;
  };
  std::vector<Name> names;
  for (InodeId directory = 0; directory < tree.size(); ++directory) {
    if (copies[directory] == kNoInode) continue;
    for (const Entry& entry : tree.entries(directory)) {
      if (tree[entry.inode].type == FileType::directory) continue;
      names.push_back({.inode = entry.inode, .directory = directory, .name = entry.name});
    }
  }
  std::ranges::stable_sort(names, {}, &Name::inode);
  for (const auto& [id, directory, name] : names) {
    std::string path = tree.path(directory);
    if (!path.empty()) path += '/';
    path += tree.text(name);
    if (selection.excluded(path)) continue;
    const InodeId parent = copies[directory];
    if (copies[id] != kNoInode) {
      builder.link(parent, tree.text(name), copies[id]);
    } else {
      copies[id] = copy(id, parent, name);
    }
  }
  for (const Loss& loss : tree.losses()) {
    for (std::uint64_t i = 0; i < loss.count; ++i) builder.record_loss(loss.kind, loss.example);
  }
  return builder.finish(tree.shared_source());
}

}  // namespace bootpress
