// SPDX-License-Identifier: Apache-2.0
// The program `tessera`.
#include "tessera/command.h"

int main(int argc, char** argv) { return tessera::run_command_line(argc, argv); }
