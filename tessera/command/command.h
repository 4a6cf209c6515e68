// SPDX-License-Identifier: Apache-2.0
// The command `tessera`, as a function: the program of that name calls it, and so does the Python package, whose wheel
// holds one module and no program.
#pragma once

namespace tessera {

/// Runs a command line; argv[0] is the program. Results go to standard output, errors as one line to standard error.
/// Returns the exit status: 0, 1 for an error, 2 for a wrong command line.
int run_command_line(int argc, char** argv);

}  // namespace tessera
