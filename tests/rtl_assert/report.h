// SPDX-License-Identifier: Apache-2.0
// The C++ side of the assertions and of the mutated machine.
#pragma once

namespace tessera::testing {

/// The mutation that machines made from now on have, by the number that mutate.py gives it; 0 for none.
extern int rtl_mutant;

}  // namespace tessera::testing
