// SPDX-License-Identifier: Apache-2.0
// `tessera board`: a simulated card for as long as a command runs. Enters: a configuration and a command line. Leaves:
// the command's exit status. The command sees what a machine with a card has: XILINX_XRT, an xclbin, and a card that
// any number of its processes may use; this process holds the Verilated machine.
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct BoardCommand {
  std::string config = "npu256";
  int units = 1;
  int latency_cycles = 0;            // of the card's memory; 0: as device rtl has it
  int bandwidth_bytes = 0;           // a cycle; 0: the bus's width
  std::string dram;                  // a preset; empty: the ideal
  bool verbose = false;              // say who comes and goes
  std::string write_xclbin;          // write the image to this file and do nothing else
  std::vector<std::string> command;  // empty: print the environment and serve until a signal
};

/// Errors: kUnsupported in a build without XRT or Verilator, kIo, kInvalidArgument.
int run_board(const BoardCommand& board);

}  // namespace tessera
