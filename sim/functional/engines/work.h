// SPDX-License-Identifier: Apache-2.0
// What an instruction did, in units a profile can add up, and the sums over a run; and the choice of kernel sets.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "isa/generated/instructions.h"

namespace tessera::sim {

/// One completed instruction.
struct Work {
  uint32_t pc = 0;
  isa::Unit unit = isa::Unit::kFetch;
  uint64_t tiles = 0;             // GEMM: iterations of the whole nest (entries processed)
  uint64_t macs = 0;              // GEMM: multiply-accumulates, padding of blocks included
  uint64_t vectors = 0;           // ALU: source entries read
  uint64_t dram_read_bytes = 0;   // LOAD
  uint64_t dram_write_bytes = 0;  // STORE
  uint64_t fill_bytes = 0;        // LOAD: bytes written without DRAM (padding, fill)
};

/// Sums over the completed instructions of a run.
struct Counters {
  std::array<uint64_t, isa::kEngines + 1> instructions{};  // by isa::Unit; FETCH: FINISH
  uint64_t gemm_tiles = 0;
  uint64_t macs = 0;
  uint64_t alu_vectors = 0;
  uint64_t dram_read_bytes = 0;  // without instruction fetch
  uint64_t dram_write_bytes = 0;
  uint64_t fill_bytes = 0;
  uint64_t fetch_bytes = 0;  // of instructions decoded

  void add(const Work& work) {
    ++instructions[static_cast<size_t>(work.unit)];
    gemm_tiles += work.tiles;
    macs += work.macs;
    alu_vectors += work.vectors;
    dram_read_bytes += work.dram_read_bytes;
    dram_write_bytes += work.dram_write_bytes;
    fill_bytes += work.fill_bytes;
  }
};

/// Implementations of GEMM and ALU. All give the same bits; they differ in speed and in the hosts that can run them.
enum class Kernels { kPortable, kAvx2, kAvx512 };

std::string_view to_string(Kernels kernels);

/// The set of that name (portable, avx2, avx512). Throws Error kInvalidArgument when it is unknown or this host cannot
/// run it.
Kernels parse_kernels(std::string_view name);

/// Whether this host can run them.
bool supported(Kernels kernels);

/// The set named by the environment variable TESSERA_KERNELS, else the fastest supported one. Throws as parse_kernels.
Kernels default_kernels();

}  // namespace tessera::sim
