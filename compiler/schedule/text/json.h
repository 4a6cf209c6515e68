// SPDX-License-Identifier: Apache-2.0
// The outside form of schedules: what files hold and artifacts show. A LayerSchedule enters and JSON text leaves, and
// back. Inside the compiler schedules are values; only the edges call this.
#pragma once

#include <string>

#include "compiler/schedule/chain.h"
#include "compiler/schedule/division.h"

namespace tessera::schedule {

/// One schedule is an object, those of several nests a list, a chain an object with "chain" and "tile".
std::string to_json(const Schedule& schedule);
std::string to_json(const ChainSchedule& chain);
std::string to_json(const LayerSchedule& schedule);

/// Errors: kInvalidArgument naming the key.
Schedule schedule_from_json(const std::string& text);
LayerSchedule layer_schedule_from_json(const std::string& text);

/// An object with "divided", an axis, and "ends", or with "core"; both may have "own", and "cores", a list of the
/// parts' schedules.
std::string to_json(const DividedSchedule& schedule);
/// Whether a text is of this form.
bool is_divided(const std::string& text);
DividedSchedule divided_schedule_from_json(const std::string& text);

}  // namespace tessera::schedule
