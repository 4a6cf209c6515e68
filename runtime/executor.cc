// SPDX-License-Identifier: Apache-2.0
// One table of values for the whole artifact; plans of control flow get a frame of their own that falls back on the
// caller's for captured values.
#include "runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "isa/verify/effects.h"
#include "runtime/buffer_pool.h"
#include "runtime/cpu_code.h"
#include "runtime/layout.h"
#include "runtime/threads.h"
#include "runtime/values.h"

namespace tessera::runtime {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

struct Executor::State {
  std::shared_ptr<const program::Artifact> artifact;
  std::shared_ptr<driver::Device> device;
  std::unique_ptr<CpuCode> code;
  std::vector<ops::Value> constants;  // by value id, none where it is no constant
  struct Loaded {
    uint64_t program = 0, constants = 0, arena = 0;
    uint32_t instructions = 0;
    std::vector<driver::CoreProgram> others;
  };
  std::vector<Loaded> programs;
  // Staging of one program after the other. Its pages take memory when they are written.
  std::unique_ptr<uint8_t, void (*)(void*)> host_arena{nullptr, std::free};
  std::vector<uint64_t> allocations;
  std::unordered_map<const void*, ops::Node> nodes;  // of kernel steps
  std::unordered_map<const void*, CpuCode::Function> functions;
  BufferPool memory;  // of compiled code
  // Of the run at hand, in the main plan.
  std::shared_ptr<DeviceMemory> state;              // what stays from run to run
  std::shared_ptr<DeviceMemory> own_state;          // for runs whose pasts come from the host and go back to it
  std::vector<uint8_t> host_state;                  // staging for it
  std::unordered_set<int64_t> in_state;             // values that it holds
  uint64_t append = 0;                              // number of the write to it
  std::unordered_map<int64_t, DeviceArray> arrays;  // inputs that programs read where they are
  std::unordered_map<int64_t, DeviceArray> kept;    // outputs that stay on the device
  std::unordered_set<int64_t> wanted;               // outputs that shall
  std::unordered_set<int64_t> host_reads;           // values that the host reads
  int64_t past = 0;                                 // how much of what grows there is before the run at hand
  Report report;
  RunOptions options;

  ~State() {
    for (uint64_t address : allocations) {
      try {
        device->free(address);
      } catch (const Error&) {
      }
    }
  }

  /// Values of one running plan.
  struct Frame {
    std::unordered_map<int64_t, ops::Value> values;
    const Frame* outer = nullptr;
  };

  const ops::Value& value(const Frame& frame, int64_t id) const {
    for (const Frame* f = &frame; f; f = f->outer) {
      const auto found = f->values.find(id);
      if (found != f->values.end()) return found->second;
    }
    const ops::Value& constant = constants[static_cast<size_t>(id)];
    if (constant.is_none() && artifact->values[static_cast<size_t>(id)].constant < 0)
      throw Error(ErrorCode::kInternal,
                  "value '" + artifact->values[static_cast<size_t>(id)].name + "' is read before it is computed");
    return constant;
  }

  struct Body : ops::Subgraph {
    State* state;
    const program::Plan* plan;
    const Frame* frame;
    Body(State* s, const program::Plan* p, const Frame* f) : state(s), plan(p), frame(f) {}
    size_t input_count() const override { return plan->inputs.size(); }
    size_t output_count() const override { return plan->outputs.size(); }
    std::vector<ops::Value> run(const std::vector<ops::Value>& inputs) const override {
      return state->run_plan(*plan, inputs, frame);
    }
    std::vector<ops::TypeInfo> input_types() const override { return types_of(plan->inputs); }
    std::vector<ops::TypeInfo> infer(const std::vector<ops::TypeInfo>&) const override {
      return types_of(plan->outputs);
    }
    std::vector<ops::TypeInfo> types_of(const std::vector<int64_t>& values) const {
      std::vector<ops::TypeInfo> types;
      for (int64_t id : values) {
        const program::ValueInfo& info = state->artifact->values[static_cast<size_t>(id)];
        ops::TypeInfo type;
        type.dtype = static_cast<ops::DType>(info.dtype);
        type.ranked = info.ranked;
        type.shape = info.shape;
        types.push_back(std::move(type));
      }
      return types;
    }
  };

