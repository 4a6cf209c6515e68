// SPDX-License-Identifier: Apache-2.0
// Reads and checks configurations with toml++; one table of keys serves reading, writing and the check that all are
// set.
#include "isa/config.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <limits>
#include <sstream>

#include <toml++/toml.h>

#include "base/error.h"

namespace tessera::isa {
namespace {

using M = MachineConfig;
constexpr ConfigKey kKeys[] = {
    {"batch", &M::batch, nullptr},
    {"block_in", &M::block_in, nullptr},
    {"block_out", &M::block_out, nullptr},
    {"inp_bytes", nullptr, &M::inp_bytes},
    {"wgt_bytes", nullptr, &M::wgt_bytes},
    {"acc_bytes", nullptr, &M::acc_bytes},
    {"out_bytes", nullptr, &M::out_bytes},
    {"param_bytes", nullptr, &M::param_bytes},
    {"table_count", &M::table_count, nullptr},
    {"second_lanes", &M::second_lanes, nullptr},
    {"row_lanes", &M::row_lanes, nullptr},
    {"axi_bytes", &M::axi_bytes, nullptr},
    {"load_queue", &M::load_queue, nullptr},
    {"gemm_queue", &M::gemm_queue, nullptr},
    {"alu_queue", &M::alu_queue, nullptr},
    {"store_queue", &M::store_queue, nullptr},
    {"reads_in_flight", &M::reads_in_flight, nullptr},
    {"writes_in_flight", &M::writes_in_flight, nullptr},
    {"memory_parity", &M::memory_parity, nullptr},
    {"packed_weights", &M::packed_weights, nullptr},
    {"raster_pairs", &M::raster_pairs, nullptr},
    {"cores", &M::cores, nullptr},
    {"memory_axi_bytes", &M::memory_axi_bytes, nullptr},
};
/// What a file may leave out, and what it then is: parameters that are younger than the first configurations.
struct Default {
  std::string_view name;
  int (*value)(const MachineConfig& others);
};
constexpr Default kDefaults[] = {
    {"second_lanes", [](const MachineConfig& m) { return std::max(1, m.batch * m.block_out / 4); }},
    {"row_lanes", [](const MachineConfig&) { return 0; }},
    {"memory_parity", [](const MachineConfig&) { return 0; }},
    {"packed_weights", [](const MachineConfig&) { return 0; }},
    {"raster_pairs", [](const MachineConfig&) { return 0; }},
    {"cores", [](const MachineConfig&) { return 1; }},
    {"memory_axi_bytes", [](const MachineConfig&) { return 0; }},
};
// What to_toml leaves out at its default: the text of a machine without it stays what it was before there was such a
// parameter.
constexpr std::string_view kSilent[] = {"memory_parity", "packed_weights", "raster_pairs", "cores", "memory_axi_bytes"};

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

std::string shipped_names() {
  std::string names;
  for (const ShippedConfig& config : shipped_configs()) names += (names.empty() ? "" : ", ") + std::string(config.name);
  return names;
}

}  // namespace

void ConfigKey::set(MachineConfig& config, int64_t value) const {
  if (as_int64 != nullptr) {
    config.*as_int64 = value;
    return;
  }
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
    fail("configuration: " + std::string(name) + " = " + std::to_string(value) + " is out of range");
  }
  config.*as_int = static_cast<int>(value);
}

std::span<const ConfigKey> config_keys() { return kKeys; }

int64_t MachineConfig::space_bytes(Space space) const {
  switch (space) {
    case Space::kInp: return inp_bytes;
    case Space::kWgt: return wgt_bytes;
    case Space::kAcc: return acc_bytes;
    case Space::kOut: return out_bytes;
    case Space::kParam: return param_bytes;
    case Space::kTable: return table_bytes();
  }
  return 0;
}

int MachineConfig::entry_bytes(Space space) const {
  switch (space) {
    case Space::kInp: return inp_entry_bytes();
    case Space::kWgt: return wgt_entry_bytes();
    case Space::kAcc: return acc_entry_bytes();
    case Space::kOut: return out_entry_bytes();
    case Space::kParam: return param_entry_bytes();
    case Space::kTable: return table_entry_bytes();
  }
  return 1;
}

