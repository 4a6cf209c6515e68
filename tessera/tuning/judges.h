// SPDX-License-Identifier: Apache-2.0
// Devices that know time as judges of schedules: a stream runs without its data, and its cycles are the cost. The cost
// models "sysc" and "rtl" exist where their machines were built, and `--judge` takes them as a tuner does.
#pragma once

namespace tessera {

/// Makes them known by name; further calls do nothing. Not done while the program is loaded: a static library would
/// drop an object that nobody names.
void register_device_judges();

}  // namespace tessera
