// SPDX-License-Identifier: Apache-2.0
// The closed form: what each engine must do for a nest or a chain, and which engines a single copy of an operand makes
// take turns. It is coarse, but it sees the three things that matter: bytes that are fetched again, lanes that idle,
// and engines that cannot overlap. Searchers ask it for thousands of candidates.
#include <algorithm>
#include <array>
#include <limits>

#include "compiler/schedule/cost_model.h"
#include "compiler/schedule/counts.h"
#include "isa/generated/timing.h"
#include "isa/row_cycles.h"

namespace tessera::schedule {

namespace {

namespace timing = isa::timing;

// What an instruction or a run costs beside its work, for nests and chains alike; rationale.md has the measurements.
// GEMM and ALU wait for each other: an instruction's first result counts so long after the engine takes it.
constexpr int64_t kGemmCycles = timing::gemm::kFirstWrite + timing::queue::kSignal;
constexpr int64_t kAluCycles = timing::alu::kFirstWrite + timing::queue::kSignal;
constexpr int64_t kTransferCycles = timing::transfer::kPrepare;  // of LOAD and STORE; a chain's are prepared ahead
constexpr int64_t kLoadRunCycles = timing::load::kStart;         // from a run's departure to its first group
constexpr int64_t kStoreRunCycles = timing::store::kRealign;     // from the read of a group to its realigner

/// LOAD's for so many bytes in runs: of short ones as many are under way at once as the machine has reads in flight.
int64_t run_cycles(int64_t bytes, int64_t runs, const Machine& machine) {
  return std::max(beats(bytes, machine) + runs * kLoadRunCycles,
                  runs * machine.dram_latency_cycles / std::max(1, machine.config.reads_in_flight));
}

/// LOAD's for a part of the factor: short runs, as many under way at once as the machine has reads in flight.
int64_t factor_cycles_of(const FactorTraffic& part, const Machine& machine) {
  const int64_t wait = ceil_div(machine.dram_latency_cycles, std::max(1, machine.config.reads_in_flight));
  return std::max(part.runs * beats(part.bytes / part.runs, machine), part.requests * wait) + part.requests;
}

/// The vector unit's on rows in tiles of so many images, rows and columns of pixels, out of so many. apart: the results
/// go to another memory than that of the rows.
int64_t row_cycles(const Nest& nest, const isa::MachineConfig& config, const std::array<std::array<Cut, 2>, 3>& tiles,
                   bool apart) {
  isa::RowReduce maximum, reduce;
  isa::RowMap map;
  const bool softmax = !nest.convert;
  reduce.operation = softmax ? isa::Reduction::kSumExp : isa::Reduction::kMoments;
  const bool both = softmax && apart;
  map.operation = both ? isa::Mapping::kSumSoftmax : softmax ? isa::Mapping::kSoftmax : isa::Mapping::kNormalise;
  const int64_t entries = nest.extent[Dim::kG] * nest.extent[Dim::kOc];
  int64_t cycles = 0;
  for (const Cut& n : tiles[0]) {
    for (const Cut& h : tiles[1]) {
      for (const Cut& w : tiles[2]) {
        const isa::RowNest rows{n.size * h.size * w.size, entries};
        const int64_t one = (softmax && !nest.fixed_shift ? isa::row_cycles(maximum, config, rows) : 0) +
                            (both ? 0 : isa::row_cycles(reduce, config, rows)) + isa::row_cycles(map, config, rows);
        cycles += n.count * h.count * w.count * (rows.rows > 0 ? one : 0);
      }
    }
  }
  return cycles;
}

/// One nest under one schedule.
class NestForm {
 public:
  NestForm(const Nest& nest, const Schedule& schedule, const Machine& machine)
      : nest_(nest), schedule_(schedule), machine_(machine), tile_(schedule.tile()) {
    footprint_ = footprint(nest, *schedule.intrinsic, tile_, schedule.window_rows());
    outer_ = schedule.outer_levels();
    Extents trips;
    for (int i = 0; i < outer_; ++i) trips[level(i).dim] *= level(i).factor;
    output_tiles_ = trips[Dim::kN] * trips[Dim::kG] * trips[Dim::kOc] * trips[Dim::kOh] * trips[Dim::kOw];
    reduction_tiles_ = trips[Dim::kIc] * trips[Dim::kKh] * trips[Dim::kKw];
    tiles_ = output_tiles_ * reduction_tiles_;
    if (schedule.keeps_rows()) {
      for (int i = 0; i < outer_; ++i) {
        if (level(i).dim == Dim::kOh) window_ = i;
      }
    }
    for (int i = 0; i < kOperands; ++i) {
      const auto operand = static_cast<Operand>(i);
      attach_[static_cast<size_t>(i)] = attach_of(nest, schedule, operand);
      copies_[static_cast<size_t>(i)] = copies_of(nest, schedule, operand);
    }
  }

