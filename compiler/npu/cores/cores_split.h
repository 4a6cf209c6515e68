// SPDX-License-Identifier: Apache-2.0
// A graph's operations divided among the cores of a chip. A checked graph enters, and for each operation how its result
// is divided; a graph of parts leaves, in which each part belongs to a core. It computes the same on one core, part
// after part: a part reads views of its operands (with the rows around them that a window needs) and writes a view of
// the result. A tensor of which each core reads only what it can make itself becomes a tensor of each core, so that
// chains stay inside of a core; what two cores both need of it is computed by both where that is cheaper than waiting.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/npu/graph/graph.h"

namespace tessera::npu {

/// Elements of a tensor, by its axes n, h, w and c. Without elements where an extent is 0.
struct Box {
  std::array<int64_t, 4> begin{}, extent{};
  int64_t end(size_t axis) const { return begin[axis] + extent[axis]; }
  int64_t elements() const { return extent[0] * extent[1] * extent[2] * extent[3]; }
  bool empty() const { return elements() == 0; }
  bool operator==(const Box&) const = default;
};

inline constexpr size_t kImages = 0, kRows = 1, kColumns = 2, kChannels = 3;  // axes, as schedule::kDivisionAxes

Box whole_box(const Tensor& tensor);
bool covers(const Box& outer, const Box& inner);
/// The least box that has the elements of both.
Box hull(const Box& a, const Box& b);

using schedule::Division;

/// The elements of a core's share.
Box share_of(const Tensor& result, const Division& division, size_t core);

/// The least box of results that has the given ones and that the operation can compute by itself: whole groups, whole
/// rows, whole repeats.
Box computable(const Graph& graph, const Operation& operation, const Box& results);

/// Boxes of tensors.
using Reads = std::vector<std::pair<TensorId, Box>>;

/// What an operation reads for a box of its results, in the order of uses_of(). False where a window of it lies outside
/// the input altogether.
bool find_reads(const Graph& graph, const Operation& operation, const Box& results, Reads& reads);
/// The same of results that a core can compute.
Reads reads_of(const Graph& graph, const Operation& operation, const Box& results);

/// The operation for a box of its results: sliced weights and parameters, padding as far as it lies inside. Operands
/// are given as the tensors that hold the boxes of reads_of().
Operation part_of(const Graph& graph, const Operation& operation, const Box& results,
                  const std::vector<TensorId>& operands, TensorId result);

/// The ways that an operation's result can be divided among so many cores, in whole blocks of channels. Each core alone
/// is always among them, by its number.
std::vector<Division> divisions_of(const Graph& graph, const Operation& operation, size_t cores, int64_t block);

/// Why a result cannot be divided so; "" if it can.
std::string obstacle(const Graph& graph, const Operation& operation, const Division& division, size_t cores,
                     int64_t block);

/// Parts in the order of the given graph's operations, those of an operation by core.
struct ChipGraph {
  Graph graph;
  std::vector<size_t> layers;  // by operation: that of the given graph
  std::vector<size_t> cores;   // by operation
};

/// Cycles that a part takes beside what it waits for, and that a core waits for others.
class PartCosts {
 public:
  virtual ~PartCosts() = default;
  virtual int64_t part(const Graph& graph, const Operation& operation, const Box& results) const = 0;
  virtual int64_t exchange() const = 0;
  /// That a chain saves which keeps so much of a result on the chip.
  virtual int64_t kept(const Tensor& result, const Box& box) const = 0;
};

/// What each core computes of each operation, and which results are tensors of the cores.
struct Shares {
  std::vector<std::vector<Box>> boxes;  // by operation and core
  std::vector<bool> own;                // by operation: its result is a tensor of each core
  std::vector<Division> divisions;      // by operation; they say which results are
};

/// Divides a graph in one way after the other. What all ways have in common is found once.
class Sharing {
 public:
  Sharing(const Graph& graph, size_t cores, const PartCosts& costs);
  /// Errors: kInvalidArgument where a division says that each core makes its own of a result of which it cannot.
  /// What it returns stands until the next call.
  const Shares& shares(const std::vector<Division>& divisions);

 private:
  void share(size_t i);
  void need(size_t i, size_t core);

  const Graph& graph_;
  const size_t cores_;
  const PartCosts& costs_;
  const std::vector<bool> separable_;     // by tensor
  const std::vector<bool> feeds_;         // by operation
  std::vector<std::vector<Box>> needed_;  // by tensor and core
  std::vector<Box> own_;                  // by core: what it needs of a result
  Reads reads_;
  Shares shares_;
};

/// `beat`: bytes; transposed factors have columns that begin at multiples of it.
ChipGraph divided(const Graph& graph, const Shares& shares, int64_t beat);

}  // namespace tessera::npu
