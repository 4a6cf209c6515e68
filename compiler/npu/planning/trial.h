// SPDX-License-Identifier: Apache-2.0
// The replay: what a schedule or a chain costs, by lowering it for itself, without its weights' bytes, and predicting
// the cycles of the stream. As the cost model "replay" it judges the few candidates that a searcher has found; between
// the neighbours of an operation it decides.
#pragma once

#include <array>
#include <functional>

#include "compiler/emit/synchronise.h"
#include "compiler/npu/lowering/chain.h"
#include "compiler/npu/tasks/task.h"
#include "compiler/schedule/cost_model.h"

namespace tessera::npu {

/// The name of the judge that is a replay.
inline constexpr std::string_view kReplayJudge = "replay";

/// Whom a program is for, by the configuration and the options.
schedule::Machine machine_of(const isa::MachineConfig& config, const Options& options);

/// Some work as it stands, synchronised. `layers`: more than any tag.
schedule::InstructionStream lower_stream(const isa::MachineConfig& config, const Options& options, size_t layers,
                                         const std::function<void(Emitter&)>& append,
                                         schedule::Wanted wanted = schedule::Wanted::kInstructions);

/// What an emitter keeps for such a stream.
inline WeightBytes bytes_for(schedule::Wanted wanted) {
  return wanted == schedule::Wanted::kHeaders ? WeightBytes::kWorksOnly : WeightBytes::kPlacesOnly;
}

/// The stream of what an emitter has collected, which it keeps.
schedule::InstructionStream stream_of(const Emitter& emitter, const Options& options, size_t layers,
                                      schedule::Wanted wanted);

/// The same of steps that are a stream already.
schedule::InstructionStream synchronised(Emitter&& assembled, const isa::MachineConfig& config, size_t layers,
                                         const emit::SynchroniseOptions& order = {});

/// Its cost by the prediction.
schedule::Cost replay(const schedule::InstructionStream& stream, const schedule::Machine& machine);

/// A judge of finished instructions. A piece of work is lowered twice in a row, the second time on what the first has
/// written: so its weights come early and its input does not, as between other layers.
class StreamJudge : public schedule::CostModel {
 public:
  schedule::Cost cost(const schedule::Subject& subject, const schedule::Schedule& schedule) final;
  schedule::Cost cost(const schedule::Subject& subject, const schedule::ChainPlan& plan) final;
  std::optional<schedule::Cost> cost(const schedule::InstructionStream& stream) final { return run(stream); }

 protected:
  virtual schedule::Cost run(const schedule::InstructionStream& stream) = 0;

 private:
  template <typename Plan>
  schedule::Cost twice(const schedule::Subject& subject, const Plan& plan);
};

/// A lowering that tells where slots began in the stream that it made last.
class LoggedLowering : public schedule::Lowering {
 public:
  const SlotLog& slots() const { return slots_; }

 protected:
  mutable SlotLog slots_;
};

/// Candidates of a task in one of its alternatives. All references stay in use.
class TaskLowering : public LoggedLowering {
 public:
  TaskLowering(const Task& task, const schedule::Nest& nest, const isa::MachineConfig& config, const Options& options)
      : task_(task), nest_(nest), config_(config), options_(options) {}
  std::array<schedule::InstructionStream, 2> once_and_twice(const schedule::Schedule& schedule,
                                                            schedule::Wanted wanted) const override;
  std::array<schedule::InstructionStream, 2> once_and_twice(const schedule::ChainPlan& plan,
                                                            schedule::Wanted wanted) const override;

 private:
  void append(const schedule::Schedule& schedule, int i, Emitter& emitter) const;
  const Task& task_;
  const schedule::Nest& nest_;
  const isa::MachineConfig& config_;
  const Options& options_;
};

/// Plans of a chain with chosen nests. All references stay in use.
class ChainLowering : public LoggedLowering {
 public:
  ChainLowering(const Chain& chain, std::vector<const schedule::Nest*> nests, const isa::MachineConfig& config,
                const Options& options)
      : nests_(std::move(nests)), config_(config), options_(options) {
    here_.first = chain.first;
    here_.tasks = chain.tasks;
  }
  std::array<schedule::InstructionStream, 2> once_and_twice(const schedule::Schedule& schedule,
                                                            schedule::Wanted wanted) const override;
  std::array<schedule::InstructionStream, 2> once_and_twice(const schedule::ChainPlan& plan,
                                                            schedule::Wanted wanted) const override;

 private:
  void append(const schedule::ChainPlan& plan, int i, Emitter& emitter) const;
  const std::vector<const schedule::Nest*> nests_;
  mutable Chain here_;  // the one that is lowered, with its plan
  const isa::MachineConfig& config_;
  const Options& options_;
};

}  // namespace tessera::npu
