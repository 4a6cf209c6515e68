// SPDX-License-Identifier: Apache-2.0
// A machine's parameters. Enters: a shipped configuration's name or a TOML file. Leaves: a checked MachineConfig with
// the sizes that follow from it. Every parameter must be set and none may be unknown, so that a configuration says all
// of itself; those that are younger than the first configurations have defaults, so that old files open.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isa/generated/instructions.h"

namespace tessera::isa {

inline constexpr int kMostCores = 16;  // numbers of await_core

struct MachineConfig {
  std::string name;
  int batch = 0;
  int block_in = 0;
  int block_out = 0;
  int64_t inp_bytes = 0;
  int64_t wgt_bytes = 0;
  int64_t acc_bytes = 0;
  int64_t out_bytes = 0;
  int64_t param_bytes = 0;
  int table_count = 0;
  int second_lanes = 0;
  int row_lanes = 0;
  int axi_bytes = 0;
  int load_queue = 0;
  int gemm_queue = 0;
  int alu_queue = 0;
  int store_queue = 0;
  int reads_in_flight = 0;
  int writes_in_flight = 0;
  int memory_parity = 0;
  int packed_weights = 0;
  int raster_pairs = 0;
  int cores = 1;             // each as the parameters above say
  int memory_axi_bytes = 0;  // a beat of the master that several cores share; 0: axi_bytes

  bool operator==(const MachineConfig&) const = default;

  int inp_entry_bytes() const { return batch * block_in; }
  int wgt_entry_bytes() const { return block_out * block_in; }
  int acc_entry_bytes() const { return 4 * batch * block_out; }
  int out_entry_bytes() const { return batch * block_out; }
  int param_entry_bytes() const { return 8 * block_out; }
  int table_entry_bytes() const { return 256; }
  /// Bytes in DRAM of a WGT entry of weights of 4 bits: the scales of its rows, a nibble each, in whole beats; both.
  int packed_header_bytes() const { return axi_bytes > block_out / 2 ? axi_bytes : block_out / 2; }
  int packed_entry_bytes() const { return packed_header_bytes() + wgt_entry_bytes() / 2; }
  int64_t inp_depth() const { return inp_bytes / inp_entry_bytes(); }
  int64_t wgt_depth() const { return wgt_bytes / wgt_entry_bytes(); }
  int64_t acc_depth() const { return acc_bytes / acc_entry_bytes(); }
  int64_t out_depth() const { return out_bytes / out_entry_bytes(); }
  int64_t param_depth() const { return param_bytes / param_entry_bytes(); }
  int64_t table_bytes() const { return int64_t{256} * table_count; }

  /// Lanes of the depthwise datapath: min(BLOCK_IN, BLOCK_OUT).
  int lanes() const { return block_in < block_out ? block_in : block_out; }
  /// Taps one WGT entry holds for each lane in depthwise mode: half a row of multipliers, and what windows of 2 x 3 and
  /// 3 x 3 need beyond it.
  int depthwise_taps() const {
    if (block_in == 8) return 6;
    if (block_in == 16) return 9;
    return block_in < 8 ? block_in : 16;
  }
  /// The byte of an output lane's row that holds tap `tap` of `taps`: the last tap stands first, in even lanes at byte
  /// 0, in odd ones at byte block_in / 2, modulo block_in.
  int depthwise_byte(int lane, int tap, int taps) const {
    return (taps - 1 - tap + lane % 2 * (block_in / 2)) % block_in;
  }
  /// Bytes of a beat of the machine's AXI master.
  int memory_bytes() const { return memory_axi_bytes != 0 ? memory_axi_bytes : axi_bytes; }

  /// Multiply-accumulates a cycle of a core's GEMM engine in dense mode.
  int64_t peak_macs() const { return int64_t{batch} * block_in * block_out; }

  int64_t space_bytes(Space space) const;
  int entry_bytes(Space space) const;
  int64_t depth(Space space) const { return space_bytes(space) / entry_bytes(space); }
  int queue_depth(Engine engine) const;
};

/// One parameter of a configuration file, for readers, writers and capability registers.
struct ConfigKey {
  std::string_view name;
  int MachineConfig::* as_int;        // null when the parameter is an int64_t
  int64_t MachineConfig::* as_int64;  // null when the parameter is an int

  int64_t get(const MachineConfig& config) const { return as_int ? config.*as_int : config.*as_int64; }
  void set(MachineConfig& config, int64_t value) const;
};

/// All integer parameters in the order of the configuration files.
std::span<const ConfigKey> config_keys();

struct ShippedConfig {
  std::string_view name;
  std::string_view toml;
};

/// The configurations under hw/configs, built into the binary.
std::span<const ShippedConfig> shipped_configs();

/// Checks the limits below. Throws Error kInvalidArgument naming the parameter.
/// BATCH 1..64; BLOCK_IN, BLOCK_OUT powers of two, 4..128; memories hold a whole number of entries, at least one, at
/// most 2^14 (PARAM: 2^10) and at most 2^22 bytes; table_count 1..16; axi_bytes a power of two, 4..64; queues and
/// bursts 1..256; memory_parity 0..1; packed_weights 0..1, and 1 only where a WGT entry holds at least two beats;
/// raster_pairs 0..2: 1 where an INP entry holds a beat and block_in is at least 8, 2 where INP has 4 such;
/// cores 1..16; memory_axi_bytes 0, or with several cores a power of two, axi_bytes..128.
void validate(const MachineConfig& config);

/// Parses TOML text; `source` names it in errors. What may be missing: second_lanes (a quarter of batch * block_out, at
/// least 1), row_lanes (0: no rows), memory_parity (0: none), packed_weights (0: no weights of 4 bits), raster_pairs
/// (0: one vector a cycle), cores (1) and memory_axi_bytes (0: as axi_bytes). Throws Error kInvalidArgument.
MachineConfig parse_config(std::string_view toml, const std::string& source);

/// Reads a .toml file. Throws Error kIo or kInvalidArgument.
MachineConfig load_config(const std::string& path);

/// A shipped configuration by name ("npu256"), the text of a configuration, which has several lines, or the file at the
/// path. Throws Error; the message lists the names.
MachineConfig find_config(const std::string& name_or_path);

/// The text of a configuration file that parse_config reads back as the same configuration.
std::string to_toml(const MachineConfig& config);

}  // namespace tessera::isa
