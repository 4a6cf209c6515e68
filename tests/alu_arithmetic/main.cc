// SPDX-License-Identifier: Apache-2.0
// Compares the verilated arithmetic units of the ALU with the host's floating-point unit, bit for bit. Each unit goes
// through the cross product of its special operands, through random operands, and, built with pipeline registers,
// through random stalls and bubbles in which latency, order and holding are checked. A mutant (another rounding,
// flushed subnormals, two roundings) must show mismatches: that is what makes the comparison worth something. Prints
// one line a unit and pass; exit status 0 if all is as it must be.
#include <algorithm>
#include <cfenv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>

#include "Valu_comb.h"
#include "Valu_flush.h"
#include "Valu_full.h"
#include "Valu_half_away.h"
#include "Valu_mixed.h"
#include "Valu_plain.h"
#include "Valu_plain_full.h"
#include "Valu_truncate.h"
#include "tests/alu_arithmetic/units.h"

namespace tessera::alu_arithmetic {
namespace {

constexpr uint32_t kFullMask = 0x1fff;   // Registers of Valu_full, Valu_plain_full
constexpr uint32_t kMixedMask = 0x1555;  // Registers of Valu_mixed

struct Options {
  std::string unit = "all";
  std::string mode = "all";
  std::string mutant;
  uint64_t count = 2'000'000;
  uint64_t seed = 1;
};

struct Tally {
  uint64_t count = 0, mismatches = 0, subnormal = 0, infinite = 0, nan = 0;
};

std::string describe(const Operands& w) {
  std::string text;
  for (const uint32_t word : w) {
    char buffer[16];
    std::snprintf(buffer, sizeof buffer, " %08x", word);
    text += buffer;
  }
  return text;
}

/// Feeds operands to all lanes of a combinational model and compares when the lanes are full.
template <class Model>
class Comparison {
 public:
  static constexpr size_t kLanes = sizeof(Model::operands_i) / sizeof(Operands);

  Comparison(Model& model, const Unit& unit, uint32_t (*reference)(const Operands&), bool quiet)
      : model_(model), unit_(unit), reference_(reference), quiet_(quiet) {
    model_.clk_i = 0;
    model_.rst_ni = 1;
    model_.enable_i = 1;
    model_.valid_i = 1;
    model_.unit_i = unit.select;
  }

  void add(const Operands& operands) {
    lanes_[used_] = operands;
    if (++used_ == kLanes) flush();
  }

  void flush() {
    std::memcpy(&model_.operands_i[0], lanes_.data(), sizeof lanes_);
    model_.eval();
    for (size_t lane = 0; lane < used_; ++lane) {
      const uint32_t expected = reference_(lanes_[lane]), got = model_.results_o[lane];
      if (expected != got || (model_.valid_o >> lane & 1) == 0) report(lanes_[lane], expected, got);
      if (unit_.is_float) {
        const uint32_t magnitude = expected & 0x7fffffffu;
        tally_.subnormal += magnitude - 1 < 0x7fffffu;
        tally_.infinite += magnitude == 0x7f800000u;
        tally_.nan += magnitude > 0x7f800000u;
      }
    }
    tally_.count += used_;
    used_ = 0;
  }

  const Tally& tally() const { return tally_; }

 private:
  void report(const Operands& operands, uint32_t expected, uint32_t got) {
    if (++tally_.mismatches <= 5 && !quiet_) {
      std::printf("  %s:%s -> %08x, expected %08x\n", unit_.name.c_str(), describe(operands).c_str(), got, expected);
    }
  }

