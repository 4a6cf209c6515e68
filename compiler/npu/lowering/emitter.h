// SPDX-License-Identifier: Apache-2.0
// What operations share while code is generated: the instruction stream, the constants, the tables that are loaded, and
// where the next nest's slots begin in each scratchpad. Enters piece by piece from the lowering; leaves as the parts of
// a Program.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "compiler/emit/predict.h"
#include "compiler/npu/graph/graph.h"
#include "compiler/npu/lowering/slots.h"
#include "compiler/npu/values/forward.h"
#include "isa/verify/effects.h"

namespace tessera::npu {

/// Bytes that the program carries; equal blobs are stored once.
class ConstantPool {
 public:
  /// Offset from the constants' base register.
  int64_t add(std::vector<uint8_t> bytes);
  /// A place for so many bytes, which are never written.
  int64_t reserve(int64_t bytes);
  /// So many zeros, of their own.
  int64_t add_blank(int64_t bytes);
  std::vector<uint8_t> take() { return std::move(bytes_); }

 private:
  static constexpr int64_t kReserved = int64_t{1} << 35;
  int64_t reserved_ = 0;
  std::vector<uint8_t> bytes_;
  std::multimap<uint64_t, std::pair<int64_t, int64_t>> known_;  // hash -> offset, size
};

/// Whether the constants receive the bytes of weights, zeros in their place, where a program only tells its cycles, or
/// only places of their size, as trials need; those that are only replayed keep what instructions do and not
/// themselves.
enum class WeightBytes { kPacked, kBlank, kPlacesOnly, kWorksOnly };

/// What operations hand on to each other while code is generated.
class Emitter {
 public:
  Emitter(const isa::MachineConfig& machine, const Options& options, WeightBytes bytes = WeightBytes::kPacked)
      : config(machine),
        weights(bytes),
        bus_bytes(options.dram_bandwidth_bytes > 0 ? std::min<int64_t>(options.dram_bandwidth_bytes, machine.axi_bytes)
                                                   : machine.axi_bytes) {}

  /// Begins a step: one iteration of a tile loop. What is pushed next belongs to it.
  void begin_step() {
    const size_t like = steps_.empty() ? 0 : steps_.back().pushed.size();  // steps of a nest are alike
    Step& step = steps_.emplace_back();
    if (weights != WeightBytes::kWorksOnly) step.instructions.reserve(like);
    step.pushed.reserve(like);
  }

  /// A computation.
  void push(const isa::Instruction& instruction) {
    if (steps_.empty()) begin_step();
    if (weights != WeightBytes::kWorksOnly) steps_.back().instructions.push_back(instruction);
    steps_.back().pushed.push_back({pool.add(instruction, config), layer, Stream::kInstructions});
  }
  /// A transfer, and what it is for.
  void push(const isa::Instruction& instruction, Stream stream) {
    push(instruction);
    Pushed& pushed = steps_.back().pushed.back();
    pushed.stream = stream;
    stream_bytes_of(layer)[static_cast<size_t>(stream)] += pushed.work->dram_bytes;
  }

  /// Entries of WGT that this step needs from the constants; they may be fetched in earlier steps.
  void fetch_weights(int64_t entry, int64_t entries, int64_t constant_offset, bool packed = false) {
    if (steps_.empty()) begin_step();
    steps_.back().fetches.push_back({isa::Space::kWgt, entry, entries, constant_offset, layer, false, packed});
  }

  /// Reserves `total` entries of a space for a nest, behind those still in use, so that its first fetches need not
  /// wait; from 0 or up to the end where that is not possible. `first`: entries that are needed first.
  int64_t reserve(isa::Space space, int64_t total, int64_t first = 0) {
    return slots_.reserve(space, config.depth(space), total, first);
  }
  /// Entries of the space that are in use until the end of what has been pushed so far.
  void set_in_use(isa::Space space, int64_t begin, int64_t end) { slots_.set_in_use(space, begin, end); }
  const SlotLog& slots() const { return slots_.log(); }

