// SPDX-License-Identifier: Apache-2.0
// One thread for each compute unit. A thread that finds the unit taken by another process asks again after a fraction
// of a millisecond; one that has held it for a while lets go for longer than that.
#include "driver/xrt/xrt_queue.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <experimental/xrt_xclbin.h>
#include <xrt/xrt_kernel.h>

#include "base/error.h"
#include "driver/capabilities.h"
#include "isa/generated/kernel_arguments.h"
#include "isa/generated/registers.h"

namespace tessera::driver {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kAskAgain = 500us;  // whether another process has let go
constexpr auto kLetGo = 1500us;    // longer than kAskAgain
constexpr auto kHold = 100ms;      // at most, with runs of one's own waiting
constexpr auto kLinger = 2ms;      // after the last run
constexpr auto kSlice = 1000ms;    // of a wait for a run
constexpr auto kIdleLimit = 60s;   // for a unit that somebody left running

bool is_busy(const std::exception& e) {
  const auto* system = dynamic_cast<const std::system_error*>(&e);
  return system != nullptr &&
         (system->code().value() == EBUSY || system->code().value() == EAGAIN || system->code().value() == -EBUSY);
}

struct QueuedRun {
  XrtRunRequest request;
  std::promise<RunReport> promise;
  Clock::time_point submitted = Clock::now();
};

}  // namespace

struct XrtQueue::State {
  xrt::device device;
  xrt::uuid image;
  XrtKernel kernel;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::unique_ptr<QueuedRun>> jobs;
  size_t in_flight = 0, started = 0, most_started = 0;
  size_t idle = 0;  // threads without work
  bool stop = false;
  std::vector<std::thread> threads;

  /// One attempt to have the unit for oneself; nothing while another user has it.
  std::optional<xrt::kernel> try_open(size_t unit) const {
    try {
      return xrt::kernel(device, image, kernel.name + ":{" + kernel.units[unit] + "}",
                         xrt::kernel::cu_access_mode::exclusive);
    } catch (const std::exception& e) {
      if (is_busy(e)) return std::nullopt;
      throw Error(ErrorCode::kIo, "compute unit '" + kernel.units[unit] + "' cannot be opened: " + e.what());
    }
  }

  Error held_by_others(size_t unit, std::chrono::milliseconds patience) const {
    return {ErrorCode::kIo, "compute unit '" + kernel.units[unit] + "' has been in others' use for " +
                                std::to_string(patience.count()) + " ms; the device option wait=SECONDS allows more"};
  }

  /// Fails the jobs that have waited for a unit longer than they may.
  void fail_impatient(size_t unit) {
    std::vector<std::unique_ptr<QueuedRun>> failed;
    {
      const std::lock_guard lock(mutex);
      const auto now = Clock::now();
      for (auto job = jobs.begin(); job != jobs.end();) {
        const std::chrono::milliseconds patience = (*job)->request.patience;
        if (patience.count() == 0 || now - (*job)->submitted < patience) {
          ++job;
        } else {
          failed.push_back(std::move(*job));
          job = jobs.erase(job);
        }
      }
    }
    for (const auto& job : failed) fail(*job, std::make_exception_ptr(held_by_others(unit, job->request.patience)));
  }

  xrt::run prepare(const xrt::kernel& opened, const XrtRunRequest& request) const {
    xrt::run run(opened);
    for (const isa::kernel::Argument& argument : isa::kernel::kArguments) {
      const int id = kernel.argument_ids[static_cast<size_t>(argument.id)];
      const auto set = [&](auto value) { run.set_arg(id, value); };
      if (argument.offset == isa::reg::kProgramAddress) {
        set(request.program_address);
      } else if (argument.offset == isa::reg::kInstructionCount) {
        set(request.instruction_count);
      } else if (argument.offset == isa::reg::kWindowFirst) {
        set(request.window_first);
      } else if (argument.offset == isa::reg::kWindowLast) {
        set(request.window_last);
      } else {
        set(request.bases.at((argument.offset - isa::reg::base(0)) / 8));
      }
    }
    return run;
  }

  /// A unit that a killed process left running ends by itself, or never.
  static void wait_for_idle(const xrt::kernel& opened) {
    const auto until = Clock::now() + kIdleLimit;
    while ((opened.read_register(isa::reg::kApCtrl) & isa::reg::kApCtrlApIdleMask) == 0) {
      if (Clock::now() > until) {
        throw Error(ErrorCode::kIo,
                    "the compute unit runs something that nobody waits for; reset the card (xbutil reset)");
      }
      std::this_thread::sleep_for(1ms);
    }
  }

