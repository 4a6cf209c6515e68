// SPDX-License-Identifier: Apache-2.0
// Merging and splitting of loop nests at the limits of the instruction's fields.
#include "compiler/npu/lowering/legalise.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace tessera::npu {

namespace {

constexpr int64_t kRunLimit = 65535;       // LOAD and STORE: bytes of a run
constexpr int64_t kTransferLimit = 65535;  // iterations of a transfer loop
constexpr int64_t kPadLimit = 4095;
constexpr int64_t kLoopLimit = 4095;    // iterations of a GEMM or ALU loop
constexpr int64_t kStrideLimit = 8191;  // entries
constexpr int64_t kDramStrideLimit = (int64_t{1} << 31) - 1;
constexpr int64_t kSpStrideLimit = (int64_t{1} << 21) - 1;
// A padded loop over contiguous runs is cut into padding and one long run when its runs are shorter than this.
constexpr int64_t kShortRun = 128;

bool padded(const TransferLoop& loop) { return loop.pad_before > 0 || loop.pad_after > 0; }

/// The same transfer over iterations [begin, begin + count) of loop k, none of which is padding of that loop.
Transfer slice(const Transfer& transfer, size_t k, int64_t begin, int64_t count) {
  Transfer part = transfer;
  TransferLoop& loop = part.loops[k];
  const int64_t valid = begin - loop.pad_before;
  part.dram_offset += valid * loop.dram_stride;
  part.sp_addr += begin * loop.sp_stride;
  loop.extent = count;
  loop.pad_before = loop.pad_after = 0;
  return part;
}

/// The padding iterations [begin, begin + count) of loop k as a fill.
Transfer padding(const Transfer& transfer, size_t k, int64_t begin, int64_t count) {
  Transfer part = transfer;
  TransferLoop& loop = part.loops[k];
  part.sp_addr += begin * loop.sp_stride;
  loop.extent = count;
  loop.pad_before = count;
  loop.pad_after = 0;
  return part;
}

void emit_transfer(const Transfer& transfer, std::vector<isa::Instruction>& out) {
  if (transfer.store) {
    isa::Store store;
    store.space = transfer.space;
    store.base = static_cast<uint8_t>(transfer.base);
    store.dram_offset = static_cast<uint64_t>(transfer.dram_offset);
    store.length = static_cast<uint16_t>(transfer.length);
    store.sp_addr = static_cast<uint32_t>(transfer.sp_addr);
    const size_t first = isa::kTransferLoops - transfer.loops.size();
    for (size_t k = 0; k < transfer.loops.size(); ++k) {
      store.extent[first + k] = static_cast<uint16_t>(transfer.loops[k].extent);
      store.dram_stride[first + k] = static_cast<int32_t>(transfer.loops[k].dram_stride);
      store.sp_stride[first + k] = static_cast<int32_t>(transfer.loops[k].sp_stride);
    }
    out.push_back(store);
    return;
  }
  isa::Load load;
  load.space = transfer.space;
  load.fill = transfer.fill;
  load.packed = transfer.packed;
  load.length = static_cast<uint16_t>(transfer.length);
  load.sp_addr = static_cast<uint32_t>(transfer.sp_addr);
  load.pad_value = transfer.pad_value;
  if (!transfer.fill) {
    load.base = static_cast<uint8_t>(transfer.base);
    load.dram_offset = static_cast<uint64_t>(transfer.dram_offset);
  }
  // Padded loops go to the front, where the pad fields are; the others to the back.
  LoopList<TransferLoop> front, back;
  for (const TransferLoop& loop : transfer.loops) (padded(loop) ? front : back).push_back(loop);
  TESSERA_INVARIANT(front.size() <= 2 && front.size() + back.size() <= isa::kTransferLoops,
                    "a transfer nest is too deep");
  const auto put = [&](size_t slot, const TransferLoop& loop) {
    load.extent[slot] = static_cast<uint16_t>(loop.extent);
    load.dram_stride[slot] = transfer.fill ? 0 : static_cast<int32_t>(loop.dram_stride);
    load.sp_stride[slot] = static_cast<int32_t>(loop.sp_stride);
    if (slot < 2) {
      load.pad_before[slot] = static_cast<uint16_t>(loop.pad_before);
      load.pad_after[slot] = static_cast<uint16_t>(loop.pad_after);
    }
  };
  const auto follow = [&](const TransferLoop& loop) { return loop.dram_stride == transfer.length; };
  const bool inside = transfer.together && front.size() == 1 && !back.empty() && follow(front[0]);
  if (inside && std::ranges::none_of(back, follow)) {
    front.insert(front.begin(), back[0]);
    back.erase(back.begin());
  }
  for (size_t k = 0; k < front.size(); ++k) put(k, front[k]);
  for (size_t k = 0; k < back.size(); ++k) put(isa::kTransferLoops - back.size() + k, back[k]);
  if (front.empty() && !transfer.fill) load.pad_value = 0;
  out.push_back(load);
}

/// Drops unit loops; a transfer of padding alone becomes a fill. False: nothing is moved.
bool normalise(Transfer& transfer) {
  if (transfer.length <= 0) return false;
  for (const TransferLoop& loop : transfer.loops) {
    if (loop.extent <= 0) return false;
    TESSERA_INVARIANT(loop.pad_before + loop.pad_after <= loop.extent, "more padding than iterations");
    if (loop.pad_before + loop.pad_after == loop.extent) transfer.fill = true;
  }
  TESSERA_INVARIANT(!(transfer.store && transfer.fill), "a store has no padding");
  if (transfer.fill) {
    transfer.dram_offset = 0;
    for (TransferLoop& loop : transfer.loops) loop.pad_before = loop.pad_after = loop.dram_stride = 0;
  }
  auto& loops = transfer.loops;
  loops.erase(std::remove_if(loops.begin(), loops.end(), [](const TransferLoop& loop) { return loop.extent == 1; }),
              loops.end());
  return true;
}

/// Whether the loop's runs continue each other on both sides.
bool contiguous(const Transfer& transfer, const TransferLoop& loop) {
  return !transfer.packed && loop.sp_stride == transfer.length &&
         (transfer.fill || loop.dram_stride == transfer.length);
}

/// Whether the innermost loop is one of contiguous runs, padded or not.
bool ends_contiguous(const Transfer& transfer, bool with_padding) {
  return !transfer.loops.empty() && padded(transfer.loops.back()) == with_padding &&
         contiguous(transfer, transfer.loops.back());
}

bool merge_neighbours(Transfer& transfer) {
  auto& loops = transfer.loops;
  for (size_t k = 0; k + 1 < loops.size(); ++k) {
    const TransferLoop& a = loops[k];
    const TransferLoop& b = loops[k + 1];
    if (padded(a) || padded(b) || a.sp_stride != b.extent * b.sp_stride) continue;
    if (!transfer.fill && a.dram_stride != b.extent * b.dram_stride) continue;
    loops[k + 1].extent *= a.extent;
    loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(k));
    return true;
  }
  return false;
}

