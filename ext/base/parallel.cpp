// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/parallel.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace bootpress {

void run_parallel(unsigned threads, std::uint64_t count, const std::function<Job()>& make_worker,
                  Monitor& monitor, const std::function<Progress()>& progress) {
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable ended;
  unsigned running = threads;
  std::exception_ptr first_error;

  const auto work = [&] {
    try {
      const Job job = make_worker();
      while (!stop.load(std::memory_order_relaxed)) {
        const std::uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
        if (number >= count) break;
        job(number);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first_error) first_error = std::current_exception();
      stop = true;
    }
    const std::lock_guard lock(mutex);
    --running;
    ended.notify_one();
  };

  std::vector<std::jthread> pool;
  pool.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) pool.emplace_back(work);

  std::exception_ptr stopped_by;
  {
    std::unique_lock lock(mutex);
    // At least one tick, however short the work: a pending signal is noticed at every stage.
    do {
      ended.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; });
      if (stopped_by) continue;
      lock.unlock();
      try {
        monitor.tick(progress());
      } catch (...) {
        stopped_by = std::current_exception();
        stop = true;
      }
      lock.lock();
    } while (running > 0);
  }
  pool.clear();
  if (first_error) std::rethrow_exception(first_error);
  if (stopped_by) std::rethrow_exception(stopped_by);
}

}  // namespace bootpress
