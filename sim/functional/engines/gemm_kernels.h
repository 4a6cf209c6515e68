// SPDX-License-Identifier: Apache-2.0
// The inner loops of GEMM, one set for each instruction set. Enters: stored multiplicands and packed weights as gemm.cc
// lays them out. Leaves: finished ACC entries. A kernel takes up to kMaxRows output rows and one group of output lanes
// through the whole reduction with its sums in registers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sim/functional/engines/work.h"

namespace tessera::sim {

inline constexpr int kMaxRows = 8;
inline constexpr int kMaxLanes = 16;

/// One call of a dense kernel: for each row r and lane l,
///   ACC[row_acc[r]][l] = (accumulate ? the entry : 0) + sum over t of X[row_x[r] + step_x[t]] . W[step_w[t]][l]
///                        + lane_correction[l] + row_correction[r]
struct DenseCall {
  const uint8_t* x = nullptr;        // stored multiplicands of INP
  const uint32_t* row_x = nullptr;   // byte offsets of rows in x
  const uint32_t* step_x = nullptr;  // byte offsets of reduction steps in x, added to the row's
  const uint8_t* w = nullptr;        // packed panels of the lane group
  const uint32_t* step_w = nullptr;  // byte offsets of reduction steps in w
  size_t steps = 0;
  int groups = 0;  // broadcast groups in a step: BLOCK_IN / (elements of 32 bits)
  uint8_t* acc = nullptr;
  const uint32_t* row_acc = nullptr;         // byte offsets of the rows' lane group in acc
  int lanes = 0;                             // that exist in the group: a power of two up to the panel's lanes
  const int32_t* lane_correction = nullptr;  // kMaxLanes values
  const int32_t* row_correction = nullptr;
  bool accumulate = false;
};

/// Runs `rows` rows, 1 to kMaxRows.
using DenseKernel = void (*)(const DenseCall& call, int rows);

/// How a kernel set stores multiplicands: as bytes (X unsigned, W signed) in groups of 4, or as int16 in groups of 2.
struct DenseKernels {
  DenseKernel run = nullptr;
  int lanes = 0;       // of a panel
  bool bytes = false;  // else int16
};

/// For a block shape; run is null where the set has no kernel.
DenseKernels dense_kernels(Kernels kernels, int block_in, int block_out);

/// Two multiplicands of int16, the first in the low half.
constexpr uint32_t make_pair(int32_t first, int32_t second) {
  return static_cast<uint16_t>(first) | static_cast<uint32_t>(static_cast<uint16_t>(second)) << 16;
}

/// One call of a depthwise kernel: for each row r in order and lane l,
///   ACC[row_acc[r]][l] = (accumulate ? the entry : 0) + sum over t of dot(x[row_x[r] + step_x[t] + l], w[t][l])
/// where x and w are pairs of true multiplicands: two taps in one step.
struct DepthwiseCall {
  const uint32_t* x = nullptr;
  const int32_t* row_x = nullptr;   // offsets of pairs
  const int32_t* step_x = nullptr;  // offsets of pairs, added to the row's
  const uint32_t* w = nullptr;      // [steps][lanes]
  size_t rows = 0;
  size_t steps = 0;
  size_t lanes = 0;  // a power of two of at least 4
  uint8_t* acc = nullptr;
  const uint32_t* row_acc = nullptr;  // byte offsets
  bool accumulate = false;
};
using DepthwiseKernel = void (*)(const DepthwiseCall& call);
DepthwiseKernel depthwise_kernel(Kernels kernels);

/// What the kernels need of INP: pairs[k] = (first[k] - zero, second[k] - zero) for k in 0..count.
struct PairCall {
  const uint8_t* first = nullptr;
  const uint8_t* second = nullptr;
  bool is_unsigned = false;
  int32_t zero = 0;
  size_t count = 0;
  uint32_t* pairs = nullptr;
};
void make_pairs(Kernels kernels, const PairCall& call);

}  // namespace tessera::sim
