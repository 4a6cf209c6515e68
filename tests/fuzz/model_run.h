// SPDX-License-Identifier: Apache-2.0
// What a model of any format goes through in a fuzzer: it is imported, with small numbers for dynamic dimensions, run
// by the reference interpreter, compiled, and run on the functional simulator with race check and poisoned memory.
// Properties: every step ends in a result or an error; what the machine gives is what the interpreter gives: equal
// integers where no inexact operator is in the model, close numbers else; and a model that the interpreter refuses to
// run gives no result on the machine.
#pragma once

#include "tests/fuzz/onnx_mutator.h"

namespace tessera::fuzz {

struct Traits {
  bool exact = true, random = false, loops = false;
};

/// Adds what the operators of a graph and of its bodies say.
void look(const onnx_proto::GraphProto& graph, Traits& traits);
/// `seed` chooses inputs, machine and memory. Errors of the model are thrown.
void run_model(std::string_view bytes, const Traits& traits, uint64_t seed);
/// A seed that the bytes alone decide.
uint64_t seed_of(std::string_view bytes);
/// Small models: what asks for more than some megabytes is refused by the limit, and not computed for minutes.
void limit_memory();

}  // namespace tessera::fuzz