  Evaluation evaluation() {
    transfers();
    products();
    Evaluation result;
    result.legal = true;
    result.footprint = footprint_;
    result.tiles = tiles_;
    result.read_bytes = read_;
    result.write_bytes = write_;
    result.gemm_cycles = gemm_;
    result.alu_cycles = alu_;
    result.load_cycles = load_;
    result.store_cycles = store_;
    result.cycles = total();
    return result;
  }

 private:
  const Level& level(int i) const { return schedule_.levels[static_cast<size_t>(i)]; }
  int64_t copies(Operand operand) const { return copies_[static_cast<size_t>(operand)]; }
  bool in_window(Operand operand, int i) const { return operand == Operand::kInput && i == window_; }

  /// Different tiles of the operand.
  int64_t distinct_tiles(Operand operand) const {
    int64_t tiles = 1;
    for (int i = 0; i < outer_; ++i) {
      if (!in_window(operand, i) && indexes(nest_, operand, level(i).dim)) tiles *= level(i).factor;
    }
    return tiles;
  }

  /// Fetches of the operand: for every iteration of the levels outside of its attach those of its tiles inside. Virtual
  /// threads share what they do not index.
  int64_t fetches(Operand operand) const {
    const auto attach = static_cast<int>(attach_[static_cast<size_t>(operand)]);
    int64_t count = 1;
    for (int i = 0; i < outer_; ++i) {
      if (in_window(operand, i)) continue;
      const bool own = indexes(nest_, operand, level(i).dim);
      if (own)
        count *= level(i).factor;
      else if (i < attach)
        count *= level(i).kind == LevelKind::kVthread ? ceil_div(level(i).factor, level(i).threads) : level(i).factor;
    }
    return count;
  }

  void load_input(int64_t& bytes, int64_t& runs) const {
    const Access& a = nest_.input;
    const Span cols = input_span(0, tile_[Dim::kOw], 0, tile_[Dim::kKw], nest_.stride_w, nest_.dilation_w, 0);
    const int64_t rows = schedule_.window_rows();
    const int64_t row_total = positions(nest_, rows, tile_[Dim::kKh], true).read;
    const int64_t col_total = positions(nest_, tile_[Dim::kOw], tile_[Dim::kKw], false).read;
    const int64_t sweep = (a.broadcast_n ? 1 : nest_.images) * row_total * col_total *
                          (a.broadcast_c ? 1 : nest_.in_channels.total) * a.element_bytes;
    const double again =
        static_cast<double>(fetches(Operand::kInput)) / static_cast<double>(distinct_tiles(Operand::kInput));
    const int64_t run = run_bytes(nest_.in_channels, a, tile_[Dim::kG], tile_[Dim::kIc],
                                  cols.step == 1 ? cols.count : 1, machine_.config.batch);
    const auto moved = static_cast<int64_t>(static_cast<double>(sweep) * again);
    bytes += moved;
    runs += ceil_div(moved, std::max<int64_t>(run, 1));
  }

