// SPDX-License-Identifier: Apache-2.0
// The statistics of a run as JSON in text. The artifact that ran, what the executor reports of it and the rate of the
// DRAM enter; one object leaves: totals, and a row for each layer on the NPU and each CPU step. docs/profiling.md says
// what the keys mean.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isa/program/artifact.h"
#include "runtime/executor.h"

namespace tessera {

/// By program and layer, the key under which the layer's schedule is given and written: its name, the second of a name
/// "name#2" and so on.
std::vector<std::vector<std::string>> layer_keys(const program::Artifact& artifact);

/// What is known of an artifact that was compiled from a model at hand.
struct Origin {
  int64_t close_candidates = 0;  // compiler::Model::close_candidates()
  std::string unfit_scales;      // compiler::Model::unfit_scales()
  bool quick = false;            // schedules were not searched for
};

/// `dram_bytes_per_cycle`: what the DRAM moves in a cycle, at least 1. Cycles are null where the device has no time.
std::string statistics_json(const std::string& device, const program::Artifact& artifact, const runtime::Report& report,
                            uint64_t dram_bytes_per_cycle, int indent = -1, const Origin& origin = {});
/// Of a device that runs no artifact: its name.
std::string statistics_json(const std::string& device, int indent = -1);

}  // namespace tessera
