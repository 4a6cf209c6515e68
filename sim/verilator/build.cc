// SPDX-License-Identifier: Apache-2.0
// Verilator generates, the compiler makes objects side by side, the linker a library whose only symbol is the entry.
// Everything happens in a folder of its own under a file lock; the finished library appears by a rename.
#include "sim/verilator/build.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"

extern char** environ;

namespace tessera::sim {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "Vtessera_npu";
constexpr const char* kEntry = "tessera_rtl_entry";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The path of a program; empty when there is none.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const std::string path = environment("PATH");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string candidate = path.substr(begin, end - begin) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  return "";
}

/// Starts a program whose output goes to the end of `log`.
pid_t start(const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = -1;
  const int status = posix_spawn(&pid, command[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (status != 0) throw Error(ErrorCode::kInternal, "cannot start '" + command[0] + "'");
  return pid;
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, "cannot read '" + path.string() + "'");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Runs commands side by side, at most `jobs`. Errors: kInternal when one fails, with the end of the log.
void run_all(const std::vector<std::vector<std::string>>& commands, unsigned jobs, const std::string& log) {
  std::vector<pid_t> running;
  bool failed = false;
  const auto finish_one = [&] {
    int status = 0;
    const pid_t pid = running.front();
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    running.erase(running.begin());
    failed = failed || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  };
  for (const auto& command : commands) {
    if (failed) break;
    if (running.size() >= jobs) finish_one();
    running.push_back(start(command, log));
  }
  while (!running.empty()) finish_one();
  if (!failed) return;
  std::string text = read_file(log);
  if (text.size() > 1000) text = "..." + text.substr(text.size() - 1000);
  throw Error(ErrorCode::kInternal, "the machine could not be built; all output is in '" + log + "':\n" + text);
}

std::string output_of(const std::vector<std::string>& command, const fs::path& folder) {
  const std::string file = (folder / ("tool." + std::to_string(getpid()))).string();
  fs::remove(file);
  run_all({command}, 1, file);
  std::string text = read_file(file);
  fs::remove(file);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

struct Tools {
  std::string verilator;
  std::string compiler;
};

Tools find_tools(const std::string& name) {
  Tools tools;
  tools.verilator = find_program("verilator");
  for (const std::string& candidate :
       {environment("CXX"), std::string("c++"), std::string("g++"), std::string("clang++")}) {
    if (tools.compiler.empty() && !candidate.empty()) tools.compiler = find_program(candidate);
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

/// Parameters of tsr_top; the linter's rules are a matter of the sources and not of a user's configuration.
std::vector<std::string> verilator_flags(const isa::MachineConfig& c, bool waves) {
  std::vector<std::string> flags = {"--cc",
                                    "--top-module",
                                    "tsr_top",
                                    "--prefix",
                                    kPrefix,
                                    "-Wno-fatal",
                                    "-Wno-lint",
                                    "-Wno-WIDTHCONCAT",
                                    "-O3",
                                    "--x-assign",
                                    "fast",
                                    "--x-initial",
                                    "fast",
                                    "--noassert",
                                    "--unroll-stmts",
                                    "10000000",
                                    "--unroll-count",
                                    "4096"};
  if (waves) flags.insert(flags.end(), {"--trace-fst", "--trace-max-width", "1024"});
  const auto set = [&](const char* parameter, int64_t value) {
    flags.push_back("-G" + std::string(parameter) + "=" + std::to_string(value));
  };
  set("Batch", c.batch);
  set("BlockIn", c.block_in);
  set("BlockOut", c.block_out);
  set("InpDepth", c.inp_depth());
  set("WgtDepth", c.wgt_depth());
  set("AccDepth", c.acc_depth());
  set("OutDepth", c.out_depth());
  set("ParamDepth", c.param_depth());
  set("TableCount", c.table_count);
  set("AxiBytes", c.axi_bytes);
  set("LoadQueue", c.load_queue);
  set("GemmQueue", c.gemm_queue);
  set("AluQueue", c.alu_queue);
  set("StoreQueue", c.store_queue);
  set("ReadsInFlight", c.reads_in_flight);
  set("WritesInFlight", c.writes_in_flight);
  return flags;
}

std::vector<std::string> compiler_flags(bool waves) {
  std::vector<std::string> flags = {"-std=gnu++17",
                                    "-fPIC",
                                    "-w",
                                    "-march=native",
                                    "-fvisibility=hidden",
                                    "-DVERILATOR=1",
                                    "-DVM_COVERAGE=0",
                                    "-DVM_SC=0",
                                    "-DVM_TRACE_VCD=0",
                                    "-DTESSERA_RTL_MODEL=" + std::string(kPrefix),
                                    "-DTESSERA_RTL_ENTRY=" + std::string(kEntry)};
  for (const char* flag : {"-DVM_TRACE", "-DVM_TRACE_FST"}) flags.push_back(flag + std::string(waves ? "=1" : "=0"));
  if (waves) flags.push_back("-DTESSERA_RTL_WAVES");
  return flags;
}

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

std::vector<fs::path> rtl_sources(const fs::path& home) {
  std::vector<fs::path> sources;
  for (const char* folder : {"hw/rtl", "hw/prim"}) {
    for (const auto& entry : fs::directory_iterator(home / folder)) {
      if (entry.path().extension() == ".sv") sources.push_back(entry.path());
    }
  }
  std::sort(sources.begin(), sources.end());
  sources.insert(sources.begin(), home / "isa/generated/tsr_isa_pkg.sv");  // a package comes before its users
  return sources;
}

class FileLock {
 public:
  FileLock(const fs::path& path, const std::string& name)
      : fd_(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644)) {
    if (fd_ < 0) throw Error(ErrorCode::kIo, "cannot create '" + path.string() + "'; XDG_CACHE_HOME moves the cache");
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
    std::fprintf(stderr, "tessera: another process makes the machine '%s'; waiting for it\n", name.c_str());
    while (flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FileLock() { close(fd_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

/// Makes the library in `folder`, which is emptied first.
fs::path compile(const Tools& tools, const fs::path& home, const isa::MachineConfig& config, bool waves,
                 const fs::path& folder) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  const std::string log = folder.string() + ".log";
  fs::remove(log);
  std::vector<std::string> generate = {tools.verilator};
  for (const std::string& flag : verilator_flags(config, waves)) generate.push_back(flag);
  generate.insert(generate.end(), {"-Mdir", folder.string()});
  for (const fs::path& source : rtl_sources(home)) generate.push_back(source.string());
  run_all({generate}, 1, log);

  const fs::path include = fs::path(output_of({tools.verilator, "--getenv", "VERILATOR_ROOT"}, folder)) / "include";
  std::vector<fs::path> sources;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".cpp") sources.push_back(entry.path());
  }
  // Largest first: it takes longest.
  std::sort(sources.begin(), sources.end(),
            [](const fs::path& a, const fs::path& b) { return fs::file_size(a) > fs::file_size(b); });
  sources.push_back(home / "sim/verilator/model.cc");
  for (const char* name : {"verilated.cpp", "verilated_threads.cpp"}) sources.push_back(include / name);
  if (waves) sources.push_back(include / "verilated_fst_c.cpp");
  std::vector<std::vector<std::string>> commands;
  std::vector<std::string> link = {tools.compiler, "-shared", "-Wl,-Bsymbolic", "-o", (folder / "model.so").string()};
  for (const fs::path& source : sources) {
    const std::string object = (folder / (source.stem().string() + ".o")).string();
    const std::string name = source.filename().string();
    const bool slow = name.find("__Slow") != std::string::npos || name.find("__Syms") != std::string::npos ||
                      name.find("__Trace") != std::string::npos;
    std::vector<std::string> command = {tools.compiler, slow ? "-O0" : "-O3"};
    for (const std::string& flag : compiler_flags(waves)) command.push_back(flag);
    for (const fs::path& path : {folder, include, include / "vltstd", home / "sim/verilator"}) {
      command.push_back("-I" + path.string());
    }
    command.insert(command.end(), {"-c", "-o", object, source.string()});
    commands.push_back(std::move(command));
    link.push_back(object);
  }
  run_all(commands, std::max(1U, std::thread::hardware_concurrency()), log);
  link.insert(link.end(), {"-pthread"});
  if (waves) link.push_back("-lz");
  run_all({link}, 1, log);
  fs::remove(log);
  return folder / "model.so";
}

const TesseraRtlApi& load(const fs::path& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw Error(ErrorCode::kInternal, std::string("cannot load the machine: ") + dlerror());
  const auto entry = reinterpret_cast<const TesseraRtlApi* (*)()>(dlsym(handle, kEntry));
  if (entry == nullptr || entry()->version != kTesseraRtlApiVersion) {
    throw Error(ErrorCode::kInternal, "'" + library.string() + "' has another interface; remove it and try again");
  }
  return *entry();
}

}  // namespace

std::string rtl_home() {
  std::vector<fs::path> candidates;
  const std::string chosen = environment("TESSERA_RTL_HOME");
  if (!chosen.empty()) {
    candidates.push_back(chosen);
  } else {
    std::error_code error;
    const fs::path program = fs::read_symlink("/proc/self/exe", error);
    if (!error) candidates.push_back(program.parent_path().parent_path() / "share/tessera");
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void*>(&rtl_home), &info) != 0 && info.dli_fname != nullptr) {
      const fs::path library = fs::weakly_canonical(info.dli_fname, error);
      if (!error) candidates.push_back(library.parent_path().parent_path() / "share/tessera");
    }
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

const TesseraRtlApi& build_rtl(const isa::MachineConfig& config, bool waves) {
  static std::mutex mutex;
  static std::map<std::string, const TesseraRtlApi*> loaded;
  const std::lock_guard guard(mutex);

  const Tools tools = find_tools(config.name);
  const fs::path home = rtl_home(), cache = rtl_cache();
  std::error_code error;
  fs::create_directories(cache, error);
  if (error) {
    throw Error(ErrorCode::kIo, "cannot create '" + cache.string() + "' for verilated machines: " + error.message() +
                                    "; XDG_CACHE_HOME moves it");
  }
  Hash hash;
  for (const fs::path& source : rtl_sources(home)) {
    hash.add(source.filename().string());
    hash.add(read_file(source));
  }
  hash.add(read_file(home / "sim/verilator/model.cc"));
  hash.add(read_file(home / "sim/verilator/model_api.h"));
  for (const std::string& flag : verilator_flags(config, waves)) hash.add(flag);
  for (const std::string& flag : compiler_flags(waves)) hash.add(flag);
  hash.add(output_of({tools.verilator, "--version"}, cache));
  hash.add(output_of({tools.compiler, "--version"}, cache));
  hash.add(processor());
  const std::string key = hash.text();
  if (const auto found = loaded.find(key); found != loaded.end()) return *found->second;

  const fs::path library = cache / (key + ".so");
  if (!fs::exists(library)) {
    const FileLock lock(cache / (key + ".lock"), config.name);
    if (!fs::exists(library)) {
      std::fprintf(stderr, "tessera: verilating the machine '%s'%s, once; it stays in %s\n", config.name.c_str(),
                   waves ? " with waveforms" : "", cache.c_str());
      const auto begin = std::chrono::steady_clock::now();
      const fs::path folder = cache / key;
      fs::rename(compile(tools, home, config, waves, folder), library);
      fs::remove_all(folder);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      std::fprintf(stderr, "tessera: machine '%s' made in %.0f s\n", config.name.c_str(), seconds.count());
    }
  }
  const TesseraRtlApi& api = load(library);
  loaded[key] = &api;
  return api;
}

}  // namespace tessera::sim
