// SPDX-License-Identifier: Apache-2.0
// The versioned report of a run (docs/report.md, docs/report.schema.json): the statistics, and beside them where each
// figure comes from, the machine, the instructions in time, the graph and the memories. JSON in text leaves.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/nn/listing.h"
#include "isa/program/artifact.h"
#include "runtime/executor.h"

namespace tessera {

/// Raised when a key changes its meaning or goes; new keys alone do not raise it.
inline constexpr int kReportVersion = 1;

struct RunFacts {
  std::string model;   // the file's name without its folder; empty where there is none
  std::string device;  // as it was asked for
  int64_t dram_latency = 0, dram_bandwidth = 0;
  std::string dram;                      // a preset; empty: the ideal
  std::string statistics;                // statistics_json
  const nn::Listing* graph = nullptr;    // of the ONNX model; null: an artifact ran
  const runtime::Report* run = nullptr;  // null: nothing ran on a machine
  const program::Artifact* artifact = nullptr;
};

std::string run_report_json(const RunFacts& facts);

/// Errors: kInvalidArgument where the text is no report, or one of another version; `from`: what the message calls it.
void check_report(const std::string& report, const std::string& from);

/// Node data for the overlay of Model Explorer: the cycles of each layer at the ONNX node that names it. `report`: what
/// run_report_json gives. Errors: kInvalidArgument where it is none, or has no graph.
std::string model_explorer_json(const std::string& report, const std::string& from);

}  // namespace tessera