  ops::Node make_node(const program::KernelStep& step) const {
    ops::Node node;
    node.domain = step.domain;
    node.op_type = step.op_type;
    node.version = step.version;
    node.name = step.node_name;
    node.output_count = step.outputs.size();
    for (const program::Attribute& a : step.attributes) {
      ops::Attribute& to = node.attributes[a.name];
      switch (a.kind) {
        case program::Attribute::kInt: to = a.i; break;
        case program::Attribute::kFloat: to = a.f; break;
        case program::Attribute::kString: to = a.s; break;
        case program::Attribute::kInts: to = a.ints; break;
        case program::Attribute::kFloats: to = a.floats; break;
        case program::Attribute::kStrings: to = a.strings; break;
        case program::Attribute::kTensor: to = constant_tensor(*artifact, artifact, a.tensor); break;
        case program::Attribute::kPlan: break;  // bound to a frame when it runs
      }
    }
    return node;
  }

  void run_kernel(const program::KernelStep& step, Frame& frame) {
    const auto start = Clock::now();
    std::vector<ops::Value> inputs;
    for (int64_t id : step.inputs) inputs.push_back(id < 0 ? ops::Value() : value(frame, id));
    auto known = nodes.find(&step);
    if (known == nodes.end()) known = nodes.emplace(&step, make_node(step)).first;
    ops::Node* node = &known->second;
    ops::Node bound;
    for (const program::Attribute& a : step.attributes)
      if (a.kind == program::Attribute::kPlan) {
        if (node == &known->second) {
          bound = known->second;
          node = &bound;
        }
        node->attributes[a.name] = std::shared_ptr<const ops::Subgraph>(
            std::make_shared<Body>(this, &artifact->plans[static_cast<size_t>(a.plan)], &frame));
      }
    std::vector<ops::Value> outputs = ops::evaluate(*node, inputs);
    for (size_t i = 0; i < step.outputs.size() && i < outputs.size(); ++i)
      if (step.outputs[i] >= 0) frame.values[step.outputs[i]] = std::move(outputs[i]);
    if (!frame.outer) report.cpu.push_back({step.node_name, step.op_type, step.layer, seconds_since(start)});
  }

  void run_code(const program::CodeStep& step, Frame& frame) {
    const auto start = Clock::now();
    auto known = functions.find(&step);
    if (known == functions.end()) {
      if (!code) throw Error(ErrorCode::kInvalidArtifact, "the artifact has no CPU code for '" + step.symbol + "'");
      known = functions.emplace(&step, code->find(step.symbol)).first;
    }
    std::vector<void*> buffers;
    std::vector<std::shared_ptr<std::byte>> copies;  // inputs that are not aligned as compiled code expects
    for (int64_t id : step.inputs) {
      const ops::Tensor& t = value(frame, id).tensor;
      // The code was compiled for this type and shape, and looks at neither.
      check_operand(artifact->values[static_cast<size_t>(id)], value(frame, id), "node '" + step.node_name + "'");
      auto* data = const_cast<std::byte*>(t.data());
      if (reinterpret_cast<uintptr_t>(data) % 64 != 0) {
        copies.push_back(memory.acquire(static_cast<size_t>(t.bytes())));
        std::memcpy(copies.back().get(), data, static_cast<size_t>(t.bytes()));
        data = copies.back().get();
      }
      buffers.push_back(data);
    }
    std::vector<std::shared_ptr<std::byte>> results;
    for (int64_t id : step.outputs) {
      const program::ValueInfo& info = artifact->values[static_cast<size_t>(id)];
      results.push_back(memory.acquire(static_cast<size_t>(ops::element_count(info.shape) *
                                                           ops::element_bytes(static_cast<ops::DType>(info.dtype)))));
      buffers.push_back(results.back().get());
    }
    std::shared_ptr<std::byte> scratch;
    if (step.scratch_bytes != 0) {
      scratch = memory.acquire(step.scratch_bytes);
      buffers.push_back(scratch.get());
    }
    known->second(buffers.data());
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      const program::ValueInfo& info = artifact->values[static_cast<size_t>(step.outputs[i])];
      const std::byte* data = results[i].get();
      frame.values[step.outputs[i]] =
          ops::Tensor::view(static_cast<ops::DType>(info.dtype), info.shape, results[i], data);
    }
    if (!frame.outer) report.cpu.push_back({step.node_name, step.symbol, step.layer, seconds_since(start)});
  }

