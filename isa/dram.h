// SPDX-License-Identifier: Apache-2.0
// What a DRAM and its controller cost, as data: the geometry of the parts, their times and the controller's latencies
// in cycles. The simulators' memory (sim/memory) and the compiler's replay (compiler/emit) read the same description.
// The controller is LiteDRAM's, which runs on the machine's clock; docs/dram.md lists the presets and their sources.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::isa {

/// The longest latency of the ideal DRAM, in cycles: what a simulated program waits for an answer stays finite.
inline constexpr int kMostLatencyCycles = 100'000;

/// Times are cycles of the controller; they are named as in JEDEC's standards. 0 stands for a time that the kind of
/// DRAM does not have.
struct DramSpec {
  std::string name;        // FAMILY-RATExWIDTH: megatransfers a second of a data line, data lines
  std::string_view parts;  // LiteDRAM's class of the parts
  std::string_view phy;    // and of the physical layer whose latencies these are
  double clock_mhz = 0;    // of machine and controller
  int phases = 1;          // DRAM clocks in a cycle
  int burst = 1;           // transfers of a command
  int width_bits = 16;     // data lines
  int banks = 4;
  int columns = 512;  // of a row in one bank, each width_bits wide
  int t_rp = 1, t_rcd = 1, t_wr = 1, t_wtr = 1, t_refi = 391, t_rfc = 4, t_faw = 0, t_ccd = 1, t_rrd = 0, t_rc = 0,
      t_ras = 0;
  int write_cas = 1;      // CAS write latency, rounded up to cycles
  int read_latency = 4;   // from a read command to its data, of the physical layer
  int write_latency = 0;  // from a write command to its data

  /// Bytes of a command: the controller's word.
  int word_bytes() const { return burst * width_bits / 8; }
  /// Words of a row in one bank. Words that follow one another lie in one row, then in the next bank, then in the next
  /// row.
  int row_words() const { return columns / burst; }
  int row_bytes() const { return row_words() * word_bytes(); }
  /// Bytes a cycle, when nothing but data moves.
  double peak_bytes() const { return static_cast<double>(word_bytes()) / t_ccd; }
};

/// What a schedule counts with beside latency and bandwidth: figures of a real DRAM. All zero: the ideal one.
struct DramCost {
  std::string preset;
  int64_t beat_256ths = 0;   // of a cycle of the DRAM: a beat's commands, refreshes and the splitting of words included
  int64_t burst_cycles = 0;  // of the DRAM that a burst takes beside its beats: it leaves its bank, and opens a row
  int64_t turn_cycles = 0;   // of the DRAM for a write burst among reads: there and back

  bool operator==(const DramCost&) const = default;
};

/// What a program is made for: cycles from a request to its first data, whole bytes a cycle (rounded up), and the
/// costs.
struct DramFigures {
  int64_t latency_cycles = 100;
  int64_t bandwidth_bytes = 0;
  DramCost cost;
};

/// Of a machine whose bus has beats of `beat_bytes`.
DramFigures dram_figures(const DramSpec& spec, int beat_bytes);

/// The preset of a name as docs/dram.md lists them: any of the families with 8, 16, 32 or 64 data lines, as long as a
/// command moves at most 64 bytes. Errors: kInvalidArgument, one line that names the presets.
DramSpec dram_preset(std::string_view name);

/// The presets that documents and tests name, one for each board or kind of memory.
std::vector<std::string> dram_presets();

}  // namespace tessera::isa
