// SPDX-License-Identifier: Apache-2.0
// Texts for people: the table of `tessera report` from the statistics of a run, and the editable file of `tessera
// schedule`, and what `tessera run` and `tessera info` print. JSON enters as text; text leaves.
#pragma once

#include <string>

namespace tessera {

/// A table with a row for each layer: cycles, utilisation, what limits it, the cost model's error, causes, bytes by
/// stream and the schedule in short; before it the sums, behind it the CPU's parts. `with_schedules`: the last column.
/// Errors: kInvalidArgument when `stats` is not what Session::stats_json gives; `from`: what they call it.
std::string report_text(const std::string& stats, bool with_schedules = true,
                        const std::string& from = "the statistics");

/// One sentence for a model whose products, a hundredth of them at least, or whose attention is computed in float on
/// the CPU: which, and what to do; empty for others. Statistics as a session gives them, or a description; `model`: its
/// file. `unfit_scales`: Model::unfit_scales() where the statistics do not have it.
std::string float_note(const std::string& statistics, const std::string& model, const std::string& unfit_scales = "");

/// One sentence that says what would run on the NPU if an option were set; empty where nothing would. Statistics or a
/// description; `close_candidates`: Model::close_candidates().
std::string option_note(const std::string& statistics, int64_t close_candidates);

/// The sums of a run in one line; nothing where no artifact ran.
std::string run_text(const std::string& stats);

/// What description_json says, as lines; and in one.
std::string description_text(const std::string& description);
std::string description_in_short(const std::string& description);

/// What schedules_json gives as JSON with a line for each level and operand.
std::string schedules_text(const std::string& schedules);

}  // namespace tessera