  /// Brings an input of a program to its place.
  void put(const program::DeviceTensor& d, const Frame& frame, std::span<uint8_t> staging, uint64_t arena) {
    const bool stays = d.base == program::kStateBase;
    if (stays && in_state.count(d.value) != 0) return;
    const Extent e = extent(d);
    if (const auto array = arrays.find(d.value); array != arrays.end()) {
      device->copy(arena + e.offset, array->second.memory->address() + extent(array->second.layout).offset, e.bytes);
      return;
    }
    const ops::Value& v = value(frame, d.value);
    check_operand(artifact->values[static_cast<size_t>(d.value)], v, "a program of the NPU");
    const std::span<uint8_t> bytes = stays ? state_staging() : staging;
    pack(v.tensor, d, bytes);
    device->write((stays ? state->address() : arena) + e.offset, bytes.subspan(e.offset, e.bytes));
  }

  /// Fetches an output of a program, or keeps it on the device, or both.
  void take(const program::DeviceTensor& d, Frame& frame, std::span<uint8_t> staging, uint64_t arena) {
    const bool stays = d.base == program::kStateBase;
    if (stays) in_state.insert(d.value);
    const Extent e = extent(d);
    ops::Shape shape = artifact->values[static_cast<size_t>(d.value)].shape;
    if (d.growing_axis >= 0)
      shape[static_cast<size_t>(d.growing_axis)] = largest_extent(d, shape) - (artifact->growth.room - past);
    if (wanted.count(d.value) != 0) {
      DeviceArray array{state, d, static_cast<ops::DType>(d.dtype), shape, append, {}};
      if (!stays) {
        array.memory = std::make_shared<DeviceMemory>(device, e.bytes);
        array.layout.offset -= e.offset;
        device->copy(array.memory->address(), arena + e.offset, e.bytes);
      }
      kept[d.value] = std::move(array);
    }
    if (!frame.outer && host_reads.count(d.value) == 0) return;  // the host reads what bodies make
    const std::span<uint8_t> bytes = stays ? state_staging() : staging;
    device->read((stays ? state->address() : arena) + e.offset, bytes.subspan(e.offset, e.bytes));
    frame.values[d.value] = unpack(d, shape, bytes);
  }

  /// Values that kernels and compiled code read, that programs read from the host, or that go to the host.
  void find_host_reads(const std::vector<bool>& on_device) {
    host_reads.clear();
    const program::Plan& main = artifact->plans[0];
    for (const program::Step& step : main.steps) {
      if (const auto* kernel = std::get_if<program::KernelStep>(&step)) {
        host_reads.insert(kernel->inputs.begin(), kernel->inputs.end());
        for (const program::Attribute& a : kernel->attributes)
          if (a.kind == program::Attribute::kPlan) {
            const auto& captured = artifact->plans[static_cast<size_t>(a.plan)].captured;
            host_reads.insert(captured.begin(), captured.end());
          }
      } else if (const auto* compiled = std::get_if<program::CodeStep>(&step)) {
        host_reads.insert(compiled->inputs.begin(), compiled->inputs.end());
      } else {
        for (const program::DeviceTensor& d : std::get<program::NpuStep>(step).inputs)
          if (d.base != program::kStateBase) host_reads.insert(d.value);
      }
    }
    for (size_t i = 0; i < main.outputs.size(); ++i)
      if (on_device.empty() || !on_device[i]) host_reads.insert(main.outputs[i]);
  }

