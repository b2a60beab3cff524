// SPDX-License-Identifier: GPL-2.0-or-later
//
// Four steps, each with one result per tail or per pair, so that threads cannot change it:
//
//   sketch   every tail becomes a set of features: hashes of the 8-byte strings in it that a hash
//            selects, the same strings in every file wherever they stand;
//   relate   two tails that share features are joined by an edge, weighted with their number;
//   cluster  edges are taken heaviest first; each joins two clusters where the sum of their bytes
//            still fits a block (Kruskal's algorithm with a limit);
//   pack     clusters are laid into fragments, those of a kind in path order, into the fullest of
//            a few open fragments that takes them; inside a cluster, tails that share most stand
//            side by side.
//
// Why features and not names: a directory's neighbours are alike in a source tree, equal names
// in a tree of translations, neither among kernel modules. Shared bytes are what every codec
// saves, so the edges' weight estimates the gain itself. tests/bench/ORDER.md has the figures.
#include "pack/similarity.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/bytes.hpp"
#include "base/parallel.hpp"

namespace bootpress {
namespace {

using Feature = std::uint32_t;
// A tail's place in `files`: path order.
using Place = std::uint32_t;

// The percentages below are of the fragments' size on a system tree at 128 KiB / 1 MiB blocks; the
// table behind them is in tests/bench/ORDER.md.
//
// About how many features all tails together may yield, which bounds time and memory: finer
// sketches of small trees, coarser ones of large trees. Half of it loses 0.4% / 0.4%, the double
// gains 0.2% / 0.2%.
constexpr std::uint64_t kFeatureBudget = 3'000'000;
// Bytes per feature, at the finest. Half of it changes small trees by -0.5% to +0.2%, for up to
// twice the features.
constexpr std::uint64_t kFinest = 64;
// A feature that more tails share says little (headers, padding, licences) and costs its square.
// 100 loses 0.2% / 0.1%; 400 is alike.
constexpr std::size_t kMostSharers = 200;
// Fewer shared features are chance, and such pairs are many. 1 to 5 are within 0.1%.
constexpr std::uint32_t kLeastShared = 3;
// Edges kept from one tail to later ones, the heaviest, which bounds memory. 8 loses 0.1% / 0.2%,
// all of them gain nothing.
constexpr std::ptrdiff_t kMostEdges = 32;
// Fragments held open while packing. One loses 0.2% / 1.1% and leaves 7% / 11% more fragments;
// 2 to 4 are alike, 8 mixes what is unlike.
constexpr std::size_t kOpenFragments = 3;
// Tails and pairs per job: enough that handing out costs nothing, few enough to share evenly.
constexpr std::size_t kTailsPerJob = 64;

// What a fragment should not mix, judged by the bytes themselves: each has its own statistics.
// Worth 0.2% / 0.1%.
enum class Kind : std::uint8_t { text, binary, dense };

struct Tail {
  std::uint64_t size = 0;
  Kind kind = Kind::binary;
  std::vector<Feature> features;  // ascending, each once
};

struct Edge {
  std::uint32_t shared;
  Place a;
  Place b;
};

// The selected strings of `tail`: one in `rate`, by their hash. Runs of zeros hash to 0 and are
// never among them.
std::vector<Feature> sketch(ByteView tail, std::uint64_t rate) {
  constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio, odd
  std::vector<Feature> features;
  const std::uint64_t limit = ~std::uint64_t{0} - ~std::uint64_t{0} / rate;
  const auto look = [&](const std::byte* at) {
    const std::uint64_t hash = load_le<std::uint64_t>(at) * kSpread;
    if (hash <= limit) [[likely]] {
      return;
    }
    const auto feature = static_cast<Feature>(hash >> 16);
    if (features.empty() || features.back() != feature) features.push_back(feature);
  };
  const std::byte* at = tail.data();
  const std::byte* const end = at + tail.size();
  // Four at a time takes a quarter off the time of the whole step, reading included.
  for (; end - at >= 11; at += 4) {
    look(at);
    look(at + 1);
    look(at + 2);
    look(at + 3);
  }
  for (; end - at >= 8; ++at) look(at);
  std::ranges::sort(features);
  const auto repeated = std::ranges::unique(features);
  features.erase(repeated.begin(), repeated.end());
  return features;
}

// Judges up to 1 KiB from the middle, away from headers.
Kind judge_kind(ByteView tail) {
  constexpr std::size_t kSample = 1024;
  const std::size_t length = std::min(kSample, tail.size());
  const ByteView sample = tail.subspan((tail.size() - length) / 2, length);
  std::array<bool, 256> seen{};
  std::size_t control = 0;
  for (const std::byte byte : sample) {
    const auto value = std::to_integer<unsigned>(byte);
    seen[value] = true;
    if (value < 32 && value != '\n' && value != '\t' && value != '\r' && value != '\f') ++control;
  }
  if (control * 50 < length) return Kind::text;
  // Random bytes show 256 * (1 - exp(-n / 256)) different values; code and tables far fewer.
  const double expected = 256 * (1 - std::exp(-static_cast<double>(length) / 256));
  const auto distinct = static_cast<double>(std::ranges::count(seen, true));
  return distinct > 0.9 * expected ? Kind::dense : Kind::binary;
}

std::vector<Tail> read_tails(const Tree& tree, std::span<const InodeId> files,
                             std::uint32_t block_size, unsigned jobs, Monitor& monitor) {
  std::vector<Tail> tails(files.size());
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    tails[i].size = tree[files[i]].size % block_size;
    total += tails[i].size;
  }
  const std::uint64_t rate = std::max(kFinest, total / kFeatureBudget);

