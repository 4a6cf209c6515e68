// SPDX-License-Identifier: Apache-2.0
// Verilator generates, the compiler makes objects side by side, the linker a library whose only symbol is the entry.
// With a profile objects are made twice: the first ones count branches while they run the training program, the second
// ones are laid out by these counts. Everything happens in a folder of its own under a file lock; the finished library
// appears by a rename.
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
#include "sim/verilator/training.h"

extern char** environ;

namespace tessera::sim {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEntry = "tessera_rtl_entry";
constexpr const char* kWriteProfile = "tessera_rtl_write_profile";

constexpr const char* kNoProfile = "; slower than it could be: the compiler is not GCC, which makes it by a profile";

using Command = std::vector<std::string>;

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

/// Starts a program in a folder; its output goes to the end of `log`.
pid_t start(const Command& command, const fs::path& folder, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  pid_t pid = -1;
  const int status = posix_spawnp(&pid, command[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (status != 0) throw Error(ErrorCode::kInternal, "cannot start '" + command[0] + "'");
  return pid;
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, "cannot read '" + path.string() + "'");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Runs commands side by side in a folder, at most `jobs`. Errors: kInternal when one fails, with the end of the log.
void run_all(const std::vector<Command>& commands, unsigned jobs, const fs::path& folder, const std::string& log) {
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
    running.push_back(start(command, folder, log));
  }
  while (!running.empty()) finish_one();
  if (!failed) return;
  std::string text = read_file(log);
  if (text.size() > 1000) text = "..." + text.substr(text.size() - 1000);
  throw Error(ErrorCode::kInternal, "the machine could not be built; all output is in '" + log + "':\n" + text);
}

std::string output_of(const Command& command, const fs::path& folder) {
  const std::string file = (folder / ("tool." + std::to_string(getpid()))).string();
  fs::remove(file);
  run_all({command}, 1, folder, file);
  std::string text = read_file(file);
  fs::remove(file);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

struct Tools {
  std::string verilator;
  Command compiler;  // with what stands before and behind it: a compiler cache, flags of all sources
};

Tools find_tools(const std::string& name) {
  Tools tools;
  tools.verilator = find_program("verilator");
  for (const std::string& candidate :
       {environment("CXX"), std::string("c++"), std::string("g++"), std::string("clang++")}) {
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

/// What is made: a model class and the function that leaves it.
struct Model {
  const isa::MachineConfig& config;
  std::string prefix = "Vtessera_npu";
  std::string entry = kEntry;
  bool waves = false;
  bool profile = false;  // where the compiler can
};

/// Parameters of tsr_top; the linter's rules are a matter of the sources and not of a user's configuration.
Command verilator_flags(const Model& model) {
  const isa::MachineConfig& c = model.config;
  Command flags = {"--cc",
                   "--top-module",
                   "tsr_top",
                   "--prefix",
                   model.prefix,
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
  if (model.waves) flags.insert(flags.end(), {"--trace-fst", "--trace-max-width", "1024"});
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

Command compiler_flags(const Model& model) {
  Command flags = {"-std=gnu++17",
                   "-fPIC",
                   "-w",
                   "-march=native",
                   "-fvisibility=hidden",
                   "-DVERILATOR=1",
                   "-DVM_COVERAGE=0",
                   "-DVM_SC=0",
                   "-DVM_TRACE_VCD=0",
                   "-DTESSERA_RTL_MODEL=" + model.prefix,
                   "-DTESSERA_RTL_ENTRY=" + model.entry};
  for (const char* flag : {"-DVM_TRACE", "-DVM_TRACE_FST"}) {
    flags.push_back(flag + std::string(model.waves ? "=1" : "=0"));
  }
  if (model.waves) flags.push_back("-DTESSERA_RTL_WAVES");
  return flags;
}

/// The same compilation must be given to both, or the counts do not fit.
const Command kCount = {"-fprofile-generate"};
const Command kUseCounts = {"-fprofile-use", "-Wno-missing-profile"};

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

/// A library in this process until the object goes.
class Library {
 public:
  explicit Library(const fs::path& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw Error(ErrorCode::kInternal, std::string("cannot load the machine: ") + dlerror());
  }
  ~Library() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  template <typename F>
  F* symbol(const std::string& name) const {
    const auto found = reinterpret_cast<F*>(dlsym(handle_, name.c_str()));
    if (found == nullptr) throw Error(ErrorCode::kInternal, "a verilated machine without " + name);
    return found;
  }
  void keep() { handle_ = nullptr; }

 private:
  void* handle_;
};

/// One making of a model in a folder of its own, which is emptied first and goes away at the end, but for its log when
/// something fails.
class Making {
 public:
  Making(const Tools& tools, const fs::path& home, const Model& model, const fs::path& folder, unsigned jobs)
      : tools_(tools), home_(home), model_(model), folder_(folder), log_(folder.string() + ".log"), jobs_(jobs) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::remove(log_);
  }

  /// Leaves the objects, relative to the folder.
  Command objects() {
    generate();
    Command objects = compile(slow_, "-O0", {});
    append(objects, compile(support_, "-O3", {}));
    const bool counted = model_.profile && train_on(objects);
    append(objects, compile({pins()}, "-O3", {}));
    append(objects, compile(fast_, "-O3", counted ? kUseCounts : Command{}));
    return objects;
  }

  void run(Command command) { run_all({std::move(command)}, 1, folder_, log_); }

  void link(const Command& objects, const std::string& library, const Command& flags = {}) {
    Command command = tools_.compiler;
    append(command, {"-shared", "-Wl,-Bsymbolic", "-o", library});
    append(command, flags);
    append(command, objects);
    command.push_back("-pthread");
    if (model_.waves) command.push_back("-lz");
    run(command);
  }

  void finish() {
    fs::remove_all(folder_);
    fs::remove(log_);
  }

 private:
  static void append(Command& command, const Command& more) { command.insert(command.end(), more.begin(), more.end()); }

  /// The model's C++, sorted by how it is compiled.
  void generate() {
    Command command = {tools_.verilator};
    append(command, verilator_flags(model_));
    append(command, {"-Mdir", folder_.string()});
    for (const fs::path& source : rtl_sources(home_)) command.push_back(source.string());
    run(command);
    include_ = fs::path(output_of({tools_.verilator, "--getenv", "VERILATOR_ROOT"}, folder_)) / "include";
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() != ".cpp") continue;
      const std::string name = entry.path().filename().string();
      const bool slow = name.find("__Slow") != std::string::npos || name.find("__Syms") != std::string::npos ||
                        name.find("__Trace") != std::string::npos;
      (slow ? slow_ : fast_).push_back(entry.path());
    }
    for (std::vector<fs::path>* sources : {&slow_, &fast_}) {  // largest first: it takes longest
      std::sort(sources->begin(), sources->end(), [](const fs::path& a, const fs::path& b) {
        return std::pair(fs::file_size(b), a) < std::pair(fs::file_size(a), b);
      });
    }
    support_ = {include_ / "verilated.cpp", include_ / "verilated_threads.cpp"};
    if (model_.waves) support_.push_back(include_ / "verilated_fst_c.cpp");
  }

  Command compile(const std::vector<fs::path>& sources, const std::string& level, const Command& flags) {
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

  fs::path pins() const { return home_ / "sim/verilator/model.cc"; }

  /// Trains a machine of these objects and such that count. False, and a line on standard error, when it left no
  /// counts.
  bool train_on(Command objects) {
    try {
      append(objects, compile({pins()}, "-O3", {"-DTESSERA_RTL_WRITE_PROFILE=" + std::string(kWriteProfile)}));
      append(objects, compile(fast_, "-O3", kCount));
      link(objects, "training.so", kCount);
      const Library library(folder_ / "training.so");
      train(model_.config, *library.symbol<const TesseraRtlApi*()>(model_.entry)());
      library.symbol<void()>(kWriteProfile)();
      for (const auto& entry : fs::directory_iterator(folder_)) {
        if (entry.path().extension() == ".gcda") return true;
      }
      throw Error(ErrorCode::kInternal, "its training left no counts");
    } catch (const std::exception& error) {
      const std::string text = error.what();
      std::fprintf(stderr, "tessera: machine '%s' is made without a profile and will be slower: %s\n",
                   model_.config.name.c_str(), text.substr(0, text.find('\n')).c_str());
      return false;
    }
  }

  const Tools& tools_;
  const fs::path& home_;
  const Model& model_;
  const fs::path folder_;
  const std::string log_;
  const unsigned jobs_;
  fs::path include_;
  std::vector<fs::path> slow_, fast_, support_;
};

const TesseraRtlApi& load(const fs::path& path) {
  Library library(path);
  const TesseraRtlApi* api = library.symbol<const TesseraRtlApi*()>(kEntry)();
  if (api->version != kTesseraRtlApiVersion) {
    throw Error(ErrorCode::kInternal, "'" + path.string() + "' has another interface; remove it and try again");
  }
  library.keep();
  return *api;
}

/// Of everything the model depends on. `folder`: for the tools' output. Decides, too, whether there can be a profile.
std::string key_of(const Tools& tools, const fs::path& home, Model& model, const fs::path& folder) {
  Hash hash;
  for (const fs::path& source : rtl_sources(home)) {
    hash.add(source.filename().string());
    hash.add(read_file(source));
  }
  hash.add(read_file(home / "sim/verilator/model.cc"));
  hash.add(read_file(home / "sim/verilator/model_api.h"));
  Command compiler = tools.compiler;
  compiler.push_back("--version");
  const std::string version = output_of(compiler, folder);
  model.profile = model.profile && !model.waves && version.find("Free Software Foundation") != std::string::npos;
  hash.add(output_of({tools.verilator, "--version"}, folder));
  hash.add(version);
  std::vector<Command> flags = {tools.compiler, verilator_flags(model), compiler_flags(model)};
  if (model.profile) {
    flags.push_back(kCount);
    flags.push_back(kUseCounts);
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
  const fs::path home = fs::absolute(rtl_home()), cache = fs::absolute(rtl_cache());
  std::error_code error;
  fs::create_directories(cache, error);
  if (error) {
    throw Error(ErrorCode::kIo, "cannot create '" + cache.string() + "' for verilated machines: " + error.message() +
                                    "; XDG_CACHE_HOME moves it");
  }
  const bool profile = environment("TESSERA_RTL_PROFILE") == "1";
  Model model{.config = config, .waves = waves, .profile = profile};
  const std::string key = key_of(tools, home, model, cache);
  if (const auto found = loaded.find(key); found != loaded.end()) return *found->second;

  const fs::path library = cache / (key + ".so");
  if (!fs::exists(library)) {
    const FileLock lock(cache / (key + ".lock"), config.name);
    if (!fs::exists(library)) {
      std::fprintf(stderr, "tessera: verilating the machine '%s'%s, once; it stays in %s%s\n", config.name.c_str(),
                   waves ? " with waveforms" : "", cache.c_str(),
                   profile && !waves && !model.profile ? kNoProfile : "");
      const auto begin = std::chrono::steady_clock::now();
      Making making(tools, home, model, cache / key, std::max(1U, std::thread::hardware_concurrency()));
      making.link(making.objects(), "model.so");
      fs::rename(cache / key / "model.so", library);
      making.finish();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      std::fprintf(stderr, "tessera: machine '%s' made in %.0f s\n", config.name.c_str(), seconds.count());
    }
  }
  const TesseraRtlApi& api = load(library);
  loaded[key] = &api;
  return api;
}

void build_rtl_archive(const RtlArchive& wanted) {
  const fs::path home = TESSERA_RTL_SOURCE, archive = fs::absolute(wanted.path), folder = archive.string() + ".made";
  Tools tools = find_tools(wanted.config.name);
  tools.compiler = wanted.compiler;
  Model model{.config = wanted.config,
              .prefix = "V" + wanted.name,
              .entry = std::string(kEntry) + "_" + wanted.name,
              .profile = wanted.profile};
  const std::string key = key_of(tools, home, model, archive.parent_path());
  const fs::path stamp = archive.string() + ".key";
  if (fs::exists(archive) && fs::exists(stamp) && read_file(stamp) == key) {
    fs::last_write_time(archive, fs::file_time_type::clock::now());
    return;
  }
  fs::remove(stamp);
  if (wanted.profile && !model.profile) std::fprintf(stderr, "make_rtl_model: %s%s\n", wanted.name.c_str(), kNoProfile);
  Making making(tools, home, model, folder, wanted.jobs);
  Command command = {wanted.archiver, "rcs", "model.a"};
  for (const std::string& object : making.objects()) command.push_back(object);
  making.run(command);
  fs::rename(folder / "model.a", archive);
  std::ofstream(stamp) << key;
  making.finish();
}

}  // namespace tessera::sim
