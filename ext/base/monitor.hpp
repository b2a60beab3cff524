// SPDX-License-Identifier: GPL-2.0-or-later
//
// How long work reports itself and how it is asked to stop.
#pragma once

#include <cstdint>
#include <string_view>

namespace bootpress {

struct Progress {
  std::string_view stage;  // "gather", "compress", "unpack", …: static text
  std::uint64_t done_bytes = 0;
  std::uint64_t total_bytes = 0;  // 0: unknown
  std::uint64_t done_files = 0;
  std::uint64_t total_files = 0;  // 0: unknown
};

class Monitor {
 public:
  virtual ~Monitor() = default;
  // Called from the thread that started the work, about ten times a second. May throw (usually
  // `interrupted`): the work then stops its workers, cleans up and lets the exception pass.
  virtual void tick(const Progress& progress) = 0;
};

// For callers that neither watch nor stop.
class SilentMonitor final : public Monitor {
 public:
  void tick(const Progress&) override {}
};

}  // namespace bootpress