  /// Whether the biases in so many entries of PARAM are known to be zero.
  bool unbiased(int64_t entry, int64_t entries) const;
  /// What has been loaded into entries of PARAM: biases that are all zero, or something else.
  void set_unbiased(int64_t entry, int64_t entries, bool zero);

  /// Keeps what is fetched again on the chip (npu/forward.h), in all that has been pushed. `results`: bytes of the
  /// arena that are read after the program. `loads`: instructions, counted over all that have been pushed, that no copy
  /// replaces.
  Forwarded forward(const ArenaBytes& results, const std::set<size_t>& loads) {
    return forward(pointed(results), results, loads);
  }
  /// The same in two steps, of which the first one does not depend on `loads`.
  Pointed pointed(const ArenaBytes& results) const;
  Forwarded forward(Pointed all, const ArenaBytes& results, const std::set<size_t>& loads);
  /// Instructions that have been pushed, without the fetches of weights.
  int64_t pushed() const;

  /// What a stream takes: its cycles, and those of each tag. The works of instructions in order of execution, and their
  /// tags (as many as the last number says).
  using Judge = std::function<emit::Prediction(std::span<const emit::Work* const>, std::span<const uint32_t>, size_t)>;
  /// The whole stream, in order of execution one at a time. Weights are fetched in pieces as soon as their place is
  /// free and the bus has time beside the steps before (`prefetch`), or else in their own step. What time the bus has
  /// is estimated of each step alone; with a judge also taken from the stream without fetches, and the better stream
  /// wins. Ends the collection. Returns the cycles of the stream; nothing without a judge.
  int64_t assemble(bool prefetch, const Judge& judge = nullptr);
  /// Cycles of the stream by the first ways to place fetches, which tell streams apart.
  int64_t glance(bool prefetch, const Judge& judge) const;

  /// What assemble() would make without a judge, as it stands in order; `pool` receives where its works stand.
  emit::Ordered ordered(bool prefetch, emit::WorkPool& pool) const;

  /// The TABLE slot that holds a table of 256 bytes, loaded when it is not there; it stays until release_tables().
  /// Several tables stand behind each other. Errors: kDoesNotFit.
  int table(const Table& bytes);
  /// The slots of a softmax's sums and of its maps. Rows of a run-time length have tables for each length in the
  /// constants, of which LOAD takes those where kLengthTableBase points.
  std::pair<int, int> softmax_tables(const RowForm& form, int64_t longest);
  /// What stood in TABLE and PARAM is not known any more.
  void forget() {
    tables_.clear();
    pinned_.clear();
    unbiased_.clear();
  }
  /// From here on tables may be replaced.
  void release_tables() { pinned_.clear(); }

  const isa::MachineConfig& config;
  const WeightBytes weights;
  const int64_t bus_bytes;  // that DRAM moves in a cycle
  ConstantPool constants;
  std::vector<isa::Instruction> instructions;
  std::vector<uint32_t> layer_of_instruction;
  emit::Works works;  // of the instructions
  emit::WorkPool pool;
  uint32_t layer = 0;
  bool keeps_order = false;  // run-time tensors are loaded in the order of the steps: other cores wait for some of them
  /// DRAM bytes by layer and Stream, the fetch of instructions not counted.
  std::vector<std::array<int64_t, kStreams>> stream_bytes;

