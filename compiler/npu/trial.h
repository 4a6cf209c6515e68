// SPDX-License-Identifier: Apache-2.0
// Trials: what a schedule or a chain costs, by lowering it for itself and replaying the stream, without its weights'
// bytes. The closed forms of compiler/schedule choose a few candidates among thousands; a trial chooses among those.
#pragma once

#include <functional>

#include "compiler/npu/chain.h"
#include "compiler/npu/task.h"
#include "compiler/schedule/schedule.h"

namespace tessera::npu {

struct Trial {
  int64_t cycles = 0, bytes = 0;  // DRAM bytes with the instructions'
  int64_t instructions = 0;
  double score = 0;  // of both, schedule::Goal::score
};

/// Some work as it stands. `layers`: more than any tag.
Trial try_stream(const isa::MachineConfig& config, const Options& options, size_t layers,
                 const std::function<void(Emitter&)>& append);

/// A task under a schedule of `nest`.
Trial try_schedule(const Task& task, const schedule::Nest& nest, const schedule::Schedule& schedule,
                   const isa::MachineConfig& config, const Options& options);

Trial try_chain(const Chain& chain, const isa::MachineConfig& config, const Options& options);

}  // namespace tessera::npu