  const auto make_reader = [&]() -> Job {
    return [&, buffer = std::vector<std::byte>(block_size)](std::uint64_t job) mutable {
      const std::size_t first = job * kTailsPerJob;
      const std::size_t last = std::min(first + kTailsPerJob, files.size());
      for (std::size_t i = first; i < last; ++i) {
        const ByteSpan bytes = std::span(buffer).first(tails[i].size);
        if (bytes.empty()) continue;
        tree.source().open(tree, files[i])->read(tree[files[i]].size - bytes.size(), bytes);
        tails[i].kind = judge_kind(bytes);
        tails[i].features = sketch(bytes, rate);
      }
    };
  };
  run_parallel(jobs, (files.size() + kTailsPerJob - 1) / kTailsPerJob, make_reader, monitor,
               [&] { return Progress{.stage = "order", .total_files = files.size()}; });
  return tails;
}

// For each feature that two to kMostSharers tails have: those tails, ascending.
struct Index {
  static constexpr Place kLast = 0x80000000;  // marks the end of a feature's list
  std::vector<Place> sharers;
  // Per tail: where it stands in `sharers`; tail i has slots[starts[i]] to slots[starts[i + 1] -
  // 1].
  std::vector<std::uint32_t> slots;
  std::vector<std::uint32_t> starts;
};

// Groups equal features by a stable radix sort of (feature, place) pairs, 11 bits at a time.
void sort_by_feature(std::vector<std::uint64_t>& pairs) {
  std::vector<std::uint64_t> sorted(pairs.size());
  for (const int shift : {32, 43, 54}) {
    std::array<std::size_t, 2048> begins{};
    const auto digit = [&](std::uint64_t pair) { return (pair >> shift) & 2047; };
    for (const std::uint64_t pair : pairs) ++begins[digit(pair)];
    std::exclusive_scan(begins.begin(), begins.end(), begins.begin(), std::size_t{0});
    for (const std::uint64_t pair : pairs) sorted[begins[digit(pair)]++] = pair;
    pairs.swap(sorted);
  }
}

std::vector<std::uint64_t> take_pairs(std::vector<Tail>& tails) {
  std::size_t count = 0;
  for (const Tail& tail : tails) count += tail.features.size();
  std::vector<std::uint64_t> pairs;
  pairs.reserve(count);
  for (std::size_t i = 0; i < tails.size(); ++i) {
    for (const Feature feature : std::exchange(tails[i].features, {})) {
      pairs.push_back(std::uint64_t{feature} << 32 | i);
    }
  }
  return pairs;
}

std::vector<Place> list_sharers(std::span<const std::uint64_t> sorted) {
  std::vector<Place> sharers;
  for (auto at = sorted.begin(); at != sorted.end();) {
    const auto end =
        std::find_if(at, sorted.end(), [&](std::uint64_t pair) { return pair >> 32 != *at >> 32; });
    const auto count = static_cast<std::size_t>(end - at);
    if (count >= 2 && count <= kMostSharers) {
      for (; at != end; ++at) sharers.push_back(static_cast<Place>(*at));
      sharers.back() |= Index::kLast;
    }
    at = end;
  }
  return sharers;
}

Index index_features(std::vector<Tail>& tails) {
  Index index;
  {
    std::vector<std::uint64_t> pairs = take_pairs(tails);
    sort_by_feature(pairs);
    index.sharers = list_sharers(pairs);
  }
  index.starts.resize(tails.size() + 1);
  for (const Place place : index.sharers) ++index.starts[(place & ~Index::kLast) + 1];
  std::inclusive_scan(index.starts.begin(), index.starts.end(), index.starts.begin());
  index.slots.resize(index.sharers.size());
  std::vector<std::uint32_t> next(index.starts.begin(), index.starts.end() - 1);
  for (std::uint32_t slot = 0; slot < index.sharers.size(); ++slot) {
    index.slots[next[index.sharers[slot] & ~Index::kLast]++] = slot;
  }
  return index;
}

// Counts what one tail shares with each later one.
class EdgeFinder {
 public:
  EdgeFinder(const Index& index, std::span<const Tail> tails, std::uint32_t block_size)
      : index_(index), tails_(tails), block_size_(block_size), shared_(tails.size()) {}

