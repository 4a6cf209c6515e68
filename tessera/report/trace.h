// SPDX-License-Identifier: Apache-2.0
// A run as a timeline in the Chrome trace format, for Perfetto. The artifact that ran and what the executor reports
// enter; JSON in text leaves. A microsecond of the trace is a cycle; on devices without time every instruction is one.
#pragma once

#include <string>

#include "isa/program/artifact.h"
#include "runtime/executor.h"

namespace tessera {

std::string trace_json(const program::Artifact& artifact, const runtime::Report& report);

}  // namespace tessera
