// SPDX-License-Identifier: Apache-2.0
// The builder that isa/generated/operands.h calls. Bounds of a nest are sums of the extremes of its loops, which is
// exact because the loops are independent of each other.
#include "isa/verify/effects.h"

#include <algorithm>

#include "isa/count.h"
#include "isa/generated/operands.h"

namespace tessera::isa {
namespace {

using generated::OperandName;

/// Collects the operands of one instruction; without `scratchpads` only that in DRAM.
class Builder {
 public:
  Builder(const MachineConfig* config, bool scratchpads, Effects& effects)
      : config_(config), scratchpads_(scratchpads), effects_(effects) {}
  const MachineConfig* config() const { return config_; }

  template <size_t N, typename Extent>
  void nest(const std::array<Extent, N>& extent, size_t reduce) {
    static_assert(N <= kMostLoops);
    loops_ = N;
    outer_ = N - std::min(N, reduce);
    effects_.iterations = effects_.results = 1;
    for (size_t k = 0; k < N; ++k) {
      extent_[k] = inside_[k] = extent[k];
      effects_.iterations = times(effects_.iterations, extent[k]);
      if (k < outer_) effects_.results = times(effects_.results, extent[k]);
    }
  }

  template <size_t N, typename Extent, size_t P, typename Padding>
  void nest(const std::array<Extent, N>& extent, size_t reduce, const std::array<Padding, P>& before,
            const std::array<Padding, P>& after) {
    nest(extent, reduce);
    for (size_t k = 0; k < P; ++k) inside_[k] = std::max<int64_t>(0, inside_[k] - before[k] - after[k]);
  }

  /// `part`: bytes from the entry's first on, into those that follow when it is longer; 0: the whole entry.
  template <typename Where>
  void entries(const OperandName& name, Space space, int64_t address, const Where& where, int64_t part) {
    if (!scratchpads_) return;
    Operand* operand = add(name, address, where);
    if (operand == nullptr) return;
    const int64_t entry = config_->entry_bytes(space), length = part > 0 ? part : entry;
    operand->space = space;
    operand->in_entries = true;
    operand->limit = config_->depth(space);
    operand->begin = operand->lowest * entry;
    operand->end = operand->highest * entry + length;
    operand->highest += (length - 1) / entry;
    operand->bytes = times(operand->accesses, length);
  }

  template <typename Where>
  void bytes(const OperandName& name, Space space, int64_t address, const Where& where, int64_t length) {
    if (!scratchpads_) return;
    Operand* operand = add(name, address, where);
    if (operand == nullptr) return;
    operand->space = space;
    operand->limit = config_->space_bytes(space);
    runs(*operand, length);
    if (operand->write) effects_.fill_bytes += operand->bytes;
  }

  /// As many bytes as the configuration says, made of those that the instruction reads: none of them fill.
  template <typename Where>
  void sized(const OperandName& name, Space space, int64_t address, const Where& where,
             int (MachineConfig::*size)() const) {
    const int64_t filled = effects_.fill_bytes;
    if (scratchpads_) bytes(name, space, address, where, (config_->*size)());
    effects_.fill_bytes = filled;
  }

  template <typename Where>
  void dram(const OperandName& name, uint8_t base, uint64_t offset, const Where& where, int64_t length) {
    Operand* operand = add(name, static_cast<int64_t>(offset), where);
    if (operand == nullptr) return;
    operand->dram = true;
    operand->base = base;
    runs(*operand, length);
    (operand->write ? effects_.dram_write_bytes : effects_.dram_read_bytes) += operand->bytes;
  }

  int64_t iterations() const { return effects_.iterations; }
  int64_t results() const { return effects_.results; }
  void macs(int64_t count) { effects_.macs += count; }
  void vectors(int64_t count) { effects_.vectors += count; }
  void steps(int64_t count) { effects_.steps += count; }
  void pauses(int64_t count) { effects_.pauses += count; }
  void latency(int64_t cycles) { effects_.latency_cycles = cycles; }

 private:
  static constexpr size_t kMostLoops = std::max(kLoops, kTransferLoops);

