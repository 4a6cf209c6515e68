// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/cores/cores.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <span>

#include "base/error.h"
#include "compiler/emit/predict_chip.h"
#include "compiler/npu/assembly/assemble.h"
#include "compiler/npu/assembly/at_once.h"
#include "compiler/npu/assembly/interleave.h"
#include "compiler/npu/cores/cores_costs.h"
#include "compiler/npu/cores/cores_fetch.h"
#include "compiler/npu/cores/cores_order.h"
#include "compiler/npu/cores/cores_refine.h"
#include "compiler/npu/graph/cores_memory.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/input/check.h"
#include "compiler/npu/lowering/kernel.h"
#include "compiler/npu/planning/planner.h"
#include "compiler/npu/planning/search_memo.h"
#include "isa/generated/timing.h"
#include "isa/verify/verify.h"

namespace tessera::npu {

namespace {

constexpr size_t kCompiled = 3;      // divisions, for each price of waiting, of which the prediction takes the best,
constexpr int64_t kShort = 100'000;  // of programs up to so many cycles
constexpr size_t kPolished = 3;      // of these ways, the best ones, of which the finished programs are compared
constexpr size_t kTiny = 100;        // instructions of a core's program up to which all of them are
constexpr int64_t kNear = 32;        // of the best program's cycles: the part by which others may take more,
constexpr int64_t kFar = 4;          // and by which they may before they are finished, which brings less than this
constexpr size_t kHands = 2;         // compilations at once: each has a planner for each core
/// Cycles that a read waits for its turn on the bus, for each other core: programs are planned for some of these.
constexpr std::array<int64_t, 3> kTurns = {0, 48, 88};

/// How much of a graph is given: for which operations a division, and schedules of all parts.
enum class Given : uint8_t { kNothing, kSome, kAll };

Given given_of(const Graph& graph, const Options& options) {
  size_t some = 0, all = 0;
  for (size_t i = 0; i < graph.operations.size(); ++i) {
    const auto& divided = options.divided[i];
    if (!divided) continue;
    ++some;
    const bool written = std::holds_alternative<Kernel>(graph.operations[i].what);
    all += written || std::ranges::any_of(divided->cores, [](const auto& part) { return part.has_value(); }) ? 1 : 0;
  }
  return some == 0 ? Given::kNothing : all == graph.operations.size() ? Given::kAll : Given::kSome;
}

/// The options with what is given for whole operations as divisions, which are checked.
Options with_divisions(const Graph& graph, const isa::MachineConfig& config, const Options& options) {
  Options all = options;
  const auto cores = static_cast<size_t>(config.cores);
  all.divided.resize(graph.operations.size());
  for (size_t i = 0; i < graph.operations.size(); ++i) {
    auto& divided = all.divided[i];
    if (i < options.schedules.size() && options.schedules[i])
      divided = schedule::DividedSchedule{.division = {}, .cores = {options.schedules[i]}};
    if (!divided) continue;
    std::string why = obstacle(graph, graph.operations[i], divided->division, cores, config.block_out);
    if (divided->cores.size() > cores)
      why = "'cores' has " + std::to_string(divided->cores.size()) + " entries for " + std::to_string(cores) + " cores";
    guarded(graph, config, i, [&] {
      if (!why.empty()) throw Error(ErrorCode::kInvalidArgument, "the given division is illegal: " + why);
    });
    divided->cores.resize(cores);
  }
  all.schedules.clear();
  return all;
}

/// Whether one core does all.
bool undivided(const Shares& shares) {
  std::vector<bool> works(shares.boxes.front().size(), false);
  for (const std::vector<Box>& boxes : shares.boxes)
    for (size_t core = 0; core < boxes.size(); ++core) works[core] = works[core] || !boxes[core].empty();
  return std::ranges::count(works, true) <= 1;
}

/// The same where one core does all.
Options for_one_core(Options options) {
  for (const auto& divided : options.divided) {
    auto& schedule = options.schedules.emplace_back();
    if (!divided) continue;
    for (const auto& part : divided->cores)
      if (part) schedule = part;
  }
  options.divided.clear();
  return options;
}

/// One core's operations of the graph of parts.
struct Core {
  Graph graph;
  std::vector<uint32_t> parts;  // by operation: its number in the graph of parts
  Options options;              // with the schedules that are given for its parts
  std::unique_ptr<Planner> planner;
  std::vector<Unit> units;
};

}  // namespace

Graph graph_of(const ChipGraph& chip, size_t core, std::vector<uint32_t>& parts) {
  Graph graph;
  graph.name = chip.graph.name;
  graph.tensors = chip.graph.tensors;
  graph.inputs = chip.graph.inputs;
  std::vector<bool> wanted(graph.tensors.size(), false);
  for (const TensorId id : chip.graph.outputs) wanted[static_cast<size_t>(root_of(graph, id))] = true;
  for (size_t i = 0; i < chip.cores.size(); ++i) {
    if (chip.cores[i] == core) {
      graph.operations.push_back(chip.graph.operations[i]);
      parts.push_back(static_cast<uint32_t>(i));
      continue;
    }
    for (const TensorId id : uses_of(chip.graph.operations[i]).read)
      wanted[static_cast<size_t>(root_of(graph, id))] = true;
  }
  for (size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i]) graph.outputs.push_back(static_cast<TensorId>(i));
  return graph;
}

