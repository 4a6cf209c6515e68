// SPDX-License-Identifier: Apache-2.0
// A piece of work is tried twice in a row, the second time on what the first has written: so its weights come early and
// its input does not, as between other layers. The machine is empty only at the start, which counts less.
#include "compiler/npu/trial.h"

#include "compiler/emit/predict.h"
#include "compiler/emit/synchronise.h"
#include "compiler/npu/lower.h"

namespace tessera::npu {

namespace {

constexpr double kFirst = 0.8;                // of the first time's cycles do not count
constexpr int64_t kApart = int64_t{1} << 32;  // bytes between the tensors of a trial

double score(const Trial& trial, const isa::MachineConfig& config, const Options& options) {
  return schedule::Goal{false, options.traffic_weight}.score(trial.cycles, trial.bytes, config);
}

/// `append(emitter, i)`: the work for the i-th time.
template <typename Append>
Trial try_twice(const isa::MachineConfig& config, const Options& options, size_t layers, Append&& append) {
  const Trial once = try_stream(config, options, layers, [&](Emitter& emitter) { append(emitter, 0); });
  Trial trial = try_stream(config, options, layers, [&](Emitter& emitter) { append(emitter, 0), append(emitter, 1); });
  trial.cycles = static_cast<int64_t>((static_cast<double>(trial.cycles) - kFirst * static_cast<double>(once.cycles)) /
                                      (2 - kFirst));
  trial.bytes /= 2;
  trial.score = score(trial, config, options);
  return trial;
}

/// For the i-th time: reads tensor i, writes tensor i + 1.
schedule::Nest moved(const schedule::Nest& nest, int i, bool input, bool output) {
  schedule::Nest result = nest;
  if (input) {
    result.input.base = kArenaBase;
    result.input.offset = i * kApart;
  }
  if (output) {
    result.output.base = kArenaBase;
    result.output.offset = (i + 1) * kApart;
  }
  return result;
}

}  // namespace

Trial try_stream(const isa::MachineConfig& config, const Options& options, size_t layers,
                 const std::function<void(Emitter&)>& append) {
  Emitter emitter(config, options);
  emitter.sizes_only = true;
  append(emitter);
  emitter.assemble(options.prefetch_weights && options.virtual_threads);
  Trial trial;
  for (const isa::Instruction& instruction : emitter.instructions)
    trial.bytes += isa::dram_bytes(instruction) + isa::kInstructionBytes;
  trial.instructions = static_cast<int64_t>(emitter.instructions.size());
  emit::synchronise(emitter.instructions, emitter.layer_of_instruction, config);
  trial.cycles = emit::predict(emitter.instructions, emitter.layer_of_instruction, layers, config).cycles;
  trial.score = score(trial, config, options);
  return trial;
}

Trial try_schedule(const Task& task, const schedule::Nest& nest, const schedule::Schedule& schedule,
                   const isa::MachineConfig& config, const Options& options) {
  LayerInfo info;
  return try_twice(config, options, 1,
                   [&](Emitter& emitter, int i) { lower(task, moved(nest, i, true, true), schedule, emitter, info); });
}

Trial try_chain(const Chain& chain, const isa::MachineConfig& config, const Options& options) {
  std::vector<LayerInfo> infos(chain.first + chain.size());
  return try_twice(config, options, infos.size(), [&](Emitter& emitter, int i) {
    const schedule::Nest head = moved(*chain.nests.front(), i, true, false),
                         tail = moved(*chain.nests.back(), i, false, true);
    Chain here;
    here.first = chain.first;
    here.tasks = chain.tasks;
    here.nests = chain.nests;
    here.nests.front() = &head;
    here.nests.back() = &tail;
    here.plan = chain.plan;
    lower_chain(here, emitter, infos);
  });
}

}  // namespace tessera::npu
