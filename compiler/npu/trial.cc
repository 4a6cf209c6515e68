// SPDX-License-Identifier: Apache-2.0
// The machine is empty only at the start of a stream, which counts less.
#include "compiler/npu/trial.h"

#include <array>

#include "base/error.h"
#include "compiler/emit/predict.h"
#include "compiler/npu/lower.h"

namespace tessera::npu {

using schedule::Cost;
using schedule::InstructionStream;

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
  const std::array<InstructionStream, 2> streams = subject.lowering->once_and_twice(plan);
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
  return {config, options.dram_latency_cycles, options.dram_bandwidth_bytes};
}

InstructionStream synchronised(Emitter&& emitter, const isa::MachineConfig& config, size_t layers,
                               const emit::SynchroniseOptions& order) {
  InstructionStream stream;
  stream.layers = layers;
  for (const emit::Work& work : emitter.works) stream.dram_bytes += work.dram_bytes + isa::kInstructionBytes;
  stream.computed = static_cast<int64_t>(emitter.instructions.size());
  emit::synchronise(emitter.instructions, emitter.layer_of_instruction, emitter.works, config, order);
  stream.instructions = std::move(emitter.instructions);
  stream.tags = std::move(emitter.layer_of_instruction);
  stream.works = std::make_shared<const std::vector<emit::Work>>(std::move(emitter.works));
  return stream;
}

namespace {

InstructionStream stream_of(Emitter&& emitter, const isa::MachineConfig& config, const Options& options,
                            size_t layers) {
  emitter.assemble(options.prefetch_weights && options.virtual_threads);
  return synchronised(std::move(emitter), config, layers);
}

/// The streams of append(0), and of append(0) and append(1), which is lowered once.
template <typename Append>
std::array<InstructionStream, 2> both_streams(const isa::MachineConfig& config, const Options& options, size_t layers,
                                              SlotLog& slots, Append&& append) {
  Emitter emitter(config, options, WeightBytes::kPlacesOnly);
  append(0, emitter);
  InstructionStream once = stream_of(Emitter(emitter), config, options, layers);
  append(1, emitter);
  slots = emitter.slots();
  return {std::move(once), stream_of(std::move(emitter), config, options, layers)};
}

}  // namespace

InstructionStream lower_stream(const isa::MachineConfig& config, const Options& options, size_t layers,
                               const std::function<void(Emitter&)>& append, SlotLog* slots) {
  Emitter emitter(config, options, WeightBytes::kPlacesOnly);
  append(emitter);
  if (slots != nullptr) *slots = emitter.slots();
  return stream_of(std::move(emitter), config, options, layers);
}

Cost replay(const InstructionStream& stream, const schedule::Machine& machine) {
  const emit::Dram dram{machine.dram_latency_cycles, machine.dram_bandwidth_bytes};
  const emit::Prediction prediction =
      emit::predict(stream.instructions, stream.tags, *stream.works, 0, machine.config, dram);
  return {prediction.cycles, stream.dram_bytes, stream.computed};
}

void TaskLowering::append(const schedule::Schedule& schedule, int i, Emitter& emitter) const {
  LayerInfo info;
  npu::lower(task_, moved(nest_, i, true, true), schedule, emitter, info);
}

InstructionStream TaskLowering::lower(const schedule::Schedule& schedule, int times) const {
  const auto all = [&](Emitter& emitter) {
    for (int i = 0; i < times; ++i) append(schedule, i, emitter);
  };
  return lower_stream(config_, options_, 1, all, &slots_);
}

std::array<InstructionStream, 2> TaskLowering::once_and_twice(const schedule::Schedule& schedule) const {
  return both_streams(config_, options_, 1, slots_, [&](int i, Emitter& emitter) { append(schedule, i, emitter); });
}

InstructionStream TaskLowering::lower(const schedule::ChainPlan&, int) const {
  TESSERA_INVARIANT(false, "one task has no plan of a chain");
}

InstructionStream ChainLowering::lower(const schedule::Schedule&, int) const {
  TESSERA_INVARIANT(false, "a chain has no single schedule");
}

void ChainLowering::append(const schedule::ChainPlan& plan, int i, Emitter& emitter) const {
  const schedule::Nest head = moved(*nests_.front(), i, true, false), tail = moved(*nests_.back(), i, false, true);
  Chain here;
  here.first = chain_.first;
  here.tasks = chain_.tasks;
  here.nests = nests_;
  here.nests.front() = &head;
  here.nests.back() = &tail;
  here.plan = plan;
  std::vector<LayerInfo> infos(chain_.first + chain_.size());
  lower_chain(here, emitter, infos);
}

InstructionStream ChainLowering::lower(const schedule::ChainPlan& plan, int times) const {
  const auto all = [&](Emitter& emitter) {
    for (int i = 0; i < times; ++i) append(plan, i, emitter);
  };
  return lower_stream(config_, options_, chain_.first + chain_.size(), all, &slots_);
}

std::array<InstructionStream, 2> ChainLowering::once_and_twice(const schedule::ChainPlan& plan) const {
  return both_streams(config_, options_, chain_.first + chain_.size(), slots_,
                      [&](int i, Emitter& emitter) { append(plan, i, emitter); });
}

}  // namespace tessera::npu