  /// Whether programs alone read an input, as it lies.
  bool read_in_place(int64_t id, const DeviceArray& array) const {
    const program::Plan& main = artifact->plans[0];
    bool any = false;
    for (const program::Step& step : main.steps) {
      if (const auto* npu = std::get_if<program::NpuStep>(&step)) {
        for (const program::DeviceTensor& d : npu->inputs) {
          if (d.value != id) continue;
          if (d.base != program::kArenaBase || !same_layout(d, array.layout)) return false;
          any = true;
        }
        continue;
      }
      const auto* kernel = std::get_if<program::KernelStep>(&step);
      const auto& inputs = kernel ? kernel->inputs : std::get<program::CodeStep>(step).inputs;
      if (std::find(inputs.begin(), inputs.end(), id) != inputs.end()) return false;
      if (kernel)
        for (const program::Attribute& a : kernel->attributes)
          if (a.kind == program::Attribute::kPlan) return false;  // a body may read it
    }
    return any && std::find(main.outputs.begin(), main.outputs.end(), id) == main.outputs.end();
  }

  /// Where the program wants a past that stays; nothing for others.
  const program::DeviceTensor* place_of_past(int64_t id) const {
    for (const program::Step& step : artifact->plans[0].steps)
      if (const auto* npu = std::get_if<program::NpuStep>(&step))
        for (const program::DeviceTensor& d : npu->inputs)
          if (d.value == id && d.base == program::kStateBase) return &d;
    return nullptr;
  }

  /// The memory in which an earlier run left all pasts that stay, each at its place; nothing when they come from
  /// elsewhere.
  std::shared_ptr<DeviceMemory> memory_of_pasts(const std::vector<Bound>& inputs) const {
    std::shared_ptr<DeviceMemory> memory;
    for (const program::Past& past : artifact->growth.pasts) {
      const program::DeviceTensor* d = place_of_past(artifact->plans[0].inputs[static_cast<size_t>(past.input)]);
      if (d == nullptr) continue;
      const auto* array = std::get_if<DeviceArray>(&inputs[static_cast<size_t>(past.input)]);
      if (array == nullptr || (memory && memory != array->memory)) return nullptr;
      if (array->layout.base != program::kStateBase || array->layout.offset != d->offset ||
          strides_of(array->layout, array->shape) != strides_of(*d, array->shape) ||
          array->memory->bytes() != std::max<uint64_t>(state_bytes(), 64))
        return nullptr;
      memory = array->memory;
    }
    return memory;
  }

  uint64_t state_bytes() const { return artifact->growth.state_bytes; }

  /// Only pasts that come from the host or go there need it.
  std::span<uint8_t> state_staging() {
    host_state.resize(state_bytes());
    return host_state;
  }

  /// Chooses the memory of what stays, before a run.
  void choose_state(const std::vector<Bound>& inputs) {
    if (state_bytes() == 0) return;
    state = memory_of_pasts(inputs);
    if (state) {
      for (const program::Past& grown : artifact->growth.pasts) {
        const int64_t id = artifact->plans[0].inputs[static_cast<size_t>(grown.input)];
        if (place_of_past(id) != nullptr) in_state.insert(id);
      }
    } else if (wanted.empty()) {
      if (!own_state) own_state = std::make_shared<DeviceMemory>(device, state_bytes());
      state = own_state;
    } else {
      state = std::make_shared<DeviceMemory>(device, state_bytes());
    }
    append = state->append(past);
  }

  /// The length that all pasts have. Errors: kInvalidArgument when they differ or there is no room for it.
  int64_t length_of_past(const std::vector<Bound>& inputs) const {
    const program::Growth& growth = artifact->growth;
    int64_t length = 0;
    for (const program::Past& past : growth.pasts) {
      const program::ValueInfo& info =
          artifact->values[static_cast<size_t>(artifact->plans[0].inputs[static_cast<size_t>(past.input)])];
      const Bound& input = inputs[static_cast<size_t>(past.input)];
      const auto* array = std::get_if<DeviceArray>(&input);
      const ops::Shape& shape = array ? array->shape : std::get<ops::Value>(input).tensor.shape();
      const int64_t own = shape[static_cast<size_t>(past.axis)];
      if (&past == &growth.pasts.front()) length = own;
      if (own != length)
        throw Error(ErrorCode::kInvalidArgument, "input '" + info.name + "' holds a past of " + std::to_string(own) +
                                                     ", an input before it one of " + std::to_string(length));
      if (own > growth.room)
        throw Error(ErrorCode::kInvalidArgument,
                    "input '" + info.name + "' holds a past of " + std::to_string(own) + ", and a run adds " +
                        std::to_string(growth.step) + "; the model was compiled for a length of " +
                        std::to_string(growth.room + growth.step) + ": compile it with a larger --max-length");
    }
    return length;
  }

