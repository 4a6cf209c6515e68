// SPDX-License-Identifier: Apache-2.0
// Schedules as JSON and back.
#include "compiler/schedule/text/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"

namespace tessera::schedule {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kInvalidArgument, "schedule: " + why); }

size_t index_of(std::span<const std::string_view> names, const json& value, const char* key) {
  if (value.is_string()) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == value.get<std::string>()) return i;
    }
  }
  std::string known;
  for (const std::string_view name : names) known += (known.empty() ? "" : ", ") + std::string(name);
  refuse(std::string("'") + key + "' is " + value.dump() + "; known: " + known);
}

const json& member(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) refuse(std::string("'") + key + "' is missing");
  return *found;
}

/// The members must be among these.
void check_keys(const json& object, std::initializer_list<std::string_view> known, const char* what) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string names;
    for (const std::string_view name : known) names += (names.empty() ? "" : ", ") + std::string(name);
    refuse(std::string(what) + " has no '" + key + "'; known: " + names);
  }
}

int64_t number(const json& object, const char* key, int64_t lowest) {
  const json& value = member(object, key);
  if (!value.is_number_integer() || value.get<int64_t>() < lowest || value.get<int64_t>() > INT32_MAX) {
    refuse(std::string("'") + key + "' must be an integer of at least " + std::to_string(lowest) + ", not " +
           value.dump());
  }
  return value.get<int64_t>();
}

json parse(const std::string& text) {
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    refuse(std::string("no JSON: ") + error.what());
  }
}

ordered_json value_of(const Schedule& schedule) {
  ordered_json root;
  root["intrinsic"] = schedule.intrinsic->name();
  root["input_layout"] = to_string(schedule.input_layout);
  if (schedule.strips > 0) root["strips"] = schedule.strips;
  root["levels"] = ordered_json::array();
  for (const Level& level : schedule.levels) {
    ordered_json entry;
    entry["dim"] = kDimNames[static_cast<size_t>(level.dim)];
    entry["factor"] = level.factor;
    entry["kind"] = kLevelKindNames[static_cast<size_t>(level.kind)];
    if (level.kind == LevelKind::kVthread) entry["threads"] = level.threads;
    root["levels"].push_back(entry);
  }
  root["operands"] = ordered_json::array();
  for (const OperandPlan& plan : schedule.operands) {
    ordered_json entry;
    entry["operand"] = kOperandNames[static_cast<size_t>(plan.operand)];
    if (plan.scope) entry["scope"] = isa::kSpaceNames[static_cast<size_t>(*plan.scope)];
    if (plan.attach != kDerived) entry["attach"] = plan.attach;
    if (plan.copies != kDerived) entry["copies"] = plan.copies;
    if (plan.operand == Operand::kInput) entry["halo"] = kHaloNames[static_cast<size_t>(plan.halo)];
    root["operands"].push_back(entry);
  }
  return root;
}

ordered_json value_of(const ChainSchedule& chain) {
  ordered_json root;
  root["chain"] = chain.links;
  root["tile"] = {{"oh", chain.tile.oh}, {"ow", chain.tile.ow}, {"blocks", chain.tile.blocks}};
  if (chain.tile.whole_input) root["tile"]["input"] = "whole";
  if (chain.tile.keeps_rows) root["tile"]["halo"] = kHaloNames[static_cast<size_t>(Halo::kKeep)];
  if (chain.tile.strips > 0) root["tile"]["strips"] = chain.tile.strips;
  if (chain.tile.copies != kWeightCopies) root["tile"]["copies"] = chain.tile.copies;
  if (chain.input_layout) root["input_layout"] = to_string(*chain.input_layout);
  return root;
}

