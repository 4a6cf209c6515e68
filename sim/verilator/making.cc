// SPDX-License-Identifier: Apache-2.0
// The steps in order; each works in the making's own folder, and all output goes to its log.
#include "sim/verilator/making.h"

#include <algorithm>
#include <cstdio>

#include "sim/verilator/model_api.h"
#include "sim/verilator/training.h"

namespace tessera::sim {
namespace {

namespace fs = std::filesystem;

constexpr const char* kClass = "Vtessera_npu";
constexpr const char* kInterconnectClass = "Vtessera_interconnect";
constexpr const char* kWriteProfile = "tessera_rtl_write_profile";

/// Of every module; the linter's rules are a matter of the sources and not of a user's configuration. -fno-split:
/// blocks stay whole, since their parts would ask for the same conditions again (9 % of the time). -fno-table: small
/// functions are computed, not looked up.
Command verilator_flags(const char* top, const char* prefix) {
  return {"--cc",
          "--top-module",
          top,
          "--prefix",
          prefix,
          "-Wno-fatal",
          "-Wno-lint",
          "-Wno-WIDTHCONCAT",
          "-O3",
          "-fno-split",
          "-fno-table",
          "--x-assign",
          "fast",
          "--x-initial",
          "fast",
          "--noassert",
          "--unroll-stmts",
          "10000000",
          "--unroll-count",
          "4096"};
}

void set(Command& flags, const char* parameter, int64_t value) {
  flags.push_back("-G" + std::string(parameter) + "=" + std::to_string(value));
}

/// Parameters of tsr_top.
Command core_flags(const Model& model) {
  const isa::MachineConfig& c = model.config;
  Command flags = verilator_flags("tsr_top", kClass);
  if (model.waves) flags.insert(flags.end(), {"--trace-fst", "--trace-max-width", "1024"});
  set(flags, "Batch", c.batch);
  set(flags, "BlockIn", c.block_in);
  set(flags, "BlockOut", c.block_out);
  set(flags, "InpDepth", c.inp_depth());
  set(flags, "WgtDepth", c.wgt_depth());
  set(flags, "AccDepth", c.acc_depth());
  set(flags, "OutDepth", c.out_depth());
  set(flags, "ParamDepth", c.param_depth());
  set(flags, "TableCount", c.table_count);
  set(flags, "SecondLanes", c.second_lanes);
  set(flags, "RowLanes", c.row_lanes);
  set(flags, "AxiBytes", c.axi_bytes);
  set(flags, "LoadQueue", c.load_queue);
  set(flags, "GemmQueue", c.gemm_queue);
  set(flags, "AluQueue", c.alu_queue);
  set(flags, "StoreQueue", c.store_queue);
  set(flags, "ReadsInFlight", c.reads_in_flight);
  set(flags, "WritesInFlight", c.writes_in_flight);
  set(flags, "MemoryParity", c.memory_parity);
  set(flags, "PackedWeights", c.packed_weights);
  set(flags, "RasterPairs", c.raster_pairs);
  if (c.cores > 1) {
    set(flags, "Cores", c.cores);
    set(flags, "MemoryAxiBytes", c.memory_axi_bytes);
  }
  return flags;
}

Command interconnect_flags(const isa::MachineConfig& c) {
  Command flags = verilator_flags("tsr_interconnect", kInterconnectClass);
  set(flags, "Cores", c.cores);
  set(flags, "AxiBytes", c.axi_bytes);
  set(flags, "MemoryBytes", c.memory_bytes());
  set(flags, "ReadsInFlight", c.reads_in_flight);
  set(flags, "WritesInFlight", c.writes_in_flight);
  return flags;
}

Command compiler_flags(const Model& model) {
  Command flags = {"-std=gnu++17",
                   "-fPIC",
                   "-w",
                   "-march=" + model.processor,
                   "-fvisibility=hidden",
                   "-DVERILATOR=1",
                   "-DVM_COVERAGE=0",
                   "-DVM_SC=0",
                   "-DVM_TRACE_VCD=0",
                   "-DTESSERA_RTL_MODEL=" + std::string(kClass),
                   "-DTESSERA_RTL_ENTRY=" + std::string(kRtlEntry)};
  for (const char* flag : {"-DVM_TRACE", "-DVM_TRACE_FST"}) {
    flags.push_back(flag + std::string(model.waves ? "=1" : "=0"));
  }
  if (model.waves) flags.push_back("-DTESSERA_RTL_WAVES");
  if (model.config.cores > 1) {
    flags.push_back("-DTESSERA_RTL_CORES=" + std::to_string(model.config.cores));
    flags.push_back("-DTESSERA_RTL_AXI_BYTES=" + std::to_string(model.config.axi_bytes));
    flags.push_back("-DTESSERA_RTL_INTERCONNECT=" + std::string(kInterconnectClass));
  }
  return flags;
}

/// Clang's counts, as its programs leave them and as its compiler reads them.
constexpr const char* kRawCounts = "training.profraw";
constexpr const char* kCounts = "training.profdata";

/// The program that turns the one into the other: the compiler's own, which it knows where to find.
std::string profdata_of(const Command& compiler) {
  try {
    Command command = compiler;
    command.push_back("-print-prog-name=llvm-profdata");
    return find_program(output_of(command, fs::temp_directory_path()));
  } catch (const std::exception&) {
    return "";
  }
}

void append(Command& command, const Command& more) { command.insert(command.end(), more.begin(), more.end()); }

}  // namespace

Tools find_tools(const std::string& name) {
  Tools tools;
  tools.verilator = find_program("verilator");
  for (const std::string& candidate : {environment("CXX"), std::string("clang++-19"), std::string("clang++"),
                                       std::string("c++"), std::string("g++")}) {
    const std::string found = candidate.empty() ? "" : find_program(candidate);
    if (tools.compiler.empty() && !found.empty()) tools.compiler = {fs::absolute(found)};
  }
  std::string missing = tools.verilator.empty() ? "verilator" : "";
  if (tools.compiler.empty()) missing += missing.empty() ? "a C++ compiler" : " and a C++ compiler";
  if (!missing.empty()) {
    throw Error(ErrorCode::kUnsupported, "configuration '" + name +
                                             "' is not among those verilated in this build, and to make it, " +
                                             missing + " is needed and not found in PATH; install it (Debian: " +
                                             "verilator, g++) or choose a configuration of this build");
  }
  return tools;
}

Profiling profiling_of(const Command& compiler, const std::string& version) {
  if (version.find("Free Software Foundation") != std::string::npos) return Profiling::kGcc;
  const bool clang = version.find("clang version") != std::string::npos;
  return clang && !profdata_of(compiler).empty() ? Profiling::kClang : Profiling::kNone;
}

std::vector<fs::path> rtl_sources(const fs::path& home) {
  std::vector<fs::path> sources;
  for (const char* folder : {"hw/rtl", "hw/prim"}) {
    for (const auto& entry : fs::directory_iterator(home / folder)) {
      if (entry.path().extension() == ".sv") sources.push_back(entry.path());
    }
  }
  std::sort(sources.begin(), sources.end());
  // A package comes before its users.
  std::stable_partition(sources.begin(), sources.end(),
                        [](const fs::path& source) { return source.stem().string().ends_with("_pkg"); });
  sources.insert(sources.begin(), home / "isa/generated/tsr_isa_pkg.sv");
  return sources;
}

std::vector<Command> flags_of(const Model& model) {
  std::vector<Command> flags = {core_flags(model), compiler_flags(model)};
  if (model.config.cores > 1) flags.push_back(interconnect_flags(model.config));
  if (model.profiling != Profiling::kNone) flags.push_back({"-fprofile-generate", "-fprofile-use"});
  return flags;
}

Making::Making(const Tools& tools, const fs::path& home, const Model& model, const fs::path& folder, unsigned jobs)
    : tools_(tools), home_(home), model_(model), folder_(folder), log_(folder.string() + ".log"), jobs_(jobs) {
  fs::remove_all(folder_);
  fs::create_directories(folder_);
  fs::remove(log_);
}

void Making::make(const fs::path& library) {
  link(objects(), "model.so");
  fs::rename(folder_ / "model.so", library);
  fs::remove_all(folder_);
  fs::remove(log_);
}

/// Relative to the folder.
Command Making::objects() {
  generate();
  Command objects = compile(slow_, "-O0", {});
  append(objects, compile(support_, "-O3", {}));
  const Command counts = model_.profiling != Profiling::kNone ? train_on(objects) : Command{};
  append(objects, compile(pins(), "-O3", {}));
  append(objects, compile(fast_, "-O3", counts));
  return objects;
}

void Making::run(Command command) { run_all({std::move(command)}, 1, folder_, log_); }

void Making::link(const Command& objects, const std::string& library, const Command& flags) {
  Command command = tools_.compiler;
  append(command, {"-shared", "-Wl,-Bsymbolic", "-o", library});
  append(command, flags);
  append(command, objects);
  command.push_back("-pthread");
  if (model_.waves) command.push_back("-lz");
  run(command);
}

/// Leaves new C++ in the folder.
std::vector<fs::path> Making::verilate(const Command& flags) {
  Command command = {tools_.verilator};
  append(command, flags);
  append(command, {"-Mdir", folder_.string()});
  for (const fs::path& source : rtl_sources(home_)) command.push_back(source.string());
  run(command);
  const std::string& prefix = flags[4];
  std::vector<fs::path> sources;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path().extension() == ".cpp" && entry.path().filename().string().starts_with(prefix)) {
      sources.push_back(entry.path());
    }
  }
  std::sort(sources.begin(), sources.end());
  return sources;
}