  void run_npu(const program::NpuStep& step, Frame& frame) {
    Loaded& loaded = programs[static_cast<size_t>(step.program)];
    const program::NpuProgram& npu = artifact->npu_programs[static_cast<size_t>(step.program)];
    const std::span<uint8_t> staging(host_arena.get(), npu.arena_bytes);
    auto start = Clock::now();
    for (const program::DeviceTensor& d : step.inputs) put(d, frame, staging, loaded.arena);
    report.transfer_seconds += seconds_since(start);
    driver::RunRequest request;
    request.program_address = loaded.program;
    request.instruction_count = loaded.instructions;
    request.others = loaded.others;
    request.bases[program::kConstantsBase] = loaded.constants;
    request.bases[program::kArenaBase] = loaded.arena;
    const uint64_t stays = state ? state->address() : 0;
    request.bases[program::kStateBase] = stays;
    for (size_t i = 0; i < npu.slides.size(); ++i)
      request.bases[program::kFirstSlideBase + i] =
          stays - static_cast<uint64_t>((artifact->growth.room - past) * npu.slides[i].pitch);
    if (artifact->growth.room > 0) {
      request.bases[program::kLengthTableBase] =
          loaded.constants + static_cast<uint64_t>(past * program::kLengthTablePitch);
      request.bases[isa::kRowLimitBase] = static_cast<uint64_t>(past + artifact->growth.step);
    }
    request.check_races = options.check_races;
    request.poison = options.poison;
    request.profile = options.profile && device->can_profile();
    request.progress = options.progress;
    driver::RunReport result = device->run(request);
    const auto where = [&](uint32_t pc, uint32_t core) {
      const std::vector<uint32_t>& layers = program::layers_of(npu, core);
      if (pc >= layers.size()) return std::string();
      const uint32_t layer = layers[pc];
      return layer < npu.layers.size() ? ", node '" + npu.layers[layer].name + "'" : std::string();
    };
    if (!result.ok())
      throw Error(ErrorCode::kDeviceFault,
                  "the NPU stopped: " + driver::describe_fault(result) + where(result.fault.pc, result.fault_core));
    if (!result.races.empty())
      throw Error(ErrorCode::kDeviceFault, driver::describe(result.races[0]) +
                                               where(result.races[0].second_pc, result.races[0].second_core) + " (" +
                                               std::to_string(result.races.size()) + " reported)");
    report.programs.push_back({step.program, std::move(result)});
    start = Clock::now();
    for (const program::DeviceTensor& d : step.outputs) take(d, frame, staging, loaded.arena);
    report.transfer_seconds += seconds_since(start);
  }

  std::vector<ops::Value> run_plan(const program::Plan& plan, const std::vector<ops::Value>& inputs,
                                   const Frame* outer) {
    Frame frame;
    frame.outer = outer;
    if (inputs.size() != plan.inputs.size())
      throw Error(ErrorCode::kInvalidModel, "a body takes " + std::to_string(plan.inputs.size()) + " values, got " +
                                                std::to_string(inputs.size()));
    for (size_t i = 0; i < inputs.size(); ++i) frame.values[plan.inputs[i]] = inputs[i];
    const std::unordered_map<int64_t, size_t> last = last_reads(*artifact, plan);  // memory follows the live values
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      const program::Step& step = plan.steps[i];
      if (const auto* kernel = std::get_if<program::KernelStep>(&step))
        run_kernel(*kernel, frame);
      else if (const auto* compiled = std::get_if<program::CodeStep>(&step))
        run_code(*compiled, frame);
      else
        run_npu(std::get<program::NpuStep>(step), frame);
      each_read(step, [&](int64_t id) {
        const auto at = last.find(id);
        if (at != last.end() && at->second == i) frame.values.erase(id);
      });
    }
    std::vector<ops::Value> outputs;
    for (int64_t id : plan.outputs) {
      const bool stays = !outer && kept.count(id) != 0 && host_reads.count(id) == 0;
      outputs.push_back(stays ? ops::Value() : value(frame, id));
    }
    return outputs;
  }
};

