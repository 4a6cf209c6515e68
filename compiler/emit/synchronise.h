// SPDX-License-Identifier: Apache-2.0
// Waits and signals. Instructions that are right when run one at a time enter; the same with signal bits and wait
// conditions leave, so that engines running concurrently give the same memory contents. A dependence is two accesses to
// overlapping bytes, one a write, on different engines; inside an engine program order serves. Vector clocks drop every
// dependence that others imply, so that at most one condition for each other engine remains: three, as many as an
// instruction holds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/emit/work.h"
#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::emit {

struct SynchroniseOptions {
  // Conditions compare 16 bits: after this many signals of one engine all engines meet, so that no count is ever
  // ambiguous.
  int64_t signals_between_barriers = 16384;
  // Base registers from 3 on name places inside what register 2 names, that lie up to so many bytes lower when the
  // program runs.
  std::vector<int64_t> slides;
  // What the bytes do not say: an instruction starts once an earlier one has completed, also where both are of one
  // engine. By their places among the instructions that are given; those of one instruction follow one another.
  struct Order {
    uint32_t earlier = 0, later = 0;
  };
  std::vector<Order> orders;
};

struct SynchroniseSummary {
  int64_t dependences = 0;  // found, before implied ones were dropped
  int64_t waits = 0;
  int64_t barriers = 0;
};

/// A stream in its order, without its instructions. Vectors have an element for each place.
struct Ordered {
  static constexpr uint32_t kAdded = ~uint32_t{0};
  std::vector<isa::Header> headers;
  std::vector<uint32_t> tags;
  Works works;
  std::vector<uint32_t> sources;  // which of the given instructions stands there; kAdded: a barrier's fence, or FINISH
};

/// Waits, signals and barriers of instructions whose work is known, and FINISH behind them. A barrier and FINISH take
/// the tag of the instruction before.
Ordered in_order(std::span<const Work* const> works, std::span<const uint32_t> tags, const isa::MachineConfig& config,
                 const SynchroniseOptions& options = {}, SynchroniseSummary* summary = nullptr);

/// Sets headers, inserts barriers (fences) and appends FINISH. `tags` has an element for each instruction and is kept
/// in step: a barrier and FINISH take the tag of the instruction before.
SynchroniseSummary synchronise(std::vector<isa::Instruction>& instructions, std::vector<uint32_t>& tags,
                               const isa::MachineConfig& config, const SynchroniseOptions& options = {});
/// The same for instructions whose work is known; `works` is kept in step, too.
SynchroniseSummary synchronise(std::vector<isa::Instruction>& instructions, std::vector<uint32_t>& tags, Works& works,
                               const isa::MachineConfig& config, const SynchroniseOptions& options = {});

/// What is wrong with waits that somebody else has placed, by places in the stream.
struct PlacedWaits {
  struct Wait {
    uint32_t instruction = 0, earlier = 0;  // the one waits until the other is complete
  };
  std::vector<Wait> missing;   // they touch the same bytes, one of them writes, and nothing keeps them apart
  std::vector<Wait> needless;  // without all of these together nothing is missing
};

/// The same with the waits that are given, and no others: an earlier instruction of another engine is complete before
/// the instruction starts. Conditions of one instruction on one engine become one. Looking for waits that are not
/// needed takes a pass for each, and is left out for streams where that is too long.
PlacedWaits synchronise_as_placed(std::vector<isa::Instruction>& instructions, std::vector<uint32_t>& tags,
                                  const std::vector<PlacedWaits::Wait>& waits, const isa::MachineConfig& config);

}  // namespace tessera::emit
