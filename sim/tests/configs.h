// SPDX-License-Identifier: Apache-2.0
// The machines that tests run on: all shipped configurations, and others whose blocks are not square, whose BATCH is
// not 1, and whose memories are small, so that code cannot lean on the shipped sizes.
#pragma once

#include <string>
#include <vector>

#include "isa/config.h"

namespace tessera::sim::testing {

/// A configuration that is not shipped; memory sizes in entries.
inline isa::MachineConfig odd_config(int batch, int block_in, int block_out, int entries) {
  isa::MachineConfig config = isa::find_config("npu64");
  config.name = "odd" + std::to_string(batch) + "x" + std::to_string(block_in) + "x" + std::to_string(block_out);
  config.batch = batch;
  config.block_in = block_in;
  config.block_out = block_out;
  config.inp_bytes = int64_t{entries} * config.inp_entry_bytes();
  config.wgt_bytes = int64_t{entries} * config.wgt_entry_bytes();
  config.acc_bytes = int64_t{entries} * config.acc_entry_bytes();
  config.out_bytes = int64_t{entries} * config.out_entry_bytes();
  config.param_bytes = int64_t{entries} * config.param_entry_bytes();
  config.table_count = 3;
  config.second_lanes = std::max(1, batch * block_out / 4);
  config.load_queue = 2;
  config.gemm_queue = 3;
  config.alu_queue = 1;
  config.store_queue = 2;
  isa::validate(config);
  return config;
}

/// The same with rows: a vector in `turns` cycles, and as many tables as two softmaxes need.
inline isa::MachineConfig row_config(int block_in, int block_out, int entries, int turns) {
  isa::MachineConfig config = odd_config(1, block_in, block_out, entries);
  config.name = "row" + config.name.substr(3);
  config.row_lanes = block_out / turns;
  config.table_count = 9;
  isa::validate(config);
  return config;
}

/// One with weights of 4 bits.
inline isa::MachineConfig packed_config(isa::MachineConfig config, int axi_bytes) {
  config.name = "packed_" + config.name;
  config.axi_bytes = axi_bytes;
  config.packed_weights = 1;
  isa::validate(config);
  return config;
}

inline std::vector<isa::MachineConfig> all_configs() {
  std::vector<isa::MachineConfig> configs;
  for (const isa::ShippedConfig& shipped : isa::shipped_configs()) {
    configs.push_back(isa::parse_config(shipped.toml, std::string(shipped.name)));
  }
  configs.push_back(odd_config(2, 8, 32, 40));
  configs.push_back(odd_config(4, 32, 8, 100));
  configs.push_back(odd_config(3, 16, 16, 64));
  configs.push_back(odd_config(1, 4, 4, 37));
  configs.push_back(odd_config(1, 64, 16, 33));
  configs.push_back(row_config(16, 16, 90, 4));
  configs.push_back(row_config(8, 8, 64, 4));
  configs.push_back(row_config(8, 32, 50, 8));
  configs.push_back(row_config(4, 4, 37, 4));
  configs.push_back(packed_config(odd_config(1, 4, 8, 37), 4));
  configs.push_back(packed_config(odd_config(2, 8, 32, 40), 8));
  configs.push_back(packed_config(odd_config(1, 64, 16, 33), 32));
  configs.push_back(packed_config(row_config(16, 16, 90, 4), 8));
  return configs;
}

}  // namespace tessera::sim::testing
