// SPDX-License-Identifier: Apache-2.0
#include "compiler/tile/link.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "compiler/emit/predict.h"
#include "compiler/emit/synchronise.h"
#include "isa/assembler.h"
#include "isa/verify/effects.h"
#include "isa/verify/verify.h"

namespace tessera::tile {

namespace {

using program::DeviceTensor;

/// The fastest axes are channels, columns and rows, all in front of them images.
DeviceTensor device_tensor(const Argument& argument, int64_t value, bool input) {
  const int64_t bytes = program::dtype_bits(argument.dtype) / 8;
  DeviceTensor d;
  d.value = value;
  d.offset = argument.offset;
  d.dtype = argument.dtype;
  const size_t rank = argument.shape.size();
  int64_t* const extents[] = {&d.n, &d.h, &d.w, &d.c};
  d.axes.resize(rank);
  for (size_t i = 0; i < rank; ++i) {
    const auto axis = static_cast<size_t>(argument.order[i]);
    d.axes[axis] = std::max<int64_t>(3 - static_cast<int64_t>(rank - 1 - i), 0);
    *extents[d.axes[axis]] *= argument.shape[axis];
  }
  d.pixel_pitch = argument.padded * bytes;
  d.row_pitch = d.w * d.pixel_pitch;
  d.image_pitch = d.h * d.row_pitch;
  d.padded_c = input ? argument.padded : d.c;
  d.border_value = input ? argument.fill : 0;
  return d;
}

class Linker {
 public:
  explicit Linker(const Kernel& kernel) : kernel_(kernel) {}

  program::Artifact run() {
    for (const Statement& statement : kernel_.statements) add(statement);
    if (kernel_.by_hand)
      take_waits();
    else
      emit::synchronise(instructions_, tags_, kernel_.config);
    program::Artifact artifact;
    artifact.producer = "tessera.tile";
    artifact.config = kernel_.config;
    artifact.device_constants = kernel_.constants;
    program::NpuProgram program = npu_program();
    for (const program::Layer& layer : program.layers) artifact.totals.macs_npu += layer.macs;
    artifact.totals.nodes_npu = 1;
    artifact.totals.unshared_bytes = kernel_.arena_bytes;
    artifact.npu_programs.push_back(std::move(program));
    program::NpuStep step;
    program::Plan& plan = artifact.plans.emplace_back();
    const auto add_value = [&](const Argument& argument) {
      program::ValueInfo value;
      value.name = argument.name;
      value.dtype = argument.dtype;
      value.ranked = true;
      value.shape = argument.shape;
      artifact.values.push_back(std::move(value));
      return static_cast<int64_t>(artifact.values.size()) - 1;
    };
    for (const Argument& input : kernel_.inputs) {
      plan.inputs.push_back(add_value(input));
      step.inputs.push_back(device_tensor(input, plan.inputs.back(), true));
    }
    for (const Argument& output : kernel_.outputs) {
      plan.outputs.push_back(add_value(output));
      artifact.output_names.push_back(output.name);
      step.outputs.push_back(device_tensor(output, plan.outputs.back(), false));
    }
    plan.steps.emplace_back(std::move(step));
    return artifact;
  }

  std::vector<Wait> needless() { return std::move(needless_); }

 private:
  /// The memory of which two instructions touch the same bytes, one of them writing.
  static std::string shared_memory(const emit::Work& one, const emit::Work& other) {
    for (const emit::Touch& a : one.touches)
      for (const emit::Touch& b : other.touches)
        if (a.memory == b.memory && (a.write || b.write) && a.begin < b.end && b.begin < a.end)
          return a.memory < isa::kSpaces ? std::string(isa::to_string(static_cast<isa::Space>(a.memory))) : "DRAM";
    return "memory";
  }

  void take_waits() {
    std::vector<emit::PlacedWaits::Wait> waits;
    for (const Wait& wait : kernel_.waits)
      waits.push_back({static_cast<uint32_t>(wait.instruction), static_cast<uint32_t>(wait.earlier)});
    const std::vector<isa::Instruction> given = instructions_;
    const std::vector<uint32_t> tags = tags_;
    const emit::PlacedWaits found = emit::synchronise_as_placed(instructions_, tags_, waits, kernel_.config);
    for (const auto& wait : found.needless) needless_.push_back({wait.instruction, wait.earlier});
    if (found.missing.empty() || kernel_.unchecked) return;
    const auto& first = found.missing.front();
    const Line &later = kernel_.lines.at(tags[first.instruction]), &earlier = kernel_.lines.at(tags[first.earlier]);
    const std::string memory = shared_memory(emit::work_of(given[first.instruction], kernel_.config),
                                             emit::work_of(given[first.earlier], kernel_.config));
    throw Error(ErrorCode::kInvalidArgument, later.where + ": " + later.what + ": touches the same bytes of " + memory +
                                                 " as " + earlier.what + " at " + earlier.where +
                                                 ", which may still run; let that signal, and wait for it here (" +
                                                 std::to_string(found.missing.size()) + " waits are missing)");
  }

