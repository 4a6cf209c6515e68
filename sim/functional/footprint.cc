// SPDX-License-Identifier: Apache-2.0
// Sets of strided runs. A set does not depend on the order of its loops, so negative strides are turned round, loops
// are sorted by stride and joined where that loses nothing: a stride within the run lengthens the run; a stride that is
// a multiple m of the one below and not beyond its end (m <= extent) lengthens that loop. Overlapping windows of
// convolutions, tiles and dense blocks all collapse this way; what is left is listed, sorted and merged.
#include "sim/functional/footprint.h"

#include <algorithm>
#include <cstddef>

namespace tessera::sim {
namespace {

void merge_sorted(IntervalSet& set) {
  size_t kept = 0;
  for (size_t k = 1; k < set.size(); ++k) {
    if (set[k].begin <= set[kept].end) {
      set[kept].end = std::max(set[kept].end, set[k].end);
    } else {
      set[++kept] = set[k];
    }
  }
  if (!set.empty()) set.resize(kept + 1);
}

class Collector {
 public:
  Collector(const isa::MachineConfig& config, const std::array<uint64_t, 16>& bases) : config_(config), bases_(bases) {}
  std::vector<Touched> take() { return std::move(touched_); }

  void collect(const isa::Finish&) {}
  void collect(const isa::Fence&) {}

  void collect(const isa::Load& i) {
    std::vector<StridedLoop> to;
    std::vector<StridedLoop> from;
    bool reads = !i.fill;
    for (size_t k = 0; k < i.extent.size(); ++k) {
      to.push_back({i.extent[k], i.sp_stride[k]});
      const int64_t inside = int64_t{i.extent[k]} - (k < 2 ? i.pad_before[k] + i.pad_after[k] : 0);
      reads = reads && inside > 0;
      from.push_back({inside, i.dram_stride[k]});
    }
    if (reads) dram(false, i.base, i.dram_offset, i.length, std::move(from));
    const int64_t written = i.packed ? int64_t{config_.block_in} * config_.block_out : i.length;
    add(i.space, true, i.sp_addr, static_cast<uint64_t>(written), std::move(to));
  }

  void collect(const isa::Store& i) {
    std::vector<StridedLoop> to;
    std::vector<StridedLoop> from;
    for (size_t k = 0; k < i.extent.size(); ++k) {
      to.push_back({i.extent[k], i.dram_stride[k]});
      from.push_back({i.extent[k], i.sp_stride[k]});
    }
    add(i.space, false, i.sp_addr, i.length, std::move(from));
    dram(true, i.base, i.dram_offset, i.length, std::move(to));
  }

  void collect(const isa::Gemm& i) {
    const int outer = isa::kLoops - i.reduce;
    const int64_t batch = config_.batch, block_in = config_.block_in, block_out = config_.block_out;
    if (i.mode == isa::GemmMode::kDense) {
      entries(isa::Space::kInp, false, i.inp_addr, i.extent, i.inp_stride, isa::kLoops);
      entries(isa::Space::kWgt, false, i.wgt_addr, i.extent, i.wgt_stride, isa::kLoops);
      if (i.accumulate) entries(isa::Space::kAcc, false, i.acc_addr, i.extent, i.acc_stride, outer);
      entries(isa::Space::kAcc, true, i.acc_addr, i.extent, i.acc_stride, outer);
      return;
    }
    // Depthwise: a group of lanes of each row, and the taps of those lanes.
    const int64_t lanes = config_.lanes();
    const int64_t lane_out = block_out > block_in ? i.lane * lanes : 0;
    const int64_t lane_in = block_in > block_out ? i.lane * lanes : 0;
    const int64_t taps = int64_t{i.extent[5]} * (i.reduce >= 2 ? i.extent[4] : 1);
    part(isa::Space::kInp, false, i.inp_addr, i.extent, i.inp_stride, isa::kLoops, lane_in, lanes, {batch, block_in});
    // Rows of odd lanes begin in their middle, and what is beyond their end is at their begin.
    const StridedLoop pairs{lanes / 2, 2 * block_in};
    const auto weights = [&](int64_t first, int64_t count) {
      if (count <= 0) return;
      part(isa::Space::kWgt, false, i.wgt_addr, i.extent, i.wgt_stride, isa::kLoops, lane_out * block_in + first, count,
           pairs);
    };
    const int64_t behind = std::min(taps, block_in - block_in / 2);
    weights(0, taps);
    weights(block_in + block_in / 2, behind);
    weights(block_in, taps - behind);
    const StridedLoop rows{batch, 4 * block_out};
    if (i.accumulate) {
      part(isa::Space::kAcc, false, i.acc_addr, i.extent, i.acc_stride, outer, 4 * lane_out, 4 * lanes, rows);
    }
    part(isa::Space::kAcc, true, i.acc_addr, i.extent, i.acc_stride, outer, 4 * lane_out, 4 * lanes, rows);
  }