Level level_of(const json& entry) {
  if (!entry.is_object()) refuse("a level is no object");
  check_keys(entry, {"dim", "factor", "kind", "threads"}, "a level");
  Level level;
  level.dim = static_cast<Dim>(index_of(kDimNames, member(entry, "dim"), "dim"));
  level.factor = number(entry, "factor", 1);
  level.kind = static_cast<LevelKind>(index_of(kLevelKindNames, member(entry, "kind"), "kind"));
  if (level.kind == LevelKind::kVthread)
    level.threads = entry.contains("threads") ? number(entry, "threads", 2) : level.factor;
  else if (entry.contains("threads"))
    refuse("'threads' belongs to levels of kind vthread");
  return level;
}

OperandPlan plan_of(const json& entry) {
  if (!entry.is_object()) refuse("an operand is no object");
  check_keys(entry, {"operand", "scope", "attach", "copies", "halo"}, "an operand");
  OperandPlan plan;
  plan.operand = static_cast<Operand>(index_of(kOperandNames, member(entry, "operand"), "operand"));
  if (entry.contains("scope"))
    plan.scope = static_cast<isa::Space>(index_of(isa::kSpaceNames, entry["scope"], "scope"));
  if (entry.contains("attach")) plan.attach = static_cast<int>(number(entry, "attach", 0));
  if (entry.contains("copies")) plan.copies = static_cast<int>(number(entry, "copies", 1));
  if (entry.contains("halo")) plan.halo = static_cast<Halo>(index_of(kHaloNames, entry["halo"], "halo"));
  return plan;
}

const Intrinsic& intrinsic_of(const json& name) {
  if (!name.is_string()) refuse("'intrinsic' must be a name, not " + name.dump());
  try {
    return find_intrinsic(name.get<std::string>());
  } catch (const Error& error) {
    refuse(error.what());
  }
}

std::optional<InputLayout> input_layout_of(const json& root) {
  if (!root.contains("input_layout")) return std::nullopt;
  const json& layout = root["input_layout"];
  const auto parsed = layout.is_string() ? parse_input_layout(layout.get<std::string>()) : std::nullopt;
  if (!parsed)
    refuse("'input_layout' is " + layout.dump() +
           "; known: nhwc, fold(kw), fold(kh,kw), fold(kh2,kw) and so on, and folds with *2, *3, *4 behind them");
  return parsed;
}

Schedule schedule_of(const json& root) {
  if (!root.is_object()) refuse("the top is not an object");
  check_keys(root, {"intrinsic", "input_layout", "strips", "levels", "operands"}, "a schedule");
  Schedule schedule;
  schedule.intrinsic = &intrinsic_of(member(root, "intrinsic"));
  if (const auto layout = input_layout_of(root)) schedule.input_layout = *layout;
  if (root.contains("strips")) schedule.strips = number(root, "strips", 0);
  const json& levels = member(root, "levels");
  if (!levels.is_array()) refuse("'levels' is no list");
  for (const json& entry : levels) schedule.levels.push_back(level_of(entry));
  const json& operands = member(root, "operands");
  if (!operands.is_array()) refuse("'operands' is no list");
  for (const json& entry : operands) schedule.operands.push_back(plan_of(entry));
  return schedule;
}

ChainSchedule chain_of(const json& root) {
  ChainSchedule chain;
  check_keys(root, {"chain", "tile", "input_layout"}, "a chain");
  chain.input_layout = input_layout_of(root);
  try {
    chain.links = root.at("chain").get<std::vector<std::string>>();
    const auto& tile = root.at("tile");
    for (const char* extent : {"oh", "ow", "blocks"}) tile.at(extent);
    check_keys(tile, {"oh", "ow", "blocks", "input", "halo", "strips", "copies"}, "a chain's tile");
    chain.tile = {number(tile, "oh", 1), number(tile, "ow", 1), number(tile, "blocks", 1)};
    if (tile.contains("input")) {
      if (tile["input"] != "whole")
        refuse("'input' of a chain's tile is \"whole\" or left out, not " + tile["input"].dump());
      chain.tile.whole_input = true;
    }
    if (tile.contains("halo"))
      chain.tile.keeps_rows = static_cast<Halo>(index_of(kHaloNames, tile["halo"], "halo")) == Halo::kKeep;
    if (tile.contains("strips")) chain.tile.strips = number(tile, "strips", 0);
    if (tile.contains("copies")) chain.tile.copies = number(tile, "copies", kLeastWeightCopies);
  } catch (const json::exception& e) {
    refuse(std::string("a chain has \"chain\", a list of names, and \"tile\" with oh, ow and blocks: ") + e.what());
  }
  return chain;
}