Options options_of_a_core(const isa::MachineConfig& config, const Options& options, int64_t turn) {
  Options own = options;
  own.search_log = nullptr;
  own.dram_bandwidth_bytes = bytes_of_a_core(config, options, 1.0 / config.cores);
  own.dram_latency_cycles += turn * (config.cores - 1);
  return own;
}

namespace {

class Chip {
 public:
  /// `turn`: cycles that a read waits for its turn on the bus, for each other core. `memo`: of chips that are compiled
  /// one after the other.
  Chip(const Graph& graph, const isa::MachineConfig& config, const Options& options, const Shares& shares, int64_t turn,
       std::shared_ptr<SearchMemo> memo)
      : graph_(graph),
        config_(config),
        given_(options),
        options_(options_of_a_core(config, options, turn)),
        divisions_(shares.divisions) {
    options_.memo = std::move(memo);
    chip_ = divided(graph, shares, config.memory_bytes());
    check_graph(chip_.graph);
  }

  /// Nothing where the streams would block each other.
  std::optional<Program> run(bool polish) {
    plan_cores(polish);
    Program program;
    program.placements.assign(plan_.placements.begin(),
                              plan_.placements.begin() + static_cast<std::ptrdiff_t>(graph_.tensors.size()));
    program.arena_bytes = plan_.arena_bytes;
    program.unshared_bytes = plan_.unshared_bytes;
    program.slides = plan_.slides;
    if (plan_.arena_bytes > (uint64_t{1} << 36))
      throw Error(ErrorCode::kDoesNotFit, "the tensors need more than the 64 GiB an offset reaches");
    for (const Operation& operation : graph_.operations) {
      LayerInfo info;
      info.name = operation.name;
      info.kind = operation.kind;
      info.macs = model_macs(graph_, operation);
      info.divided = {divisions_[program.layers.size()], {}};
      info.divided->cores.resize(cores_.size());
      program.layers.push_back(std::move(info));
    }
    for (LayerInfo& info : kernel_layers(graph_)) program.layers.push_back(std::move(info));
    std::optional<TimedStep> step(std::in_place, options_.times.get(), "what stays on the chip, fetches ahead");
    waits_ = waits_of_parts(chip_, plan_.placements, options_);
    std::vector<CoreCode> codes;
    ConstantPool constants;
    for (size_t k = 0; k < cores_.size(); ++k) codes.push_back(generate(k, constants, program.layers));
    program.constants = constants.take();
    const emit::SynchroniseOptions order = order_of(plan_, options_);
    step.emplace(options_.times.get(), "order of instructions among cores");
    if (options_.virtual_threads) turn_engines(codes, order);
    step.emplace(options_.times.get(), "waits, prediction, check");
    order_cores(chip_, waits_, order.slides, config_, codes);
    if (!all_end(codes)) return std::nullopt;
    finish(codes, program);
    return program;
  }

  /// Whether what was planned has a chain with a product between others.
  bool has_product_between() const {
    return std::ranges::any_of(
        cores_, [](const Core& core) { return std::ranges::any_of(core.units, npu::has_product_between); });
  }