  void transfers() {
    const isa::MachineConfig& config = machine_.config;
    const Footprint& f = footprint_;
    int64_t bytes = 0, runs = 0, factor_bytes = 0, factor_cycles = 0;
    load_input(bytes, runs);
    int64_t loads = fetches(Operand::kInput);
    if (f.weights > 0) {
      const int64_t count = fetches(Operand::kWeights);
      loads += count;
      if (nest_.factor.present) {
        const FactorTraffic one = factor_traffic(nest_, tile_);
        factor_tile_cycles_ = factor_cycles_of(one, machine_);
        factor_bytes = count * one.bytes;
        factor_cycles = count * factor_tile_cycles_;
      } else {
        bytes += count * f.weights * weight_entry_bytes(nest_, config);
        runs += count;
      }
    }
    if (f.params > 0) {
      const int64_t count = fetches(Operand::kParams);
      loads += count;
      bytes += count * f.params * config.param_entry_bytes();
      runs += count;
    }
    const int64_t out_bytes = nest_.images * nest_.extent[Dim::kOh] * nest_.extent[Dim::kOw] *
                              nest_.out_channels.total * nest_.output.element_bytes;
    const int64_t out_run =
        run_bytes(nest_.out_channels, nest_.output, tile_[Dim::kG], tile_[Dim::kOc], tile_[Dim::kOw], config.batch);
    const int64_t out_runs = ceil_div(out_bytes, std::max<int64_t>(out_run, 1));
    if (nest_.second.present) {
      const int64_t entries = f.second_in_place ? f.output : f.second;
      bytes += std::min(fetches(Operand::kSecond) * entries * config.out_entry_bytes(), out_bytes);
      runs += out_runs;
      loads += fetches(Operand::kSecond);
    }
    read_ = bytes + factor_bytes;
    write_ = out_bytes;
    load_ = run_cycles(bytes, runs, machine_) + factor_cycles + loads * kTransferCycles;
    store_ = beats(out_bytes, machine_) + out_runs * kStoreRunCycles + output_tiles_ * kTransferCycles;
    instructions_ = loads + output_tiles_;
  }

  void products() {
    const Work work = schedule_.intrinsic->work(nest_, {tile_, output_tiles_, reduction_tiles_});
    gemm_ = work.gemm_cycles + work.gemm_instructions * kGemmCycles;
    alu_ = work.alu_cycles + work.alu_instructions * kAluCycles;
    instructions_ += work.gemm_instructions + work.alu_instructions;
    if (nest_.computation == Computation::kRows) {
      const Extents& e = nest_.extent;
      alu_ = work.alu_instructions * kAluCycles +
             row_cycles(nest_, machine_.config,
                        {cuts(e[Dim::kN], tile_[Dim::kN]), cuts(e[Dim::kOh], tile_[Dim::kOh]),
                         cuts(e[Dim::kOw], tile_[Dim::kOw])},
                        input_scope(nest_, schedule_) == isa::Space::kInp);
      return;
    }
    if (!nest_.second.present) return;
    const Extents& e = nest_.extent;
    const int64_t results = e[Dim::kN] * e[Dim::kOh] * e[Dim::kOw] * e[Dim::kG] * e[Dim::kOc];
    alu_ += results * timing::alu::pause(machine_.config);
  }

  /// Whether engines take turns for lack of a second copy.
  bool single(Operand operand) const {
    // The first rows of a window are free long before its last ones.
    if (operand == Operand::kInput && window_ >= 0 && level(window_).factor > 2) return false;
    return copies(operand) < 2 && distinct_tiles(operand) > 1;
  }

  /// Half of WGT can be filled while the layer before still computes from the other half: what the first tile of
  /// weights needs beyond that is waited for (all of it where it is made at run time), and so is what the next layer
  /// cannot fetch because all weights stay in use to the end.
  int64_t exposed() const {
    if (footprint_.weights == 0) return 0;
    const int64_t half = machine_.config.wgt_depth() / 2;
    const bool whole = outer_ == 0 || !indexes(nest_, Operand::kWeights, level(0).dim);
    const int64_t at_end = footprint_.weights * (whole ? copies(Operand::kWeights) : 1);
    const int64_t first = nest_.factor.present ? 0 : std::max<int64_t>(0, footprint_.weights - half);
    return (first + std::max<int64_t>(0, at_end - half)) * beats(weight_entry_bytes(nest_, machine_.config), machine_) +
           factor_tile_cycles_;
  }