ordered_json value_of(const LayerSchedule& schedule) {
  if (const auto* chain = std::get_if<ChainSchedule>(&schedule)) return value_of(*chain);
  const auto& parts = std::get<std::vector<Schedule>>(schedule);
  if (parts.size() == 1) return value_of(parts.front());
  ordered_json list = ordered_json::array();
  for (const Schedule& part : parts) list.push_back(value_of(part));
  return list;
}

LayerSchedule layer_of(const json& root) {
  if (root.is_object() && root.contains("chain")) return chain_of(root);
  std::vector<Schedule> parts;
  if (root.is_array()) {
    for (const json& part : root) parts.push_back(schedule_of(part));
  } else {
    parts.push_back(schedule_of(root));
  }
  return parts;
}

Division division_of(const json& root) {
  Division division;
  if (root.contains("core")) {
    check_keys(root, {"core", "own", "cores"}, "a layer of one core");
    division.core = static_cast<size_t>(number(root, "core", 0));
  } else {
    check_keys(root, {"divided", "ends", "own", "cores"}, "a divided layer");
    division.axis = index_of(kDivisionAxes, member(root, "divided"), "divided");
    const json& ends = member(root, "ends");
    const auto whole = [](const json& end) { return end.is_number_integer() && end.get<int64_t>() >= 0; };
    if (!ends.is_array() || !std::ranges::all_of(ends, whole))
      refuse("'ends' must be a list that says for each core which element stands behind its share, not " + ends.dump());
    division.ends = ends.get<std::vector<int64_t>>();
  }
  if (root.contains("own")) {
    if (!root["own"].is_boolean()) refuse("'own' is true, false or left out, not " + root["own"].dump());
    division.own = root["own"].get<bool>();
  }
  return division;
}

bool is_divided(const json& root) { return root.is_object() && (root.contains("divided") || root.contains("core")); }

}  // namespace

std::string to_json(const Schedule& schedule) { return value_of(schedule).dump(); }
std::string to_json(const ChainSchedule& chain) { return value_of(chain).dump(); }

std::string to_json(const LayerSchedule& schedule) { return value_of(schedule).dump(); }

std::string to_json(const DividedSchedule& schedule) {
  const Division& division = schedule.division;
  ordered_json root;
  if (division.axis) {
    root["divided"] = kDivisionAxes.at(*division.axis);
    root["ends"] = division.ends;
  } else {
    root["core"] = division.core;
  }
  if (division.own) root["own"] = *division.own;
  if (!schedule.cores.empty()) root["cores"] = ordered_json::array();
  for (const auto& part : schedule.cores) root["cores"].push_back(part ? value_of(*part) : ordered_json());
  return root.dump();
}

Schedule schedule_from_json(const std::string& text) { return schedule_of(parse(text)); }

LayerSchedule layer_schedule_from_json(const std::string& text) { return layer_of(parse(text)); }

bool is_divided(const std::string& text) { return is_divided(json::parse(text, nullptr, false)); }

DividedSchedule divided_schedule_from_json(const std::string& text) {
  const json root = parse(text);
  DividedSchedule schedule{division_of(root), {}};
  if (!root.contains("cores")) return schedule;
  if (!root["cores"].is_array()) refuse("'cores' must be a list with a schedule or null for each core");
  for (const json& part : root["cores"])
    schedule.cores.push_back(part.is_null() ? std::nullopt : std::optional(layer_of(part)));
  return schedule;
}

}  // namespace tessera::schedule
