// SPDX-License-Identifier: Apache-2.0
// The inputs of a run from the files and flags of the command line.
#pragma once

#include <vector>

#include "tessera/command/arguments.h"
#include "tessera/session.h"

namespace tessera {

/// The values of --input (.npy, .npz; NHWC turned into NCHW by --input-layout), and of --random-inputs for the inputs
/// without a file (random_values.h). An input with neither is not in the result. `path`: of the session's model. Throws
/// kInvalidArgument, and kIo for a file.
NamedValues read_feeds(const Arguments& a, const Session& session, const std::string& path);

}  // namespace tessera