  int64_t total() const {
    const bool products = footprint_.weights > 0;
    int64_t first = products ? gemm_ : alu_, alu = products ? alu_ : 0, store = store_;
    const bool turns = products && footprint_.sums > 0 && single(Operand::kSums);
    if (single(Operand::kInput) || (products && single(Operand::kWeights))) first += load_;
    if (turns) {
      first += alu;
      alu = first;
    }
    if (footprint_.output > 0 && single(Operand::kOutput)) {
      (products ? alu : first) += store;
      store = products ? alu : first;
    }
    if (turns) first = std::max(first, alu);
    const int64_t fetch = instructions_ * beats(isa::kInstructionBytes, machine_);
    const int64_t steady = std::max({load_ + store_ + fetch, first, alu, store});
    // The first tile's fetch and the last tile's way out overlap with the layers around in part.
    const int64_t ends = load_ / std::max<int64_t>(tiles_, 1) + (alu + store_) / std::max<int64_t>(output_tiles_, 1);
    return steady + exposed() + ends / 2 + 2 * machine_.dram_latency_cycles;
  }

  const Nest& nest_;
  const Schedule& schedule_;
  const Machine& machine_;
  const Extents tile_;
  Footprint footprint_;
  int outer_ = 0, window_ = -1;
  PerOperand attach_{}, copies_{};
  int64_t output_tiles_ = 1, reduction_tiles_ = 1, tiles_ = 1;
  int64_t read_ = 0, write_ = 0, gemm_ = 0, alu_ = 0, load_ = 0, store_ = 0, factor_tile_cycles_ = 0;
  int64_t instructions_ = 0;
};

/// A chain under one plan: work of the engines over all steps.
class ChainForm {
 public:
  ChainForm(const std::vector<const Nest*>& nests, const ChainPlan& plan, const Machine& machine)
      : nests_(nests), plan_(plan), machine_(machine), images_(nests[0]->extent[Dim::kN]) {
    chunks_ = ceil_div(middle_blocks(nests), plan.tile.blocks);
    tiles_ = images_ * plan.rows->tiles * plan.cols->tiles;
  }

  Cost cost() {
    for (size_t s = 0; s < nests_.size(); ++s) {
      const int64_t gemm = gemm_, alu = alu_;
      link(s);
      const int64_t turns = closing(s) ? tiles_ : plan_.steps;
      first_gemm_ += (gemm_ - gemm) / turns;
      first_alu_ += (alu_ - alu) / turns / strips(s);
    }
    const int64_t constants = load_, store = transfers();
    const Nest& tail = *nests_.back();
    const int64_t bus = load_ + store + instructions_ * beats(isa::kInstructionBytes, machine_);
    int64_t busiest = std::max({gemm_, alu_, bus});
    const size_t last = nests_.size() - 1;
    if (dense(tail) && tiles_ > 1 && copies(last, Operand::kSums) == 1)
      busiest += images_ * plan_.rows->out[last] * plan_.cols->out[last] * tail.extent[Dim::kOc];
    // Of the steps at both ends one engine's work is not hidden, and half of the first fetches.
    Cost cost;
    cost.cycles = busiest + std::min(first_gemm_, first_alu_) +
                  (constants / chunks_ + (load_ - constants) / tiles_ / strips(0)) / 2 +
                  2 * machine_.dram_latency_cycles;
    cost.bytes = bytes_ + instructions_ * isa::kInstructionBytes;
    return cost;
  }

 private:
  int64_t copies(size_t s, Operand operand) const {
    const OperandPlan* plan = plan_.schedules[s].plan(operand);
    return plan == nullptr ? 0 : plan->copies;
  }
  bool closing(size_t s) const { return s + 1 == nests_.size() && s > 0 && dense(*nests_[s]); }

  /// Into how many the first link's first tile is cut, or the last one's last.
  int64_t strips(size_t s) const {
    const Schedule& schedule = plan_.schedules[s];
    if (schedule.strips == 0) return 1;
    const Footprint f = footprint(*nests_[s], *schedule.intrinsic, schedule.tile());
    return std::max<int64_t>(1, std::max(f.sums, f.output) / schedule.strips);
  }

