// SPDX-License-Identifier: Apache-2.0
// Who lives where in the scratchpads and in the arena, and how long: derived from what the instructions of a run read
// and write. A stretch of bytes is occupied from the begin of the instruction that wrote it until the last that read it
// has completed.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "isa/program/artifact.h"
#include "tessera/report/timeline.h"

namespace tessera {

/// The `memory` of the versioned report (docs/report.md).
nlohmann::json memory_json(const program::Artifact& artifact, const Timeline& timeline);

}  // namespace tessera
