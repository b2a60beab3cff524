// SPDX-License-Identifier: GPL-2.0-or-later
//
// Compares two trees: first the names and attributes, merged in one walk, then the content of the
// regular files in parallel.
#include "image/compare.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/parallel.hpp"
#include "image/content.hpp"

namespace bootpress {

namespace {

constexpr std::array<std::string_view, 12> kAspects = {
    "only in a", "only in b", "type",   "mode",   "owner",  "mtime",
    "size",      "content",   "target", "device", "xattrs", "hard links"};

std::size_t aspect_rank(std::string_view what) {
  return static_cast<std::size_t>(std::ranges::find(kAspects, what) - kAspects.begin());
}

std::string octal(std::uint32_t mode) {
  std::string digits;
  for (int shift = 9; shift >= 0; shift -= 3) {
    digits += static_cast<char>('0' + (mode >> shift & 7U));
  }
  return digits;
}

std::string owner_text(const Inode& inode) {
  return std::to_string(inode.uid) + ":" + std::to_string(inode.gid);
}

std::string device_text(const Inode& inode) {
  return std::to_string(inode.device_major) + ":" + std::to_string(inode.device_minor);
}

// "security.capability, user.note (12 bytes)": the names that differ or stand alone.
std::string xattrs_text(std::span<const Xattr> set, std::span<const Xattr> other) {
  std::string text;
  for (const Xattr& xattr : set) {
    if (std::ranges::find(other, xattr) != other.end()) continue;
    if (!text.empty()) text += ", ";
    text += xattr.name + " (" + std::to_string(xattr.value.size()) + " bytes)";
  }
  return text;
}

// A file in both trees whose content is still to be compared.
struct ContentCheck {
  std::string path;
  InodeId a = kNoInode;
  InodeId b = kNoInode;
};

// Names of inodes that have more than one, to compare which names belong together.
class LinkGroups {
 public:
  void add(InodeId inode, std::uint32_t name) { groups_[inode].push_back(name); }
  [[nodiscard]] std::span<const std::uint32_t> names(InodeId inode) const {
    const auto found = groups_.find(inode);
    return found == groups_.end() ? std::span<const std::uint32_t>{} : found->second;
  }

 private:
  std::unordered_map<InodeId, std::vector<std::uint32_t>> groups_;  // ascending
};

class Comparison {
 public:
  Comparison(const Tree& a, const Tree& b, const CompareOptions& options, Monitor& monitor)
      : a_(a), b_(b), options_(options), monitor_(monitor) {}

  std::vector<Difference> run() {
    walk_names();
    compare_links();
    compare_contents();
    std::ranges::stable_sort(differences_, {}, [](const Difference& difference) {
      return std::pair<std::string_view, std::size_t>(difference.path,
                                                      aspect_rank(difference.what));
    });
    return std::move(differences_);
  }

 private:
  struct Pair {
    std::string path;
    InodeId a;
    InodeId b;
  };

  void report(const std::string& path, std::string_view what, std::string a = {},
              std::string b = {}) {
    differences_.push_back({path, std::string(what), std::move(a), std::move(b)});
  }

  void walk_names() {
    std::vector<Pair> directories;
    compare_inodes({"", 0, 0});
    directories.push_back({"", 0, 0});
    while (!directories.empty()) {
      const Pair pair = std::move(directories.back());
      directories.pop_back();
      merge_entries(pair, directories);
    }
  }

  static std::string join(const std::string& path, std::string_view name) {
    return path.empty() ? std::string(name) : path + "/" + std::string(name);
  }

  void merge_entries(const Pair& parent, std::vector<Pair>& directories) {
    const std::span<const Entry> in_a = a_.entries(parent.a);
    const std::span<const Entry> in_b = b_.entries(parent.b);
    std::size_t i = 0;
    std::size_t j = 0;
    while (i < in_a.size() || j < in_b.size()) {
      const int order = i == in_a.size()   ? 1
                        : j == in_b.size() ? -1
                                           : a_.text(in_a[i].name).compare(b_.text(in_b[j].name));
      if (order < 0) {
        only_in(a_, "only in a", join(parent.path, a_.text(in_a[i].name)), in_a[i].inode);
        ++i;
      } else if (order > 0) {
        only_in(b_, "only in b", join(parent.path, b_.text(in_b[j].name)), in_b[j].inode);
        ++j;
      } else {
        Pair pair{join(parent.path, a_.text(in_a[i].name)), in_a[i].inode, in_b[j].inode};
        ++i;
        ++j;
        if (compare_inodes(pair)) directories.push_back(std::move(pair));
      }
    }
  }

  void only_in(const Tree& tree, std::string_view what, const std::string& path, InodeId id) {
    const std::string type(file_type_name(tree[id].type));
    const bool is_a = &tree == &a_;
    report(path, what, is_a ? type : "", is_a ? "" : type);
    note_subtree(tree, is_a ? links_a_ : links_b_, id);
  }

  // Names in one tree only still count as members of their group of hard links.
  void note_subtree(const Tree& tree, LinkGroups& links, InodeId top) {
    std::vector<InodeId> pending{top};
    while (!pending.empty()) {
      const InodeId id = pending.back();
      pending.pop_back();
      if (tree[id].type == FileType::directory) {
        for (const Entry& entry : tree.entries(id)) pending.push_back(entry.inode);
      } else if (tree[id].links > 1) {
        links.add(id, next_name_++);
      }
    }
  }

