// SPDX-License-Identifier: Apache-2.0
// Options of custom operators: a map of names to numbers as a FlexBuffer, in which LiteRT's own custom operators keep
// theirs. Each access is checked, as in table.h. Nested values are left out.
#pragma once

#include <map>
#include <string>

#include "compiler/litert/table.h"

namespace tessera::litert {

/// The integers, real numbers and booleans of the map at the root. Errors: kInvalidModel where the bytes are damaged.
std::map<std::string, double> read_numbers(Bytes options);

}  // namespace tessera::litert
