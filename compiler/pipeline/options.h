// SPDX-License-Identifier: Apache-2.0
// The options of a compilation. They stand once: the struct below and the list in options.cc, from which come the flags
// of the command, the keyword arguments of the Python package and the NAME=VALUE strings of the C interface.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {
class StepTimes;
namespace npu {
class ReplayMemo;
}
}  // namespace tessera

namespace tessera::compiler {

/// Called with what is being done and how far it is.
using Progress = std::function<void(const std::string& what, int64_t done, int64_t total)>;

/// The state of a compilation after a step of it. `text` is what the next step can be fed with (tessera-opt), or with
/// `elide` without large constants; call it before the observer returns.
struct Snapshot {
  std::string step;       // the pass, or what was made: "import", "instructions"
  std::string extension;  // of a file: "mlir", "npu", "json", "asm"
  std::function<std::string(bool elide)> text;
};
using SnapshotObserver = std::function<void(const Snapshot&)>;

/// Of CompileOptions::numerics. Sessions and commands put in its place what the model says (tessera/quantised_for.h); a
/// Model takes it as exact.
inline constexpr const char* kNumericsOfModel = "model";

/// Of CompileOptions::effort. A Model takes all but `quick` as `best`; `tiered` and `auto` are for sessions.
inline constexpr const char *kBestEffort = "best", *kQuickEffort = "quick", *kTieredEffort = "tiered",
                            *kAutoEffort = "auto";

struct CompileOptions {
  bool use_npu = true;
  bool cpu_codegen = true;
  bool cpu_cache = true;
  std::string cpu_target = "host";
  int64_t threads = 0;
  bool chains = true;
  bool forward = true;
  bool virtual_threads = true;
  double traffic_weight = 0.2;
  int64_t dram_latency = 100;
  int64_t dram_bandwidth = 0;
  std::string dram = "ideal";
  std::string search = "exhaustive";
  std::string cost_model = "closed-form";
  std::string judge = "replay";
  std::string effort = kAutoEffort;
  std::string graph;
  std::string cache;  // for sessions and commands (tessera/kept_programs.h)
  std::string tuned;  // for sessions and commands, which turn it into schedules; a Model does not look at it
  std::string numerics = kNumericsOfModel;
  std::string litert_kernels = "xnnpack";  // of sessions and commands, which hand it to the importer
  int64_t max_length = 0;
  int64_t length_steps = -1;  // of sessions, which choose max_length by it; a Model does not look at it

  // What is no option of a word: JSON by node name ("name#2" for the second layer of a name), overriding the
  // generator's, and who looks on.
  std::map<std::string, std::string> schedules;
  Progress progress;
  SnapshotObserver snapshots;
  std::function<void(const std::string& text)> search_log;  // the candidates and why the winners won
  bool blank_weights = false;                               // zeros for weights: a program that only tells its cycles
  std::shared_ptr<npu::ReplayMemo> replays;                 // for compilations of one model for many machines
  std::shared_ptr<const std::atomic<bool>> stop;            // when it becomes true the compilation throws npu::Stopped
  std::shared_ptr<StepTimes> times;                         // receives the seconds of each step
};

enum class OptionKind : uint8_t { kBool, kInteger, kNumber, kWord };

/// One option as an interface shows it.
struct OptionInfo {
  std::string name;     // of the keyword argument: traffic_weight
  std::string flag;     // of the command: --traffic-weight VALUE; of what is true by default: --no-npu
  std::string summary;  // a sentence without its end
  OptionKind kind = OptionKind::kBool;
  std::string fallback;  // the default as text
};

/// Whether operators may be computed by integers that are close to ONNX Runtime's results and not equal to them
/// (docs/numerics.md).
inline bool is_close(const CompileOptions& options) { return options.numerics == "close"; }

/// All options, in the order in which help lists them.
const std::vector<OptionInfo>& option_table();

bool is_option(std::string_view name);
/// Sets an option from its text: true or false, a number, a word. Errors: kInvalidArgument; the message says what the
/// option takes, or for an unknown name lists the options.
void set_option(CompileOptions& options, std::string_view name, std::string_view value);
/// Refuses values that set_option would. Errors: kInvalidArgument.
void check_options(const CompileOptions& options);
/// The option as set_option would take it.
std::string get_option(const CompileOptions& options, std::string_view name);

}  // namespace tessera::compiler
