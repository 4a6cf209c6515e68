// SPDX-License-Identifier: Apache-2.0
// The table of conversions. The build lists every convert_*.cc in families.inc, whose register_<name>(Conversions&)
// adds what the family has.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "compiler/litert/operator.h"

namespace tessera::litert {

/// Adds the nodes of an operator to the graph and gives all of its results. Errors: op.refuse().
using Conversion = std::function<void(Op& op)>;

class Conversions {
 public:
  void add(BuiltinOperator code, Conversion conversion) { builtin_[code] = std::move(conversion); }
  /// Of a custom operator, by what it calls itself.
  void add(const std::string& custom, Conversion conversion) { custom_[custom] = std::move(conversion); }
  /// nullptr for an operator that has none.
  const Conversion* find(const OperatorInfo& op) const;
  /// Names of all operators, sorted.
  std::vector<std::string> names() const;

 private:
  std::map<BuiltinOperator, Conversion> builtin_;
  std::map<std::string, Conversion> custom_;
};

/// The table of the process.
const Conversions& conversions();

}  // namespace tessera::litert
