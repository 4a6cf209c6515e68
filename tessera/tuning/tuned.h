// SPDX-License-Identifier: Apache-2.0
// Schedules from a database that `tessera tune` has filled (tessera/python/tessera/tuning/database.py has its tables).
// A model enters; schedules by layer leave, for the option `schedules` of its compilation, where they are checked like
// those that a user gives.
#pragma once

#include <map>
#include <string>

#include "tessera/session.h"

namespace tessera {

/// The schedules that a tuning of this very model on this machine has found, by the strictest judge that has measured
/// it. Those that another build of the compiler may have found are replayed beside the compiler's choice, and taken
/// where they are better. For a model that was never tuned those of layers and chains that are the same in models that
/// were, as far as the replay likes them better where they stand. Nothing where none of them is. Errors: kIo for a file
/// that is missing, damaged or no tuning database; those of Tuning.
std::map<std::string, std::string> tuned_schedules(const std::string& database, const compiler::ModelSource& model,
                                                   const SessionOptions& options);

/// Adds the schedules that options.compile.tuned names to those that are given; given ones come first, and break up
/// the tuned chains that their layers are in. Without a database it does nothing.
void add_tuned_schedules(compiler::CompileOptions& compile, const compiler::ModelSource& model,
                         const SessionOptions& options);

}  // namespace tessera