  void find(Place a, std::vector<Edge>& edges) {
    met_.clear();
    for (std::uint32_t i = index_.starts[a]; i < index_.starts[a + 1]; ++i) {
      std::uint32_t slot = index_.slots[i];
      while ((index_.sharers[slot] & Index::kLast) == 0) {
        const Place b = index_.sharers[++slot] & ~Index::kLast;
        if (shared_[b]++ == 0) met_.push_back(b);
      }
    }
    const auto first = static_cast<std::ptrdiff_t>(edges.size());
    for (const Place b : met_) {
      const std::uint32_t shared = std::exchange(shared_[b], 0);
      if (shared >= kLeastShared && tails_[a].size + tails_[b].size <= block_size_) {
        edges.push_back({shared, a, b});
      }
    }
    keep_heaviest(edges, first);
  }

 private:
  static void keep_heaviest(std::vector<Edge>& edges, std::ptrdiff_t first) {
    const auto begin = edges.begin() + first;
    if (edges.end() - begin <= kMostEdges) return;
    std::partial_sort(begin, begin + kMostEdges, edges.end(), [](const Edge& x, const Edge& y) {
      return x.shared != y.shared ? x.shared > y.shared : x.b < y.b;
    });
    edges.erase(begin + kMostEdges, edges.end());
  }

