// SPDX-License-Identifier: Apache-2.0
// How an assertion reports. Enters: what does not hold. Leaves: a call of the C function tsr_assert_failed, which the
// harness defines (report.cc throws an error, which ends the run with a message). The assertions are immediate ones in
// clocked blocks: they see a cycle's settled inputs and the state before its edge, also in a harness that changes inputs
// and clock in one evaluation, where the sampled values of a concurrent assertion are those of the cycle before.
package tsr_assert_pkg;
  import "DPI-C" function void tsr_assert_failed(input string what);
endpackage

`define TSR_ASSERT(condition, text) \
  assert (condition) else tsr_assert_pkg::tsr_assert_failed($sformatf("%m: %s", text));