namespace {

/// A program that waits for the cores of these numbers instead of 0, 1, ...
std::vector<uint8_t> on_cores(const std::vector<uint8_t>& program, const std::vector<uint32_t>& cores) {
  if (cores.empty()) return program;
  std::vector<uint8_t> moved = program;
  for (size_t at = 0; at < moved.size(); at += isa::kInstructionBytes) {
    isa::Word word;
    std::memcpy(word.data(), moved.data() + at, word.size());
    isa::Decoded decoded = isa::decode(word);
    auto* fence = decoded.instruction ? std::get_if<isa::Fence>(&*decoded.instruction) : nullptr;
    if (fence == nullptr || !fence->await || fence->await_core >= cores.size()) continue;
    fence->await_core = static_cast<decltype(fence->await_core)>(cores[fence->await_core]);
    word = isa::encode(*decoded.instruction);
    std::memcpy(moved.data() + at, word.data(), word.size());
  }
  return moved;
}

}  // namespace

Executor::Executor(std::shared_ptr<const program::Artifact> artifact, std::shared_ptr<driver::Device> device)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.artifact = std::move(artifact);
  s.device = std::move(device);
  const program::Artifact& a = *s.artifact;
  s.constants.resize(a.values.size());
  for (size_t i = 0; i < a.values.size(); ++i)
    if (a.values[i].constant >= 0) s.constants[i] = constant_tensor(a, s.artifact, a.values[i].constant);
  if (!a.cpu.object.empty() || !a.cpu.bitcode.empty()) s.code = std::make_unique<CpuCode>(a.cpu);
  if (a.npu_programs.empty()) return;
  isa::MachineConfig have = s.device->config();
  isa::MachineConfig want = a.config;
  have.name = want.name = "";
  const std::vector<uint32_t> cores = s.device->cores();
  if (!(have == want))
    throw Error(ErrorCode::kInvalidArgument,
                "the program was compiled for configuration '" + a.config.name + "', the device is '" +
                    s.device->config().name + "'; compile with --config " +
                    (cores.empty() ? s.device->config().name
                                   : "of its chip and --cores with " + std::to_string(cores.size()) + " numbers"));
  const auto place = [&](uint64_t bytes) {
    const uint64_t address = s.device->allocate(std::max<uint64_t>(bytes, 64));
    s.allocations.push_back(address);
    return address;
  };
  uint64_t arena = 0;
  for (const program::NpuProgram& p : a.npu_programs) arena = std::max(arena, p.arena_bytes);
  const uint64_t shared_arena = place(arena);  // programs run one after the other
  s.host_arena.reset(static_cast<uint8_t*>(std::calloc(std::max<uint64_t>(arena, 64), 1)));
  if (!s.host_arena)
    throw Error(ErrorCode::kDoesNotFit, "the host has no memory for an arena of " + std::to_string(arena) + " bytes");
  for (const program::NpuProgram& p : a.npu_programs) {
    State::Loaded loaded;
    loaded.instructions = static_cast<uint32_t>(p.instructions.size() / 64);
    loaded.program = place(p.instructions.size());
    s.device->place(loaded.program, on_cores(p.instructions, cores));
    for (const program::CoreStream& stream : p.others) {
      driver::CoreProgram& other = loaded.others.emplace_back();
      if (stream.instructions.empty()) continue;
      other = {place(stream.instructions.size()), static_cast<uint32_t>(stream.instructions.size() / 64)};
      s.device->place(other.program_address, on_cores(stream.instructions, cores));
    }
    loaded.constants = place(p.constant_bytes);
    if (p.constant_bytes != 0)
      s.device->place(loaded.constants, std::span(a.device_constants).subspan(p.constant_offset, p.constant_bytes));
    loaded.arena = shared_arena;
    s.programs.push_back(std::move(loaded));
  }
}