  const Index& index_;
  std::span<const Tail> tails_;
  std::uint32_t block_size_;
  std::vector<std::uint32_t> shared_;  // with the tail at work; zero between calls
  std::vector<Place> met_;
};

// The edges in the order in which they are found, tail by tail.
std::vector<std::vector<Edge>> relate(const Index& index, std::span<const Tail> tails,
                                      std::uint32_t block_size, unsigned jobs, Monitor& monitor) {
  std::vector<std::vector<Edge>> found((tails.size() + kTailsPerJob - 1) / kTailsPerJob);
  const auto make_finder = [&]() -> Job {
    return [&, finder = EdgeFinder(index, tails, block_size)](std::uint64_t job) mutable {
      const std::size_t first = job * kTailsPerJob;
      const std::size_t last = std::min(first + kTailsPerJob, tails.size());
      for (std::size_t i = first; i < last; ++i) finder.find(static_cast<Place>(i), found[job]);
    };
  };
  run_parallel(jobs, found.size(), make_finder, monitor, [] { return Progress{.stage = "order"}; });
  return found;
}

// Heaviest first, equal ones as found: a counting sort, since weights are small.
std::vector<Edge> sort_edges(std::vector<std::vector<Edge>> found) {
  std::uint32_t heaviest = 0;
  std::size_t count = 0;
  for (const std::vector<Edge>& edges : found) {
    count += edges.size();
    for (const Edge& edge : edges) heaviest = std::max(heaviest, edge.shared);
  }
  std::vector<std::size_t> begins(std::size_t{heaviest} + 1);
  for (const std::vector<Edge>& edges : found) {
    for (const Edge& edge : edges) ++begins[heaviest - edge.shared];
  }
  std::exclusive_scan(begins.begin(), begins.end(), begins.begin(), std::size_t{0});
  std::vector<Edge> sorted(count);
  for (std::vector<Edge>& edges : found) {
    for (const Edge& edge : edges) sorted[begins[heaviest - edge.shared]++] = edge;
    std::vector<Edge>().swap(edges);
  }
  return sorted;
}

// Which of a number of sets a tail is in; joined sets have one leader, the first in path order.
class DisjointSets {
 public:
  explicit DisjointSets(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), Place{0});
  }
  [[nodiscard]] Place leader(Place place) {
    while (parent_[place] != place) place = parent_[place] = parent_[parent_[place]];
    return place;
  }
  // REQUIRES: two different leaders.
  void join(Place a, Place b) { parent_[std::max(a, b)] = std::min(a, b); }

 private:
  std::vector<Place> parent_;
};

// What shares a fragment: per tail the leader of its cluster. None is larger than a block.
struct Clusters {
  std::vector<Place> leaders;
  std::vector<std::uint64_t> bytes;  // at a leader: of its cluster
};

Clusters cluster_tails(std::span<const Edge> edges, std::span<const Tail> tails,
                       std::uint32_t block_size) {
  DisjointSets sets(tails.size());
  Clusters clusters;
  clusters.bytes.reserve(tails.size());
  for (const Tail& tail : tails) clusters.bytes.push_back(tail.size);
  for (const Edge& edge : edges) {
    const Place a = sets.leader(edge.a);
    const Place b = sets.leader(edge.b);
    const std::uint64_t sum = clusters.bytes[a] + clusters.bytes[b];
    if (a == b || sum > block_size) continue;
    sets.join(a, b);
    clusters.bytes[std::min(a, b)] = sum;
  }
  clusters.leaders.resize(tails.size());
  for (Place place = 0; place < tails.size(); ++place) clusters.leaders[place] = sets.leader(place);
  return clusters;
}

// Orders the tails inside each cluster: heaviest edges first again, each tail takes at most two,
// none closes a ring, so chains remain. Nothing to a codec whose window is the block; against path
// order inside the cluster, lz4 gains 0.4% / 0.9% and gzip 0.4% / 0.7%.
class Chains {
 public:
  Chains(std::span<const Edge> edges, const Clusters& clusters)
      : links_(clusters.leaders.size(), {kNone, kNone}), placed_(clusters.leaders.size()) {
    DisjointSets sets(clusters.leaders.size());
    for (const Edge& edge : edges) {
      if (clusters.leaders[edge.a] != clusters.leaders[edge.b]) continue;
      if (links_[edge.a][1] != kNone || links_[edge.b][1] != kNone) continue;
      const Place a = sets.leader(edge.a);
      const Place b = sets.leader(edge.b);
      if (a == b) continue;
      sets.join(a, b);
      link(edge.a, edge.b);
      link(edge.b, edge.a);
    }
  }

  // Appends `members` of a cluster, chain by chain, each from its end that comes first.
  void append(std::span<const Place> members, std::vector<Place>& order) {
    for (const Place member : members) {
      if (placed_[member] || links_[member][1] != kNone) continue;
      for (Place at = member; at != kNone; at = unplaced_neighbour(at)) {
        placed_[at] = true;
        order.push_back(at);
      }
    }
  }

 private:
  static constexpr Place kNone = 0xffffffff;

