// SPDX-License-Identifier: GPL-2.0-or-later
//
// Runs independent jobs on N threads. The first error wins, cancels the rest and is rethrown.
#pragma once

#include <cstdint>
#include <functional>

#include "base/monitor.hpp"

namespace bootpress {

// Calls make_worker() once on each of `threads` threads (>= 1), then that worker's function with
// job numbers 0..count-1, handed out in ascending order. The calling thread ticks `monitor` with
// what `progress` returns, and rethrows what the monitor or the first failing worker threw, after
// all threads have ended.
using Job = std::function<void(std::uint64_t)>;
void run_parallel(unsigned threads, std::uint64_t count, const std::function<Job()>& make_worker,
                  Monitor& monitor, const std::function<Progress()>& progress);

}  // namespace bootpress
