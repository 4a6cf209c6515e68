// SPDX-License-Identifier: Apache-2.0
// Cycles of parts by counting products, vectors and bytes: enough to tell ways to divide an operation apart. An
// operation and a box of its results enter.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "compiler/npu/cores/cores_split.h"
#include "compiler/npu/graph/graph.h"

namespace tessera::npu {

/// Bytes of DRAM that all cores together move in a cycle.
int64_t bytes_of_all(const isa::MachineConfig& config, const Options& options);
/// The same of the core that moves most, `share` of all bytes: while it does the others do theirs.
int64_t bytes_of_a_core(const isa::MachineConfig& config, const Options& options, double share);

/// One thread at a time: parts that were counted are known.
class CountedCosts : public PartCosts {
 public:
  /// `exchange`: cycles from the last product of one core to the first of another one that awaits it.
  CountedCosts(const isa::MachineConfig& config, const Options& options, int64_t exchange);
  int64_t part(const Graph& graph, const Operation& operation, const Box& results) const override;
  int64_t exchange() const override { return exchange_; }
  int64_t kept(const Tensor& result, const Box& box) const override;

 private:
  int64_t gemm(const Graph& graph, const Operation& operation, const Box& results) const;
  int64_t depthwise(const Convolution& op, const Box& results) const;
  int64_t alu(const Graph& graph, const Operation& operation, const Box& results) const;
  int64_t moved(const Tensor& tensor, const Box& box) const;
  int64_t bytes(const Graph& graph, const Operation& operation, const Box& results) const;
  int64_t answers(const Tensor& result, const Box& results) const;

  int64_t counted(const Graph& graph, const Operation& operation, const Box& results) const;

  const isa::MachineConfig& config_;
  int64_t exchange_, latency_, bus_bytes_, alone_bytes_;
  mutable std::map<std::pair<const Operation*, std::array<int64_t, 8>>, int64_t> known_;  // by operation and box
};

}  // namespace tessera::npu