  void link(Place from, Place to) { links_[from][links_[from][0] == kNone ? 0 : 1] = to; }
  [[nodiscard]] Place unplaced_neighbour(Place place) const {
    for (const Place other : links_[place]) {
      if (other != kNone && !placed_[other]) return other;
    }
    return kNone;
  }

  std::vector<std::array<Place, 2>> links_;
  std::vector<bool> placed_;
};

// The members of each cluster, kinds apart and in path order of their leaders.
std::vector<std::vector<Place>> list_clusters(const Clusters& clusters,
                                              std::span<const Tail> tails) {
  std::vector<std::vector<Place>> lists;
  std::vector<std::uint32_t> list_of(tails.size());
  for (Place place = 0; place < tails.size(); ++place) {
    const Place leader = clusters.leaders[place];
    if (leader == place) {
      list_of[place] = static_cast<std::uint32_t>(lists.size());
      lists.emplace_back();
    }
    lists[list_of[leader]].push_back(place);
  }
  std::ranges::stable_sort(lists, {}, [&](const auto& list) { return tails[list.front()].kind; });
  return lists;
}

struct Fragment {
  std::vector<Place> tails;
  std::uint64_t room;
};

// Lays clusters into fragments, in the order in which the fragments are filled up.
std::vector<Fragment> pack_clusters(const Clusters& clusters, Chains& chains,
                                    std::span<const Tail> tails, std::uint32_t block_size) {
  std::vector<Fragment> closed;
  std::vector<Fragment> open;
  const auto close_fullest = [&] {
    const auto fullest = std::ranges::min_element(open, {}, &Fragment::room);
    closed.push_back(std::move(*fullest));
    open.erase(fullest);
  };
  for (const std::vector<Place>& members : list_clusters(clusters, tails)) {
    const std::uint64_t bytes = clusters.bytes[members.front()];
    Fragment* best = nullptr;
    for (Fragment& fragment : open) {
      if (fragment.room >= bytes && (!best || fragment.room < best->room)) best = &fragment;
    }
    if (!best) {
      if (open.size() == kOpenFragments) close_fullest();
      best = &open.emplace_back(Fragment{{}, block_size});
    }
    best->room -= bytes;
    chains.append(members, best->tails);
  }
  while (!open.empty()) close_fullest();
  return closed;
}

// Writes the fragments one after the other so that a planner which fills one after the other finds
// the same borders: what follows a fragment begins with a tail that its gap cannot take. Where the
// next fragment has no such tail, one of the next few goes first.
std::vector<Place> arrange(std::vector<Fragment> fragments, std::span<const Tail> tails) {
  constexpr std::ptrdiff_t kChoice = 64;
  std::vector<Place> order;
  order.reserve(tails.size());
  std::uint64_t gap = 0;
  const auto too_large = [&](Place place) { return tails[place].size > gap; };
  for (auto next = fragments.begin(); next != fragments.end(); ++next) {
    const auto end = next + std::min(kChoice, fragments.end() - next);
    const auto fitting = std::find_if(next, end, [&](const Fragment& fragment) {
      return std::ranges::any_of(fragment.tails, too_large);
    });
    if (fitting != end) {
      std::swap(*next, *fitting);
      std::ranges::rotate(next->tails, std::ranges::find_if(next->tails, too_large));
    }
    order.insert(order.end(), next->tails.begin(), next->tails.end());
    gap = next->room;
  }
  return order;
}

}  // namespace

std::vector<InodeId> order_by_similarity(const Tree& tree, std::span<const InodeId> files,
                                         std::uint32_t block_size, unsigned jobs,
                                         Monitor& monitor) {
  std::vector<Tail> tails = read_tails(tree, files, block_size, jobs, monitor);
  const std::vector<Edge> edges =
      sort_edges(relate(index_features(tails), tails, block_size, jobs, monitor));
  const Clusters clusters = cluster_tails(edges, tails, block_size);
  Chains chains(edges, clusters);

  std::vector<InodeId> order;
  order.reserve(files.size());
  for (const Place place : arrange(pack_clusters(clusters, chains, tails, block_size), tails)) {
    order.push_back(files[place]);
  }
  return order;
}

}  // namespace bootpress
