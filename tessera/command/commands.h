// SPDX-License-Identifier: Apache-2.0
// The commands of `tessera`, one function each: they read what the arguments name, write their results to files or
// standard output, and return the exit status. Errors are thrown as tessera::Error.
#pragma once

#include "tessera/command/arguments.h"

namespace tessera {

// Models: model_commands.cc.
int compile_command(const Arguments& a);
int export_command(Arguments a);
int run_command(const Arguments& a);
int report_command(Arguments a);
int schedule_command(const Arguments& a);
int info_command(const Arguments& a);

// Instructions and artifacts: program_commands.cc.
int asm_command(const Arguments& a);
int disasm_command(const Arguments& a);
int keygen_command(const Arguments& a);
int sign_command(const Arguments& a);

}  // namespace tessera
