// SPDX-License-Identifier: Apache-2.0
// Cycles of parts by counting products, vectors and bytes: enough to tell ways to divide an operation apart. An
// operation and a box of its results enter.
#pragma once

#include <cstdint>

#include "compiler/npu/cores_split.h"
#include "compiler/npu/graph.h"

namespace tessera::npu {

/// Bytes of DRAM that each core moves in a cycle when all of them do.
int64_t bytes_of_a_core(const isa::MachineConfig& config, const Options& options);

class CountedCosts : public PartCosts {
 public:
  CountedCosts(const isa::MachineConfig& config, const Options& options);
  int64_t part(const Graph& graph, const Operation& operation, const Box& results) const override;
  int64_t exchange() const override;
  int64_t kept(const Tensor& result, const Box& box) const override;

 private:
  int64_t gemm(const Graph& graph, const Operation& operation, const Box& results) const;
  int64_t alu(const Graph& graph, const Operation& operation, const Box& results) const;
  int64_t bytes(const Graph& graph, const Operation& operation, const Box& results) const;

  const isa::MachineConfig& config_;
  int64_t bus_bytes_;
};

}  // namespace tessera::npu