 private:
  void plan_cores(bool polish) {
    StepTimes* const times = options_.times.get();
    cores_.resize(static_cast<size_t>(config_.cores));
    std::vector<bool> on_chip(chip_.graph.tensors.size(), false);
    std::vector<std::pair<int64_t, int64_t>> when(chip_.cores.size());
    for (size_t k = 0; k < cores_.size(); ++k) {
      Core& core = cores_[k];
      core.graph = graph_of(chip_, k, core.parts);
      core.options = options_of(k);
      core.planner = std::make_unique<Planner>(core.graph, config_, core.options);
      core.units = timed(times, "schedules", [&] { return core.planner->run(); });
      for (const Unit& unit : core.units) {
        for (size_t i = unit.first; i < unit.first + unit.count; ++i)
          when[core.parts[i]] = {core.parts[unit.first], core.parts[unit.first + unit.count - 1]};
        for (size_t i = unit.first; i + 1 < unit.first + unit.count; ++i)
          on_chip[static_cast<size_t>(uses_of(core.graph.operations[i]).written)] = true;
      }
    }
    plan_ = plan_memory(chip_.graph, options_, on_chip, when, owners());
    for (Core& core : cores_) {
      move_units(core.units, core.graph, plan_.placements, config_, options_);
      timed(times, "schedules between neighbours", [&] { core.planner->settle(core.units, plan_); });
      if (polish) timed(times, "schedules by the whole stream", [&] { core.planner->polish(core.units, plan_); });
    }
  }

  /// With the schedules that are given for its parts.
  Options options_of(size_t k) const {
    Options options = options_;
    options.divided.clear();
    for (const uint32_t part : cores_[k].parts) {
      const auto& given = options_.divided[chip_.layers[part]];
      options.schedules.push_back(given ? given->cores[k] : std::nullopt);
    }
    return options;
  }

  /// By tensor: the core that alone reads and writes it, or -1.
  std::vector<int> owners() const {
    std::vector<int> owners(chip_.graph.tensors.size(), -1);
    std::vector<bool> known(owners.size(), false);
    for (size_t i = 0; i < chip_.cores.size(); ++i) {
      const Uses uses = uses_of(chip_.graph.operations[i]);
      const auto touch = [&](TensorId id) {
        const auto root = static_cast<size_t>(root_of(chip_.graph, id));
        const auto core = static_cast<int>(chip_.cores[i]);
        owners[root] = known[root] && owners[root] != core ? -1 : core;
        known[root] = true;
      };
      for (const TensorId id : uses.read) touch(id);
      touch(uses.written);
    }
    return owners;
  }

  /// What a layer of a core's graph is: of which part, and its number among the layers of the program.
  struct Layer {
    uint32_t part = 0, number = 0;
  };

  std::vector<Layer> layers_of(const Core& core) const {
    std::vector<Layer> layers;
    for (const uint32_t part : core.parts) layers.push_back({part, static_cast<uint32_t>(chip_.layers[part])});
    for (const uint32_t part : core.parts) {
      const size_t operation = chip_.layers[part];
      const auto* kernel = std::get_if<Kernel>(&graph_.operations[operation].what);
      for (size_t line = 0; kernel != nullptr && line < kernel->lines.size(); ++line)
        layers.push_back({part, static_cast<uint32_t>(first_layer(graph_, operation) + line)});
    }
    return layers;
  }

