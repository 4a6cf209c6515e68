// SPDX-License-Identifier: Apache-2.0
// The cells of ROW_REDUCE and ROW_MAP among the units of the harness.
#pragma once

#include <vector>

#include "tests/alu_arithmetic/units.h"

namespace tessera::alu_arithmetic {

/// Appends them, in the order of unit_i.
void add_row_units(std::vector<Unit>& units);

}  // namespace tessera::alu_arithmetic