  void start(xrt::run& run) {
    run.start();
    const std::lock_guard lock(mutex);
    most_started = std::max(most_started, ++started);
  }

  /// Waits for the end of a started run; ends it after the timeout.
  void wait(xrt::run& run, Clock::time_point begin, const XrtRunRequest& request) {
    struct Ended {
      State& state;
      ~Ended() {
        const std::lock_guard lock(state.mutex);
        --state.started;
      }
    } const ended{*this};
    const std::chrono::milliseconds timeout = request.timeout;
    for (;;) {
      auto slice = std::chrono::duration_cast<std::chrono::milliseconds>(kSlice);
      if (timeout.count() != 0) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(begin + timeout - Clock::now());
        slice = std::clamp(left, std::chrono::milliseconds(1), slice);
      }
      run.wait(slice);
      switch (const ert_cmd_state state = run.state()) {
        case ERT_CMD_STATE_COMPLETED: return;
        case ERT_CMD_STATE_ERROR:
        case ERT_CMD_STATE_ABORT:
        case ERT_CMD_STATE_TIMEOUT:
        case ERT_CMD_STATE_NORESPONSE:
          throw Error(ErrorCode::kIo, "the card ended the run in state " + std::to_string(state) + " of ert_cmd_state");
        default: break;
      }
      if (timeout.count() == 0 || Clock::now() < begin + timeout) continue;
      run.abort();
      throw Error(ErrorCode::kDeviceFault, "a program of " + std::to_string(request.instruction_count) +
                                               " instructions has not ended after " + std::to_string(timeout.count()) +
                                               " ms and was ended; the device option timeout=SECONDS allows more");
    }
  }

  /// The job's future becomes ready when no longer counted as in flight.
  template <typename Set>
  void settle(QueuedRun& job, Set&& set) {
    {
      const std::lock_guard lock(mutex);
      --in_flight;
    }
    set(job.promise);
  }

  void fail(QueuedRun& job, std::exception_ptr why) {
    settle(job, [&](auto& promise) { promise.set_exception(why); });
  }

  /// Everything that XRT throws becomes an Error of this project.
  static std::exception_ptr as_error() {
    try {
      throw;
    } catch (const Error&) {
      return std::current_exception();
    } catch (const std::exception& e) {
      return std::make_exception_ptr(Error(ErrorCode::kIo, std::string("XRT: ") + e.what()));
    } catch (...) {
      return std::current_exception();
    }
  }

  struct Prepared {
    std::unique_ptr<QueuedRun> job;
    xrt::run run;
  };

  /// Waits for a job, opens the unit and makes the job's run. Nothing when the queue stops, when others have the unit,
  /// or when there was no job for a while and the unit was closed.
  std::unique_ptr<Prepared> first(size_t unit, std::optional<xrt::kernel>& opened, Clock::time_point& since) {
    {
      std::unique_lock lock(mutex);
      const auto ready = [&] { return stop || !jobs.empty(); };
      ++idle;
      if (!opened) {
        changed.wait(lock, ready);
      } else if (!changed.wait_for(lock, kLinger, ready)) {
        --idle;
        lock.unlock();
        opened.reset();
        return nullptr;
      }
      --idle;
      if (stop) return nullptr;
    }
    std::exception_ptr broken;
    if (!opened) {
      try {
        opened = try_open(unit);
        if (!opened) {
          fail_impatient(unit);
          std::this_thread::sleep_for(kAskAgain);
          return nullptr;
        }
        since = Clock::now();
        wait_for_idle(*opened);
      } catch (...) {
        opened.reset();
        broken = as_error();
      }
    }
    std::unique_ptr<QueuedRun> job;
    {
      const std::lock_guard lock(mutex);
      if (jobs.empty()) return nullptr;  // another unit has it
      job = std::move(jobs.front());
      jobs.pop_front();
    }
    if (!broken) {
      try {
        xrt::run run = prepare(*opened, job->request);
        return std::make_unique<Prepared>(Prepared{std::move(job), std::move(run)});
      } catch (...) {
        opened.reset();
        broken = as_error();
      }
    }
    fail(*job, broken);
    return nullptr;
  }

  /// The run after the one that executes, unless another unit has nothing to do.
  std::unique_ptr<Prepared> following(const xrt::kernel& opened) {
    std::unique_ptr<QueuedRun> job;
    {
      const std::lock_guard lock(mutex);
      if (stop || jobs.size() <= idle) return nullptr;
      job = std::move(jobs.front());
      jobs.pop_front();
    }
    try {
      xrt::run run = prepare(opened, job->request);
      return std::make_unique<Prepared>(Prepared{std::move(job), std::move(run)});
    } catch (...) {
      fail(*job, as_error());
      return nullptr;
    }
  }

  /// Gives a prepared job back: its run belongs to a context that ends.
  void give_back(std::unique_ptr<Prepared>& prepared) {
    if (!prepared) return;
    std::unique_ptr<QueuedRun> job = std::move(prepared->job);
    prepared.reset();
    {
      const std::lock_guard lock(mutex);
      jobs.push_front(std::move(job));
    }
    changed.notify_one();
  }

  void serve(size_t unit) {
    std::optional<xrt::kernel> opened;
    std::unique_ptr<Prepared> current, next;
    Clock::time_point since;
    for (;;) {
      {
        const std::lock_guard lock(mutex);
        if (stop) break;
      }
      if (!current) current = first(unit, opened, since);
      if (!current || !opened) continue;
      bool good = false;
      try {
        const auto begin = Clock::now();
        start(current->run);
        next = following(*opened);
        wait(current->run, begin, current->job->request);
        RunReport report = read_records([&](uint32_t offset) { return opened->read_register(offset); });
        const XrtRunRequest& request = current->job->request;
        if (request.macs) {
          report.counters.macs = request.macs(report.counters.units[static_cast<size_t>(isa::Unit::kGemm)].executed);
        }
        settle(*current->job, [&](auto& promise) { promise.set_value(std::move(report)); });
        good = true;
      } catch (...) {
        fail(*current->job, as_error());
      }
      current.reset();
      const bool held_long = Clock::now() - since > kHold;
      if (good && !held_long) {
        current = std::move(next);
        continue;
      }
      // After a failure, whatever state the unit is in, the next run begins with a fresh context.
      give_back(next);
      opened.reset();
      if (held_long) std::this_thread::sleep_for(kLetGo);
    }
    give_back(current);
    give_back(next);
  }
};

