// SPDX-License-Identifier: Apache-2.0
// A part of a card's memory as a device of its own: one buffer, taken at once and cleared, in which everything lies
// that a client allocates. Programs reach that buffer alone, and nothing of what lay there before.
#pragma once

#include <cstdint>
#include <memory>

#include "driver/device.h"

namespace tessera::driver {

class Partition : public Device {
 public:
  /// Clears the scratchpads, where another client's program may have left something. Errors: as run(); kInternal when
  /// the machine does not get to the end of that.
  virtual void clear_scratchpads() = 0;
};

/// Errors: kDoesNotFit when the card does not have so many bytes.
std::unique_ptr<Partition> open_partition(std::unique_ptr<Device> card, uint64_t bytes);

}  // namespace tessera::driver