  /// A core's instructions; adds their constants to those of the cores before.
  CoreCode generate(size_t k, ConstantPool& constants, std::vector<LayerInfo>& layers) {
    Core& core = cores_[k];
    Emitter lowered(config_, options_, options_.blank_weights ? WeightBytes::kBlank : WeightBytes::kPacked);
    lowered.constants = std::move(constants);
    lowered.keeps_order = true;
    const std::vector<Layer> numbers = layers_of(core);
    std::vector<LayerInfo> infos(numbers.size());
    for (const Unit& unit : core.units) {
      guarded(core.graph, config_, unit.first, [&] { lower_unit(unit, lowered, infos); });
      for (size_t s = 0; s < unit.count; ++s)
        infos[unit.first + s].schedule = unit.chain ? schedule::LayerSchedule(schedule_of(*unit.chain, core.graph))
                                                    : schedule::LayerSchedule(unit.schedules);
    }
    Emitter emitter = assembled(std::move(lowered), results_of(core.graph, plan_.placements), order_of(plan_, options_),
                                options_, core.planner->replays());
    constants = std::move(emitter.constants);
    emitter.stream_bytes.resize(infos.size());
    for (size_t i = 0; i < infos.size(); ++i) {
      LayerInfo& layer = layers[numbers[i].number];
      if (layer.tiles == 0) layer.schedule = infos[i].schedule;
      const bool written = layer.divided && !std::holds_alternative<Kernel>(graph_.operations[numbers[i].number].what);
      if (written) layer.divided->cores[k] = infos[i].schedule;
      layer.tiles += infos[i].tiles;
      for (size_t k = 0; k < kStreams; ++k) {
        layer.stream_bytes[k] += emitter.stream_bytes[i][k];
        (k == static_cast<size_t>(Stream::kOutput) ? layer.dram_write_bytes : layer.dram_read_bytes) +=
            emitter.stream_bytes[i][k];
      }
    }
    CoreCode code;
    code.instructions = std::move(emitter.instructions);
    for (const uint32_t layer : emitter.layer_of_instruction) {
      code.tags.push_back(numbers[layer].part);
      code.layers.push_back(numbers[layer].number);
    }
    code.works = std::move(emitter.works);
    code.pool = std::move(emitter.pool);
    return code;
  }

  /// The instructions that wait for other cores.
  Awaits awaits_of(const CoreCode& code) const {
    Awaits awaits(code.works.size());
    std::map<size_t, uint32_t> stores;  // the last one of each operation so far
    for (uint32_t i = 0; i < awaits.size(); ++i) {
      if (code.tags[i] >= chip_.layers.size()) continue;
      if (code.works[i]->dram_bytes > 0 && !waits_[code.tags[i]].empty()) {
        size_t awaited = 0;
        for (const uint32_t other : waits_[code.tags[i]]) awaited = std::max(awaited, chip_.layers[other]);
        std::optional<uint32_t> last;
        for (const auto& [operation, store] : stores)
          if (operation <= awaited) last = std::max(last.value_or(0), store);
        awaits[i] = last.value_or(i);
      }
      if (code.works[i]->engine == isa::Engine::kStore) stores[chip_.layers[code.tags[i]]] = i;
    }
    return awaits;
  }

  /// Orders the instructions of all cores. `order`: without the FENCEs between cores.
  void turn_engines(std::vector<CoreCode>& codes, const emit::SynchroniseOptions& order) const {
    const auto alone = [&](const CoreCode& code) {
      heed_stop(options_);
      return emit::predict(emit::in_order(code.works, code.tags, config_, order), 0, config_,
                           {options_.dram_latency_cycles, options_.dram_bandwidth_bytes, options_.dram_cost})
          .cycles;
    };
    const auto replay = [&](std::vector<CoreCode> all) -> std::optional<Replayed> {
      heed_stop(options_);
      order_cores(chip_, waits_, order.slides, config_, all);
      if (!all_end(all)) return std::nullopt;
      Replayed replayed;
      replayed.cycles = std::ranges::max(predicted(all, 0, &replayed.rests), {}, &emit::Prediction::cycles).cycles;
      return replayed;
    };
    const auto together = [&](const std::vector<CoreCode>& all) -> std::optional<int64_t> {
      const std::optional<Replayed> replayed = replay(all);
      return replayed ? std::optional(replayed->cycles) : std::nullopt;
    };
    refine(codes, [&](const CoreCode& code) { return awaits_of(code); }, alone, together);
    fetch_ahead(codes, options_.dram_bandwidth_bytes, replay);
  }

  /// Waits of each core, and what the streams take together. The replay counts cycles of so many layers.
  std::vector<emit::Prediction> predicted(std::vector<CoreCode>& codes, size_t layers,
                                          std::vector<std::vector<int64_t>>* rests = nullptr) const {
    std::vector<emit::CoreStream> streams;
    for (CoreCode& code : codes) {
      emit::SynchroniseOptions order = order_of(plan_, options_);
      order.orders = std::move(code.orders);
      emit::synchronise(code.instructions, code.layers, code.works, config_, order);
      streams.push_back({code.instructions, code.layers, code.works});
    }
    // The others move their bytes while the core does that moves most.
    int64_t most = 1, all = 1;
    for (const CoreCode& code : codes) {
      auto bytes = isa::kInstructionBytes * static_cast<int64_t>(code.instructions.size());
      for (const emit::Work* work : code.works) bytes += work->dram_bytes;
      most = std::max(most, bytes);
      all += bytes;
    }
    return emit::predict(
        streams, layers, config_,
        {given_.dram_latency_cycles + isa::timing::interconnect::kRequest + isa::timing::interconnect::kAddress +
             isa::timing::interconnect::kBuffer,
         bytes_of_a_core(config_, given_, static_cast<double>(most) / static_cast<double>(all)), options_.dram_cost},
        bytes_of_all(config_, given_), rests);
  }