  // True for two directories: what is in them is to be compared too.
  bool compare_inodes(const Pair& pair) {
    const Inode& a = a_[pair.a];
    const Inode& b = b_[pair.b];
    note_links(pair);
    if (a.type != b.type) {
      report(pair.path, "type", std::string(file_type_name(a.type)),
             std::string(file_type_name(b.type)));
      if (a.type == FileType::directory) note_subtree(a_, links_a_, pair.a);
      if (b.type == FileType::directory) note_subtree(b_, links_b_, pair.b);
      return false;
    }
    compare_attributes(pair);
    compare_by_type(pair);
    return a.type == FileType::directory;
  }

  void compare_attributes(const Pair& pair) {
    const Inode& a = a_[pair.a];
    const Inode& b = b_[pair.b];
    // The mode of a symbolic link has no meaning on Linux, and no system call sets it.
    if (a.mode != b.mode && a.type != FileType::symlink) {
      report(pair.path, "mode", octal(a.mode), octal(b.mode));
    }
    if (options_.owners && (a.uid != b.uid || a.gid != b.gid)) {
      report(pair.path, "owner", owner_text(a), owner_text(b));
    }
    // An image cannot hold other times: a tree that is packed has them clamped.
    const std::int64_t mtime = std::clamp<std::int64_t>(a.mtime, 0, 0xffffffff);
    if (options_.times && mtime != b.mtime) {
      report(pair.path, "mtime", std::to_string(a.mtime), std::to_string(b.mtime));
    }
    const auto set_a = a_.xattrs(pair.a);
    const auto set_b = b_.xattrs(pair.b);
    if (options_.xattrs && !std::ranges::equal(set_a, set_b)) {
      report(pair.path, "xattrs", xattrs_text(set_a, set_b), xattrs_text(set_b, set_a));
    }
  }

  void compare_by_type(const Pair& pair) {
    const Inode& a = a_[pair.a];
    const Inode& b = b_[pair.b];
    switch (a.type) {
      case FileType::file:
        if (a.size != b.size) {
          report(pair.path, "size", std::to_string(a.size), std::to_string(b.size));
        } else if (a.size > 0) {
          checks_.push_back({pair.path, pair.a, pair.b});
        }
        break;
      case FileType::symlink:
        if (a_.text(a.target) != b_.text(b.target)) {
          report(pair.path, "target", std::string(a_.text(a.target)),
                 std::string(b_.text(b.target)));
        }
        break;
      case FileType::block_device:
      case FileType::char_device:
        if (a.device_major != b.device_major || a.device_minor != b.device_minor) {
          report(pair.path, "device", device_text(a), device_text(b));
        }
        break;
      case FileType::directory:
      case FileType::fifo:
      case FileType::socket:
        break;
    }
  }

  // Remembers a name in both trees that has siblings in one of them.
  void note_links(const Pair& pair) {
    const bool in_a = a_[pair.a].type != FileType::directory && a_[pair.a].links > 1;
    const bool in_b = b_[pair.b].type != FileType::directory && b_[pair.b].links > 1;
    if (!in_a && !in_b) return;
    const std::uint32_t name = next_name_++;
    if (in_a) links_a_.add(pair.a, name);
    if (in_b) links_b_.add(pair.b, name);
    linked_.push_back(pair);
  }

  void compare_links() {
    std::map<std::pair<InodeId, InodeId>, bool> known;  // whether two groups are the same
    for (const Pair& pair : linked_) {
      const auto names_a = links_a_.names(pair.a);
      const auto names_b = links_b_.names(pair.b);
      const auto [found, is_new] = known.try_emplace({pair.a, pair.b}, false);
      if (is_new) found->second = std::ranges::equal(names_a, names_b);
      if (found->second) continue;
      report(pair.path, "hard links", links_text(a_, pair.a, names_a.size()),
             links_text(b_, pair.b, names_b.size()));
    }
  }

  static std::string links_text(const Tree& tree, InodeId inode, std::size_t names) {
    if (names < 2) return "one name";
    return std::to_string(names) + " names, the first " + tree.path(inode);
  }

  // Each pair of contents is compared once, however many names lead to it.
  void compare_contents() {
    ContentPairs pairs(a_, b_);
    std::vector<std::size_t> pair_of;
    pair_of.reserve(checks_.size());
    for (const ContentCheck& check : checks_) pair_of.push_back(pairs.add(check.a, check.b));
    const std::vector<ContentResult> results = pairs.compare(options_.jobs, monitor_);
    for (std::size_t i = 0; i < checks_.size(); ++i) {
      const ContentResult& result = results[pair_of[i]];
      if (!result.differs_at) continue;
      report(checks_[i].path, "content", "differs from byte " + std::to_string(*result.differs_at));
    }
  }

  const Tree& a_;
  const Tree& b_;
  const CompareOptions& options_;
  Monitor& monitor_;
  std::vector<Difference> differences_;
  std::vector<ContentCheck> checks_;
  std::vector<Pair> linked_;
  LinkGroups links_a_;
  LinkGroups links_b_;
  std::uint32_t next_name_ = 0;
};

}  // namespace

std::vector<Difference> compare_trees(const Tree& a, const Tree& b, const CompareOptions& options,
                                      Monitor& monitor) {
  return Comparison(a, b, options, monitor).run();
}

}  // namespace bootpress