bool merge_into_run(Transfer& transfer) {
  if (!ends_contiguous(transfer, false) || transfer.loops.back().extent * transfer.length > kRunLimit) return false;
  transfer.length *= transfer.loops.back().extent;
  transfer.loops.pop_back();
  return true;
}

using Parts = std::vector<Transfer>;

/// The padding before loop k's inner iterations, these, and the padding behind them, each apart.
Parts padding_apart(const Transfer& transfer, size_t k) {
  const TransferLoop& loop = transfer.loops[k];
  return {padding(transfer, k, 0, loop.pad_before),
          slice(transfer, k, loop.pad_before, loop.extent - loop.pad_before - loop.pad_after),
          padding(transfer, k, loop.extent - loop.pad_after, loop.pad_after)};
}

// Each of these cuts a transfer in parts where an instruction cannot hold it, and gives none where it can.

/// Padding counts have twelve bits: what exceeds them is filled by its own instructions.
Parts cut_long_padding(const Transfer& transfer) {
  for (size_t k = 0; k < transfer.loops.size(); ++k) {
    const TransferLoop& loop = transfer.loops[k];
    if (loop.pad_before > kPadLimit || loop.pad_after > kPadLimit) return padding_apart(transfer, k);
  }
  return {};
}

/// Short contiguous runs inside a padded loop: padding apart, then one long run.
Parts cut_short_runs(const Transfer& transfer) {
  if (!ends_contiguous(transfer, true) || transfer.length >= kShortRun) return {};
  const TransferLoop& loop = transfer.loops.back();
  if (loop.extent - loop.pad_before - loop.pad_after <= 1) return {};
  return padding_apart(transfer, transfer.loops.size() - 1);
}

/// A contiguous loop too long for one run: whole runs of as many iterations as fit, and the rest.
Parts cut_long_loop(const Transfer& transfer) {
  if (!ends_contiguous(transfer, false) || transfer.length * 2 > kRunLimit) return {};
  const size_t k = transfer.loops.size() - 1;
  const int64_t extent = transfer.loops[k].extent, chunk = kRunLimit / transfer.length, whole = extent / chunk,
                rest = extent % chunk;
  Transfer main = slice(transfer, k, 0, chunk);
  main.loops.insert(main.loops.begin() + static_cast<std::ptrdiff_t>(k),
                    {whole, transfer.fill ? 0 : chunk * transfer.length, chunk * transfer.length});
  main.length *= chunk;
  main.loops.pop_back();
  Parts parts{main};
  if (rest > 0) parts.push_back(slice(transfer, k, whole * chunk, rest));
  return parts;
}

