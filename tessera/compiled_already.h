// SPDX-License-Identifier: Apache-2.0
// What is compiled takes no options of a compilation.
#pragma once

#include <set>
#include <string>

#include "compiler/pipeline/model.h"
#include "isa/program/artifact.h"

namespace tessera {

/// Refuses what only a compilation could heed. Shapes may say what the artifact has. `heeded`: names of options of a
/// compilation that the caller heeds beside those of every run. Errors: kInvalidArgument, with the flag or the input.
void refuse_what_only_compiling_heeds(const program::Artifact& artifact, const compiler::ImportOptions& import,
                                      const compiler::CompileOptions& compile,
                                      const std::set<std::string>& heeded = {});

}  // namespace tessera
