// SPDX-License-Identifier: Apache-2.0
// Texts for people: the table of `tessera report` from the statistics of a run, and the editable file of `tessera
// schedule`. Enters JSON as Session::stats and schedules_of give it; leaves text.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace tessera {

/// A table with a row for each layer: cycles, utilisation, what limits it, the cost model's error, causes, bytes by
/// stream and the schedule in short; before it the sums, behind it the CPU's parts. `with_schedules`: the last column.
/// Errors: kInvalidArgument when `stats` is not what Session::stats gives.
std::string report_text(const nlohmann::json& stats, bool with_schedules = true);

/// A schedule in one line: iterations outermost first | the tile | copies that do not follow from them, as "oh:14x2
/// oc:2 | oh4 ow56 oc2 ic4 kh3 kw3 | input3 weights4"; x2: two virtual threads.
std::string schedule_in_short(const nlohmann::json& schedule);

/// The object of schedules_of as JSON with a line for each level and operand.
std::string schedules_text(const nlohmann::ordered_json& schedules);

}  // namespace tessera