  /// Waits of each core, and what the streams take together: layers have the cycles of the core that ends last.
  void finish(std::vector<CoreCode>& codes, Program& program) {
    const std::vector<emit::Prediction> predictions = predicted(codes, program.layers.size());
    for (const CoreCode& code : codes) {
      for (size_t i = 0; i < code.instructions.size(); ++i) {
        if (code.layers[i] >= program.layers.size()) continue;
        LayerInfo& layer = program.layers[code.layers[i]];
        layer.stream_bytes[static_cast<size_t>(Stream::kInstructions)] += isa::kInstructionBytes;
        layer.padded_macs += isa::effects(code.instructions[i], config_).macs;
      }
      isa::check_program(code.instructions, config_);
    }
    const auto last = std::ranges::max_element(predictions, {}, &emit::Prediction::cycles);
    for (size_t i = 0; i < program.layers.size(); ++i) program.layers[i].estimated_cycles = last->layer_cycles[i];
    program.instructions = std::move(codes[0].instructions);
    program.layer_of_instruction = std::move(codes[0].layers);
    for (size_t k = 1; k < codes.size(); ++k)
      program.others.push_back({std::move(codes[k].instructions), std::move(codes[k].layers)});
  }

  const Graph& graph_;
  const isa::MachineConfig& config_;
  const Options& given_;
  Options options_;  // of a core
  const std::vector<Division> divisions_;
  ChipGraph chip_;
  std::vector<std::vector<uint32_t>> waits_;  // by part: those of other cores
  std::vector<Core> cores_;
  MemoryPlan plan_;
};

}  // namespace

namespace {

/// The turns for which a division is planned; `brief`: streams are so short that several divisions are compiled.
std::span<const int64_t> turns_of(const isa::MachineConfig& config, const Options& options, Given given, bool brief) {
  const std::span all(kTurns);
  // A core that has less of the bus than it can take waits for bytes, and not for turns. In short streams on many
  // cores a read waits for what others publish, which hides its turn. Schedules that are given may be of any turn.
  if (bytes_of_a_core(config, options, 1.0 / config.cores) != config.axi_bytes) return all.first(1);
  if (given == Given::kAll) return all;
  if (brief && config.cores > 2) return all.first(1);
  return brief ? all.subspan(1, 1) : all.subspan(1);
}

/// A way to compile a graph: a division, and whether chains may have products between others.
struct Way {
  const Shares* shares = nullptr;
  bool products_between = true;
};

/// What a way was compiled to, and whether a chain of it has a product between others.
struct Compiled {
  Program program;
  bool product_between = false;
};

/// Programs of a graph in several ways, of which the one with the fewest predicted cycles is taken.
class Ways {
 public:
  Ways(const Graph& graph, const isa::MachineConfig& config, const Options& options, Given given, bool brief)
      : graph_(graph), config_(config), options_(options), turns_(turns_of(config, options, given, brief)) {
    for (auto& memos : memos_)
      for (size_t turn = 0; turn < turns_.size(); ++turn) memos.push_back(std::make_shared<SearchMemo>());
  }

  /// Compiles in each way, some of them at once. `polish`: with schedules by the whole stream, which take as long as
  /// all before. Those that are not polished are forgotten when others are.
  void offer(const std::vector<Way>& ways, bool polish) {
    std::vector<std::optional<Compiled>> compiled(ways.size());
    at_once(kHands, ways.size(), [&](size_t k, size_t hand) { compiled[k] = planned(ways[k], polish, memos_[hand]); });
    if (polish && !polished_) best_.reset();
    polished_ = polish;
    for (size_t k = 0; k < ways.size(); ++k) {
      if (!compiled[k]) continue;
      const int64_t cycles = predicted_cycles(compiled[k]->program);
      tried_.push_back({cycles, ways[k], compiled[k]->product_between});
      if (best_ && cycles >= least_) continue;
      least_ = cycles;
      best_ = std::move(compiled[k]->program);
    }
  }