  int64_t products_of(size_t s) const {
    const Nest& n = *nests_[s];
    const int64_t pixels = images_ * plan_.rows->out[s] * plan_.cols->out[s];
    const int64_t taps = n.extent[Dim::kKh] * n.extent[Dim::kKw];
    if (dense(n)) return pixels * n.extent[Dim::kOc] * n.extent[Dim::kIc] * taps * n.planes;
    if (n.computation != Computation::kDepthwise) return 0;
    const int64_t groups = n.extent[Dim::kG], each = pixels * groups * taps;
    const int64_t raster =
        images_ * groups * depthwise_passes(n, n.extent[Dim::kKh], n.extent[Dim::kKw]) *
        raster_steps(n, plan_.rows->span[s], plan_.rows->tiles, plan_.cols->span[s], plan_.cols->tiles);
    return (n.dilation_h == 1 && n.dilation_w == 1 ? std::min(each, raster) : each) * n.planes;
  }

  void link(size_t s) {
    const Nest& n = *nests_[s];
    const isa::MachineConfig& config = machine_.config;
    const Footprint f = footprint(n, *plan_.schedules[s].intrinsic, plan_.schedules[s].tile());
    const int64_t turns = closing(s) ? tiles_ : plan_.steps;
    const int64_t vectors = images_ * plan_.rows->out[s] * plan_.cols->out[s] * n.extent[dense(n) ? Dim::kOc : Dim::kG];
    int64_t issues = vectors;
    if (n.computation == Computation::kReduce) issues *= n.extent[Dim::kKh] * n.extent[Dim::kKw];
    if (n.computation == Computation::kRows) {
      const auto swept = [&](const Sweep& sweep) { return cuts(sweep.out[s], sweep.most_out[s]); };
      const bool product_next = s + 1 < nests_.size() && !reads_by_alu(nests_[s + 1]->computation);
      const bool in_inp = s == 0 && input_scope(n, plan_.schedules[s]) == isa::Space::kInp;
      issues =
          row_cycles(n, config, {cuts(images_, 1), swept(*plan_.rows), swept(*plan_.cols)}, product_next != in_inp);
    }
    if (s + 1 < nests_.size() && plan_.rows->kept[s] > 0) {  // moved aside and back
      const int64_t blocks = blocks_in(*nests_[s + 1]);
      alu_ += 2 * (images_ * plan_.rows->kept[s] * plan_.cols->span[s + 1] * blocks + plan_.steps * kAluCycles);
      instructions_ += 2 * plan_.steps;
    }
    gemm_ += products_of(s) + (weighted(n) ? plan_.steps * kGemmCycles : 0);
    alu_ += issues + turns * kAluCycles;
    if (n.second.present) alu_ += vectors * timing::alu::pause(config);
    instructions_ += (weighted(n) ? plan_.steps : 0) + turns;
    const auto fetches = [&](Operand operand, int64_t different) {
      const int64_t times = copies(s, operand) >= different ? different : different * tiles_;
      instructions_ += times;
      return times;
    };
    if (n.factor.present) {
      // Anew for each matrix; where the channels between are cut, for each tile too.
      const FactorTraffic traffic = factor_traffic(n, plan_.schedules[s].tile());
      const int64_t tiles =
          chunks_ > 1 ? plan_.steps : ceil_div(matrices(n, n.extent), matrices(n, plan_.schedules[s].tile()));
      load_ += tiles * factor_cycles_of(traffic, machine_);
      bytes_ += tiles * traffic.bytes;
      instructions_ += tiles;
    } else if (f.weights > 0) {
      const int64_t times = fetches(Operand::kWeights, chunks_);
      load_ += times * (f.weights * beats(weight_entry_bytes(n, config), machine_) + kLoadRunCycles);
      bytes_ += times * f.weights * weight_entry_bytes(n, config);
    }
    if (f.params > 0) {
      const int64_t times = fetches(Operand::kParams, closing(s) || !n.per_channel ? 1 : chunks_);
      load_ += times * (f.params * beats(config.param_entry_bytes(), machine_) + kLoadRunCycles);
      bytes_ += times * f.params * config.param_entry_bytes();
    }
  }

  struct Moved {
    int64_t bytes = 0, runs = 0;
  };
  Moved moved(const ChannelMap& map, const Access& access, int64_t height, int64_t width, int64_t pixels, bool whole) {
    const int64_t bytes = images_ * machine_.config.batch * height * width * map.total * access.element_bytes;
    const int64_t run =
        run_bytes(map, access, whole ? map.chunks() : plan_.tile.blocks, map.blocks(), pixels, machine_.config.batch);
    bytes_ += bytes;
    return {bytes, ceil_div(bytes, std::max<int64_t>(run, 1))};
  }
  int64_t loaded(const Moved& part) const { return run_cycles(part.bytes, part.runs, machine_); }

