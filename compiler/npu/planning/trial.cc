// SPDX-License-Identifier: Apache-2.0
// The machine is empty only at the start of a stream, which counts less.
#include "compiler/npu/planning/trial.h"

#include <array>

#include "base/error.h"
#include "compiler/emit/predict.h"
#include "compiler/npu/lowering/lower.h"

namespace tessera::npu {

using schedule::Cost;
using schedule::InstructionStream;
using schedule::Wanted;

namespace {

constexpr double kFirst = 0.8;                // the part of the first time's cycles that does not count
constexpr int64_t kApart = int64_t{1} << 32;  // bytes between the tensors of a replay

/// For the i-th time: reads tensor i + 1, writes tensor i + 2. A border lies before its tensor.
schedule::Nest moved(const schedule::Nest& nest, int i, bool input, bool output) {
  schedule::Nest result = nest;
  if (input) {
    result.input.base = kArenaBase;
    result.input.offset = (i + 1) * kApart;
  }
  if (output) {
    result.output.base = kArenaBase;
    result.output.offset = (i + 2) * kApart;
  }
  return result;
}

class Replay : public StreamJudge {
 public:
  explicit Replay(const schedule::Machine& machine) : machine_(machine) {}

 private:
  Cost run(const InstructionStream& stream) override { return replay(stream, machine_); }
  schedule::Wanted wants() const override { return schedule::Wanted::kHeaders; }
  const schedule::Machine machine_;
};

const schedule::RegisterCostModel kReplay(std::string(kReplayJudge), "the predicted cycles of the instructions",
                                          [](const schedule::Machine& machine) {
                                            return std::make_unique<Replay>(machine);
                                          });

}  // namespace

template <typename Plan>
Cost StreamJudge::twice(const schedule::Subject& subject, const Plan& plan) {
  TESSERA_INVARIANT(subject.lowering != nullptr, "this judge needs instructions");
  const std::array<InstructionStream, 2> streams = subject.lowering->once_and_twice(plan, wants());
  const Cost once = run(streams[0]);
  Cost cost = run(streams[1]);
  cost.cycles = static_cast<int64_t>((static_cast<double>(cost.cycles) - kFirst * static_cast<double>(once.cycles)) /
                                     (2 - kFirst));
  cost.bytes /= 2;
  return cost;
}

Cost StreamJudge::cost(const schedule::Subject& subject, const schedule::Schedule& schedule) {
  return twice(subject, schedule);
}
Cost StreamJudge::cost(const schedule::Subject& subject, const schedule::ChainPlan& plan) {
  return twice(subject, plan);
}

schedule::Machine machine_of(const isa::MachineConfig& config, const Options& options) {
  return {config, options.dram_latency_cycles, options.dram_bandwidth_bytes, options.dram_cost};
}

InstructionStream synchronised(Emitter&& emitter, const isa::MachineConfig& config, size_t layers,
                               const emit::SynchroniseOptions& order) {
  InstructionStream stream;
  stream.layers = layers;
  for (const emit::Work* work : emitter.works) stream.dram_bytes += work->dram_bytes + isa::kInstructionBytes;
  stream.computed = static_cast<int64_t>(emitter.instructions.size());
  emit::synchronise(emitter.instructions, emitter.layer_of_instruction, emitter.works, config, order);
  stream.instructions = std::move(emitter.instructions);
  stream.tags = std::move(emitter.layer_of_instruction);
  stream.works = std::move(emitter.works);
  stream.pool = std::make_shared<const emit::WorkPool>(std::move(emitter.pool));
  return stream;
}

InstructionStream stream_of(const Emitter& emitter, const Options& options, size_t layers, Wanted wanted) {
  const bool prefetch = options.prefetch_weights && options.virtual_threads;
  if (wanted == Wanted::kInstructions) {
    Emitter whole = emitter;
    whole.assemble(prefetch);
    return synchronised(std::move(whole), emitter.config, layers);
  }
  InstructionStream stream;
  stream.layers = layers;
  emit::WorkPool pool;
  emit::Ordered ordered = emitter.ordered(prefetch, pool);
  for (size_t i = 0; i < ordered.works.size(); ++i) {
    if (ordered.sources[i] == emit::Ordered::kAdded) continue;
    ++stream.computed;
    stream.dram_bytes += ordered.works[i]->dram_bytes + isa::kInstructionBytes;
  }
  stream.headers = std::move(ordered.headers);
  stream.tags = std::move(ordered.tags);
  stream.works = std::move(ordered.works);
  stream.pool = std::make_shared<const emit::WorkPool>(std::move(pool));
  return stream;
}

namespace {

/// The streams of append(0), and of append(0) and append(1), which is lowered once.
template <typename Append>
std::array<InstructionStream, 2> both_streams(const isa::MachineConfig& config, const Options& options, size_t layers,
                                              SlotLog& slots, Wanted wanted, Append&& append) {
  Emitter emitter(config, options, bytes_for(wanted));
  append(0, emitter);
  InstructionStream once = stream_of(emitter, options, layers, wanted);
  append(1, emitter);
  slots = emitter.slots();
  return {std::move(once), stream_of(emitter, options, layers, wanted)};
}

}  // namespace

InstructionStream lower_stream(const isa::MachineConfig& config, const Options& options, size_t layers,
                               const std::function<void(Emitter&)>& append, Wanted wanted) {
  Emitter emitter(config, options, bytes_for(wanted));
  append(emitter);
  return stream_of(emitter, options, layers, wanted);
}

Cost replay(const InstructionStream& stream, const schedule::Machine& machine) {
  const emit::Dram dram{machine.dram_latency_cycles, machine.dram_bandwidth_bytes, machine.dram_cost};
  const emit::Prediction prediction =
      stream.headers.empty() ? emit::predict(stream.instructions, stream.tags, stream.works, 0, machine.config, dram)
                             : emit::predict(stream.headers, stream.tags, stream.works, 0, machine.config, dram);
  return {prediction.cycles, stream.dram_bytes, stream.computed};
}

void TaskLowering::append(const schedule::Schedule& schedule, int i, Emitter& emitter) const {
  LayerInfo info;
  npu::lower(task_, moved(nest_, i, true, true), schedule, emitter, info);
}

std::array<InstructionStream, 2> TaskLowering::once_and_twice(const schedule::Schedule& schedule, Wanted wanted) const {
  return both_streams(config_, options_, 1, slots_, wanted,
                      [&](int i, Emitter& emitter) { append(schedule, i, emitter); });
}

std::array<InstructionStream, 2> TaskLowering::once_and_twice(const schedule::ChainPlan&, Wanted) const {
  TESSERA_INVARIANT(false, "one task has no plan of a chain");
}

std::array<InstructionStream, 2> ChainLowering::once_and_twice(const schedule::Schedule&, Wanted) const {
  TESSERA_INVARIANT(false, "a chain has no single schedule");
}

void ChainLowering::append(const schedule::ChainPlan& plan, int i, Emitter& emitter) const {
  const schedule::Nest head = moved(*nests_.front(), i, true, false), tail = moved(*nests_.back(), i, false, true);
  here_.nests = nests_;
  here_.nests.front() = &head;
  here_.nests.back() = &tail;
  here_.plan = plan;
  std::vector<LayerInfo> infos(here_.first + here_.size());
  lower_chain(here_, emitter, infos);
}

std::array<InstructionStream, 2> ChainLowering::once_and_twice(const schedule::ChainPlan& plan, Wanted wanted) const {
  return both_streams(config_, options_, here_.first + here_.size(), slots_, wanted,
                      [&](int i, Emitter& emitter) { append(plan, i, emitter); });
}

}  // namespace tessera::npu
