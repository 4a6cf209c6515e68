// SPDX-License-Identifier: Apache-2.0
// The list of options, visited once for the table, once for each value that is set or read.
#include "compiler/pipeline/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "base/error.h"
#include "compiler/text/text.h"
#include "isa/dram.h"

namespace tessera::compiler {
namespace {

/// Calls `visit(name, flag, summary, member, low, high)` for every option; the limits are those of numbers.
template <typename Options, typename Visit>
void for_each_option(Options& o, Visit&& visit) {
  visit("use_npu", "npu", "False: everything on the CPU", o.use_npu, 0, 1);
  visit("cpu_codegen", "cpu-codegen", "False: CPU operators as library kernels instead of compiled code", o.cpu_codegen,
        0, 1);
  visit("cpu_cache", "cpu-cache",
        "False: machine code of the CPU is made anew, not taken from the user's cache or kept", o.cpu_cache, 0, 1);
  visit("cpu_target", "cpu-target",
        "The processor that code of the CPU is made for: host, an ISA string of RISC-V (rv32im), or a name of Arm's "
        "(cortex-m4); other ones than the host are for `tessera export`",
        o.cpu_target, 0, 0);
  visit("cache", "cache",
        "Folder of compiled programs, which are found there by what they were made from; off: none; without a word "
        "TESSERA_CACHE, or programs/ in the user's cache",
        o.cache, 0, 0);
  visit("threads", "threads", "Threads that compute on the CPU; 0: one for each processor", o.threads, 0, 256);
  visit("chains", "chains", "False: every layer has a schedule of its own and ends before the next one begins",
        o.chains, 0, 1);
  visit("forward", "forward",
        "False: a layer fetches from DRAM what the layer before has written, even where it still stands on the chip",
        o.forward, 0, 1);
  visit("virtual_threads", "vthreads",
        "False: one copy of each operand, so that fetching does not hide behind computing inside a layer",
        o.virtual_threads, 0, 1);
  visit("traffic_weight", "traffic-weight",
        "Cycles that a cycle of the DRAM's bus is worth when schedules are chosen; more saves bytes", o.traffic_weight,
        0, 1000);
  visit("dram_latency", "dram-latency",
        "Cycles from a request to its first data, of the memory the program will run with", o.dram_latency, 1,
        isa::kMostLatencyCycles);
  visit("dram_bandwidth", "dram-bandwidth",
        "Bytes a cycle, reads and writes together, of the memory the program will run with; 0: the bus's width",
        o.dram_bandwidth, 0, 4096);
  visit("dram", "dram",
        "The memory the program will run with: ideal, which dram-latency and dram-bandwidth describe, or a preset of "
        "docs/dram.md with banks, rows and refresh, such as ddr3-800x16",
        o.dram, 0, 0);
  visit("search", "search", "Who looks for schedules", o.search, 0, 0);
  visit("cost_model", "cost-model", "What ranks schedules before the best are judged", o.cost_model, 0, 0);
  visit("judge", "judge", "The cost model that decides among the best schedules", o.judge, 0, 0);
  visit("effort", "effort",
        "best: the best schedules that are found; quick: those that count least by closed forms, without replays; "
        "tiered: of a session, a quick program at once, and the best one in its place when it has been found; auto: "
        "tiered for dynamic shapes on fsim, else best",
        o.effort, 0, 0);
  visit(
      "graph", "graph",
      "File with graphs of the NPU as --dump-dir writes them, changed by hand: in place of those that the passes make",
      o.graph, 0, 0);
  visit("tuned", "tuned", "Database of `tessera tune`, whose schedules are taken for the layers that it knows", o.tuned,
        0, 0);
  visit("numerics", "numerics",
        "exact: every quantised result is ONNX Runtime's; close: normalisations run as integers that may differ by a "
        "step; model: as it was quantised for, exact where the model does not say",
        o.numerics, 0, 0);
  visit("litert_kernels", "litert-kernels",
        "Whose results a LiteRT model (.tflite) equals: xnnpack, those of an Interpreter as it is; reference, those of "
        "the reference kernels",
        o.litert_kernels, 0, 0);
  visit("max_length", "max-length",
        "Of a decoder with past and present: compiled once, for any past with which a run ends at this length; 0: for "
        "the length that comes",
        o.max_length, 0, 1 << 24);
  visit(
      "length_steps", "length-steps",
      "Of a session with max-length: so many programs for lengths between a power of two and the next, so that a short "
      "past costs less; 0: one for all lengths; -1: 2 on sysc and rtl, 0 elsewhere",
      o.length_steps, -1, 64);
}

template <typename T>
constexpr OptionKind kind_of() {
  if constexpr (std::is_same_v<T, bool>) return OptionKind::kBool;
  if constexpr (std::is_integral_v<T>) return OptionKind::kInteger;
  if constexpr (std::is_floating_point_v<T>) return OptionKind::kNumber;
  return OptionKind::kWord;
}

std::string shown(bool value) { return value ? "true" : "false"; }
std::string shown(int64_t value) { return std::to_string(value); }
std::string shown(double value) { return text::number(value); }
std::string shown(const std::string& value) { return value; }

[[noreturn]] void refuse(std::string_view name, const std::string& takes, std::string_view value) {
  throw Error(ErrorCode::kInvalidArgument,
              "option '" + std::string(name) + "' takes " + takes + ", not '" + std::string(value) + "'");
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

void parse(std::string_view name, std::string_view value, bool& to, double, double) {
  const std::string word = lower(value);
  if (word == "true" || word == "1") {
    to = true;
  } else if (word == "false" || word == "0") {
    to = false;
  } else {
    refuse(name, "true or false", value);
  }
}

/// A limit as a person writes it.
std::string limit(double value) {
  return value == std::floor(value) ? std::to_string(std::llround(value)) : text::number(value);
}

template <typename Number>
void parse_number(std::string_view name, std::string_view value, Number& to, double low, double high,
                  const std::string& what) {
  Number number{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool inside = static_cast<double>(number) >= low && static_cast<double>(number) <= high;
  if (error != std::errc() || end != value.data() + value.size() || !inside)
    refuse(name, what + " from " + limit(low) + " to " + limit(high), value);
  to = number;
}
void parse(std::string_view name, std::string_view value, int64_t& to, double low, double high) {
  parse_number(name, value, to, low, high, "a whole number");
}
void parse(std::string_view name, std::string_view value, double& to, double low, double high) {
  parse_number(name, value, to, low, high, "a number");
}
void parse(std::string_view name, std::string_view value, std::string& to, double, double) {
  if (value.empty() && !to.empty()) refuse(name, "a word", value);
  to = value;
}

[[noreturn]] void unknown(std::string_view name) {
  std::string known;
  for (const OptionInfo& info : option_table()) known += (known.empty() ? "" : ", ") + info.name;
  throw Error(ErrorCode::kInvalidArgument,
              "a compilation has no option '" + std::string(name) + "'; its options are " + known);
}

}  // namespace

const std::vector<OptionInfo>& option_table() {
  static const std::vector<OptionInfo> table = [] {
    std::vector<OptionInfo> rows;
    const CompileOptions defaults;
    for_each_option(defaults,
                    [&](const char* name, const char* flag, const char* summary, const auto& member, double, double) {
                      using T = std::remove_cvref_t<decltype(member)>;
                      std::string dashed = "--";
                      if constexpr (std::is_same_v<T, bool>) {
                        if (member) dashed += "no-";
                      }
                      rows.push_back({name, dashed + flag, summary, kind_of<T>(), shown(member)});
                    });
    return rows;
  }();
  return table;
}

bool is_option(std::string_view name) {
  const auto& table = option_table();
  return std::any_of(table.begin(), table.end(), [&](const OptionInfo& info) { return info.name == name; });
}

void set_option(CompileOptions& options, std::string_view name, std::string_view value) {
  bool known = false;
  for_each_option(options, [&](const char* own, const char*, const char*, auto& member, double low, double high) {
    if (name != own) return;
    known = true;
    parse(name, value, member, low, high);
  });
  if (!known) unknown(name);
  if (name == "numerics" && value != "exact" && value != "close" && value != kNumericsOfModel)
    refuse(name, "exact, close or model", value);
  if (name == "litert_kernels" && value != "xnnpack" && value != "reference")
    refuse(name, "xnnpack or reference", value);
  if (name == "effort" && value != kBestEffort && value != kQuickEffort && value != kTieredEffort &&
      value != kAutoEffort)
    refuse(name, "best, quick, tiered or auto", value);
  if (name == "dram" && value != CompileOptions().dram) isa::dram_preset(value);
}

void check_options(const CompileOptions& options) {
  CompileOptions scratch;
  for (const OptionInfo& info : option_table()) set_option(scratch, info.name, get_option(options, info.name));
  const CompileOptions usual;
  if (options.dram != usual.dram &&
      (options.dram_latency != usual.dram_latency || options.dram_bandwidth != usual.dram_bandwidth)) {
    throw Error(ErrorCode::kInvalidArgument,
                "options 'dram_latency' and 'dram_bandwidth' are those of the ideal DRAM; '" + options.dram +
                    "' has its own, so give one of the two");
  }
}

std::string get_option(const CompileOptions& options, std::string_view name) {
  std::string value;
  bool known = false;
  for_each_option(options, [&](const char* own, const char*, const char*, const auto& member, double, double) {
    if (name != own) return;
    known = true;
    value = shown(member);
  });
  if (!known) unknown(name);
  return value;
}

}  // namespace tessera::compiler
