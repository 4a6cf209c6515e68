// SPDX-License-Identifier: Apache-2.0
// What selection and packaging ask of an operation: the values it reads and the nodes of the model behind it.
#pragma once

#include <string>
#include <vector>

#include "compiler/nn/bridge.h"

namespace tessera::partition {

/// Values defined outside a region and read inside it.
inline std::vector<mlir::Value> outer_values(mlir::Region& region) {
  std::vector<mlir::Value> values;
  region.walk([&](mlir::Operation* op) {
    for (mlir::Value v : op->getOperands())
      if (!nn::is_none(v) && !region.isAncestor(v.getParentRegion())) values.push_back(v);
  });
  return values;
}

/// Run-time values an operation reads, those of its bodies included.
inline std::vector<mlir::Value> reads(mlir::Operation* op) {
  std::vector<mlir::Value> values;
  for (mlir::Value v : op->getOperands())
    if (!nn::is_none(v)) values.push_back(v);
  for (mlir::Region& region : op->getRegions())
    for (mlir::Value v : outer_values(region)) values.push_back(v);
  return values;
}

inline std::vector<std::string> covered_nodes(const std::vector<mlir::Operation*>& operations) {
  std::vector<std::string> names;
  for (mlir::Operation* op : operations)
    for (std::string& name : nn::node_names(op->getLoc())) names.push_back(std::move(name));
  return names;
}

}  // namespace tessera::partition
