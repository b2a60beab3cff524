// SPDX-License-Identifier: GPL-2.0-or-later
//
// A tree whose content is made up in memory: what native tests pack.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tree/tree.hpp"

namespace bootpress::testing {

// Serves contents by Inode::data. `before_read` may sleep, or throw what a failing disk would.
class MemorySource final : public Source {
 public:
  std::vector<std::string> contents;
  std::function<void(InodeId)> before_read = [](InodeId) {};

  [[nodiscard]] std::unique_ptr<FileReader> open(const Tree& tree, InodeId file) const override {
    class Reader final : public FileReader {
     public:
      Reader(const MemorySource& source, InodeId file, std::uint64_t data)
          : source_(source), file_(file), data_(data) {}
      void read(std::uint64_t offset, ByteSpan out) override {
        source_.before_read(file_);
        const std::string& content = source_.contents.at(data_);
        if (offset + out.size() > content.size()) throw Error(ErrorKind::changed, "shrank");
        std::memcpy(out.data(), content.data() + offset, out.size());
      }

     private:
      const MemorySource& source_;
      InodeId file_;
      std::uint64_t data_;
    };
    return std::make_unique<Reader>(*this, file, tree[file].data);
  }
};

// Builds a tree from paths; directories are made as needed.
class MemoryTree {
 public:
  InodeId directory(const std::string& path) {
    if (path.empty()) return 0;
    if (const auto known = directories_.find(path); known != directories_.end()) {
      return known->second;
    }
    Inode inode;
    inode.type = FileType::directory;
    inode.mode = 0755;
    const auto [parent, name] = split(path);
    return directories_[path] = builder_.add(parent, name, inode, {});
  }
  InodeId file(const std::string& path, std::string content, std::vector<Xattr> xattrs = {}) {
    Inode inode;
    inode.mode = 0644;
    inode.size = content.size();
    inode.data = source_->contents.size();
    source_->contents.push_back(std::move(content));
    const auto [parent, name] = split(path);
    return builder_.add(parent, name, inode, std::move(xattrs));
  }
  void link(const std::string& path, InodeId to) {
    const auto [parent, name] = split(path);
    builder_.link(parent, name, to);
  }
  MemorySource& source() { return *source_; }
  Tree finish() { return builder_.finish(source_); }

 private:
  std::pair<InodeId, std::string> split(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return {0, path};
    return {directory(path.substr(0, slash)), path.substr(slash + 1)};
  }
  TreeBuilder builder_;
  std::shared_ptr<MemorySource> source_ = std::make_shared<MemorySource>();
  std::map<std::string, InodeId> directories_;
};

// Text that compresses about as program text does, different for each seed.
inline std::string made_up_text(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string text;
  text.reserve(size + 16);
  while (text.size() < size) text += "word" + std::to_string(random() % 997) + ' ';
  text.resize(size);
  return text;
}

inline std::string made_up_noise(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string noise(size, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  return noise;
}

}  // namespace bootpress::testing
