// SPDX-License-Identifier: Apache-2.0
// The table of families. The cycles follow from LiteDRAM's module classes at the clock and rate of each line, as
// SDRAMModule.ck_ns_to_cycles() rounds them; tests/litex compares every number with LiteDRAM's.
#include "isa/dram.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace tessera::isa {
namespace {

// clang-format off
const DramSpec kFamilies[] = {
  {.name = "sdr-50", .parts = "MT48LC16M16", .phy = "GENSDRPHY", .clock_mhz = 50,
   .t_rp = 1, .t_rcd = 1, .t_wr = 1, .t_wtr = 2, .t_refi = 391, .t_rfc = 4, .t_ccd = 1, .t_rrd = 1, .t_rc = 4, .t_ras = 3,
   .write_cas = 2, .read_latency = 3, .write_latency = 0},
  {.name = "sdr-100", .parts = "MT48LC16M16", .phy = "HalfRateGENSDRPHY", .clock_mhz = 50, .phases = 2, .burst = 2,
   .t_rp = 2, .t_rcd = 2, .t_wr = 2, .t_wtr = 1, .t_refi = 391, .t_rfc = 4, .t_ccd = 1, .t_rrd = 2, .t_rc = 4, .t_ras = 3,
   .write_cas = 1, .read_latency = 4, .write_latency = 0},
  {.name = "ddr3-300", .parts = "MT41K256M16", .phy = "ECP5DDRPHY", .clock_mhz = 75, .phases = 2, .burst = 8, .banks = 8,
   .columns = 1024, .t_rp = 2, .t_rcd = 2, .t_wr = 2, .t_wtr = 2, .t_refi = 586, .t_rfc = 104, .t_faw = 4, .t_ccd = 2,
   .t_rrd = 2, .t_rc = 5, .t_ras = 4, .write_cas = 3, .read_latency = 13, .write_latency = 3},
  {.name = "ddr3-800", .parts = "MT41K256M16", .phy = "A7DDRPHY", .clock_mhz = 100, .phases = 4, .burst = 8, .banks = 8,
   .columns = 1024, .t_rp = 3, .t_rcd = 3, .t_wr = 3, .t_wtr = 2, .t_refi = 782, .t_rfc = 35, .t_faw = 6, .t_ccd = 1,
   .t_rrd = 2, .t_rc = 6, .t_ras = 5, .write_cas = 2, .read_latency = 8, .write_latency = 1},
  {.name = "ddr4-2400", .parts = "MT40A512M16", .phy = "USPDDRPHY", .clock_mhz = 300, .phases = 4, .burst = 8, .banks = 8,
   .columns = 1024, .t_rp = 5, .t_rcd = 5, .t_wr = 6, .t_wtr = 3, .t_refi = 2344, .t_rfc = 106, .t_faw = 9, .t_ccd = 1,
   .t_rrd = 3, .t_rc = 15, .t_ras = 11, .write_cas = 3, .read_latency = 9, .write_latency = 2},
  {.name = "lpddr4-1600", .parts = "MT53E256M16D1", .phy = "K7LPDDR4PHY", .clock_mhz = 100, .phases = 8, .burst = 16,
   .banks = 8, .columns = 1024, .t_rp = 3, .t_rcd = 3, .t_wr = 3, .t_wtr = 2, .t_refi = 391, .t_rfc = 19, .t_faw = 5,
   .t_ccd = 4, .t_rrd = 2, .t_rc = 8, .t_ras = 6, .write_cas = 1, .read_latency = 7, .write_latency = 2},
};
// clang-format on

constexpr int kWidest = 64;  // bytes of a command

}  // namespace

DramSpec dram_preset(std::string_view name) {
  const size_t cut = name.rfind('x');
  const std::string_view family = name.substr(0, cut);
  const auto found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                  [&](const DramSpec& spec) { return spec.name == family; });
  int width = 0;
  if (cut != std::string_view::npos) {
    const auto [end, error] = std::from_chars(name.data() + cut + 1, name.data() + name.size(), width);
    if (error != std::errc{} || end != name.data() + name.size()) width = 0;
  }
  const bool lines = width == 8 || width == 16 || width == 32 || width == 64;
  if (found == std::end(kFamilies) || !lines || found->burst * width / 8 > kWidest) {
    std::string known;
    for (const std::string& preset : dram_presets()) known += (known.empty() ? "" : ", ") + preset;
    throw Error(ErrorCode::kInvalidArgument, "no DRAM is called '" + std::string(name) + "'; known: ideal, " + known +
                                                 ", and these with x8, x32 or x64 where a command moves at most " +
                                                 std::to_string(kWidest) + " bytes");
  }
  DramSpec spec = *found;
  spec.name = name;
  spec.width_bits = width;
  return spec;
}

DramFigures dram_figures(const DramSpec& spec, int beat_bytes) {
  // Registers between the port and the parts and back, in sim/memory/dram_controller.h: a lone read of an open row
  // takes so many cycles beside the physical layer's.
  constexpr int kWay = 7;
  // Of bursts one after another, most stay in their bank's open row; the others leave their bank, whose queue runs
  // empty first, and an eighth opens a row. These shares were counted on networks (docs/dram.md).
  constexpr int kSwitch = 2;
  const int split = std::max(1, beat_bytes / spec.word_bytes());
  const double words = static_cast<double>(beat_bytes) / spec.word_bytes();
  const double commands = split > 1 ? std::max(split * spec.t_ccd, split + 1) : words * spec.t_ccd;
  const double beat = std::max(1.0, commands);
  const double stops = static_cast<double>(spec.t_rp + spec.t_rfc + kWay) / spec.t_refi;
  DramFigures figures;
  figures.latency_cycles = spec.read_latency + kWay + (split > 1 ? split + 1 : 0) + spec.t_rp + spec.t_rcd;
  figures.bandwidth_bytes = static_cast<int64_t>(std::ceil(beat_bytes / beat));
  figures.cost.preset = spec.name;
  figures.cost.beat_256ths = std::llround(256 * commands / (1 - stops));
  figures.cost.burst_cycles = kSwitch + (spec.t_rp + spec.t_rcd) / 8;
  figures.cost.turn_cycles = spec.read_latency - 1 + spec.t_wtr + spec.write_cas + spec.t_ccd;
  return figures;
}

std::vector<std::string> dram_presets() {
  std::vector<std::string> names;
  for (const DramSpec& spec : kFamilies) names.push_back(spec.name + "x16");
  names.emplace_back("ddr4-2400x64");
  return names;
}

}  // namespace tessera::isa