/// A run beyond the field.
Parts cut_long_run(const Transfer& transfer) {
  if (transfer.length <= kRunLimit) return {};
  Parts parts{transfer, transfer};
  parts[0].length = kRunLimit;
  parts[1].length -= kRunLimit;
  if (!transfer.fill) parts[1].dram_offset += kRunLimit;
  parts[1].sp_addr += kRunLimit;
  return parts;
}

/// The loop to unroll: one whose stride exceeds its field, or of too many loops the shortest; loops.size(): none.
size_t loop_to_unroll(const LoopList<TransferLoop>& loops) {
  size_t found = loops.size();
  for (size_t k = 0; k < loops.size(); ++k) {
    if (std::abs(loops[k].dram_stride) > kDramStrideLimit || std::abs(loops[k].sp_stride) > kSpStrideLimit) found = k;
  }
  if (found < loops.size() || loops.size() <= isa::kTransferLoops) return found;
  for (size_t k = 0; k < loops.size(); ++k) {
    if (!padded(loops[k]) && (found == loops.size() || loops[k].extent < loops[found].extent)) found = k;
  }
  return found;
}

Parts unroll(const Transfer& transfer) {
  const size_t k = loop_to_unroll(transfer.loops);
  if (k == transfer.loops.size()) return {};
  const TransferLoop& loop = transfer.loops[k];
  Parts parts;
  for (int64_t i = 0; i < loop.extent; ++i) {
    const bool pad = i < loop.pad_before || i >= loop.extent - loop.pad_after;
    parts.push_back(pad ? padding(transfer, k, i, 1) : slice(transfer, k, i, 1));
  }
  return parts;
}

/// A loop of more iterations than its field counts.
Parts cut_long_extent(const Transfer& transfer) {
  for (size_t k = 0; k < transfer.loops.size(); ++k) {
    const TransferLoop& loop = transfer.loops[k];
    if (loop.extent <= kTransferLimit) continue;
    const int64_t valid = loop.extent - loop.pad_before - loop.pad_after;
    Parts parts{padding(transfer, k, 0, loop.pad_before)};
    for (int64_t begin = 0; begin < valid; begin += kTransferLimit)
      parts.push_back(slice(transfer, k, loop.pad_before + begin, std::min(kTransferLimit, valid - begin)));
    parts.push_back(padding(transfer, k, loop.extent - loop.pad_after, loop.pad_after));
    return parts;
  }
  return {};
}

/// Appends the parts; false where there are none.
bool append_parts(const Parts& parts, std::vector<isa::Instruction>& out) {
  for (const Transfer& part : parts) append_transfer(part, out);
  return !parts.empty();
}

}  // namespace

void append_transfer(Transfer transfer, std::vector<isa::Instruction>& out) {
  if (!normalise(transfer)) return;
  if (append_parts(cut_long_padding(transfer), out)) return;
  // Outer loops into inner ones until nothing changes, the innermost into the run.
  while (merge_neighbours(transfer) || merge_into_run(transfer)) {
  }
  for (const auto cut : {cut_short_runs, cut_long_loop, cut_long_run, unroll, cut_long_extent}) {
    if (append_parts(cut(transfer), out)) return;
  }
  emit_transfer(transfer, out);
}