  void collect(const isa::Alu& i) {
    const int outer = isa::kLoops - i.reduce;
    entries(space(i.src), false, i.src_addr, i.extent, i.src_stride, isa::kLoops);
    const int64_t param = config_.param_entry_bytes();
    if (i.convert) {
      const int64_t used = i.param_loop < isa::kLoops ? i.extent[i.param_loop] : 1;
      add(isa::Space::kParam, false, static_cast<uint64_t>(i.param_addr * param), static_cast<uint64_t>(used * param),
          {});
    }
    if (i.table_enable) add(isa::Space::kTable, false, uint64_t{i.table} * 256, 256, {});
    if (i.second_op != isa::SecondOp::kNone) {
      entries(isa::Space::kOut, false, i.second_addr, i.extent, i.second_stride, outer);
      add(isa::Space::kParam, false, static_cast<uint64_t>(i.constant_addr * param), 32, {});
    }
    if (i.second_table_enable) add(isa::Space::kTable, false, uint64_t{i.second_table} * 256, 256, {});
    entries(space(i.dst), true, i.dst_addr, i.extent, i.dst_stride, outer);
  }

  void collect(const isa::RowReduce& i) {
    const int outer = isa::kLoops - i.row;
    entries(space(i.src), false, i.src_addr, i.extent, i.src_stride, isa::kLoops);
    if (i.operation == isa::Reduction::kSumExp) {
      entries(isa::Space::kAcc, false, i.scalar_addr, i.extent, i.scalar_stride, outer);
      add(isa::Space::kTable, false, uint64_t{i.table} * 256, 1024, {});
    }
    entries(isa::Space::kAcc, true, i.scalar_addr, i.extent, i.scalar_stride, outer);
  }

  void collect(const isa::RowMap& i) {
    entries(space(i.src), false, i.src_addr, i.extent, i.src_stride, isa::kLoops);
    entries(isa::Space::kAcc, false, i.scalar_addr, i.extent, i.scalar_stride, isa::kLoops - i.row);
    if (i.operation != isa::Mapping::kNormalise) {
      add(isa::Space::kTable, false, uint64_t{i.table} * 256, 1024, {});
      if (i.operation == isa::Mapping::kSumSoftmax) {
        add(isa::Space::kTable, false, uint64_t{i.sum_table} * 256, 1024, {});
      }
      if (i.src == isa::AluSpace::kAcc) {
        const int64_t param = config_.param_entry_bytes();
        add(isa::Space::kParam, false, static_cast<uint64_t>(i.param_addr * param), static_cast<uint64_t>(param), {});
      }
    } else {
      const int64_t param = config_.param_entry_bytes();
      const int64_t used = i.param_loop < isa::kLoops ? i.extent[i.param_loop] : 1;
      add(isa::Space::kParam, false, static_cast<uint64_t>(i.param_addr * param), static_cast<uint64_t>(used * param),
          {});
    }
    entries(space(i.dst), true, i.dst_addr, i.extent, i.dst_stride, isa::kLoops);
  }

 private:
  static isa::Space space(isa::AluSpace s) {
    return s == isa::AluSpace::kAcc ? isa::Space::kAcc
                                    : (s == isa::AluSpace::kOut ? isa::Space::kOut : isa::Space::kInp);
  }

