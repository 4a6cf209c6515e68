// SPDX-License-Identifier: Apache-2.0
// A library belongs to a key, a hash of everything that its bytes depend on. It is made under a file lock, in a folder
// of its own, and appears by a rename.
#include "sim/verilator/build.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "sim/verilator/making.h"
#include "sim/verilator/training.h"

namespace tessera::sim {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNoProfile =
    "; slower than it could be: the compiler is neither GCC nor a Clang with its llvm-profdata, which make it by a "
    "profile";

/// FNV-1a over strings, each with its length.
class Hash {
 public:
  void add(const std::string& text) {
    const std::string length = std::to_string(text.size()) + ":";
    for (const std::string* part : {&length, &text}) {
      for (const char c : *part) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    }
  }
  std::string text() const {
    char digits[17];
    std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(value_));
    return digits;
  }

 private:
  uint64_t value_ = 0xcbf29ce484222325ULL;
};

/// The line of /proc/cpuinfo that -march=native depends on.
std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name") || line.starts_with("flags")) text += line + "\n";
    if (line.starts_with("flags")) break;
  }
  return text;
}

const TesseraRtlApi& load(const fs::path& path) {
  Library library(path);
  const TesseraRtlApi* api = library.symbol<const TesseraRtlApi*()>(kRtlEntry)();
  if (api->version != kTesseraRtlApiVersion) {
    throw Error(ErrorCode::kInternal, "'" + path.string() + "' has another interface; remove it and try again");
  }
  library.keep();
  return *api;
}

/// Whether the build made this library where it stands, and did not install it: it has put its key beside it.
bool is_of_build(const fs::path& library) {
  std::error_code error;
  return fs::exists(library.string() + ".key", error);
}

/// Whether a source of the RTL is newer than this library: the build has not made it again since.
bool is_stale(const fs::path& library) {
  const fs::file_time_type made = fs::last_write_time(library);
  std::error_code error;
  // In an installation library and sources came together, and the times of files mean nothing.
  if (!fs::exists(fs::path(TESSERA_RTL_SOURCE) / "hw/rtl", error) || !is_of_build(library)) return false;
  const std::vector<fs::path> sources = rtl_sources(TESSERA_RTL_SOURCE);
  return std::any_of(sources.begin(), sources.end(), [&](const fs::path& s) { return fs::last_write_time(s) > made; });
}

/// Folders that stand at these places relative to the program and to the library that this code is in.
std::vector<fs::path> beside_code(const std::string& from_program, const std::string& from_library) {
  std::vector<fs::path> folders;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(program.parent_path() / from_program);
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&beside_code), &info) != 0 && info.dli_fname != nullptr) {
    const fs::path library = fs::weakly_canonical(info.dli_fname, error);
    if (!error) folders.push_back(library.parent_path() / from_library);
  }
  return folders;
}

/// Of everything the model depends on. `folder`: for the tools' output. `profile`: wanted; decides whether and how.
std::string key_of(const Tools& tools, const fs::path& home, Model& model, bool profile, const fs::path& folder) {
  Hash hash;
  for (const fs::path& source : rtl_sources(home)) {
    hash.add(source.filename().string());
    hash.add(read_file(source));
  }
  hash.add(read_file(home / "sim/verilator/model.cc"));
  if (model.config.cores > 1) hash.add(read_file(home / "sim/verilator/interconnect.cc"));
  for (const char* header : {"sim/verilator/model_api.h", "sim/verilator/port.h"}) hash.add(read_file(home / header));
  Command compiler = tools.compiler;
  compiler.push_back("--version");
  const std::string version = output_of(compiler, folder);
  if (profile && !model.waves) model.profiling = profiling_of(tools.compiler, version);
  hash.add(output_of({tools.verilator, "--version"}, folder));
  hash.add(version);
  std::vector<Command> flags = flags_of(model);
  flags.push_back(tools.compiler);
  if (model.profiling != Profiling::kNone) {
    const TrainingProgram program = training_program(model.config);
    hash.add({program.dram.begin(), program.dram.end()});
    for (const isa::Instruction& instruction : program.instructions) {
      const isa::Word word = isa::encode(instruction);
      hash.add({word.begin(), word.end()});
    }
  }
  for (const Command& command : flags) {
    for (const std::string& word : command) hash.add(word);
  }
  hash.add(processor());
  return hash.text();
}

}  // namespace