namespace {

using Band = LoopList<NestLoop>;

/// Drops unit loops and merges neighbours whose strides agree.
Band simplify(const Band& band) {
  Band result;
  for (const NestLoop& loop : band) {
    if (loop.extent == 1) continue;
    if (!result.empty()) {
      NestLoop& outer = result.back();
      bool merge = outer.extent * loop.extent <= kLoopLimit;
      for (size_t i = 0; i < loop.stride.size(); ++i) merge = merge && outer.stride[i] == loop.extent * loop.stride[i];
      if (merge) {
        outer.extent *= loop.extent;
        outer.stride = loop.stride;
        continue;
      }
    }
    result.push_back(loop);
  }
  return result;
}

bool encodable(const NestLoop& loop) {
  if (loop.extent > kLoopLimit) return false;
  return std::all_of(loop.stride.begin(), loop.stride.end(), [](int64_t s) { return std::abs(s) <= kStrideLimit; });
}

/// Calls `use(address offsets, band)` for parts of a band that have at most `most` loops, all encodable, in order.
template <typename Use>
void for_each_part(const Band& band, size_t most, const std::array<int64_t, 4>& offset, const Use& use) {
  const auto at = [&](const NestLoop& loop, int64_t i) {
    std::array<int64_t, 4> result = offset;
    for (size_t k = 0; k < result.size(); ++k) result[k] += i * loop.stride[k];
    return result;
  };
  for (size_t k = 0; k < band.size(); ++k) {
    const NestLoop& loop = band[k];
    if (encodable(loop)) continue;
    NestLoop strides_only = loop;
    strides_only.extent = 1;
    const int64_t step = encodable(strides_only) ? kLoopLimit : 1;
    for (int64_t i = 0; i < loop.extent; i += step) {
      Band part = band;
      part[k].extent = std::min(step, loop.extent - i);
      if (part[k].extent == 1) part.erase(part.begin() + static_cast<std::ptrdiff_t>(k));
      for_each_part(part, most, at(loop, i), use);
    }
    return;
  }
  if (band.size() <= most) {
    use(offset, band);
    return;
  }
  size_t k = 0;
  for (size_t i = 1; i < band.size(); ++i) {
    if (band[i].extent < band[k].extent) k = i;
  }
  Band rest = band;
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(k));
  for (int64_t i = 0; i < band[k].extent; ++i) for_each_part(rest, most, at(band[k], i), use);
}

}  // namespace

void append_gemm(const isa::Gemm& head, const ComputeNest& nest, std::vector<isa::Instruction>& out) {
  const auto emit = [&](const std::array<int64_t, 4>& address, const Band& outer, const Band& reduction,
                        bool accumulate) {
    isa::Gemm gemm = head;
    gemm.inp_addr = static_cast<uint16_t>(address[0]);
    gemm.wgt_addr = static_cast<uint16_t>(address[1]);
    gemm.acc_addr = static_cast<uint16_t>(address[2]);
    gemm.reduce = static_cast<uint8_t>(reduction.size());
    gemm.accumulate = accumulate;
    const auto put = [&](size_t slot, const NestLoop& loop) {
      gemm.extent[slot] = static_cast<uint16_t>(loop.extent);
      gemm.inp_stride[slot] = static_cast<int16_t>(loop.stride[0]);
      gemm.wgt_stride[slot] = static_cast<int16_t>(loop.stride[1]);
      gemm.acc_stride[slot] = static_cast<int16_t>(loop.stride[2]);
    };
    for (size_t k = 0; k < outer.size(); ++k) put(isa::kLoops - reduction.size() - outer.size() + k, outer[k]);
    for (size_t k = 0; k < reduction.size(); ++k) put(isa::kLoops - reduction.size() + k, reduction[k]);
    out.push_back(gemm);
  };
  const Band outer = simplify(nest.outer);
  if (head.mode == isa::GemmMode::kDepthwise) {
    TESSERA_INVARIANT(nest.reduction.size() == 2, "depthwise needs two tap loops");
    for_each_part(outer, isa::kLoops - 2, nest.address, [&](const std::array<int64_t, 4>& address, const Band& part) {
      emit(address, part, nest.reduction, head.accumulate);
    });
    return;
  }
  bool first = true;
  const Band reduction = simplify(nest.reduction);
  const size_t most = std::min<size_t>(reduction.size(), 3);
  for_each_part(reduction, most, nest.address, [&](const std::array<int64_t, 4>& start, const Band& reduction_part) {
    for_each_part(outer, isa::kLoops - reduction_part.size(), start,
                  [&](const std::array<int64_t, 4>& address, const Band& part) {
                    emit(address, part, reduction_part, head.accumulate || !first);
                  });
    first = false;
  });
}

namespace {

/// One ALU instruction over the loops of `part`, with the reduction innermost.
isa::Alu alu_over(const isa::Alu& head, const std::array<int64_t, 4>& address, const Band& part,
                  const Band& reduction) {
  isa::Alu alu = head;
  const bool second = head.second_op != isa::SecondOp::kNone;
  alu.src_addr = static_cast<uint16_t>(address[0]);
  alu.dst_addr = static_cast<uint16_t>(address[1]);
  if (second) alu.second_addr = static_cast<uint16_t>(address[2]);
  if (head.convert) alu.param_addr = static_cast<uint16_t>(address[3]);
  alu.param_loop = 7;
  alu.reduce = static_cast<uint8_t>(reduction.size());
  if (reduction.empty()) alu.reduce_op = isa::ReduceOp::kSum;
  const auto put = [&](size_t slot, const NestLoop& loop) {
    alu.extent[slot] = static_cast<uint16_t>(loop.extent);
    alu.src_stride[slot] = static_cast<int16_t>(loop.stride[0]);
    alu.dst_stride[slot] = static_cast<int16_t>(loop.stride[1]);
    if (second) alu.second_stride[slot] = static_cast<int16_t>(loop.stride[2]);
    if (!head.convert || loop.stride[3] == 0) return;
    TESSERA_INVARIANT(loop.stride[3] == 1 && alu.param_loop == 7, "PARAM is walked by one loop");
    alu.param_loop = static_cast<uint8_t>(slot);
  };
  for (size_t k = 0; k < part.size(); ++k) put(isa::kLoops - reduction.size() - part.size() + k, part[k]);
  for (size_t k = 0; k < reduction.size(); ++k) put(isa::kLoops - reduction.size() + k, reduction[k]);
  return alu;
}

}  // namespace

