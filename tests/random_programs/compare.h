// SPDX-License-Identifier: Apache-2.0
// Runs one case on several machines and says where they part; makes a failing case small. The first machine is the one
// the others are compared with.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/random_programs/machines.h"

namespace tessera::proof {

using Machines = std::vector<std::unique_ptr<Machine>>;

/// Nothing when all machines agree: the fault record always; every byte of scratchpads and DRAM, executed instructions
/// and bytes moved of programs without a fault. Else one line. A legal case that faults is a disagreement with the ISA.
/// `cycles`, when given, gets the sum over each machine.
std::optional<std::string> difference(const Case& test, const Machines& machines,
                                      std::vector<uint64_t>* cycles = nullptr);

/// A smaller case for which `fails` still holds: instructions are removed, waits made anew, loops, pads and options
/// taken away, the bus calmed, while it fails. Cases with something injected lose only instructions behind it.
Case shrink(const Case& test, const std::function<bool(const Case&)>& fails);

/// Lockstep: the number of leading instructions after which the machines first differ; nothing when they never do.
std::optional<size_t> first_divergence(const Case& test, const Machines& machines);

}  // namespace tessera::proof
