// SPDX-License-Identifier: Apache-2.0
// A card that XRT drives, as a Device. Beside the interface of every device it takes programs without waiting for them.
// Enters: which card, an image (xclbin) with the machine, programs. Leaves: what the machine computed, its counters and
// faults. The public C++ interface of XRT alone, so that the same program runs on the simulated board and on a card.
// Options: device (index or BDF, default 0), xclbin (a file), timeout (seconds a run may take; default 60 on a card,
// none on the simulated board; 0: none), wait (seconds for compute units that others use; default 600; 0: without end).
#pragma once

#include <cstddef>
#include <future>
#include <memory>

#include "driver/device.h"
#include "driver/registry.h"

namespace tessera::driver {

class XrtDevice : public Device {
 public:
  /// Starts a program and returns at once. The memory it uses stays allocated and untouched until the future is ready;
  /// programs that are in flight at the same moment may run in any order and at the same time.
  /// Errors: as run(); those of the run itself come out of the future.
  virtual std::future<RunReport> submit(const RunRequest& request) = 0;

  /// Programs whose futures are not ready.
  virtual size_t in_flight() const = 0;

  /// The most programs that the card's units have executed at one moment.
  virtual size_t most_started() const = 0;
};

/// Errors: kUnsupported when this build has no XRT or none is set up (what to install or set), when the image is
/// missing or the machine in it has another configuration (both are named); kIo when the card does not answer.
std::unique_ptr<XrtDevice> open_xrt_device(const isa::MachineConfig& config, const DeviceOptions& options);

}  // namespace tessera::driver
