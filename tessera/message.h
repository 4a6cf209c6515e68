// SPDX-License-Identifier: Apache-2.0
// Messages as the command, the C interface and the Python package show them.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// One line of UTF-8, whatever names of models and files stand in it: other bytes and control characters are written as
/// escapes.
std::string one_line(std::string_view text);

}  // namespace tessera
