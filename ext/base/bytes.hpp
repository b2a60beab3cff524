// SPDX-License-Identifier: GPL-2.0-or-later
//
// Little-endian loads and stores, checked narrowing, and a bounds-checked
// cursor for untrusted bytes. SquashFS 4.0 is little-endian throughout.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace bootpress {

using ByteView = std::span<const std::byte>;
using ByteSpan = std::span<std::byte>;

static_assert(std::endian::native == std::endian::little,
              "the loads and stores below copy native words");

template <std::integral T>
[[nodiscard]] inline T load_le(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <std::integral T>
inline void store_le(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// Converts between integer types; a value that does not fit is a `limit` error naming `what`.
template <std::integral To, std::integral From>
[[nodiscard]] inline To checked_cast(From value, std::string_view what) {
  if (!std::in_range<To>(value)) {
    throw Error(ErrorKind::limit, std::string(what) + " does not fit its field in the image (" +
                                      std::to_string(value) + ")");
  }
  return static_cast<To>(value);
}

[[nodiscard]] inline ByteView as_view(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

[[nodiscard]] inline std::string_view as_text(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[nodiscard]] inline bool all_zero(ByteView bytes) {
  // memcmp of the range with itself shifted by one is the fastest portable form.
  return bytes.empty() || (bytes[0] == std::byte{0} &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

// Appends little-endian fields to a growing buffer.
class ByteWriter {
 public:
  template <std::integral T>
  ByteWriter& put(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    store_le(bytes_.data() + at, value);
    return *this;
  }
  ByteWriter& put(ByteView bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] ByteView view() const { return bytes_; }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }
  void clear() { bytes_.clear(); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads little-endian fields from untrusted bytes; running out is a `corrupt` error naming `what`.
class ByteReader {
 public:
  ByteReader(ByteView bytes, std::string_view what) : bytes_(bytes), what_(what) {}

  template <std::integral T>
  T get() {
    return load_le<T>(get(sizeof(T)).data());
  }
  ByteView get(std::size_t count) {
    if (count > bytes_.size()) {
      throw Error(ErrorKind::corrupt, std::string(what_) + " ends early");
    }
    const ByteView taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  [[nodiscard]] std::size_t remaining() const { return bytes_.size(); }

 private:
  ByteView bytes_;
  std::string_view what_;
};

}  // namespace bootpress