void append_alu(const isa::Alu& head, const ComputeNest& nest, std::vector<isa::Instruction>& out) {
  const Band outer = simplify(nest.outer);
  const Band reduction = simplify(nest.reduction);
  for (const NestLoop& loop : reduction) TESSERA_INVARIANT(encodable(loop), "an ALU reduction exceeds an instruction");
  TESSERA_INVARIANT(reduction.size() < isa::kLoops, "an ALU reduction has too many loops");
  for_each_part(outer, isa::kLoops - reduction.size(), nest.address,
                [&](const std::array<int64_t, 4>& address, const Band& part) {
                  out.push_back(alu_over(head, address, part, reduction));
                });
}

namespace {

/// Calls put(instruction slot, loop) for each loop of `part`, and of the row behind them.
template <typename Put>
void put_loops(const Band& part, const Band& row, const Put& put) {
  for (size_t k = 0; k < part.size(); ++k) put(isa::kLoops - row.size() - part.size() + k, part[k]);
  for (size_t k = 0; k < row.size(); ++k) put(isa::kLoops - row.size() + k, row[k]);
}

/// The loop of a row; none when it has one entry.
Band row_of(const ComputeNest& nest) {
  const Band row = simplify(nest.reduction);
  TESSERA_INVARIANT(row.size() <= 1 && (row.empty() || encodable(row[0])), "a row does not fit an instruction");
  return row;
}

}  // namespace

void append_row_reduce(const isa::RowReduce& head, const ComputeNest& nest, std::vector<isa::Instruction>& out) {
  const Band row = row_of(nest);
  for_each_part(simplify(nest.outer), isa::kLoops - row.size(), nest.address,
                [&](const std::array<int64_t, 4>& address, const Band& part) {
                  isa::RowReduce reduce = head;
                  reduce.src_addr = static_cast<uint16_t>(address[0]);
                  reduce.scalar_addr = static_cast<uint16_t>(address[1]);
                  reduce.row = static_cast<uint8_t>(row.size());
                  put_loops(part, row, [&](size_t slot, const NestLoop& loop) {
                    reduce.extent[slot] = static_cast<uint16_t>(loop.extent);
                    reduce.src_stride[slot] = static_cast<int16_t>(loop.stride[0]);
                    reduce.scalar_stride[slot] = static_cast<int16_t>(loop.stride[1]);
                  });
                  out.push_back(reduce);
                });
}

void append_row_map(const isa::RowMap& head, const ComputeNest& nest, std::vector<isa::Instruction>& out) {
  const Band row = row_of(nest);
  const bool params = head.operation == isa::Mapping::kNormalise;
  for_each_part(simplify(nest.outer), isa::kLoops - row.size(), nest.address,
                [&](const std::array<int64_t, 4>& address, const Band& part) {
                  isa::RowMap map = head;
                  map.src_addr = static_cast<uint16_t>(address[0]);
                  map.dst_addr = static_cast<uint16_t>(address[1]);
                  map.scalar_addr = static_cast<uint16_t>(address[2]);
                  if (params) map.param_addr = static_cast<uint16_t>(address[3]);
                  map.row = static_cast<uint8_t>(row.size());
                  put_loops(part, row, [&](size_t slot, const NestLoop& loop) {
                    map.extent[slot] = static_cast<uint16_t>(loop.extent);
                    map.src_stride[slot] = static_cast<int16_t>(loop.stride[0]);
                    map.dst_stride[slot] = static_cast<int16_t>(loop.stride[1]);
                    map.scalar_stride[slot] = static_cast<int16_t>(loop.stride[2]);
                    if (params && loop.stride[3] != 0) map.param_loop = static_cast<uint8_t>(slot);
                  });
                  out.push_back(map);
                });
}

}  // namespace tessera::npu
