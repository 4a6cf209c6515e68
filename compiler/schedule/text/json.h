// SPDX-License-Identifier: Apache-2.0
// The outside form of schedules: what files hold and artifacts show. A LayerSchedule enters and JSON text leaves, and
// back. Inside the compiler schedules are values; only the edges call this.
#pragma once

#include <string>

#include "compiler/schedule/chain.h"

namespace tessera::schedule {

/// One schedule is an object, those of several nests a list, a chain an object with "chain" and "tile".
std::string to_json(const Schedule& schedule);
std::string to_json(const ChainSchedule& chain);
std::string to_json(const LayerSchedule& schedule);

/// Errors: kInvalidArgument naming the key.
Schedule schedule_from_json(const std::string& text);
LayerSchedule layer_schedule_from_json(const std::string& text);

}  // namespace tessera::schedule