  /// Adds what LOAD moves; returns STORE's cycles.
  int64_t transfers() {
    const Nest &head = *nests_.front(), &tail = *nests_.back();
    const bool whole_in = dense(head) || chunks_ == 1 || plan_.tile.whole_input,
               whole_out = dense(tail) || chunks_ == 1;
    const Sweep &rows = *plan_.rows, &cols = *plan_.cols;
    const int64_t wide = cols.tiles == 1 ? cols.read * plan_.schedules[0].tile()[Dim::kOh] : cols.read / cols.tiles;
    load_ += loaded(moved(head.in_channels, head.input, rows.read, cols.read, wide, whole_in));
    const int64_t height = tail.extent[Dim::kOh], width = tail.extent[Dim::kOw];
    const int64_t pixels = cols.tiles == 1 ? width * plan_.tile.oh : plan_.tile.ow;
    const Moved out = moved(tail.out_channels, tail.output, height, width, pixels, whole_out);
    const int64_t store = beats(out.bytes, machine_) + out.runs * kStoreRunCycles;
    if (tail.second.present) load_ += loaded(moved(tail.out_channels, tail.second, height, width, pixels, whole_out));
    instructions_ +=
        (whole_in ? tiles_ : plan_.steps) + (dense(tail) ? tiles_ : plan_.steps) * (tail.second.present ? 2 : 1);
    return store;
  }

  const std::vector<const Nest*>& nests_;
  const ChainPlan& plan_;
  const Machine& machine_;
  const int64_t images_;
  int64_t chunks_ = 1, tiles_ = 1;
  int64_t gemm_ = 0, alu_ = 0, load_ = 0, instructions_ = 0, bytes_ = 0;
  int64_t first_gemm_ = 0, first_alu_ = 0;  // of one step, or of a tile where that is what a link works on
};

class ClosedForm : public CostModel {
 public:
  explicit ClosedForm(const Machine& machine) : machine_(machine) {}
  Cost cost(const Subject& subject, const Schedule& schedule) override {
    const Evaluation e = NestForm(*subject.nests.front(), schedule, machine_).evaluation();
    return {e.cycles, e.read_bytes + e.write_bytes, 0};
  }
  Cost cost(const Subject& subject, const ChainPlan& plan) override {
    return ChainForm(subject.nests, plan, machine_).cost();
  }
  bool reads_streams() const override { return false; }

 private:
  const Machine machine_;
};

}  // namespace

int64_t run_bytes(const ChannelMap& map, const Access& access, int64_t chunks, int64_t blocks, int64_t pixels,
                  int64_t batch) {
  int64_t channels = std::min(blocks * map.lanes, map.chunk);
  if (map.chunk % map.lanes == 0 && blocks == map.blocks()) channels = std::min(channels * chunks, map.total);
  if (batch > 1) channels = std::min(channels, map.lanes);
  if (access.segment_channels != 0) channels = std::min(channels, access.segment_channels);
  const int64_t bytes = channels * access.element_bytes;
  const bool whole = bytes == access.pitch_w && channels % map.lanes == 0 && batch == 1;
  return whole ? bytes * pixels : bytes;
}

Evaluation evaluate(const Nest& nest, const Schedule& schedule, const Machine& machine) {
  if (std::string why = obstacle(nest, schedule, machine.config); !why.empty()) {
    Evaluation result;
    result.reason = std::move(why);
    return result;
  }
  return NestForm(nest, schedule, machine).evaluation();
}

Registry<MakeCostModel>& cost_models() {
  static Registry<MakeCostModel> registry("cost model");
  return registry;
}

std::unique_ptr<CostModel> make_cost_model(const std::string& name, const Machine& machine) {
  return cost_models().find(name)(machine);
}

namespace {

const RegisterCostModel kClosedForm("closed-form", "the work of each engine, counted over the nest",
                                    [](const Machine& machine) { return std::make_unique<ClosedForm>(machine); });

}  // namespace

}  // namespace tessera::schedule