std::string rtl_home() {
  std::vector<fs::path> candidates;
  const std::string chosen = environment("TESSERA_RTL_HOME");
  if (!chosen.empty()) {
    candidates.push_back(chosen);
  } else {
    candidates = beside_code("../share/tessera", "../share/tessera");
    // In the wheel the package holds everything.
    for (const fs::path& folder : beside_code("../share/tessera", "tessera/share")) candidates.push_back(folder);
    candidates.push_back(TESSERA_RTL_SOURCE);
  }
  for (const fs::path& candidate : candidates) {
    std::error_code error;
    if (fs::exists(candidate / "hw/rtl/tsr_top.sv", error)) return candidate.string();
  }
  std::string looked;
  for (const fs::path& candidate : candidates) looked += (looked.empty() ? "'" : ", '") + candidate.string() + "'";
  throw Error(ErrorCode::kUnsupported, "the RTL's sources (hw/rtl/tsr_top.sv and others) are not in " + looked +
                                           "; set TESSERA_RTL_HOME to the folder that holds hw/");
}

std::string rtl_cache() {
  std::string base = environment("XDG_CACHE_HOME");
  if (base.empty()) {
    const std::string home = environment("HOME");
    base = home.empty() ? "/tmp/tessera-" + std::to_string(getuid()) : home + "/.cache";
  }
  return base + "/tessera/rtl";
}

const TesseraRtlApi* built_rtl(const std::string& name) {
  static std::mutex mutex;
  static std::map<fs::path, const TesseraRtlApi*> loaded;
  const std::lock_guard guard(mutex);
  for (const fs::path& folder : beside_code("../lib/tessera/rtl", "tessera/rtl")) {
    const fs::path library = folder / (name + ".so");
    if (const auto found = loaded.find(library); found != loaded.end()) return found->second;
    std::error_code error;
    if (!fs::exists(library, error)) continue;
    if (is_stale(library)) {
      std::fprintf(stderr,
                   "tessera: the RTL is newer than the machine '%s' of this build; './dev build' makes it again\n",
                   name.c_str());
      return nullptr;
    }
    return loaded[library] = &load(library);
  }
  return nullptr;
}

const TesseraRtlApi& build_rtl(const isa::MachineConfig& config, bool waves) {
  static std::mutex mutex;
  static std::map<std::string, const TesseraRtlApi*> loaded;
  const std::lock_guard guard(mutex);

  const Tools tools = find_tools(config.name);
  const fs::path home = fs::absolute(rtl_home()), cache = fs::absolute(rtl_cache());
  std::error_code error;
  fs::create_directories(cache, error);
  if (error) {
    throw Error(ErrorCode::kIo, "cannot create '" + cache.string() + "' for verilated machines: " + error.message() +
                                    "; XDG_CACHE_HOME moves it");
  }
  const bool profile = environment("TESSERA_RTL_PROFILE") == "1";
  Model model{.config = config, .waves = waves};
  const std::string key = key_of(tools, home, model, profile, cache);
  if (const auto found = loaded.find(key); found != loaded.end()) return *found->second;

  const fs::path library = cache / (key + ".so");
  if (!fs::exists(library)) {
    const FileLock lock(cache / (key + ".lock"), config.name);
    if (!fs::exists(library)) {
      std::fprintf(stderr, "tessera: verilating the machine '%s'%s, once; it stays in %s%s\n", config.name.c_str(),
                   waves ? " with waveforms" : "", cache.c_str(),
                   profile && !waves && model.profiling == Profiling::kNone ? kNoProfile : "");
      const auto begin = std::chrono::steady_clock::now();
      Making making(tools, home, model, cache / key, std::max(1U, std::thread::hardware_concurrency()));
      making.make(library);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      std::fprintf(stderr, "tessera: machine '%s' made in %.0f s\n", config.name.c_str(), seconds.count());
    }
  }
  const TesseraRtlApi& api = load(library);
  loaded[key] = &api;
  return api;
}

void build_rtl_module(const RtlModule& wanted) {
  const fs::path home = TESSERA_RTL_SOURCE, path = fs::absolute(wanted.path);
  Tools tools = find_tools(wanted.config.name);
  tools.compiler = wanted.compiler;
  Model model{.config = wanted.config, .processor = wanted.processor};
  fs::create_directories(path.parent_path());
  const std::string key = key_of(tools, home, model, wanted.profile, path.parent_path());
  const fs::path stamp = path.string() + ".key";
  if (fs::exists(path) && fs::exists(stamp) && read_file(stamp) == key) {
    fs::last_write_time(path, fs::file_time_type::clock::now());
    return;
  }
  fs::remove(stamp);
  if (wanted.profile && model.profiling == Profiling::kNone) {
    std::fprintf(stderr, "make_rtl_model: %s%s\n", wanted.config.name.c_str(), kNoProfile);
  }
  Making(tools, home, model, path.string() + ".made", wanted.jobs).make(path);
  std::ofstream(stamp) << key;
}

}  // namespace tessera::sim
