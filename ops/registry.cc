// SPDX-License-Identifier: Apache-2.0
// The table of operator definitions. The build lists every family_*.cc in families.inc, which declares and calls its
// register_<family>(Registry&): a new family registers itself by existing.
#include <algorithm>

#include "ops/operator.h"

namespace tessera::ops {

#define TESSERA_OPS_FAMILY(name) void register_##name(Registry& registry);
#include "ops/families.inc"
#undef TESSERA_OPS_FAMILY

namespace {

std::string canonical_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

/// Levenshtein distance without regard to case.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same =
          std::tolower(static_cast<unsigned char>(a[i - 1])) == std::tolower(static_cast<unsigned char>(b[j - 1]));
      const size_t best = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (same ? 0 : 1)});
      diagonal = row[j];
      row[j] = best;
    }
  }
  return row[b.size()];
}

}  // namespace

void Registry::add(OperatorDef def) {
  auto& versions = defs_[{canonical_domain(def.domain), def.name}];
  const auto at = std::lower_bound(versions.begin(), versions.end(), def.since_version,
                                   [](const OperatorDef& entry, int version) { return entry.since_version < version; });
  TESSERA_INVARIANT(at == versions.end() || at->since_version != def.since_version,
                    "operator " + def.name + " is registered twice for opset " + std::to_string(def.since_version));
  versions.insert(at, std::move(def));
}

const OperatorDef* Registry::find(const std::string& domain, const std::string& name, int version) const {
  const auto it = defs_.find({canonical_domain(domain), name});
  if (it == defs_.end()) return nullptr;
  const OperatorDef* best = nullptr;
  for (const OperatorDef& def : it->second)
    if (def.since_version <= version) best = &def;
  return best;
}

std::vector<std::string> Registry::similar(const std::string& name) const {
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const auto& [key, versions] : defs_) {
    const size_t distance = edit_distance(name, key.second);
    if (distance <= std::max<size_t>(1, name.size() / 3))
      ranked.emplace_back(distance, key.first.empty() ? key.second : key.first + "::" + key.second);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> names;
  for (size_t i = 0; i < ranked.size() && i < 3; ++i) names.push_back(ranked[i].second);
  return names;
}

std::vector<std::string> Registry::names() const {
  std::vector<std::string> names;
  for (const auto& [key, versions] : defs_)
    names.push_back((key.first.empty() ? "ai.onnx" : key.first) + "::" + key.second);
  std::sort(names.begin(), names.end());
  return names;
}

const Registry& registry() {
  static const Registry instance = [] {
    Registry registry;
#define TESSERA_OPS_FAMILY(name) register_##name(registry);
#include "ops/families.inc"
#undef TESSERA_OPS_FAMILY
    return registry;
  }();
  return instance;
}

}  // namespace tessera::ops
