// SPDX-License-Identifier: Apache-2.0
// Shapes that will come: "x=1-4,3,48,320-960/64" as a list of shapes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ops/tensor.h"

namespace tessera {

/// Each text is NAME=D0,D1,... where a dimension is N, FIRST-LAST or FIRST-LAST/STEP. Texts of one input are
/// alternatives; those of different inputs are combined, each with each. Leaves at most 1,000 combinations, the shape
/// of each input by name. Errors: kInvalidArgument for text that is not so, and for more combinations.
std::vector<std::map<std::string, ops::Shape>> shapes_of_ranges(const std::vector<std::string>& texts);

}  // namespace tessera
