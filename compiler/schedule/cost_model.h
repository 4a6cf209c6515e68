// SPDX-License-Identifier: Apache-2.0
// What schedules and chains are judged by. A subject (one nest, or the nests of a chain), a legal schedule or plan of
// it and the machine enter; cycles and DRAM bytes leave. Models differ in what they look at: "closed-form" counts the
// work of each engine over the nest, "replay" (compiler/npu/trial) asks for the instructions and replays them. A model
// of one's own derives from CostModel and is registered under a name, in a file of its own:
//
//   class Mine : public schedule::CostModel { ... };
//   const schedule::RegisterCostModel kMine("mine", "what it looks at",
//       [](const schedule::Machine& machine) { return std::make_unique<Mine>(machine); });
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/schedule/chain.h"
#include "compiler/schedule/registry.h"
#include "compiler/schedule/schedule.h"
#include "isa/config.h"
#include "isa/dram.h"
#include "isa/generated/instructions.h"

namespace tessera::emit {
struct Work;
class WorkPool;
}  // namespace tessera::emit

namespace tessera::schedule {

/// Whom a program is for: the machine and the memory behind its port.
struct Machine {
  isa::MachineConfig config;
  int64_t dram_latency_cycles = 100;  // from a request to its first data
  int64_t dram_bandwidth_bytes = 0;   // a cycle, reads and writes together; 0: the width of the bus
  isa::DramCost dram_cost = {};       // of a real DRAM

  /// Bytes that the memory moves in a cycle.
  int64_t bytes_per_cycle() const {
    return dram_bandwidth_bytes > 0 ? std::min<int64_t>(dram_bandwidth_bytes, config.axi_bytes) : config.axi_bytes;
  }
};

/// Finished instructions: synchronised, with the layer of each. `layers`: more than any tag.
struct InstructionStream {
  std::vector<isa::Instruction> instructions;  // empty: only their headers are known
  std::vector<isa::Header> headers;            // empty: the instructions have them
  std::vector<uint32_t> tags;
  size_t layers = 0;
  int64_t dram_bytes = 0;                      // of LOAD, STORE and the fetch of instructions
  int64_t computed = 0;                        // instructions without those of synchronisation
  std::vector<const emit::Work*> works;        // of the instructions, compiler/emit/work.h
  std::shared_ptr<const emit::WorkPool> pool;  // where they stand
};

/// What a judge wants of a stream: its instructions, or what is enough for a replay.
enum class Wanted { kInstructions, kHeaders };

/// How the candidates of a subject become instructions, for models that look at them. Weights' bytes are not there.
class Lowering {
 public:
  virtual ~Lowering() = default;
  /// The subject run once, and twice in a row, the second time on what the first has written.
  virtual std::array<InstructionStream, 2> once_and_twice(const Schedule& schedule, Wanted wanted) const = 0;
  virtual std::array<InstructionStream, 2> once_and_twice(const ChainPlan& plan, Wanted wanted) const = 0;
};

/// What is to be scheduled. The nests outlive it.
struct Subject {
  std::vector<const Nest*> nests;      // one, or the links of a chain in order
  const Lowering* lowering = nullptr;  // nullptr: only the nests are known
};

struct Cost {
  int64_t cycles = 0;
  int64_t bytes = 0;         // of DRAM
  int64_t instructions = 0;  // that were looked at; 0: none
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  /// Of a legal schedule of the subject's only nest.
  virtual Cost cost(const Subject& subject, const Schedule& schedule) = 0;
  /// Of a plan of all its nests.
  virtual Cost cost(const Subject& subject, const ChainPlan& plan) = 0;
  /// Of finished instructions, of several operations in a row. Nothing: it does not look at instructions, and as judge
  /// it does not choose between neighbours.
  virtual std::optional<Cost> cost(const InstructionStream&) { return std::nullopt; }
  /// Whether it may look at finished instructions. A judge that does not is never given any, and the program is made
  /// without replays.
  virtual bool reads_streams() const { return true; }
  /// What it wants of the streams that it is given.
  virtual Wanted wants() const { return Wanted::kInstructions; }
};

using MakeCostModel = std::function<std::unique_ptr<CostModel>(const Machine&)>;
Registry<MakeCostModel>& cost_models();
/// Errors: kInvalidArgument for an unknown name.
std::unique_ptr<CostModel> make_cost_model(const std::string& name, const Machine& machine);
struct RegisterCostModel {
  RegisterCostModel(const std::string& name, const std::string& what, MakeCostModel make) {
    guarded_registration([&] { cost_models().add(name, what, std::move(make)); });
  }
};

/// What a schedule is chosen by.
struct Goal {
  bool single = false;          // no virtual threads, one copy of each operand
  double traffic_weight = 0.2;  // of a cycle, for each cycle of the bus: bytes cost energy, and time that neighbours
                                // could use, even where they hide behind products
  /// Cycles and DRAM bytes as one figure to be made small.
  double score(const Cost& cost, const isa::MachineConfig& config) const {
    return static_cast<double>(cost.cycles) + traffic_weight * static_cast<double>(cost.bytes) / config.axi_bytes;
  }
};

/// The closed form's figures of one nest, part by part. legal = false: `reason` says which rule is broken.
struct Evaluation {
  bool legal = false;
  std::string reason;
  Footprint footprint;
  int64_t tiles = 0;  // output tiles times reduction tiles
  int64_t read_bytes = 0, write_bytes = 0;
  int64_t gemm_cycles = 0, alu_cycles = 0, load_cycles = 0, store_cycles = 0;
  int64_t cycles = 0;  // estimate of the whole nest
};
Evaluation evaluate(const Nest& nest, const Schedule& schedule, const Machine& machine);

}  // namespace tessera::schedule