Executor::~Executor() = default;

std::vector<ops::Value> Executor::run(const std::vector<ops::Value>& inputs, const RunOptions& options) {
  std::vector<ops::Value> outputs;
  for (Bound& output : run_bound({inputs.begin(), inputs.end()}, {}, options))
    outputs.push_back(std::move(std::get<ops::Value>(output)));
  return outputs;
}

std::vector<Bound> Executor::run_bound(const std::vector<Bound>& inputs, const std::vector<bool>& on_device,
                                       const RunOptions& options) {
  State& s = *state_;
  const program::Plan& plan = s.artifact->plans[0];
  if (inputs.size() != plan.inputs.size())
    throw Error(ErrorCode::kInvalidArgument, "the model takes " + std::to_string(plan.inputs.size()) + " inputs, got " +
                                                 std::to_string(inputs.size()));
  TESSERA_INVARIANT(on_device.empty() || on_device.size() == plan.outputs.size(), "one place for each output");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const program::ValueInfo& info = s.artifact->values[static_cast<size_t>(plan.inputs[i])];
    if (const auto* array = std::get_if<DeviceArray>(&inputs[i])) {
      check_input(info, *array);
      array->check_intact();
      if (&array->memory->device() != s.device.get())
        throw Error(
            ErrorCode::kInvalidArgument,
            "input '" + info.name + "' is bound to a tensor in the memory of another device; copy it to the host");
    } else {
      check_input(info, std::get<ops::Value>(inputs[i]));
    }
  }
  s.past = s.length_of_past(inputs);
  s.in_state.clear();
  s.arrays.clear();
  s.kept.clear();
  s.wanted.clear();
  for (size_t i = 0; i < on_device.size(); ++i)
    if (on_device[i]) s.wanted.insert(plan.outputs[i]);
  s.find_host_reads(on_device);
  std::vector<ops::Value> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto* array = std::get_if<DeviceArray>(&inputs[i]);
    values.push_back(array ? ops::Value() : std::get<ops::Value>(inputs[i]));
  }
  s.choose_state(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto* array = std::get_if<DeviceArray>(&inputs[i]);
    if (!array) continue;
    const int64_t id = plan.inputs[i];
    const bool in_place = s.in_state.count(id) != 0;
    if (!in_place && s.read_in_place(id, *array))
      s.arrays[id] = *array;
    else if (!in_place || s.host_reads.count(id) != 0)
      values[i] = array->to_host();
  }
  s.report = {};
  s.options = options;
  const ThreadLimit limit(options.threads);
  const auto start = Clock::now();
  std::vector<ops::Value> results = s.run_plan(plan, values, nullptr);
  s.report.seconds = seconds_since(start);
  std::vector<Bound> outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    if (on_device.empty() || !on_device[i]) {
      outputs.emplace_back(std::move(results[i]));
      continue;
    }
    const auto kept = s.kept.find(plan.outputs[i]);
    const std::string& name = i < s.artifact->output_names.size()
                                  ? s.artifact->output_names[i]
                                  : s.artifact->values[static_cast<size_t>(plan.outputs[i])].name;
    if (kept == s.kept.end() && results[i].kind != ops::Value::Kind::kTensor)
      throw Error(ErrorCode::kUnsupported, "output '" + name + "' is no tensor; bind it to the host");
    DeviceArray array = kept != s.kept.end() ? kept->second : to_device(s.device, results[i].tensor, name);
    array.name = name;
    outputs.emplace_back(std::move(array));
  }
  s.state.reset();
  return outputs;
}

const Report& Executor::report() const { return state_->report; }
const program::Artifact& Executor::artifact() const { return *state_->artifact; }

}  // namespace tessera::runtime
