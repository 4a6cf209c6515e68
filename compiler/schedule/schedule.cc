// SPDX-License-Identifier: Apache-2.0
// The Schedule's own derivations and its JSON form.
#include "compiler/schedule/schedule.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tessera::schedule {

Extents Schedule::tile() const {
  Extents tile;
  for (const Level& level : levels) {
    if (level.kind == LevelKind::kHwloop) tile[level.dim] *= level.factor;
  }
  return tile;
}

bool Schedule::keeps_rows() const {
  return std::any_of(operands.begin(), operands.end(), [](const OperandPlan& plan) {
    return plan.operand == Operand::kInput && plan.halo == Halo::kKeep;
  });
}

int64_t Schedule::window_rows() const {
  const int64_t rows = tile()[Dim::kOh];
  if (!keeps_rows()) return rows;
  for (size_t i = levels.size(); i-- > 0;) {
    if (levels[i].dim == Dim::kOh && (levels[i].kind == LevelKind::kTemporal || levels[i].kind == LevelKind::kVthread))
      return rows * levels[i].factor;
  }
  return rows;
}

int Schedule::copies(Operand operand) const {
  for (const OperandPlan& plan : operands) {
    if (plan.operand == operand) return plan.copies;
  }
  return 0;
}

bool indexes(const Nest& nest, Operand operand, Dim dim) {
  const bool weighted = nest.intrinsic == Intrinsic::kDense || nest.intrinsic == Intrinsic::kDepthwise;
  const auto broadcast = [&](const Access& access) {
    switch (dim) {
      case Dim::kN: return access.broadcast_n;
      case Dim::kOh: return access.broadcast_h;
      case Dim::kOw: return access.broadcast_w;
      case Dim::kG:
      case Dim::kOc: return access.broadcast_c;
      default: return false;
    }
  };
  switch (operand) {
    case Operand::kInput: return dim != Dim::kOc && !broadcast(nest.input);
    case Operand::kWeights:
      return weighted && (nest.factor.indexed(dim) || (dim != Dim::kN && dim != Dim::kOh && dim != Dim::kOw));
    case Operand::kSums:
    case Operand::kOutput: return !is_reduction(dim);
    case Operand::kSecond: return nest.second.present && !is_reduction(dim) && !broadcast(nest.second);
    case Operand::kParams: return nest.per_channel && (dim == Dim::kG || dim == Dim::kOc);
  }
  return false;
}

int attach_of(const Nest& nest, const std::vector<Level>& levels, Operand operand, Halo halo) {
  std::vector<int> inside;  // numbers of levels, up to each that the operand has
  int position = 0;
  for (const Level& level : levels) {
    if (level.kind != LevelKind::kTemporal && level.kind != LevelKind::kVthread) break;
    ++position;
    if (indexes(nest, operand, level.dim)) inside.push_back(position);
  }
  if (halo == Halo::kKeep && !inside.empty()) inside.pop_back();
  return inside.empty() ? 0 : inside.back();
}

namespace {

template <size_t N>
int index_of(const std::array<std::string_view, N>& names, const nlohmann::json& value, const char* key) {
  if (value.is_string()) {
    for (size_t i = 0; i < N; ++i) {
      if (names[i] == value.get<std::string>()) return static_cast<int>(i);
    }
  }
  std::string known;
  for (const std::string_view name : names) known += (known.empty() ? "" : ", ") + std::string(name);
  throw Error(ErrorCode::kInvalidArgument,
              std::string("schedule: '") + key + "' is " + value.dump() + "; known: " + known);
}

const nlohmann::json& member(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end())
    throw Error(ErrorCode::kInvalidArgument, std::string("schedule: '") + key + "' is missing");
  return *found;
}

int64_t positive(const nlohmann::json& object, const char* key, int64_t lowest) {
  const nlohmann::json& value = member(object, key);
  if (!value.is_number_integer() || value.get<int64_t>() < lowest || value.get<int64_t>() > (int64_t{1} << 31)) {
    throw Error(ErrorCode::kInvalidArgument, std::string("schedule: '") + key + "' must be an integer of at least " +
                                                 std::to_string(lowest) + ", not " + value.dump());
  }
  return value.get<int64_t>();
}

nlohmann::json parse(const std::string& text) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw Error(ErrorCode::kInvalidArgument, std::string("schedule: no JSON: ") + error.what());
  }
}

constexpr std::array<std::string_view, isa::kSpaces> kSpaceNameArray = {"inp", "wgt", "acc", "out", "param", "table"};

}  // namespace

std::string to_json(const Schedule& schedule) {
  nlohmann::ordered_json root;
  root["input_layout"] = schedule.input_layout;
  root["levels"] = nlohmann::ordered_json::array();
  for (const Level& level : schedule.levels) {
    nlohmann::ordered_json entry;
    entry["dim"] = kDimNames[static_cast<size_t>(level.dim)];
    entry["factor"] = level.factor;
    entry["kind"] = kLevelKindNames[static_cast<size_t>(level.kind)];
    root["levels"].push_back(entry);
  }
  root["operands"] = nlohmann::ordered_json::array();
  for (const OperandPlan& plan : schedule.operands) {
    nlohmann::ordered_json entry;
    entry["operand"] = kOperandNames[static_cast<size_t>(plan.operand)];
    entry["scope"] = kSpaceNameArray[static_cast<size_t>(plan.scope)];
    if (plan.attach != kDerived) entry["attach"] = plan.attach;
    entry["copies"] = plan.copies;
    entry["halo"] = kHaloNames[static_cast<size_t>(plan.halo)];
    if (!plan.layout.empty()) entry["layout"] = plan.layout;
    root["operands"].push_back(entry);
  }
  return root.dump();
}