int MachineConfig::queue_depth(Engine engine) const {
  switch (engine) {
    case Engine::kLoad: return load_queue;
    case Engine::kGemm: return gemm_queue;
    case Engine::kAlu: return alu_queue;
    case Engine::kStore: return store_queue;
  }
  return 0;
}

namespace {

/// Why depthwise vectors cannot enter as `raster_pairs` says; empty when they can.
std::string pairs_obstacle(const MachineConfig& config) {
  if (config.raster_pairs == 0) return "";
  if (config.inp_entry_bytes() < config.axi_bytes) {
    return "raster_pairs needs batch * block_in = " + std::to_string(config.inp_entry_bytes()) +
           " to be at least axi_bytes = " + std::to_string(config.axi_bytes) + "; leave it out";
  }
  if (config.block_in < 8) return "raster_pairs needs block_in to be at least 8; leave it out";
  if (config.raster_pairs > 1 && config.inp_depth() < 4)
    return "raster_pairs = 2 needs INP to hold at least four entries; set it to 1";
  return "";
}

}  // namespace

void validate(const MachineConfig& config) {
  const std::string where = "configuration " + (config.name.empty() ? std::string("(no name)") : config.name) + ": ";
  const auto in_range = [&](const char* name, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high) {
      fail(where + name + " = " + std::to_string(value) + " must be in " + std::to_string(low) + ".." +
           std::to_string(high));
    }
  };
  const auto power_of_two = [&](const char* name, int value, int low, int high) {
    in_range(name, value, low, high);
    if (!std::has_single_bit(static_cast<unsigned>(value))) {
      fail(where + name + " = " + std::to_string(value) + " must be a power of two");
    }
  };
  if (config.name.empty()) fail(where + "name must not be empty");
  in_range("batch", config.batch, 1, 64);
  power_of_two("block_in", config.block_in, 4, 128);
  power_of_two("block_out", config.block_out, 4, 128);
  in_range("table_count", config.table_count, 1, 16);
  const int lanes = config.batch * config.block_out;
  in_range("second_lanes", config.second_lanes, 1, lanes);
  if (lanes % config.second_lanes != 0) {
    fail(where + "second_lanes = " + std::to_string(config.second_lanes) + " must divide the " + std::to_string(lanes) +
         " lanes of batch * block_out");
  }
  in_range("row_lanes", config.row_lanes, 0, lanes / 4);  // a lane looks four bytes up
  if (config.row_lanes > 0 && lanes % config.row_lanes != 0) {
    fail(where + "row_lanes = " + std::to_string(config.row_lanes) + " must divide the " + std::to_string(lanes) +
         " lanes of batch * block_out, or be 0");
  }
  if (config.row_lanes > 0 && config.batch != 1) fail(where + "row_lanes > 0 needs batch = 1");
  power_of_two("axi_bytes", config.axi_bytes, 4, 64);
  in_range("load_queue", config.load_queue, 1, 256);
  in_range("gemm_queue", config.gemm_queue, 1, 256);
  in_range("alu_queue", config.alu_queue, 1, 256);
  in_range("store_queue", config.store_queue, 1, 256);
  in_range("reads_in_flight", config.reads_in_flight, 1, 256);
  in_range("writes_in_flight", config.writes_in_flight, 1, 256);
  in_range("memory_parity", config.memory_parity, 0, 1);
  in_range("packed_weights", config.packed_weights, 0, 1);
  if (config.packed_weights != 0 && config.wgt_entry_bytes() < 2 * config.axi_bytes) {
    fail(where + "packed_weights = 1 needs block_in * block_out = " + std::to_string(config.wgt_entry_bytes()) +
         " to be at least 2 * axi_bytes = " + std::to_string(2 * config.axi_bytes));
  }
  in_range("raster_pairs", config.raster_pairs, 0, 2);
  if (const std::string why = pairs_obstacle(config); !why.empty()) fail(where + why);
  in_range("cores", config.cores, 1, kMostCores);
  if (config.memory_axi_bytes != 0) {
    if (config.cores == 1) fail(where + "memory_axi_bytes is for machines of several cores; leave it out");
    power_of_two("memory_axi_bytes", config.memory_axi_bytes, config.axi_bytes, 128);
  }
  for (Space space : {Space::kInp, Space::kWgt, Space::kAcc, Space::kOut, Space::kParam}) {
    const std::string name = std::string(to_string(space)) + "_bytes";
    const int64_t bytes = config.space_bytes(space);
    const int64_t entry = config.entry_bytes(space);
    const int64_t most = space == Space::kParam ? int64_t{1} << 10 : int64_t{1} << 14;
    if (bytes < entry || bytes % entry != 0) {
      fail(where + name + " = " + std::to_string(bytes) + " must be a positive multiple of its entry of " +
           std::to_string(entry) + " bytes");
    }
    if (bytes / entry > most) {
      fail(where + name + " = " + std::to_string(bytes) + " holds " + std::to_string(bytes / entry) +
           " entries; addresses reach " + std::to_string(most));
    }
    in_range(name.c_str(), bytes, 1, int64_t{1} << 22);
  }
}

