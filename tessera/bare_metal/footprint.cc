// SPDX-License-Identifier: Apache-2.0
// What has a form without an operating system, and the memory that it takes.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "compiler/cpu/code/code_facts.h"
#include "isa/generated/instructions.h"
#include "tessera/bare_metal/bare_metal.h"
#include "tessera/bare_metal/layout.h"

namespace tessera::bare_metal {

namespace {

// At most, of what compilers make for the processors of compiler/cpu/code/target.h: runtime and console, arithmetic in
// integers, functions as exp is, and the compiler's library for floats and doubles where there are no instructions.
constexpr uint64_t kRuntime = 14 << 10, kArithmetic = 5 << 10, kFunctions = 11 << 10, kFloats = 7 << 10,
                   kDoubles = 11 << 10, kStack = 8 << 10;
constexpr uint64_t kMostBytes = uint64_t{1} << 31;  // of each block: sizes and steps are 32-bit numbers

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kUnsupported, "bare-metal export: " + why); }

/// Functions of tessera_math.h, without their prefix.
std::set<std::string> own_functions() {
  std::set<std::string> names;
  for (const Source& source : sources()) {
    if (source.name != "tessera_math.h") continue;
    const std::string_view prefix = " tessera_";
    for (size_t at = source.text.find(prefix); at != std::string_view::npos; at = source.text.find(prefix, at + 1)) {
      const size_t begin = at + prefix.size(), end = source.text.find('(', begin);
      names.emplace(source.text.substr(begin, end - begin));
    }
  }
  return names;
}

const program::ValueInfo& value(const program::Artifact& artifact, int64_t id) {
  return artifact.values[static_cast<size_t>(id)];
}

void check_value(const program::Artifact& artifact, int64_t id, const std::string& where) {
  if (id < 0) return;
  const program::ValueInfo& info = value(artifact, id);
  const bool is_static =
      info.ranked && std::all_of(info.shape.begin(), info.shape.end(), [](int64_t d) { return d >= 0; });
  if (info.kind != program::ValueKind::kTensor || program::dtype_bits(info.dtype) < 8)
    refuse(where + " has values that are no tensors of whole bytes");
  if (!is_static)
    refuse(where + " has a shape that is known only at run time; all memory is planned here: fix it with --shape");
}

void check_kernel(const program::Artifact& artifact, const program::KernelStep& step) {
  const std::string who = "node '" + step.node_name + "' (" + step.op_type + ")";
  if (step.op_type != "Gather" || !step.domain.empty())
    refuse(who +
           " runs as a kernel of the host's library, which firmware has not; leave it to the host: end the model "
           "before it");
  for (const int64_t id : step.inputs) check_value(artifact, id, who);
  for (const int64_t id : step.outputs) check_value(artifact, id, who);
}

void check_code(const program::Artifact& artifact, const Options& options, const cpu::CodeFacts& facts) {
  static const std::set<std::string> own = own_functions();
  for (const program::Step& step : artifact.plans[0].steps) {
    const auto* code = std::get_if<program::CodeStep>(&step);
    if (code == nullptr || options.library_math) continue;
    const auto calls = facts.calls.find(code->symbol);
    if (calls == facts.calls.end()) continue;
    for (const std::string& name : calls->second) {
      if (own.contains(name)) continue;
      const program::Layer& layer = artifact.cpu_layers[static_cast<size_t>(code->layer)];
      refuse("node '" + code->node_name + "' (" + layer.op + ") calls " + name +
             ", which the runtime has not with the bits of this host; --library-math takes the C library's of the "
             "firmware, which may differ in the last bit");
    }
  }
}

/// Bytes of the tables in model.c, at most; `pointer`: bytes of one.
uint64_t tables(const program::Artifact& artifact, uint64_t pointer) {
  constexpr uint64_t kPlace = 260, kOnce = 1024;
  uint64_t bytes = kOnce;
  for (const program::Step& step : artifact.plans[0].steps) {
    bytes += 24 * pointer;
    if (const auto* npu = std::get_if<program::NpuStep>(&step)) {
      bytes += kPlace * (npu->inputs.size() + npu->outputs.size());
      const program::NpuProgram& program = artifact.npu_programs[static_cast<size_t>(npu->program)];
      for (size_t pc = 1; pc < program.layer_of_instruction.size(); ++pc)
        bytes += program.layer_of_instruction[pc] != program.layer_of_instruction[pc - 1] ? 2 * pointer : 0;
      for (const program::Layer& layer : program.layers) bytes += layer.name.size() + 1;
    } else if (const auto* code = std::get_if<program::CodeStep>(&step)) {
      bytes += pointer * (code->inputs.size() + code->outputs.size() + 1);
    }
  }
  for (const auto* ids : {&artifact.plans[0].inputs, &artifact.plans[0].outputs})
    for (const int64_t id : *ids)
      bytes += 5 * pointer + value(artifact, id).name.size() + 4 * value(artifact, id).shape.size();
  return bytes;
}

