// SPDX-License-Identifier: Apache-2.0
#include "compiler/litert/conversions.h"

#include <algorithm>

namespace tessera::litert {

#define TESSERA_LITERT_FAMILY(name) void register_##name(Conversions& conversions);
#include "compiler/litert/families.inc"
#undef TESSERA_LITERT_FAMILY

const Conversion* Conversions::find(const OperatorInfo& op) const {
  if (op.code == BuiltinOperator::kCustom) {
    const auto found = custom_.find(op.name);
    return found == custom_.end() ? nullptr : &found->second;
  }
  const auto found = builtin_.find(op.code);
  return found == builtin_.end() ? nullptr : &found->second;
}

std::vector<std::string> Conversions::names() const {
  std::vector<std::string> all;
  for (const auto& [code, conversion] : builtin_) all.emplace_back(kBuiltinNames[static_cast<size_t>(code)]);
  for (const auto& [name, conversion] : custom_) all.push_back(name);
  std::sort(all.begin(), all.end());
  return all;
}

const Conversions& conversions() {
  static const Conversions all = [] {
    Conversions table;
#define TESSERA_LITERT_FAMILY(name) register_##name(table);
#include "compiler/litert/families.inc"
#undef TESSERA_LITERT_FAMILY
    return table;
  }();
  return all;
}

}  // namespace tessera::litert
