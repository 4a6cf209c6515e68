// SPDX-License-Identifier: Apache-2.0
// Tuning for the Python package: its part of the module _tessera, over tuning.h.
#pragma once

#include <pybind11/pybind11.h>

namespace tessera {

/// Adds the class Tuning to the module.
void bind_tuning(pybind11::module_& m);

}  // namespace tessera
