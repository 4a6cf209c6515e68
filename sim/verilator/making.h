// SPDX-License-Identifier: Apache-2.0
// From the RTL's sources to a library with one machine. Enters: tools, sources, a configuration. Leaves: the library,
// and what its bytes depend on. Verilator generates, the compiler makes objects side by side, the linker a library
// whose only symbol is the entry. With a profile objects are made twice: the first ones count branches while they run
// the training program, the second ones are laid out by these counts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "isa/config.h"
#include "sim/verilator/process.h"

namespace tessera::sim {

/// The function that a machine's library exports; it leaves a TesseraRtlApi.
inline constexpr const char* kRtlEntry = "tessera_rtl_entry";

struct Tools {
  std::string verilator;
  Command compiler;  // with what stands before and behind it: a compiler cache, flags of all sources
};

/// How a compiler makes and takes a profile.
enum class Profiling { kNone, kGcc, kClang };

/// Of this compiler; `version`: what its --version says. Clang needs the llvm-profdata beside it.
Profiling profiling_of(const Command& compiler, const std::string& version);

/// Those of PATH and CXX. `name`: of the configuration, for the message. Errors: kUnsupported naming what is missing.
Tools find_tools(const std::string& name);

/// What is made.
struct Model {
  const isa::MachineConfig& config;
  bool waves = false;
  Profiling profiling = Profiling::kNone;
  std::string processor = "native";  // what -march takes
};

/// The packages and modules of the folder with hw/ and isa/, packages first.
std::vector<std::filesystem::path> rtl_sources(const std::filesystem::path& home);

/// Every flag that changes the library, tool by tool.
std::vector<Command> flags_of(const Model& model);

/// One making of a model in a folder of its own, which is emptied first and goes away at the end, but for its log when
/// something fails.
class Making {
 public:
  Making(const Tools& tools, const std::filesystem::path& home, const Model& model, const std::filesystem::path& folder,
         unsigned jobs);

  /// Leaves the library at `library`, which appears whole or not at all. Errors: kInternal when a tool fails.
  void make(const std::filesystem::path& library);

 private:
  Command objects();
  void run(Command command);
  void link(const Command& objects, const std::string& library, const Command& flags = {});
  void generate();
  std::vector<std::filesystem::path> verilate(const Command& flags);
  Command compile(const std::vector<std::filesystem::path>& sources, const std::string& level, const Command& flags);
  std::vector<std::filesystem::path> pins() const;
  Command counting() const;
  Command use_counts() const;
  Command train_on(Command objects);

  const Tools& tools_;
  const std::filesystem::path& home_;
  const Model& model_;
  const std::filesystem::path folder_;
  const std::string log_;
  const unsigned jobs_;
  std::filesystem::path include_;
  std::vector<std::filesystem::path> slow_, fast_, support_;  // the model's C++, by how it is compiled
};

}  // namespace tessera::sim