  /// The instructions of a statement, each of which the machine has to take alone.
  void add(const Statement& statement) {
    const Line& line = kernel_.lines.at(statement.line);
    const auto refuse = [&](const std::string& why) {
      throw Error(ErrorCode::kInvalidArgument, line.where + ": " + line.what + ": " + why);
    };
    std::vector<isa::Instruction> found;
    try {
      found = isa::assemble(statement.assembly, line.where);
    } catch (const Error& error) {
      refuse(error.what());
    }
    for (const isa::Instruction& instruction : found) {
      if (const auto problem = isa::check_operands(instruction, kernel_.config)) refuse(problem->message);
      if (const auto problem = isa::check_ranges(instruction, kernel_.config)) refuse(problem->message);
      instructions_.push_back(instruction);
      tags_.push_back(static_cast<uint32_t>(statement.line));
    }
  }

  /// By what they are for, as kStreamNames has it: what is loaded to OUT or ACC meets what is computed.
  static void count_bytes(const isa::Effects& effects, program::Layer& layer) {
    layer.stream_bytes.resize(program::kStreamNames.size());
    constexpr std::array<size_t, isa::kSpaces> kOf = {0, 1, 3, 3, 2, 2};  // by Space
    for (const isa::Operand& operand : effects.operands)
      if (!operand.dram && operand.write && effects.dram_read_bytes > 0)
        layer.stream_bytes[kOf.at(static_cast<size_t>(operand.space))] +=
            static_cast<uint64_t>(effects.dram_read_bytes);
    layer.stream_bytes[4] += static_cast<uint64_t>(effects.dram_write_bytes);
    layer.stream_bytes[5] += isa::kInstructionBytes;
  }

  program::NpuProgram npu_program() const {
    const size_t count = kernel_.lines.size();
    const emit::Prediction predicted = emit::predict(instructions_, tags_, count, kernel_.config);
    program::NpuProgram out;
    out.instructions = program::instruction_bytes(instructions_);
    out.layer_of_instruction = tags_;
    out.constant_bytes = kernel_.constants.size();
    out.arena_bytes = kernel_.arena_bytes;
    out.layers.resize(count);
    for (size_t i = 0; i < count; ++i) {
      program::Layer& layer = out.layers[i];
      layer.name = kernel_.lines[i].where;
      layer.op = kernel_.lines[i].what;
      layer.placement = "npu";
      layer.nodes = {kernel_.lines[i].where};
      layer.predicted_cycles = static_cast<uint64_t>(predicted.layer_cycles[i]);
    }
    for (size_t i = 0; i < instructions_.size(); ++i) {
      if (tags_[i] >= count) continue;
      const isa::Effects effects = isa::effects(instructions_[i], kernel_.config);
      out.layers[tags_[i]].macs += static_cast<uint64_t>(effects.macs);
      count_bytes(effects, out.layers[tags_[i]]);
      out.layers[tags_[i]].dram_read_bytes += static_cast<uint64_t>(effects.dram_read_bytes);
      out.layers[tags_[i]].dram_write_bytes += static_cast<uint64_t>(effects.dram_write_bytes);
    }
    const auto peak = static_cast<uint64_t>(kernel_.config.peak_macs()),
               width = static_cast<uint64_t>(kernel_.config.axi_bytes);
    for (program::Layer& layer : out.layers)
      layer.bound_cycles = std::max((layer.macs + peak - 1) / peak,
                                    (layer.dram_read_bytes + layer.dram_write_bytes + width - 1) / width);
    return out;
  }

  const Kernel& kernel_;
  std::vector<isa::Instruction> instructions_;
  std::vector<uint32_t> tags_;
  std::vector<Wait> needless_;
};

}  // namespace

Linked link(const Kernel& kernel) {
  Linker linker(kernel);
  Linked linked{linker.run(), linker.needless()};
  program::validate(linked.artifact);
  return linked;
}

}  // namespace tessera::tile