  Model& model_;
  const Unit& unit_;
  uint32_t (*reference_)(const Operands&);
  bool quiet_;
  std::array<Operands, kLanes> lanes_ = {};
  size_t used_ = 0;
  Tally tally_;
};

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void print_line(const Unit& unit, const char* pass, const Tally& tally, double seconds) {
  std::printf("%-17s %-10s %11llu vectors %8llu mismatches %8.2f s", unit.name.c_str(), pass,
              static_cast<unsigned long long>(tally.count), static_cast<unsigned long long>(tally.mismatches), seconds);
  if (unit.is_float) {
    std::printf("   (subnormal %llu, infinite %llu, NaN %llu)", static_cast<unsigned long long>(tally.subnormal),
                static_cast<unsigned long long>(tally.infinite), static_cast<unsigned long long>(tally.nan));
  }
  std::printf("\n");
  std::fflush(stdout);
}

/// One pass over a unit. `feed` hands operands to its argument. Returns the number of mismatches.
template <class Model, class Feed>
uint64_t compare(Model& model, const Unit& unit, uint32_t (*reference)(const Operands&), const char* pass, bool quiet,
                 Feed feed) {
  const Stopwatch watch;
  Comparison<Model> comparison(model, unit, reference, quiet);
  feed([&](const Operands& operands) { comparison.add(operands); });
  comparison.flush();
  print_line(unit, pass, comparison.tally(), watch.seconds());
  return comparison.tally().mismatches;
}

template <class Model>
uint64_t compare_cross_and_random(Model& model, const Unit& unit, uint32_t (*reference)(const Operands&),
                                  const Options& options, bool quiet) {
  uint64_t mismatches = 0;
  if (options.mode == "all" || options.mode == "cross") {
    mismatches += compare(model, unit, reference, "cross", quiet, [&](auto add) { unit.cross(add); });
  }
  if (options.mode == "all" || options.mode == "random") {
    mismatches += compare(model, unit, reference, "random", quiet, [&](auto add) {
      Random random(options.seed + 1000 * unit.select);
      Operands operands = {};
      for (uint64_t n = 0; n < options.count; ++n) {
        unit.random(random, operands);
        add(operands);
      }
    });
  }
  return mismatches;
}

/// Every operand of the units with one operand: all 2^32 integers; all 2^32 numbers for each of a few bounds.
uint64_t compare_exhaustively(Valu_comb& model, const Unit& unit) {
  if (unit.name == "int_to_fp32") {
    return compare(model, unit, unit.reference, "exhaustive", false, [](auto add) {
      for (uint64_t value = 0; value < 1ull << 32; ++value) add({static_cast<uint32_t>(value)});
    });
  }
  if (unit.name == "int17_to_fp32") {
    return compare(model, unit, unit.reference, "exhaustive", false, [](auto add) {
      for (uint32_t value = 0; value < 1u << 17; ++value) add({value});
    });
  }
  if (unit.name == "fp32_round_clamp") {
    return compare(model, unit, unit.reference, "exhaustive", false, [](auto add) {
      for (const uint32_t bounds : {0x007fff80u, 0x00ff0000u, 0x7fff8000u}) {  // int8, uint8, int16
        for (uint64_t value = 0; value < 1ull << 32; ++value) add({static_cast<uint32_t>(value), bounds});
      }
    });
  }
  return 0;
}

/// Drives a registered model with random stalls and bubbles: results must come in order after exactly `latency` enabled
/// cycles, outputs must hold while stalled, and a reset must empty the pipeline.
template <class Model>
uint64_t check_pipeline(const Unit& unit, uint32_t mask, const char* pass, uint64_t cycles, uint64_t seed) {
  constexpr size_t kLanes = Comparison<Model>::kLanes;
  struct Slot {
    bool valid = false;
    std::array<uint32_t, kLanes> expected = {};
  };
  const Stopwatch watch;
  const uint32_t own_mask = mask & ((1u << unit.register_count) - 1);
  const auto latency = static_cast<size_t>(__builtin_popcount(own_mask));
  if (latency == 0) return 0;
  Model model;
  Random random(seed + 77 * unit.select);
  Tally tally;
  std::deque<Slot> in_flight(latency);
  std::array<Operands, kLanes> operands = {};
  const auto clock = [&] {
    model.clk_i = 0;
    model.eval();
    model.clk_i = 1;
    model.eval();
  };
  model.unit_i = unit.select;
  model.rst_ni = 0;
  model.enable_i = 1;
  model.valid_i = 0;
  clock();
  model.rst_ni = 1;
  size_t burst = 0, drain = 0;
  for (uint64_t cycle = 0; cycle < cycles; ++cycle) {
    if (burst == 0 && drain == 0) {  // an instruction ends: its last value leaves before the next one's constants come
      drain = latency;
      burst = 1 + random.below(200);
    }
    const bool enable = random.below(5) != 0, reset = random.below(1000) == 0;
    const bool feed = drain == 0 && random.below(4) != 0;
    const bool empty = std::none_of(in_flight.begin(), in_flight.end(), [](const Slot& slot) { return slot.valid; });
    for (Operands& lane : operands) {  // constants of the instruction change only while the pipeline is empty
      Operands fresh = {};
      unit.random(random, fresh);
      std::copy_n(fresh.begin(), empty ? fresh.size() : static_cast<size_t>(unit.lane_words), lane.begin());
    }
    std::memcpy(&model.operands_i[0], operands.data(), sizeof operands);
    model.enable_i = enable;
    model.valid_i = feed;
    model.rst_ni = !reset;
    clock();
    if (reset) {
      for (Slot& slot : in_flight) slot.valid = false;
    } else if (enable) {
      Slot slot;
      slot.valid = feed;
      for (size_t lane = 0; lane < kLanes; ++lane) slot.expected[lane] = unit.reference(operands[lane]);
      in_flight.push_back(slot);
      in_flight.pop_front();
    }
    if (enable && drain > 0) --drain;
    if (feed && enable && burst > 0) --burst;
    const Slot& out = in_flight.front();
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const bool valid = model.valid_o >> lane & 1;
      if (valid != out.valid || (valid && model.results_o[lane] != out.expected[lane])) {
        if (++tally.mismatches <= 5) {
          std::printf("  %s, cycle %llu lane %zu: valid %d result %08x, expected valid %d result %08x\n",
                      unit.name.c_str(), static_cast<unsigned long long>(cycle), lane, valid, model.results_o[lane],
                      out.valid, out.expected[lane]);
        }
      }
      tally.count += out.valid;
    }
  }
  const std::string name = std::string(pass) + " L=" + std::to_string(latency);
  print_line(Unit{unit.name}, name.c_str(), tally, watch.seconds());
  return tally.mismatches + (tally.count == 0);
}

/// The form of a unit that the machine has under Verilator, where that is another one.
uint64_t run_plain_form(const Unit& unit, const Options& options) {
  if (unit.name != "requantise") return 0;
  std::printf("%s, the simulator's form\n", unit.name.c_str());
  Valu_plain model;
  const uint64_t mismatches = compare_cross_and_random(model, unit, unit.reference, options, false);
  if (options.mode != "all" && options.mode != "pipeline") return mismatches;
  return mismatches + check_pipeline<Valu_plain_full>(unit, kFullMask, "pipe", 20000, options.seed);
}

uint64_t run_unit(const Unit& unit, const Options& options) {
  uint64_t mismatches = 0;
  Valu_comb model;
  mismatches += compare_cross_and_random(model, unit, unit.reference, options, false);
  if (options.mode == "exhaustive") mismatches += compare_exhaustively(model, unit);
  if (options.mode == "all" || options.mode == "pipeline") {
    const uint64_t cycles = 20000;
    mismatches += check_pipeline<Valu_full>(unit, kFullMask, "pipe", cycles, options.seed);
    mismatches += check_pipeline<Valu_mixed>(unit, kMixedMask, "pipe", cycles, options.seed);
  }
  return mismatches + run_plain_form(unit, options);
}

/// The mismatches that a mutant of a unit shows.
uint64_t run_mutant(const Unit& unit, const Options& options) {
  if (options.mutant == "truncate") {
    Valu_truncate model;
    return compare_cross_and_random(model, unit, unit.reference, options, true);
  }
  if (options.mutant == "half_away") {
    Valu_half_away model;
    return compare_cross_and_random(model, unit, unit.reference, options, true);
  }
  if (options.mutant == "flush") {
    Valu_flush model;
    return compare_cross_and_random(model, unit, unit.reference, options, true);
  }
  if (options.mutant == "unfused") {  // two roundings in the place of fma's one
    if (unit.name != "fp32_fma") throw std::invalid_argument("mutant unfused is one of unit fp32_fma only");
    Valu_comb model;
    return compare_cross_and_random(model, units()[7], unit.reference, options, true);
  }
  throw std::invalid_argument("unknown mutant " + options.mutant + ": truncate, half_away, flush, unfused");
}

Options parse(int argc, char** argv) {
  Options options;
  if (const char* seed = std::getenv("TESSERA_SEED")) options.seed = std::strtoull(seed, nullptr, 0);
  if (std::getenv("TESSERA_LONG") != nullptr) options.count = 100'000'000;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--long") {
      options.count = 100'000'000;
      continue;
    }
    if (i + 1 == argc) throw std::invalid_argument("unknown option, or no value: " + argument);
    const std::string value = argv[++i];
    if (argument == "--unit")
      options.unit = value;
    else if (argument == "--mode")
      options.mode = value;
    else if (argument == "--mutant")
      options.mutant = value;
    else if (argument == "--count")
      options.count = std::strtoull(value.c_str(), nullptr, 0);
    else if (argument == "--seed")
      options.seed = std::strtoull(value.c_str(), nullptr, 0);
    else
      throw std::invalid_argument("unknown option " + argument);
  }
  for (const char* mode : {"all", "cross", "random", "pipeline", "exhaustive"}) {
    if (options.mode == mode) return options;
  }
  throw std::invalid_argument("unknown mode " + options.mode);
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (std::fegetround() != FE_TONEAREST) throw std::runtime_error("the host does not round half to even");
#ifdef __FMA__
  const char* fma = "hardware";
#else
  const char* fma = "library";
#endif
  std::printf("oracle: host floating point, std::fmaf in %s; seed %llu\n", fma,
              static_cast<unsigned long long>(options.seed));
  bool found = false, good = true;
  for (const Unit& unit : units()) {
    if (options.unit != "all" && options.unit != unit.name) continue;
    found = true;
    if (options.mutant.empty()) {
      good &= run_unit(unit, options) == 0;
    } else if (run_mutant(unit, options) == 0) {
      std::printf("%s: mutant %s went unnoticed\n", unit.name.c_str(), options.mutant.c_str());
      good = false;
    }
  }
  if (!found) throw std::invalid_argument("unknown unit " + options.unit);
  std::printf("%s\n", good ? "passed" : "FAILED");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace tessera::alu_arithmetic

int main(int argc, char** argv) {
  try {
    return tessera::alu_arithmetic::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(
        stderr,
        "alu_arithmetic: %s\n  options: --unit NAME|all  --mode all|cross|random|pipeline|exhaustive  --count N  "
        "--long  --seed S  --mutant truncate|half_away|flush|unfused\n",
        error.what());
    return 2;
  }
}
