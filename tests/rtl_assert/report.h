// SPDX-License-Identifier: Apache-2.0
// The C++ side of the assertions and of the mutated machine.
#pragma once

namespace tessera::testing {

/// The mutation that machines made from now on have, by the number that mutate.py gives it; 0 for none.
extern int rtl_mutant;

/// A mistake of mutate.py: in which module and line, and which assertion notices it.
struct Mutant {
  const char* module;
  const char* line;
  const char* assertion;
};

}  // namespace tessera::testing