 private:
  /// Slots for tables of these keys, `load` when they are not there: it gives base and offset in the constants.
  int table_slot(const std::vector<Table>& keys, const std::function<std::pair<uint32_t, int64_t>()>& load);
  std::array<int64_t, kStreams>& stream_bytes_of(uint32_t of_layer) {
    if (of_layer >= stream_bytes.size()) stream_bytes.resize(of_layer + size_t{1});
    return stream_bytes[of_layer];
  }
  /// Entries of WGT or PARAM that a step needs from the constants. scales: PARAM's second halves alone.
  /// packed: weights of four bits.
  struct ConstantFetch {
    isa::Space space = isa::Space::kWgt;
    int64_t entry = 0, entries = 0, constant_offset = 0;
    uint32_t layer = 0;
    bool scales = false;
    bool packed = false;
    bool operator==(const ConstantFetch&) const = default;
  };
  /// What is known of an instruction of a step.
  struct Pushed {
    const emit::Work* work = nullptr;
    uint32_t layer = 0;
    Stream stream = Stream::kInstructions;  // what a transfer is for
  };
  struct Step {
    std::vector<isa::Instruction> instructions;  // none: only what they do is known
    std::vector<Pushed> pushed;                  // of the instructions
    std::vector<ConstantFetch> fetches;

    void copy(const Step& other, size_t k);
    /// Moves the k-th instruction of another step to the end of this one.
    void take(Step& other, size_t k);
  };
  /// Pieces of fetches in front of each step and behind it.
  struct Fetches {
    std::vector<std::vector<ConstantFetch>> before, behind;
    bool operator==(const Fetches&) const = default;
  };
  struct Profile;
  struct Pieces;
  struct Part;
  class Placing;
  struct Timeline;
  Profile profile_of(std::span<const Pushed> step) const;
  /// Each fetch by itself, in the order of the steps, as late as the bus has time.
  Fetches place_apart(std::vector<Profile> profiles, const Pieces& pieces) const;
  /// All fetches at once (fetches.cc).
  Fetches place_together(std::vector<Profile> profiles, const Pieces& pieces) const;
  /// Each fetch in front of its own step.
  Fetches unmoved() const;
  /// With a judge also the cycles of the whole stream.
  struct Placed {
    Fetches fetches;
    int64_t cycles = 0;
    bool together = false;  // the better of the first ways
  };
  /// By the first ways alone; both, the better one first.
  std::array<Placed, 2> first_fetches(const std::vector<Profile>& profiles, const Judge& judge) const;
  /// By the first ways, and, where `thorough`, by others.
  Placed best_fetches(const Judge& judge, bool thorough) const;
  std::vector<Profile> profiles() const;
  /// Cycles of the bus that an instruction with its own word takes.
  int64_t bus_cycles(const emit::Work& work) const;
  /// Run-time factors move to earlier steps in which the bus has time; says whether any has.
  bool hoist_factors();
  /// Large parameters become fetches that may come in earlier steps, as weights do; says whether any has.
  bool free_parameters();
  /// Long reductions begin before their input is whole (advance.cc); says whether any does.
  bool advance_reductions();
  /// The last one of these places, by step and instruction; it is taken out, and the others stay places.
  bool advance_reduction(std::vector<std::pair<size_t, size_t>>& places);
  struct Sequence;
  std::optional<ConstantFetch> parameters_of(const isa::Instruction& instruction, uint32_t of_layer) const;
  /// Bytes of DRAM that an entry takes, and cycles of the bus.
  int64_t entry_bytes(const ConstantFetch& fetch) const {
    return fetch.packed ? config.packed_entry_bytes() : config.entry_bytes(fetch.space) / (fetch.scales ? 2 : 1);
  }
  int64_t entry_cycles(const ConstantFetch& fetch) const {
    return std::max<int64_t>(1, entry_bytes(fetch) / bus_bytes);
  }
  Timeline joined(const Fetches& fetches) const;
  /// Cycles of the whole stream.
  int64_t predicted(const Fetches& fetches, const Judge& judge) const;
  /// Entries of a fetch from its `first` on.
  ConstantFetch part_of(const ConstantFetch& fetch, int64_t first, int64_t entries) const;
  std::vector<isa::Instruction> loads_of(const ConstantFetch& fetch) const;
  void append_fetch(const ConstantFetch& fetch);

  std::vector<Step> steps_;
  Slots slots_;
  std::vector<bool> unbiased_;  // entries of PARAM
  std::vector<std::vector<uint8_t>> tables_;
  std::vector<int> pinned_;
  int next_table_ = 0;
};

}  // namespace tessera::npu