  template <typename Where>
  Operand* add(const OperandName& name, int64_t address, const Where& where) {
    const int64_t accesses = count(where);
    if (accesses == 0) return nullptr;
    Operand& operand = effects_.operands.emplace_back();
    operand.name = name.name;
    operand.field = name.field;
    operand.write = name.write;
    operand.lowest = operand.highest = address;
    operand.accesses = accesses;
    widen(operand, where);
    return &operand;
  }

  static void runs(Operand& operand, int64_t length) {
    operand.highest += length - 1;
    operand.begin = operand.lowest;
    operand.end = operand.highest + 1;
    operand.bytes = times(operand.accesses, length);
  }

  static int64_t product(const int64_t* extent, size_t loops) {
    int64_t all = 1;
    for (size_t k = 0; k < loops; ++k) all = times(all, extent[k]);
    return all;
  }
  template <typename Strides>
  static void walk(Operand& operand, const int64_t* extent, const Strides& stride, size_t loops) {
    for (size_t k = 0; k < loops; ++k) {
      const int64_t span = (extent[k] - 1) * stride[k];
      (span < 0 ? operand.lowest : operand.highest) += span;
    }
  }

  template <typename Strides>
  int64_t count(const generated::AllLoops<Strides>&) const {
    return product(extent_.data(), loops_);
  }
  template <typename Strides>
  int64_t count(const generated::OuterLoops<Strides>&) const {
    return product(extent_.data(), outer_);
  }
  template <typename Strides>
  int64_t count(const generated::InsideLoops<Strides>&) const {
    return product(inside_.data(), loops_);
  }
  int64_t count(const generated::OneLoop& where) const { return where.loop < loops_ ? extent_[where.loop] : 1; }
  int64_t count(const generated::NoLoop&) const { return 1; }

  template <typename Strides>
  void widen(Operand& operand, const generated::AllLoops<Strides>& where) const {
    walk(operand, extent_.data(), where.stride, loops_);
  }
  template <typename Strides>
  void widen(Operand& operand, const generated::OuterLoops<Strides>& where) const {
    walk(operand, extent_.data(), where.stride, outer_);
  }
  template <typename Strides>
  void widen(Operand& operand, const generated::InsideLoops<Strides>& where) const {
    walk(operand, inside_.data(), where.stride, loops_);
  }
  void widen(Operand& operand, const generated::OneLoop& where) const { operand.highest += count(where) - 1; }
  void widen(Operand&, const generated::NoLoop&) const {}

  const MachineConfig* config_;
  bool scratchpads_;
  Effects& effects_;
  std::array<int64_t, kMostLoops> extent_{};
  std::array<int64_t, kMostLoops> inside_{};  // without padding
  size_t loops_ = 0, outer_ = 0;
};

Effects describe(const Instruction& instruction, const MachineConfig* config, bool scratchpads) {
  Effects result;
  Builder builder(config, scratchpads, result);
  std::visit([&](const auto& i) { generated::describe(i, builder); }, instruction);
  return result;
}

}  // namespace

const Operand* Effects::dram() const {
  const Operand* found = std::find_if(operands.begin(), operands.end(), [](const Operand& o) { return o.dram; });
  return found == operands.end() ? nullptr : found;
}

bool Effects::reads(Space space) const {
  return std::any_of(operands.begin(), operands.end(),
                     [&](const Operand& o) { return !o.dram && !o.write && o.space == space; });
}

bool Effects::writes(Space space) const {
  return std::any_of(operands.begin(), operands.end(),
                     [&](const Operand& o) { return !o.dram && o.write && o.space == space; });
}

Effects effects(const Instruction& instruction, const MachineConfig& config) {
  Effects result = describe(instruction, &config, true);
  result.fill_bytes = std::max<int64_t>(0, result.fill_bytes - result.dram_read_bytes);
  return result;
}

Effects effects_beside_scratchpads(const Instruction& instruction, const MachineConfig& config) {
  return describe(instruction, &config, false);
}

Effects effects(const Instruction& instruction) { return describe(instruction, nullptr, false); }

std::optional<Operand> dram_range(const Instruction& instruction) {
  const Effects found = effects(instruction);
  if (const Operand* operand = found.dram()) return *operand;
  return std::nullopt;
}

int64_t dram_bytes(const Instruction& instruction) {
  const Effects found = effects(instruction);
  return found.dram_read_bytes + found.dram_write_bytes;
}

}  // namespace tessera::isa
