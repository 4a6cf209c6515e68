// SPDX-License-Identifier: Apache-2.0
// Runs of programs on the compute units of a card, through xrt::kernel and xrt::run. Enters: requests, from any thread.
// Leaves: futures of reports. Any number of requests is in flight: each unit executes one, has the next one prepared
// (its xrt::run made and its arguments set) while it does, and takes further ones from the common queue; with several
// units several xrt::run execute at once. A unit does not get its next start before the fault record and the counters
// of the last run have been read, because a start clears them. Reading registers needs the unit for oneself, so it is
// opened exclusively while there is work, and closed soon after and from time to time so that other processes get it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <xrt/xrt_device.h>
#include <xrt/xrt_uuid.h>

#include "driver/device.h"
#include "isa/config.h"

namespace tessera::driver {

/// The kernel of an image, as the queue needs it.
struct XrtKernel {
  std::string name;
  std::vector<std::string> units;  // names of instances
  std::vector<int> argument_ids;   // of this image, by isa::kernel::kArguments
};

struct XrtRunRequest {
  uint64_t program_address = 0;
  uint32_t instruction_count = 0;
  std::array<uint64_t, 16> bases{};
  uint64_t window_first = 0, window_last = UINT64_MAX;
  std::chrono::milliseconds timeout{0};   // a run that takes longer is ended; 0: none is
  std::chrono::milliseconds patience{0};  // while others have the units; 0: without end
  std::shared_ptr<void> token;            // released when the queue has done with the request
  /// Multiply-accumulates of the GEMM engine's first instructions; called when the run has ended.
  std::function<uint64_t(uint64_t executed)> macs;
};

class XrtQueue {
 public:
  XrtQueue(xrt::device device, xrt::uuid image, XrtKernel kernel);
  /// Waits for what has begun; the futures of the rest get an Error kIo.
  ~XrtQueue();
  XrtQueue(const XrtQueue&) = delete;
  XrtQueue& operator=(const XrtQueue&) = delete;

  /// The future throws Error: kDeviceFault after a timeout, kIo when the card stops answering or others keep it.
  std::future<RunReport> submit(XrtRunRequest request);

  /// Requests whose futures are not ready.
  size_t in_flight() const;
  /// Most xrt::run that were started and not ended at one moment.
  size_t most_started() const;

  /// What the capability registers of the first unit say; the name is that of a shipped configuration, if it is one.
  /// Errors: kUnsupported when the unit is no machine of this instruction set, kIo when others keep it.
  isa::MachineConfig capabilities(std::chrono::milliseconds patience);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::driver
