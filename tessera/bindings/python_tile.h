// SPDX-License-Identifier: Apache-2.0
// What the Python package tessera.tile calls of the compiler: its part of the module _tessera.
#pragma once

#include <pybind11/pybind11.h>

namespace tessera {

/// Adds what tessera.tile calls to the module.
void bind_tile(pybind11::module_& m);

}  // namespace tessera
