// SPDX-License-Identifier: Apache-2.0
// What an artifact holds, as JSON in text: who asks needs no JSON library to be compiled. An artifact enters; its
// description or its schedules leave, and schedules come back.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "isa/program/artifact.h"

namespace tessera {

/// The schedules of an artifact's layers as an object from keys (the layer's name; "name#2" for the second of a name)
/// to schedules: what `tessera schedule` writes and --schedule reads.
std::string schedules_json(const program::Artifact& artifact);

/// For CompileOptions::schedules, from what schedules_json gives or from the statistics of a run (Session::stats_json).
/// `from`: what errors call the text. Errors: kInvalidArgument.
std::map<std::string, std::string> schedules_from(const std::string& text, const std::string& from = "schedules");

/// What `tessera info` prints: ports, nodes and multiply-accumulates on the NPU and the CPU, sizes.
/// `signer`: of an artifact from a file, the key it is signed with, empty without a signature.
std::string description_json(const program::Artifact& artifact, int indent = -1,
                             const std::optional<std::string>& signer = std::nullopt);

}  // namespace tessera
