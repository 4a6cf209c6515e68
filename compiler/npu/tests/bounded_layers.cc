// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/tests/bounded_layers.h"

#include "compiler/npu/bound.h"
#include "compiler/npu/plan.h"
#include "compiler/npu/trial.h"
#include "compiler/npu/workbench.h"
#include "compiler/schedule/bound.h"
#include "compiler/schedule/json.h"

namespace tessera::npu::test {

namespace {

using schedule::LayerSchedule;

/// Layers of a graph on one machine, each alone and run once.
class Layers {
 public:
  Layers(const Graph& graph, const isa::MachineConfig& config, const Options& options, const std::string& judge)
      : config_(config),
        options_(options),
        bench_(graph, config, options),
        placements_(places_apart(bench_.graph(), options)),
        judge_(schedule::make_cost_model(judge, bench_.machine())) {}

  const Workbench& bench() const { return bench_; }

  int64_t cycles(size_t piece, const LayerSchedule& schedule) const {
    return bench_.together({{bench_.pieces()[piece].first, schedule}}, *judge_).cycles;
  }

  /// Of the schedule's own tile; of a layer of several nests the least of all tiles.
  int64_t bound(size_t piece, const LayerSchedule& schedule) const {
    const auto& schedules = std::get<std::vector<schedule::Schedule>>(schedule);
    if (schedules.size() > 1) return bench_.bounds(piece).begin()->first;
    const std::vector<Task> tasks =
        make_tasks(bench_.graph(), bench_.pieces()[piece].first, placements_, config_, options_);
    const schedule::Nest* nest = nest_of(tasks[0], schedules[0].input_layout);
    if (nest == nullptr) nest = &tasks[0].alternatives.back();
    return schedule::tile_bound(*nest, *schedules[0].intrinsic, schedules[0].tile(), bench_.machine(),
                                {0, biased_entries(tasks[0], *nest)});
  }

  std::string broken(size_t piece, int count, uint64_t seed) const {
    schedule::Dice dice(seed);
    std::vector<LayerSchedule> begin = bench_.candidates(piece, "exhaustive", 3);
    for (int i = 0; i < 3; ++i) begin.push_back(bench_.sample(piece, dice));
    for (const size_t tile : {0, 1}) {
      const auto made = bench_.of_tile(piece, tile).second;
      for (int i = 0; i < 2 && !made.empty(); ++i) begin.push_back(made[dice.below(made.size())]);
    }
    LayerSchedule fastest = begin.front();
    int64_t least = cycles(piece, fastest);
    for (int i = 0; i < count; ++i) {
      const auto k = static_cast<size_t>(i);
      const LayerSchedule at = k < begin.size() ? begin[k] : bench_.mutate(piece, fastest, dice);
      const int64_t taken = cycles(piece, at), bound = this->bound(piece, at);
      if (bound > taken)
        return config_.name + ", latency " + std::to_string(bench_.machine().dram_latency_cycles) + ": " +
               std::to_string(taken) + " cycles, bound " + std::to_string(bound) + ", " + schedule::to_json(at) + "\n" +
               bench_.pieces()[piece].key;
      if (taken >= least) continue;
      least = taken;
      fastest = at;
    }
    return "";
  }

 private:
  const isa::MachineConfig config_;
  const Options options_;
  const Workbench bench_;
  const std::vector<Placement> placements_;
  const std::unique_ptr<schedule::CostModel> judge_;
};

/// npu256 with a bus of so many bytes, and so many bursts in flight.
isa::MachineConfig narrow(int axi_bytes, int reads, int writes) {
  isa::MachineConfig config = isa::find_config("npu256");
  config.name = "npu256 with " + std::to_string(axi_bytes) + " bytes a beat";
  config.axi_bytes = axi_bytes;
  config.reads_in_flight = reads;
  config.writes_in_flight = writes;
  return config;
}

}  // namespace

namespace {

/// A convolution with so many channels and groups.
Graph random_window(Random& random, const std::string& name, int64_t inputs, int64_t outputs, int64_t groups) {
  Graph graph;
  Convolution op;
  Tensor in, out;
  in.name = "in";
  out.name = "out";
  in.is_unsigned = out.is_unsigned = true;
  in.c = inputs;
  out.c = outputs;
  in.h = random.between(1, 30);
  in.w = random.between(1, 30);
  do {
    op.kernel_h = random.one_of<int64_t>({1, 2, 3, 3, 3, 4, 5, 7});
    op.kernel_w = random.one_of<int64_t>({1, 2, 3, 3, 3, 4, 5, 7});
    op.stride_h = random.one_of<int64_t>({1, 2, 2, 2, 3, 4});
    op.stride_w = random.chance(70) ? op.stride_h : random.one_of<int64_t>({1, 2, 3, 4});
    if (random.chance(25)) {
      op.dilation_h = random.between(1, 3);
      op.dilation_w = random.between(1, 3);
    }
    op.pads = {op.kernel_h / 2, op.kernel_w / 2, op.kernel_h / 2, op.kernel_w / 2};
    out.h = (in.h + 2 * op.pads.top - op.dilation_h * (op.kernel_h - 1) - 1) / op.stride_h + 1;
    out.w = (in.w + 2 * op.pads.left - op.dilation_w * (op.kernel_w - 1) - 1) / op.stride_w + 1;
  } while (in.h + 2 * op.pads.top <= op.dilation_h * (op.kernel_h - 1) ||
           in.w + 2 * op.pads.left <= op.dilation_w * (op.kernel_w - 1));
  op.groups = groups;
  op.input_zero = 128;
  op.weights.resize(static_cast<size_t>(in.c / groups * out.c * op.kernel_h * op.kernel_w));
  for (int16_t& weight : op.weights) weight = static_cast<int16_t>(random.between(-128, 127));
  op.stage = random_stage(random, out, 5000.0, true);
  op.input = graph.add(in);
  op.output = graph.add(out);
  graph.inputs = {op.input};
  graph.outputs = {op.output};
  graph.operations.push_back({name, "QLinearConv", 0, op});
  return graph;
}

}  // namespace

Graph random_depthwise(Random& random) {
  const int64_t channels = random.between(2, 70);
  return random_window(random, "depthwise", channels, channels, channels);
}

Graph random_first_layer(Random& random) {
  const int64_t inputs = random.between(1, 5);
  return random_window(random, "first", inputs, random.between(1, 70), 1);
}

std::string broken_bound(const std::string& judge, uint64_t seed, int count,
                         const std::function<Graph(Random&)>& make) {
  // Of few long writes in flight the replay tells less than the timing model.
  const bool exact = judge != "replay";
  for (const isa::MachineConfig& config :
       {isa::find_config("npu64"), isa::find_config("npu256"), isa::find_config("npu1024"),
        narrow(4, exact ? 8 : 32, exact ? 4 : 16), odd_machine("8x32", 1, 8, 32, 300, 100, 200, 100, 20)}) {
    Random random(seed);
    const Graph graph = make(random);
    Options options;
    options.dram_latency_cycles = random.one_of<int64_t>({options.dram_latency_cycles, 5, 200});
    const Layers layers(graph, config, options, judge);
    for (size_t piece = 0; piece < layers.bench().pieces().size(); ++piece) {
      if (layers.bench().pieces()[piece].count > 1) continue;
      if (std::string why = layers.broken(piece, count, seed); !why.empty()) return why;
    }
  }
  return "";
}

}  // namespace tessera::npu::test