  void add(isa::Space space, bool write, uint64_t base, uint64_t length, std::vector<StridedLoop> loops) {
    touched_.push_back({false, space, write, strided_set(base, length, std::move(loops))});
  }

  void dram(bool write, int base, uint64_t offset, uint64_t length, std::vector<StridedLoop> loops) {
    const uint64_t first = bases_[static_cast<size_t>(base)] + offset;
    touched_.push_back({true, isa::Space::kInp, write, strided_set(first, length, std::move(loops))});
  }

  /// `length` bytes at byte `first` of each row of each entry; `rows` are the rows inside an entry.
  void part(isa::Space space, bool write, int addr, const std::array<uint16_t, 6>& extent,
            const std::array<int16_t, 6>& stride, int loop_count, int64_t first, int64_t length, StridedLoop rows) {
    const int64_t entry = config_.entry_bytes(space);
    std::vector<StridedLoop> loops{rows};
    for (int k = 0; k < loop_count; ++k) loops.push_back({extent[k], stride[k] * entry});
    add(space, write, static_cast<uint64_t>(addr * entry + first), static_cast<uint64_t>(length), std::move(loops));
  }

  /// Whole entries.
  void entries(isa::Space space, bool write, int addr, const std::array<uint16_t, 6>& extent,
               const std::array<int16_t, 6>& stride, int loop_count) {
    part(space, write, addr, extent, stride, loop_count, 0, config_.entry_bytes(space), {1, 0});
  }

  const isa::MachineConfig& config_;
  const std::array<uint64_t, 16>& bases_;
  std::vector<Touched> touched_;
};

}  // namespace

IntervalSet strided_set(uint64_t base, uint64_t length, std::vector<StridedLoop> loops) {
  std::erase_if(loops, [](const StridedLoop& loop) { return loop.extent <= 1 || loop.stride == 0; });
  for (StridedLoop& loop : loops) {
    if (loop.stride > 0) continue;
    base += static_cast<uint64_t>((loop.extent - 1) * loop.stride);
    loop.stride = -loop.stride;
  }
  std::sort(loops.begin(), loops.end(), [](const StridedLoop& a, const StridedLoop& b) { return a.stride < b.stride; });
  auto run = static_cast<int64_t>(length);
  std::vector<StridedLoop> kept;  // ascending strides
  for (const StridedLoop& loop : loops) {
    if (kept.empty() && loop.stride <= run) {
      run += (loop.extent - 1) * loop.stride;
      continue;
    }
    if (!kept.empty()) {
      StridedLoop& below = kept.back();
      const int64_t multiple = loop.stride / below.stride;
      if (loop.stride % below.stride == 0 && multiple <= below.extent) {
        below.extent += (loop.extent - 1) * multiple;
        continue;
      }
    }
    kept.push_back(loop);
  }
  // List them, the largest stride outermost: in order unless loops interleave.
  IntervalSet set;
  int64_t count = 1;
  for (const StridedLoop& loop : kept) count *= loop.extent;
  set.reserve(static_cast<size_t>(count));
  std::vector<int64_t> index(kept.size(), 0);
  for (;;) {
    uint64_t begin = base;
    for (size_t k = 0; k < kept.size(); ++k) begin += static_cast<uint64_t>(index[k] * kept[k].stride);
    set.push_back({begin, begin + static_cast<uint64_t>(run)});
    size_t k = 0;
    while (k < kept.size() && ++index[k] == kept[k].extent) index[k++] = 0;
    if (k == kept.size()) break;
  }
  if (!std::is_sorted(set.begin(), set.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; })) {
    std::sort(set.begin(), set.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  }
  merge_sorted(set);
  return set;
}

std::vector<Touched> footprint(const isa::Instruction& instruction, const isa::MachineConfig& config,
                               const std::array<uint64_t, 16>& bases) {
  Collector collector(config, bases);
  std::visit([&](const auto& i) { collector.collect(i); }, instruction);
  return collector.take();
}

}  // namespace tessera::sim