  std::optional<Program>& best() { return best_; }
  int64_t least() const { return least_; }

  /// The divisions whose programs have products between others and take little more cycles than the best one, each
  /// without such products. Of a tiny program all of them.
  std::vector<Way> shorter() const {
    std::vector<Way> ways;
    for (const Tried& one : tried_)
      if (one.product_between && (tiny() || within(one, kNear))) ways.push_back({one.way.shares, false});
    return ways;
  }

  bool tiny() const { return best_ && best_->instructions.size() <= kTiny; }

  /// So many ways of the fewest cycles, none of which takes many more than the best one.
  std::vector<Way> first(size_t count) const {
    auto tried = tried_;
    std::ranges::stable_sort(tried, {}, &Tried::cycles);
    std::vector<Way> ways;
    for (size_t k = 0; k < std::min(count, tried.size()) && within(tried[k], kFar); ++k) ways.push_back(tried[k].way);
    return ways;
  }

 private:
  struct Tried {
    int64_t cycles = 0;
    Way way;
    bool product_between = false;
  };

  /// Whether a way takes no more cycles beyond the best one than such a part of these.
  bool within(const Tried& one, int64_t part) const { return one.cycles <= least_ + least_ / part; }

  /// The program with the turns on the bus that take the fewest cycles.
  std::optional<Compiled> planned(const Way& way, bool polish, const std::vector<std::shared_ptr<SearchMemo>>& memos) {
    Options options = options_;
    options.products_between = way.products_between && options.products_between;
    if (undivided(*way.shares)) return Compiled{compile_one(graph_, config_, for_one_core(options)), true};
    std::vector<std::optional<Compiled>> all(turns_.size());
    at_once(turns_.size(), turns_.size(), [&](size_t k, size_t) {
      Chip chip(graph_, config_, options, *way.shares, turns_[k], memos[k]);
      if (auto program = chip.run(polish)) all[k] = Compiled{std::move(*program), chip.has_product_between()};
    });
    std::optional<Compiled> best;
    for (std::optional<Compiled>& one : all)
      if (one && (!best || predicted_cycles(one->program) < predicted_cycles(best->program))) best = std::move(one);
    return best;
  }

  const Graph& graph_;
  const isa::MachineConfig& config_;
  const Options& options_;
  const std::span<const int64_t> turns_;
  std::array<std::vector<std::shared_ptr<SearchMemo>>, kHands> memos_;  // by hand and turn
  std::optional<Program> best_;
  bool polished_ = false;
  int64_t least_ = 0;  // cycles of the best one
  std::vector<Tried> tried_;
};

}  // namespace

Program compile_cores(const Graph& graph, const isa::MachineConfig& config, const Options& given) {
  if (graph.operations.empty()) return compile_one(graph, config, given);
  const Options options = with_divisions(graph, config, given);
  const std::vector<Shares> all = timed(options.times.get(), "divisions among cores",
                                        [&] { return choose_shares(graph, config, options, kCompiled); });
  const Given how = given_of(graph, options);
  const bool rivals = all.size() > 1;
  Ways ways(graph, config, options, how, rivals);
  ways.offer({{&all.front()}}, !rivals);
  const bool few = rivals && (!ways.best() || ways.least() <= kShort);
  if (few) {
    std::vector<Way> others;
    for (size_t k = 1; k < all.size(); ++k) others.push_back({&all[k]});
    ways.offer(others, false);
  }
  // As of one core (place_chains): of a short stream also with shorter chains.
  const bool short_stream = ways.best() && static_cast<int64_t>(ways.best()->instructions.size()) <= kAsCompiled;
  if (short_stream && options.products_between && how == Given::kNothing) ways.offer(ways.shorter(), !rivals);
  if (rivals) ways.offer(ways.first(!few ? 1 : ways.tiny() ? SIZE_MAX : kPolished), true);
  return ways.best() ? std::move(*ways.best()) : compile_one(graph, config, for_one_core(options));
}

}  // namespace tessera::npu
