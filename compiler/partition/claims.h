// SPDX-License-Identifier: Apache-2.0
// Which operations of an `nn` graph the NPU can compute, and as what. Enters: one nn.op with static shapes. Leaves: an
// operation of the value graph with all its constants, the run-time operands, and the nodes it stands for; or nothing,
// and the operation stays on the CPU. A claim is exact by construction (the integer formula of the operator) or exact
// by proof (a table of all 256 values, computed by the operator library).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/graph/value_graph.h"
#include "compiler/nn/bridge.h"

namespace tessera::partition {

struct Claim {
  nn::NodeOp root;                        // its results are the operation's
  std::vector<mlir::Value> operands;      // at run time, on the device
  std::vector<mlir::Operation*> covered;  // operations the claim stands for, root included
  graph::Operation op;                    // without operands, results and nodes, which the value graph numbers

  mlir::Value result() const { return nn::NodeOp(root).getResult(0); }
};

/// A way to recognise operations.
struct Matcher {
  std::string name;
  std::string domain, op_type;  // of the root; an empty type: any
  std::function<std::optional<Claim>(nn::NodeOp)> match;
};

/// Matchers in the order in which they are asked; the first answer counts.
class MatcherRegistry {
 public:
  static MatcherRegistry& instance();
  /// Stands before the matcher named `before`, or last. Errors: kInvalidArgument when the name is taken or `before`
  /// does not exist.
  void add(Matcher matcher, const std::string& before = "");
  const std::vector<Matcher>& matchers() const { return matchers_; }

 private:
  MatcherRegistry();
  std::vector<Matcher> matchers_;
};

/// Registers a matcher while the program or a plugin is loaded.
struct RegisterMatcher {
  explicit RegisterMatcher(Matcher matcher, const std::string& before = "");
};

/// Errors: none; an operation that does not match is left to the CPU.
std::optional<Claim> claim(nn::NodeOp op);

}  // namespace tessera::partition
