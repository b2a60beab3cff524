// SPDX-License-Identifier: GPL-2.0-or-later
#include "pack/similarity.hpp"

#include <algorithm>
#include <string_view>
#include <tuple>

namespace bootpress {
namespace {

// What follows the last dot; empty where there is none or the name starts with it.
std::string_view extension(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos || dot == 0 ? std::string_view{} : name.substr(dot + 1);
}

}  // namespace

std::vector<InodeId> order_by_similarity(const Tree& tree, std::span<const InodeId> files,
                                         [[maybe_unused]] std::uint32_t block_size,
                                         [[maybe_unused]] unsigned jobs,
                                         [[maybe_unused]] Monitor& monitor) {
  std::vector<InodeId> order(files.begin(), files.end());
  std::ranges::stable_sort(order, {}, [&](InodeId id) {
    const std::string_view name = tree.text(tree[id].name);
    return std::tuple(extension(name), name);
  });
  return order;
}

}  // namespace bootpress