std::string join_json(const std::vector<std::string>& schedules) {
  if (schedules.size() == 1) return schedules[0];
  std::string text;
  for (const std::string& schedule : schedules) text += (text.empty() ? "[" : ",") + schedule;
  return schedules.empty() ? "" : text + "]";
}

std::vector<std::string> split_json(const std::string& text) {
  const nlohmann::json root = parse(text);
  if (!root.is_array()) return {text};
  std::vector<std::string> parts;
  for (const nlohmann::json& part : root) parts.push_back(part.dump());
  return parts;
}

Schedule from_json(const std::string& text) {
  const nlohmann::json root = parse(text);
  if (!root.is_object()) throw Error(ErrorCode::kInvalidArgument, "schedule: the top is not an object");
  Schedule schedule;
  if (root.contains("input_layout")) {
    if (!root["input_layout"].is_string())
      throw Error(ErrorCode::kInvalidArgument, "schedule: 'input_layout' is no string");
    schedule.input_layout = root["input_layout"].get<std::string>();
  }
  const nlohmann::json& levels = member(root, "levels");
  if (!levels.is_array()) throw Error(ErrorCode::kInvalidArgument, "schedule: 'levels' is no list");
  for (const nlohmann::json& entry : levels) {
    if (!entry.is_object()) throw Error(ErrorCode::kInvalidArgument, "schedule: a level is no object");
    schedule.levels.push_back({static_cast<Dim>(index_of(kDimNames, member(entry, "dim"), "dim")),
                               positive(entry, "factor", 1),
                               static_cast<LevelKind>(index_of(kLevelKindNames, member(entry, "kind"), "kind"))});
  }
  const nlohmann::json& operands = member(root, "operands");
  if (!operands.is_array()) throw Error(ErrorCode::kInvalidArgument, "schedule: 'operands' is no list");
  for (const nlohmann::json& entry : operands) {
    if (!entry.is_object()) throw Error(ErrorCode::kInvalidArgument, "schedule: an operand is no object");
    OperandPlan plan;
    plan.operand = static_cast<Operand>(index_of(kOperandNames, member(entry, "operand"), "operand"));
    plan.scope = static_cast<isa::Space>(index_of(kSpaceNameArray, member(entry, "scope"), "scope"));
    plan.attach = entry.contains("attach") ? static_cast<int>(positive(entry, "attach", 0)) : kDerived;
    plan.copies = static_cast<int>(positive(entry, "copies", 1));
    if (entry.contains("halo")) plan.halo = static_cast<Halo>(index_of(kHaloNames, entry["halo"], "halo"));
    if (entry.contains("layout") && entry["layout"].is_string()) plan.layout = entry["layout"].get<std::string>();
    schedule.operands.push_back(plan);
  }
  return schedule;
}

std::string complete(const Nest& nest, const isa::MachineConfig& config, Schedule& schedule) {
  Extents tile = schedule.tile();
  for (int d = 0; d < kDims; ++d)
    tile.value[d] = std::min(tile.value[d], nest.extent.value[d]);  // larger ones are refused later
  const Schedule derived = make_schedule(nest, config, tile, {});
  const auto levels_of = [](const Schedule& s, bool lanes) {
    std::vector<Level> levels;
    for (const Level& level : s.levels) {
      if ((level.kind == LevelKind::kLane) == lanes) levels.push_back(level);
    }
    return levels;
  };
  const std::vector<Level> lanes = levels_of(derived, true), given = levels_of(schedule, true);
  if (given.empty()) {
    schedule.levels.insert(schedule.levels.end(), lanes.begin(), lanes.end());
  } else if (given != lanes) {
    std::string text;
    for (const Level& level : lanes)
      text += " " + std::string(kDimNames[static_cast<size_t>(level.dim)]) + " " + std::to_string(level.factor);
    return "lane levels follow from the machine: they are" + text;
  }
  const std::vector<Level> outer = levels_of(schedule, false);
  for (OperandPlan& plan : schedule.operands) {
    const std::string name(kOperandNames[static_cast<size_t>(plan.operand)]);
    const auto home = std::find_if(derived.operands.begin(), derived.operands.end(),
                                   [&](const OperandPlan& p) { return p.operand == plan.operand; });
    if (home == derived.operands.end()) return "this operation has no operand " + name;
    if (std::count_if(schedule.operands.begin(), schedule.operands.end(),
                      [&](const OperandPlan& p) { return p.operand == plan.operand; }) > 1) {
      return "operand " + name + " is given twice";
    }
    if (plan.scope != home->scope)
      return "the scope of " + name + " is " + std::string(kSpaceNameArray[static_cast<size_t>(home->scope)]);
    if (plan.layout.empty()) plan.layout = home->layout;
    if (plan.layout != home->layout) return "the layout of " + name + " is " + home->layout;
    const int attach = attach_of(nest, outer, plan.operand, plan.halo);
    if (plan.attach == kDerived) plan.attach = attach;
    if (plan.attach != attach)
      return name + " is fetched inside " + std::to_string(attach) + " levels, not " + std::to_string(plan.attach) +
             ": leave attach out or correct it";
  }
  return "";
}

}  // namespace tessera::schedule
