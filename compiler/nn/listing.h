// SPDX-License-Identifier: Apache-2.0
// A function of nn operations as a list for people and tools: nodes with attributes as text, and the values between
// them. Plain structs; MLIR stays behind this header.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mlir::func {
class FuncOp;
}

namespace tessera::nn {

struct ListedValue {
  std::string name;
  std::string type;       // "uint8 [1,3,224,224]"
  bool floating = false;  // a tensor of floats
  bool constant = false;
};

struct ListedNode {
  std::string name, op_type, domain;
  std::vector<int64_t> inputs, outputs;                         // in Listing::values; -1: absent
  std::vector<std::pair<std::string, std::string>> attributes;  // long lists are cut
  int64_t parent = -1;                                          // the node in whose body it stands
};

struct Listing {
  std::vector<ListedValue> values;
  std::vector<ListedNode> nodes;  // each behind what it reads
  std::vector<int64_t> inputs, outputs;
};

/// Types are those that the operations have.
Listing listing_of(mlir::func::FuncOp func);

}  // namespace tessera::nn
