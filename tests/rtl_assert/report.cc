// SPDX-License-Identifier: Apache-2.0
// What the assertions of hw/assert call when one does not hold: the run ends with an error that names the instance and
// the rule. And which mutation of the mutated machine is in force (mutate.py); none by default.
#include "tests/rtl_assert/report.h"

#include "base/error.h"

namespace tessera::testing {

int rtl_mutant = 0;

}  // namespace tessera::testing

extern "C" void tsr_assert_failed(const char* what) {
  throw tessera::Error(tessera::ErrorCode::kInternal, std::string("assertion failed in ") + what);
}

extern "C" int tsr_mutant() { return tessera::testing::rtl_mutant; }