XrtQueue::XrtQueue(xrt::device device, xrt::uuid image, XrtKernel kernel) : state_(std::make_unique<State>()) {
  state_->device = std::move(device);
  state_->image = std::move(image);
  state_->kernel = std::move(kernel);
  for (size_t unit = 0; unit < state_->kernel.units.size(); ++unit) {
    state_->threads.emplace_back([this, unit] { state_->serve(unit); });
  }
}

XrtQueue::~XrtQueue() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
  for (const auto& job : state_->jobs) {
    state_->fail(*job, std::make_exception_ptr(Error(ErrorCode::kIo, "the device was closed before the program ran")));
  }
}

std::future<RunReport> XrtQueue::submit(XrtRunRequest request) {
  auto job = std::make_unique<QueuedRun>();
  job->request = std::move(request);
  std::future<RunReport> future = job->promise.get_future();
  {
    const std::lock_guard lock(state_->mutex);
    state_->jobs.push_back(std::move(job));
    ++state_->in_flight;
  }
  state_->changed.notify_one();
  return future;
}

isa::MachineConfig XrtQueue::capabilities(std::chrono::milliseconds patience) {
  const auto begin = Clock::now();
  std::optional<xrt::kernel> opened;
  while (!(opened = state_->try_open(0))) {
    if (patience.count() != 0 && Clock::now() - begin > patience) throw state_->held_by_others(0, patience);
    std::this_thread::sleep_for(kAskAgain);
  }
  return read_capabilities(
      "compute unit '" + state_->kernel.units[0] + "'", [&](uint32_t offset) { return opened->read_register(offset); },
      "rebuild the xclbin");
}

size_t XrtQueue::in_flight() const {
  const std::lock_guard lock(state_->mutex);
  return state_->in_flight;
}

size_t XrtQueue::most_started() const {
  const std::lock_guard lock(state_->mutex);
  return state_->most_started;
}

}  // namespace tessera::driver
