// SPDX-License-Identifier: Apache-2.0
// Which operations of an `nn` graph the NPU can compute, and as what. Enters: one nn.op with static shapes. Leaves: a
// Claim that says the machine operation with all its constants, the run-time operands, and the nodes it stands for; or
// nothing, and the operation stays on the CPU. A claim is exact by construction (the integer formula of the operator)
// or exact by proof (a table of all 256 values, computed by the operator library).
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "compiler/nn/bridge.h"
#include "compiler/npu/graph.h"

namespace tessera::partition {

/// A convolution, matmul or gemm with constant weights. `what.input/output` are unset.
struct ConvolutionClaim {
  npu::Convolution what;
  bool matrix = false;      // operand [.., rows, k]; else [n, c, (h,) w]
  bool transposed = false;  // operand [k, rows]
  /// Of a matrix product with a constant for each matrix of the batch: their weights, in row-major order of `batch`,
  /// which is right-aligned with the axes before [rows, k]. Empty: `what.weights` for all.
  std::vector<std::vector<int16_t>> each;
  ops::Shape batch;
};
/// A product of two run-time tensors, matrices over a broadcast batch: [.., rows, k] x [.., k, n], each operand with
/// its last two axes exchanged where `transposed` says so. A vector is a row on the left, a column on the right.
struct ProductClaim {
  int32_t zero[2] = {0, 0};
  bool transposed[2] = {false, false};
  npu::Stage stage;
};
/// A transposed convolution with constant weights; index 0 is rows.
struct TransposedClaim {
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, dilation[2] = {1, 1}, before[2] = {0, 0};
  int64_t groups = 1;
  int32_t input_zero = 0;
  std::vector<int16_t> weights;  // [oc][ic / groups][kernel]
  npu::Stage stage;
};
struct PoolClaim {
  npu::Pool what;
  bool channels_last = false;
  /// Where the divisor differs between positions (windows over the edge): a stage for each box of outputs.
  struct Part {
    int64_t row = 0, rows = 0, column = 0, columns = 0;
    npu::Stage stage;
  };
  std::vector<Part> parts;  // empty: what.stage everywhere
};
/// The sum or maximum over whole axes of the value.
struct ReduceClaim {
  npu::Pool::Kind kind = npu::Pool::Kind::kSum;
  std::vector<bool> reduced;  // by axis
  int32_t zero = 0;           // subtracted from each element of a sum by the stage's bias
  npu::Stage stage;
};
/// output = table[input], element by element.
struct TableClaim {
  npu::Table table;
};
/// Two tensors of one shape or broadcast; x is operand 0.
struct BinaryClaim {
  npu::SecondOperation second;  // `tensor` unset
  npu::Table x_table, y_table;  // empty: the operand itself
};
/// int32 sums to bytes by power-of-two scales, exact by proof: output = convert(input), or the larger of two
/// conversions (leaky ReLU).
struct RequantiseClaim {
  npu::Stage stage;
  std::optional<npu::Stage> other;
  int64_t channel_axis = -1;  // of the value, when the multiplier varies; else -1
};
/// One step that only moves elements. `extents` are those of its result.
struct Move {
  enum class Kind {
    kTranspose,  // numbers: the permutation
    kReshape,
    kSlice,   // positions start, start + step, ... of `axis`
    kExpand,  // axes of extent 1 repeated
    kGather,  // numbers: the positions of `axis`, any
    kPad,     // numbers: elements before each axis; the rest is behind; all of them the byte `value`
  };
  Kind kind = Kind::kReshape;
  ops::Shape extents;
  std::vector<int64_t> numbers;
  size_t axis = 0;
  int64_t start = 0, step = 1;
  int32_t value = 0;
};
/// Operands side by side along an axis of the value, each through its own table (empty: copied).
struct ConcatClaim {
  int64_t axis = 0;
  std::vector<npu::Table> tables;
  std::vector<std::vector<Move>> steps;  // of each operand before; empty: none
  std::vector<npu::Stage> stages;        // of operands of int32 sums: their conversion instead of a table
};
/// Elements moved, then each through a table (empty: copied). One list of steps for each result of the root.
struct MoveClaim {
  std::vector<std::vector<Move>> steps;
  npu::Table table;
  bool table_first = false;  // before the steps instead of behind them
};

struct Claim {
  nn::NodeOp root;
  std::string name, kind;
  int64_t macs = 0;
  std::vector<mlir::Value> operands;      // at run time, on the device
  std::vector<mlir::Operation*> covered;  // operations the claim stands for, root included
  std::variant<ConvolutionClaim, ProductClaim, TransposedClaim, PoolClaim, ReduceClaim, TableClaim, BinaryClaim,
               RequantiseClaim, ConcatClaim, MoveClaim>
      what;

  mlir::Value result() const { return nn::NodeOp(root).getResult(0); }
};

/// Errors: none; an operation that does not match is left to the CPU.
std::optional<Claim> claim(nn::NodeOp op);

/// True if the claim only moves bytes: worth a place on the NPU only beside operations that compute there.
bool only_moves(const Claim& claim);

/// Multiply-accumulates of an operation of the model (convolutions, matrix products); 0 for others or unknown shapes.
int64_t model_macs(nn::NodeOp op);

}  // namespace tessera::partition
