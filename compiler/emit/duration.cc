// SPDX-License-Identifier: Apache-2.0
// Closed forms of isa/timing.md, over the steps and operands that isa.toml declares.
#include "compiler/emit/duration.h"

#include <algorithm>
#include <numeric>

#include "isa/generated/operands.h"
#include "isa/generated/timing.h"
#include "isa/row_cycles.h"

namespace tessera::emit {

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr size_t kLoops = std::max(isa::kLoops, isa::kTransferLoops);
using Nest = std::array<int64_t, kLoops>;

int64_t product(const Nest& extent) {
  int64_t result = 1;
  for (const int64_t e : extent) result *= e;
  return result;
}

/// The nest of a transfer, taken from its operands: isa/generated/operands.h calls this as its builder.
struct Transfer {
  Nest extent, inside;  // inside: without padding
  Nest sp_stride{}, dram_stride{};
  int64_t sp = 0, dram_first = 0;
  int64_t length = 0, sp_length = 0;         // of a run: in DRAM, where it has a part there, and in the scratchpad
  std::array<int64_t, 2> before{}, after{};  // padding of the outermost loops
  bool present = false;                      // the instruction is a transfer
  bool in_dram = false;                      // and not a fill
  bool to_dram = false;

  const isa::MachineConfig* machine;

  explicit Transfer(const isa::MachineConfig& config) : machine(&config) {
    extent.fill(1);
    inside.fill(1);
  }

  template <size_t N, typename Extent>
  void nest(const std::array<Extent, N>& loops, size_t) {
    for (size_t k = 0; k < N; ++k) extent[k] = inside[k] = loops[k];
  }
  template <size_t N, typename Extent, size_t P, typename Padding>
  void nest(const std::array<Extent, N>& loops, size_t reduce, const std::array<Padding, P>& before,
            const std::array<Padding, P>& after) {
    nest(loops, reduce);
    static_assert(P <= 2);
    for (size_t k = 0; k < P; ++k) {
      this->before[k] = before[k];
      this->after[k] = after[k];
      inside[k] = std::max<int64_t>(0, inside[k] - before[k] - after[k]);
    }
  }
  template <typename Where>
  void bytes(const isa::generated::OperandName&, isa::Space, int64_t address, const Where& where, int64_t bytes) {
    present = true;
    sp = address;
    length = sp_length = bytes;
    if constexpr (requires { where.stride; }) std::copy(where.stride.begin(), where.stride.end(), sp_stride.begin());
  }
  template <typename Where>
  void sized(const isa::generated::OperandName& name, isa::Space space, int64_t address, const Where& where,
             int (isa::MachineConfig::*size)() const) {
    bytes(name, space, address, where, (machine->*size)());
  }
  template <typename Where>
  void dram(const isa::generated::OperandName& name, int, uint64_t offset, const Where& where, int64_t bytes) {
    in_dram = true;
    length = bytes;
    to_dram = name.write;
    dram_first = static_cast<int64_t>(offset);
    if constexpr (requires { where.stride; }) std::copy(where.stride.begin(), where.stride.end(), dram_stride.begin());
  }

