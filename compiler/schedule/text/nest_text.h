// SPDX-License-Identifier: Apache-2.0
// Nests, schedules and chains as text and back, without loss:
//
//   nest dense images=1 extent={oc=4 oh=56 ow=56 ic=4 kh=3 kw=3} in={total=64 chunk=64 lanes=16}
//       out={total=64 chunk=64 lanes=16} pads=[1, 1] convert=true per_channel=true
//       input={base=1 pitch=[200704, 3584, 64] segment=[64, 64] window=[0, 56, 0, 56]}
//       output={base=1 offset=200704 pitch=[200704, 3584, 64] segment=[64, 64] window=[0, 56, 0, 56]}
//
//   schedule dense {
//     vthread oh 14 x2
//     tile oh=4 ow=56 oc=4 ic=4 kh=3 kw=3
//     input attach=1 copies=3 halo=keep
//     weights attach=0
//     sums
//     output
//     params attach=0
//   }
//
//   chain ["conv5", "conv7"] oh=14 ow=7 blocks=1
//
// Fields at their defaults are left out. What is read is verified.
#pragma once

#include <string>
#include <string_view>

#include "compiler/schedule/chain.h"
#include "compiler/text/text.h"

namespace tessera::schedule {

void print(const Nest& nest, text::Printer& printer);
void print(const Schedule& schedule, text::Printer& printer);
void print(const ChainSchedule& chain, text::Printer& printer);
void print(const LayerSchedule& schedule, text::Printer& printer);

/// Errors: kInvalidArgument with source, line and column; a nest that breaks a rule of nest_obstacle().
Nest read_nest(text::Reader& reader);
Schedule read_schedule(text::Reader& reader);
ChainSchedule read_chain(text::Reader& reader);
/// Schedules as many as follow each other, or a chain.
LayerSchedule read_layer_schedule(text::Reader& reader);

template <typename T>
std::string to_text(const T& value) {
  text::Printer printer;
  print(value, printer);
  return printer.take();
}

/// Why a nest is none; nothing for one that the lowering understands.
std::string nest_obstacle(const Nest& nest);

}  // namespace tessera::schedule