/// One plan, which runs straight, of tensors that do not grow, with CPU code for the processor.
void check_form(const program::Artifact& artifact, const Options& options) {
  if (artifact.growth.room > 0)
    refuse("a decoder whose past grows has dynamic shapes; compile it for one length with --shape");
  if (artifact.plans.empty() || artifact.plans.size() > 1) {
    std::string node;
    for (const program::Step& step : artifact.plans.empty() ? std::vector<program::Step>() : artifact.plans[0].steps)
      if (const auto* kernel = std::get_if<program::KernelStep>(&step))
        for (const program::Attribute& a : kernel->attributes)
          if (a.kind == program::Attribute::kPlan) node = "node '" + kernel->node_name + "' (" + kernel->op_type + ")";
    refuse(node + " has a body, and firmware runs a straight list of steps; unroll it, or end the model before it");
  }
  if (std::any_of(artifact.output_keys.begin(), artifact.output_keys.end(),
                  [](const program::MapKeys& keys) { return !keys.empty(); }))
    refuse("an output is a sequence of maps; leave out the ZipMap at the model's end");
  if (!artifact.cpu.object.empty() && artifact.cpu.triple != options.processor.triple)
    throw Error(ErrorCode::kInvalidArtifact, "bare-metal export: the artifact's CPU code is for " +
                                                 artifact.cpu.triple + ", not for " + options.processor.name +
                                                 "; export the ONNX model, or compile it with --cpu-target " +
                                                 options.processor.name);
}

}  // namespace

Footprint footprint(const program::Artifact& artifact, const Options& options) {
  check_form(artifact, options);
  const program::Plan& plan = artifact.plans[0];
  for (const int64_t id : plan.inputs) check_value(artifact, id, "input '" + value(artifact, id).name + "'");
  for (const int64_t id : plan.outputs) check_value(artifact, id, "output '" + value(artifact, id).name + "'");
  Footprint needs;
  for (const program::Step& step : plan.steps) {
    if (const auto* kernel = std::get_if<program::KernelStep>(&step)) check_kernel(artifact, *kernel);
    needs.npu = needs.npu || std::holds_alternative<program::NpuStep>(step);
  }
  const cpu::CodeFacts facts = cpu::facts_of(artifact.cpu);
  check_code(artifact, options, facts);
  const ArenaLayout layout = plan_arena(artifact);
  for (const program::NpuProgram& npu : artifact.npu_programs) {
    needs.instructions += npu.instructions.size();
    needs.npu_arena = std::max(needs.npu_arena, (npu.arena_bytes + 63) / 64 * 64);
  }
  needs.npu_constants = artifact.device_constants.size();
  needs.cpu_constants = layout.constant_bytes;
  needs.code = facts.code_bytes + facts.constant_bytes;
  needs.soft_float = !options.processor.floats && needs.code != 0;
  const bool functions =
      std::any_of(facts.calls.begin(), facts.calls.end(), [](const auto& entry) { return !entry.second.empty(); });
  needs.runtime = kRuntime + tables(artifact, options.processor.bits / 8);
  if (needs.code != 0) needs.runtime += kArithmetic + (functions ? kFunctions : 0);
  if (needs.soft_float) needs.runtime += kFloats;
  if (functions && options.processor.bits == 32) needs.runtime += kDoubles;
  needs.arena = layout.bytes;
  needs.stack = kStack;
  for (const uint64_t bytes :
       {needs.instructions, needs.npu_constants, needs.cpu_constants, needs.npu_arena, needs.arena})
    if (bytes >= kMostBytes) refuse("a block of " + std::to_string(bytes) + " bytes is beyond 2 GiB");
  return needs;
}

std::string footprint_text(const Footprint& needs, const Options& options) {
  std::string text;
  const auto add = [&](const std::string& what, uint64_t bytes, const std::string& note) {
    std::string number = std::to_string(bytes);
    text += "  " + what + std::string(34 - what.size(), ' ') +
            std::string(12 - std::min<size_t>(12, number.size()), ' ') + number + (note.empty() ? "" : "  " + note) +
            "\n";
  };
  add("instructions of the NPU", needs.instructions, "read by the NPU");
  add("constants of the NPU", needs.npu_constants, "read by the NPU");
  add("constants of the CPU", needs.cpu_constants, "");
  add("code of the CPU parts", needs.code, options.processor.name);
  add("runtime, console and tables", needs.runtime,
      needs.soft_float ? "at most, with the compiler's soft-float library" : "at most");
  add("ROM", needs.rom(), "");
  add("arena of the NPU", needs.npu_arena, "shared with the NPU");
  add("arena of the CPU", needs.arena, "");
  add("stack", needs.stack, "");
  add("RAM", needs.ram(), "");
  return text;
}

void check_room(const Footprint& needs, const Options& options) {
  const auto refuse_room = [&](const std::string& what, uint64_t need, uint64_t have, const std::string& flag) {
    throw Error(ErrorCode::kDoesNotFit, "bare-metal export: the firmware of '" + options.model + "' needs " +
                                            std::to_string(need) + " bytes of " + what + ", and there are " +
                                            std::to_string(have) + "; take a smaller model or a larger memory (" +
                                            flag + ")");
  };
  if (options.rom != 0 && needs.rom() > options.rom) refuse_room("ROM", needs.rom(), options.rom, "--rom");
  // A firmware without a ROM of its own is loaded into RAM.
  const uint64_t ram = needs.ram() + (options.rom == 0 && !options.target.port.empty() ? needs.rom() : 0);
  if (options.ram != 0 && ram > options.ram) refuse_room("RAM", ram, options.ram, "--ram");
}

}  // namespace tessera::bare_metal