/// The model's C++, sorted by how it is compiled. No profile is made of the interconnect: a core is trained alone.
void Making::generate() {
  const std::vector<fs::path> core = verilate(core_flags(model_));
  include_ = fs::path(output_of({tools_.verilator, "--getenv", "VERILATOR_ROOT"}, folder_)) / "include";
  for (const fs::path& source : core) {
    const std::string name = source.filename().string();
    const bool slow = name.find("__Slow") != std::string::npos || name.find("__Syms") != std::string::npos ||
                      name.find("__Trace") != std::string::npos;
    (slow ? slow_ : fast_).push_back(source);
  }
  for (std::vector<fs::path>* sources : {&slow_, &fast_}) {  // largest first: it takes longest
    std::sort(sources->begin(), sources->end(), [](const fs::path& a, const fs::path& b) {
      return std::pair(fs::file_size(b), a) < std::pair(fs::file_size(a), b);
    });
  }
  support_ = {include_ / "verilated.cpp", include_ / "verilated_threads.cpp"};
  if (model_.config.cores > 1) {
    const std::vector<fs::path> interconnect = verilate(interconnect_flags(model_.config));
    support_.insert(support_.end(), interconnect.begin(), interconnect.end());
  }
  if (model_.waves) support_.push_back(include_ / "verilated_fst_c.cpp");
}

