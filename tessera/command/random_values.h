// SPDX-License-Identifier: Apache-2.0
// Values for inputs that nobody gives: seeded, of every element type, and of shapes that the model takes.
#pragma once

#include <cstdint>

#include "tessera/session.h"

namespace tessera {

/// Floats lie in [-1, 1); 8-bit integers anywhere; wider ones from 0 to 7, or, where they index rows of a known number
/// (Port::rows), among those. Strings are the digits 0 to 7, which also read as numbers. A sequence has three elements,
/// an optional has its value. Open dimensions are 1. An input of unknown rank is a scalar, and the elements of a
/// sequence of unknown rank are vectors.
ops::Value random_value(const Port& port, uint64_t seed);

/// Shapes for the inputs among `ports` whose shape is open, with which the model can be read: 1 for each open
/// dimension, or where that does not fit the first that does of a few larger extents, with the first axis of each input
/// left at 1; then of those that the model's constants have, for all open dimensions or one of them, beside first axes
/// of 1 and more. Of unknown ranks up to 4 the first that fits. `import` has the shapes that are known. Empty where
/// every open dimension may be 1 and every unknown rank 0. Errors: that of the model with ones, with what was tried and
/// the way out, where nothing fits.
std::map<std::string, ops::Shape> shapes_that_fit(const compiler::ModelSource& model,
                                                  const compiler::ImportOptions& import,
                                                  const std::vector<Port>& ports);

}  // namespace tessera
