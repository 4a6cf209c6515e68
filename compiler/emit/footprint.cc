// SPDX-License-Identifier: Apache-2.0
// Bounds of address nests.
#include "compiler/emit/footprint.h"

#include <algorithm>

namespace tessera::emit {

namespace {

struct Bounds {
  int64_t low, high;  // first bytes or entries, inclusive
};

template <typename Extent, typename Stride, size_t N>
Bounds bounds(int64_t start, const std::array<Extent, N>& extent, const std::array<Stride, N>& stride,
              size_t loops = N) {
  Bounds result{start, start};
  for (size_t k = 0; k < loops; ++k) {
    const int64_t span = (int64_t{extent[k]} - 1) * stride[k];
    (span < 0 ? result.low : result.high) += span;
  }
  return result;
}

class Collector {
 public:
  Collector(const isa::MachineConfig& config, std::vector<Touch>& touches) : config_(config), touches_(touches) {}

  void operator()(const isa::Finish&) {}
  void operator()(const isa::Fence&) {}

  void operator()(const isa::Load& load) {
    bytes(static_cast<int>(load.space), bounds(load.sp_addr, load.extent, load.sp_stride), load.length, true);
    if (load.fill) return;
    std::array<int64_t, isa::kTransferLoops> extent;
    std::copy(load.extent.begin(), load.extent.end(), extent.begin());
    for (size_t k = 0; k < load.pad_before.size(); ++k) {
      extent[k] -= load.pad_before[k] + load.pad_after[k];
      if (extent[k] <= 0) return;
    }
    bytes(dram_memory(load.base), bounds(static_cast<int64_t>(load.dram_offset), extent, load.dram_stride), load.length,
          false);
  }

  void operator()(const isa::Store& store) {
    bytes(static_cast<int>(store.space), bounds(store.sp_addr, store.extent, store.sp_stride), store.length, false);
    bytes(dram_memory(store.base), bounds(static_cast<int64_t>(store.dram_offset), store.extent, store.dram_stride),
          store.length, true);
  }

  void operator()(const isa::Gemm& gemm) {
    entries(isa::Space::kInp, bounds(gemm.inp_addr, gemm.extent, gemm.inp_stride), false);
    entries(isa::Space::kWgt, bounds(gemm.wgt_addr, gemm.extent, gemm.wgt_stride), false);
    entries(isa::Space::kAcc, bounds(gemm.acc_addr, gemm.extent, gemm.acc_stride, isa::kLoops - gemm.reduce), true);
  }

  void operator()(const isa::Alu& alu) {
    const size_t outer = isa::kLoops - alu.reduce;
    entries(space_of(alu.src), bounds(alu.src_addr, alu.extent, alu.src_stride), false);
    if (alu.second_op != isa::SecondOp::kNone) {
      entries(isa::Space::kOut, bounds(alu.second_addr, alu.extent, alu.second_stride, outer), false);
      entries(isa::Space::kParam, {alu.constant_addr, alu.constant_addr}, false);
    }
    if (alu.convert) {
      const int64_t last = alu.param_loop < isa::kLoops ? alu.extent[alu.param_loop] - 1 : 0;
      entries(isa::Space::kParam, {alu.param_addr, alu.param_addr + last}, false);
    }
    if (alu.table_enable) entries(isa::Space::kTable, {alu.table, alu.table}, false);
    if (alu.second_table_enable) entries(isa::Space::kTable, {alu.second_table, alu.second_table}, false);
    entries(space_of(alu.dst), bounds(alu.dst_addr, alu.extent, alu.dst_stride, outer), true);
  }

 private:
  static isa::Space space_of(isa::AluSpace space) {
    return space == isa::AluSpace::kAcc   ? isa::Space::kAcc
           : space == isa::AluSpace::kOut ? isa::Space::kOut
                                          : isa::Space::kInp;
  }
  void bytes(int memory, Bounds b, int64_t length, bool write) {
    touches_.push_back({memory, b.low, b.high + length, write});
  }
  void entries(isa::Space space, Bounds b, bool write) {
    const int64_t size = config_.entry_bytes(space);
    touches_.push_back({static_cast<int>(space), b.low * size, (b.high + 1) * size, write});
  }

  const isa::MachineConfig& config_;
  std::vector<Touch>& touches_;
};

}  // namespace

void append_touches(const isa::Instruction& instruction, const isa::MachineConfig& config,
                    std::vector<Touch>& touches) {
  std::visit(Collector(config, touches), instruction);
}

}  // namespace tessera::emit