Command Making::compile(const std::vector<fs::path>& sources, const std::string& level, const Command& flags) {
  std::vector<Command> commands;
  Command objects;
  for (const fs::path& source : sources) {
    objects.push_back(source.stem().string() + ".o");
    Command command = tools_.compiler;
    command.push_back(level);
    append(command, compiler_flags(model_));
    append(command, flags);
    for (const fs::path& path : {folder_, include_, include_ / "vltstd", home_ / "sim/verilator"}) {
      command.push_back("-I" + path.string());
    }
    // The seed: the same source gives the same object, and counts fit objects from a compiler cache.
    append(command, {"-frandom-seed=" + objects.back(), "-c", "-o", objects.back(), source.string()});
    commands.push_back(std::move(command));
  }
  run_all(commands, jobs_, folder_, log_);
  return objects;
}

std::vector<fs::path> Making::pins() const {
  std::vector<fs::path> sources = {home_ / "sim/verilator/model.cc"};
  if (model_.config.cores > 1) sources.push_back(home_ / "sim/verilator/interconnect.cc");
  return sources;
}

/// The same compilation must be given to both, or the counts do not fit.
Command Making::counting() const {
  return {model_.profiling == Profiling::kGcc ? "-fprofile-generate" : "-fprofile-generate=" + folder_.string()};
}

Command Making::use_counts() const {
  if (model_.profiling == Profiling::kGcc) return {"-fprofile-use", "-Wno-missing-profile"};
  return {"-fprofile-use=" + (folder_ / kCounts).string()};
}

/// Trains a machine of these objects and such that count. Leaves the flags that use the counts; none, and a line on
/// standard error, when it left no counts.
Command Making::train_on(Command objects) {
  try {
    append(objects, compile(pins(), "-O3", {"-DTESSERA_RTL_WRITE_PROFILE=" + std::string(kWriteProfile)}));
    append(objects, compile(fast_, "-O3", counting()));
    link(objects, "training.so", counting());
    const Library library(folder_ / "training.so");
    train(model_.config, *library.symbol<const TesseraRtlApi*()>(kRtlEntry)());
    library.symbol<void(const char*)>(kWriteProfile)((folder_ / kRawCounts).c_str());
    if (model_.profiling == Profiling::kClang) {
      run({profdata_of(tools_.compiler), "merge", "-o", kCounts, kRawCounts});
    }
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ".gcda" || entry.path().filename() == kCounts) return use_counts();
    }
    throw Error(ErrorCode::kInternal, "its training left no counts");
  } catch (const std::exception& error) {
    const std::string text = error.what();
    std::fprintf(stderr, "tessera: machine '%s' is made without a profile and will be slower: %s\n",
                 model_.config.name.c_str(), text.substr(0, text.find('\n')).c_str());
    return {};
  }
}

}  // namespace tessera::sim
