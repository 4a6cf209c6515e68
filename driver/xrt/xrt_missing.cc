// SPDX-License-Identifier: Apache-2.0
// The device xrt of a build without XRT: says what is missing.
#include "base/error.h"
#include "driver/backends.h"
#include "driver/xrt/xrt.h"

namespace tessera::driver {

std::unique_ptr<XrtDevice> open_xrt_device(const isa::MachineConfig& /*config*/, const DeviceOptions& /*options*/) {
  throw Error(ErrorCode::kUnsupported,
              "device xrt: this build has no XRT; install the packages libxrt-dev and uuid-dev (./dev setup does) and "
              "build again");
}

std::unique_ptr<Device> open_xrt(const isa::MachineConfig& config, const DeviceOptions& options) {
  return open_xrt_device(config, options);
}

}  // namespace tessera::driver