  // What transfers do not have.
  template <typename Where>
  void entries(const isa::generated::OperandName&, isa::Space, int64_t, const Where&, int64_t) {}
  static const isa::MachineConfig* config() { return nullptr; }
  static int64_t iterations() { return 0; }
  static int64_t results() { return 0; }
  void macs(int64_t) {}
  void vectors(int64_t) {}
  void steps(int64_t) {}
  void pauses(int64_t) {}
  void latency(int64_t) {}
};

/// Beats, groups of the scratchpad and extra cycles of the realigner that a run takes on average, in the terms of
/// isa/timing.md.
struct Run {
  double beats = 0, groups = 0;
  double turns = 0;     // LOAD: its first byte lies further on in its beat than in its group
  double stores = 0;    // STORE: the other way round
  double requests = 0;  // 0 where all its beats are the last one of the run before
  double shared = 0;    // beats of the master that cores share
};

/// Beats of so many bytes that some bytes touch.
int64_t shared_beats(int64_t first, int64_t bytes, int64_t width) {
  const int64_t from = ((first % width) + width) % width;
  return ceil_div(from + bytes, width);
}

/// Averages over the first runs of a transfer; alignments repeat soon, and at once where every stride is a multiple of
/// the width, which is a power of two.
Run average_run(const Transfer& t, int64_t w, int64_t shared_bytes) {
  constexpr int64_t kSamples = 64;
  const int64_t all = product(t.inside);
  if (all == 0) return {};
  const auto within = [w](int64_t address) { return address & (w - 1); };
  // A step of a loop moves both addresses and takes back those inside.
  int64_t dram = t.dram_first, sp = t.sp, last = -1;  // last: the beat in which the run before ends
  Nest at{};
  bool alike = true;
  for (size_t k = 0; k < kLoops; ++k) {
    if (t.inside[k] == 1) continue;
    alike = alike && t.dram_stride[k] % shared_bytes == 0 && within(t.sp_stride[k]) == 0 &&
            (t.dram_stride[k] >= t.length || t.dram_stride[k] < 0);
  }
  const int64_t samples = alike ? 1 : std::min(all, kSamples);
  int64_t beats = 0, groups = 0, turns = 0, stores = 0, requests = 0, words = 0;
  const bool may_share = !t.to_dram && t.length == t.sp_length;
  bool gone = false;  // of the beat that may be shared only the realigner's copy is left
  for (int64_t sample = 0;;) {
    const int64_t from = within(dram), to = within(sp), first = dram - from;
    const bool shares = may_share && first == last && (from > to || !gone);
    const int64_t own = ceil_div(from + t.length, w) - (shares ? 1 : 0);
    beats += own;
    groups += ceil_div(to + t.length, w);
    turns += from > to && !shares ? 1 : 0;
    stores += to > from ? 1 : 0;
    requests += own > 0 ? 1 : 0;
    if (own > 0) words += shared_beats(first + (shares ? w : 0), own * w, shared_bytes);
    gone = own == 0 && from > to;
    last = dram + t.length - 1 - within(dram + t.length - 1);
    if (++sample == samples) break;
    for (size_t k = kLoops; k-- > 0;) {
      if (++at[k] < t.inside[k]) {
        dram += t.dram_stride[k];
        sp += t.sp_stride[k];
        break;
      }
      dram -= (at[k] - 1) * t.dram_stride[k];
      sp -= (at[k] - 1) * t.sp_stride[k];
      at[k] = 0;
    }
  }
  const auto average = [samples](int64_t sum) { return static_cast<double>(sum) / static_cast<double>(samples); };
  return {average(beats), average(groups), average(turns), average(stores), average(requests), average(words)};
}

/// Whether each run of the innermost loop continues the one before on both sides.
bool continues(const Transfer& t) {
  for (size_t k = kLoops; k-- > 0;) {
    if (t.extent[k] > 1) return t.sp_stride[k] == t.sp_length && (!t.in_dram || t.dram_stride[k] == t.length);
  }
  return true;
}

/// Neighbouring runs that LOAD requests together: they continue each other in DRAM, and begin and end with beats and
/// groups.
struct Together {
  int64_t runs = 1;
  double share = 1;  // of the runs: steps of outer loops may lead away from the beginnings of beats and groups
};

Together requested_together(const Transfer& t, int64_t w) {
  Together together;
  if (t.length % w != 0 || t.dram_first % w != 0 || t.sp % w != 0) return together;
  bool apart = false;
  for (size_t k = kLoops; k-- > 0;) {
    if (t.extent[k] == 1) continue;
    apart = apart || t.dram_stride[k] != together.runs * t.length || t.sp_stride[k] % w != 0;
    if (apart) {
      // Of the steps of this loop one in `period` leads to such a beginning.
      const int64_t period = w / std::gcd(std::gcd(t.dram_stride[k], t.sp_stride[k]), w);
      together.share *= static_cast<double>(ceil_div(t.inside[k], period)) / static_cast<double>(t.inside[k]);
    } else {
      together.runs *= t.inside[k];
      apart = t.inside[k] != t.extent[k];  // padding in between
    }
  }
  return together;
}

/// Bursts of a LOAD whose runs are apart, `each` of which would be requested.
int64_t requests(const Transfer& t, int64_t each, int64_t beats, int64_t w) {
  if (!t.in_dram) return 0;
  const Together together = requested_together(t, w);
  const auto joined = static_cast<int64_t>(static_cast<double>(each) * together.share);
  return std::max(ceil_div(joined, together.runs) + each - joined, ceil_div(beats, isa::timing::bus::kBurstBeats));
}

/// Beats of the master that cores share, of runs that continue each other.
int64_t shared_when_joined(const Transfer& t, int64_t bytes, int64_t bursts, const isa::MachineConfig& config) {
  const int64_t m = config.memory_bytes(), join_bytes = isa::timing::transfer::kJoinBeats * config.axi_bytes;
  const int64_t last = bytes - (bursts - 1) * join_bytes;
  return (bursts - 1) * shared_beats(t.dram_first, join_bytes, m) + shared_beats(t.dram_first, last, m);
}

/// The same of others: `each` where every run is a burst. LOAD requests several together.
int64_t shared_when_apart(const Transfer& t, int64_t each, const Duration& d, int64_t runs,
                          const isa::MachineConfig& config) {
  if (t.to_dram || d.bursts == 0 || d.bursts >= runs) return each;
  const int64_t bytes = ceil_div(d.beats, d.bursts) * config.axi_bytes;
  return std::min(each, d.bursts * shared_beats(t.dram_first, bytes, config.memory_bytes()));
}

/// Padding around the rows of the outermost loop. A step of the nest takes so many groups, of data and of padding.
Border border_of(const Transfer& t, double groups, double padding) {
  const auto scaled = [](int64_t steps, double each) {
    return static_cast<int64_t>(static_cast<double>(steps) * each);
  };
  int64_t step = 1;  // of the second loop
  for (size_t k = 2; k < kLoops; ++k) step *= t.extent[k];
  const int64_t row = t.extent[1] * step, aside = (t.before[1] + t.after[1]) * step;
  Border border;
  border.ahead_steps = t.before[0] * row + t.before[1] * step;
  border.ahead = scaled(border.ahead_steps, padding);
  border.behind = scaled(t.after[0] * row + t.after[1] * step, padding);
  border.between = scaled(aside, padding);
  border.gaps = aside > 0 ? t.inside[0] - 1 : 0;
  border.row_steps = row;
  border.row_groups = scaled(row - aside, groups) + border.between;
  return border;
}

}  // namespace