MachineConfig parse_config(std::string_view text, const std::string& source) {
  toml::table table;
  try {
    table = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    std::ostringstream where;
    where << source << ":" << error.source().begin.line << ":" << error.source().begin.column << ": "
          << error.description();
    fail(where.str());
  }
  MachineConfig config;
  for (const auto& [key, node] : table) {
    const std::string_view name = key.str();
    bool known = name == "name";
    for (const ConfigKey& entry : kKeys) known = known || entry.name == name;
    if (!known) fail(source + ": unknown parameter " + std::string(name));
  }
  const auto name = table["name"].value_exact<std::string>();
  if (!name) fail(source + ": name is missing or not a string");
  config.name = *name;
  for (const ConfigKey& key : kKeys) {
    const auto value = table[key.name].value_exact<int64_t>();
    const auto* absent = std::ranges::find(kDefaults, key.name, &Default::name);
    if (value) {
      key.set(config, *value);
    } else if (!table.contains(key.name) && absent != std::end(kDefaults)) {
      key.set(config, absent->value(config));
    } else {
      fail(source + ": " + std::string(key.name) + " is " + (table.contains(key.name) ? "not an integer" : "missing") +
           "; a configuration sets every parameter but second_lanes, row_lanes, memory_parity, packed_weights, "
           "raster_pairs, cores and memory_axi_bytes, which have defaults");
    }
  }
  validate(config);
  return config;
}

MachineConfig load_config(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (file) text << file.rdbuf();
  if (!file) throw Error(ErrorCode::kIo, "cannot read configuration " + path);
  return parse_config(text.str(), path);
}

MachineConfig find_config(const std::string& name_or_path) {
  if (name_or_path.find('\n') != std::string::npos) return parse_config(name_or_path, "machine");
  for (const ShippedConfig& config : shipped_configs()) {
    if (config.name == name_or_path) return parse_config(config.toml, name_or_path);
  }
  const bool is_path = name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".toml");
  if (!is_path) {
    fail("unknown configuration '" + name_or_path + "'; shipped are " + shipped_names() +
         ", or give the path of a .toml file");
  }
  return load_config(name_or_path);
}

std::string to_toml(const MachineConfig& config) {
  toml::table name{{"name", config.name}};
  std::ostringstream out;
  out << name << "\n";
  for (const ConfigKey& key : kKeys) {
    const int64_t value = key.get(config);
    if (std::ranges::find(kSilent, key.name) != std::end(kSilent) &&
        value == std::ranges::find(kDefaults, key.name, &Default::name)->value(config)) {
      continue;
    }
    out << key.name << " = " << value << "\n";
  }
  return out.str();
}

}  // namespace tessera::isa
