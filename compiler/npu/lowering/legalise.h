// SPDX-License-Identifier: Apache-2.0
// From unlimited nests to instructions. A transfer or a compute nest enters with any number of loops, any extents and
// strides; a list of instructions that together do the same leaves: unit loops dropped, neighbours merged, contiguous
// runs joined, and what exceeds a field (loops, extents, strides, run lengths, padding counts) unrolled into several
// instructions.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/schedule/compute_nest.h"
#include "isa/generated/instructions.h"

namespace tessera::npu {

using schedule::ComputeNest;
using schedule::LoopList;
using schedule::NestLoop;

/// One loop of a transfer, in bytes. The first pad_before and the last pad_after iterations write the padding byte;
/// DRAM counts from the first that does not.
struct TransferLoop {
  int64_t extent = 1;
  int64_t dram_stride = 0;
  int64_t sp_stride = 0;
  int64_t pad_before = 0, pad_after = 0;
};

struct Transfer {
  bool store = false;
  isa::Space space = isa::Space::kInp;
  uint32_t base = 0;
  int64_t dram_offset = 0;
  int64_t sp_addr = 0;
  int64_t length = 0;  // bytes of a run
  // Outermost first; iterations write distinct bytes, so that order carries no meaning.
  LoopList<TransferLoop> loops;
  uint8_t pad_value = 0;
  bool fill = false;
  bool together =
      false;            // where runs follow each other in DRAM, their loop goes inside, as LOAD requests them together
  bool packed = false;  // entries of WGT in 4 bits: a run is one of them, and loops walk its place in WGT by whole ones
};

/// Appends the LOAD or STORE instructions of a transfer. Stores have no padding. Empty loops (extent 0) give nothing.
void append_transfer(Transfer transfer, std::vector<isa::Instruction>& out);

/// Appends GEMM instructions. `head` carries everything but addresses, extents, strides and reduce. A reduction that
/// needs more loops than an instruction has is continued with `accumulate`. Depthwise: `reduction` is exactly the two
/// tap loops, kept as they are.
void append_gemm(const isa::Gemm& head, const ComputeNest& nest, std::vector<isa::Instruction>& out);

/// Appends ALU instructions. The PARAM stride must be 1 in one loop at most after merging and 0 elsewhere. The
/// reduction must fit one instruction.
void append_alu(const isa::Alu& head, const ComputeNest& nest, std::vector<isa::Instruction>& out);

/// Append the instructions of rows, which the reduction walks: it is one loop that fits an instruction.
void append_row_reduce(const isa::RowReduce& head, const ComputeNest& nest, std::vector<isa::Instruction>& out);
void append_row_map(const isa::RowMap& head, const ComputeNest& nest, std::vector<isa::Instruction>& out);

}  // namespace tessera::npu