Duration duration(const isa::Instruction& instruction, const isa::MachineConfig& config) {
  return duration(instruction, isa::effects_beside_scratchpads(instruction, config), config);
}

Duration duration(const isa::Instruction& instruction, const isa::Effects& effects, const isa::MachineConfig& config) {
  Duration result;
  // In front of the first vector nobody occupies the second operation, as a rule.
  result.engine = effects.steps + effects.pauses - effects.pauses / std::max<int64_t>(1, effects.results);
  if (effects.steps > 0) {
    result.outputs = effects.results;
    result.inputs = effects.steps;
    const auto rows = [&](const auto& i) {
      result.engine = isa::row_cycles(i, config);
      result.inputs = effects.iterations;
      result.alone = true;
    };
    if (const auto* reduce = std::get_if<isa::RowReduce>(&instruction)) rows(*reduce);
    if (const auto* map = std::get_if<isa::RowMap>(&instruction)) {
      rows(*map);
      result.outputs = effects.iterations;
      if (map->operation == isa::Mapping::kSumSoftmax) result.inputs *= 2;
    }
    return result;
  }
  Transfer t(config);
  std::visit([&](const auto& i) { isa::generated::describe(i, t); }, instruction);
  if (!t.present) return result;
  const int64_t w = config.axi_bytes, m = config.memory_bytes(), join_bytes = isa::timing::transfer::kJoinBeats * w;
  const int64_t runs = t.in_dram ? product(t.inside) : 0, padded = product(t.extent) - runs;
  const bool joined = continues(t);
  const Run run = joined ? Run{} : average_run(t, w, m);
  const auto scaled = [&](double each) { return static_cast<int64_t>(static_cast<double>(runs) * each); };
  result.beats = joined ? ceil_div(runs * t.length, w) : scaled(run.beats);
  result.bursts = joined ? ceil_div(runs * t.length, join_bytes) : runs;
  if (!joined && !t.to_dram) result.bursts = requests(t, scaled(run.requests), result.beats, w);
  if (config.cores > 1 && runs > 0)
    result.shared = joined ? shared_when_joined(t, runs * t.length, result.bursts, config)
                           : shared_when_apart(t, scaled(run.shared), result, runs, config);
  if (t.to_dram) {
    result.engine = joined ? result.beats + 1 : scaled(run.beats + run.stores);
    return result;
  }
  result.engine = joined ? result.beats + 1 + ceil_div(padded * t.length, w)
                         : scaled(run.groups + run.turns) + padded * ceil_div(t.length, w);
  result.runs =
      joined ? ceil_div((runs + padded) * t.length, join_bytes) + (padded > 0 && runs > 0 ? 1 : 0) : runs + padded;
  if (runs == 0) return result;  // nothing waits for an answer
  result.waiting = result.runs;
  if (padded == 0) return result;
  const double each = static_cast<double>(t.length) / static_cast<double>(w);
  result.border = joined ? border_of(t, each, each)
                         : border_of(t, run.groups + run.turns, static_cast<double>(ceil_div(t.length, w)));
  if (joined) return result;
  // Long padding in front of the first data and behind the last is written before the next data come.
  const int64_t between = result.border.gaps * result.border.between / ceil_div(t.length, w);
  result.waiting = runs + between + std::min(padded - between, isa::timing::load::runs_waiting(config) / 2);
  return result;
}

}  // namespace tessera::emit
