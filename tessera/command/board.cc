// SPDX-License-Identifier: Apache-2.0
// A folder with the socket and the image, the environment, a child process, and the server in this one until the child
// has ended. Signals arrive through a descriptor that the server watches.
#include "tessera/command/board.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "driver/xrt_emu/xclbin.h"
#include "isa/config.h"
#ifdef TESSERA_HAS_BOARD
#include "driver/simulated_device.h"
#include "driver/xrt_emu/board.h"
#endif

namespace tessera {

#ifndef TESSERA_HAS_BOARD

int run_board(const BoardCommand& board) {
  if (!board.write_xclbin.empty()) {
    driver::write_xclbin(board.write_xclbin, isa::find_config(board.config), board.units);
    return 0;
  }
  throw Error(
      ErrorCode::kUnsupported,
      "this build has no simulated board: it needs the packages libxrt-dev, uuid-dev and verilator (./dev setup "
      "installs them) and a new build");
}

#else

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorCode::kIo, what + ": " + std::strerror(errno)); }

/// A folder of one's own that ends with the object.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tessera-board-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) fail("cannot make a folder like '" + name + "'");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

fs::path program_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) throw Error(ErrorCode::kIo, "cannot find this program's own file: " + error.message());
  return program.parent_path();
}

/// The folder that XRT takes for its installation, with the simulated card's library.
fs::path xrt_root() {
  const fs::path root = program_folder().parent_path() / "lib/tessera/xrt";
  const fs::path library = root / "lib/libxrt_hwemu.so.2";
  if (!fs::exists(library)) {
    throw Error(
        ErrorCode::kIo,
        "'" + library.string() +
            "' is missing beside this program: the simulated board comes with a build (./dev build), not with a "
            "wheel");
  }
  return root;
}

pid_t start(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment,
            const sigset_t& signals) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) fail("cannot start '" + command[0] + "'");
  if (child != 0) return child;
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // a command without its card would only fail
  if (getppid() != parent) _exit(1);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  execvp(words[0], words.data());
  std::fprintf(stderr, "tessera: error (io): cannot run '%s': %s\n", words[0], std::strerror(errno));
  _exit(127);
}

}  // namespace

int run_board(const BoardCommand& board) {
  const isa::MachineConfig config = isa::find_config(board.config);
  if (config.cores > 1)
    throw Error(ErrorCode::kUnsupported, "the simulated board holds machines of one core, and '" + config.name +
                                             "' has " + std::to_string(config.cores));
  if (!board.write_xclbin.empty()) {
    driver::write_xclbin(board.write_xclbin, config, board.units);
    return 0;
  }
  const Folder folder;
  driver::write_xclbin((folder.path() / (config.name + ".xclbin")).string(), config, board.units);
  driver::BoardOptions options;
  options.socket_path = (folder.path() / "socket").string();
  options.verbose = board.verbose;
  if (board.latency_cycles > 0) options.memory["latency"] = std::to_string(board.latency_cycles);
  if (!board.dram.empty()) options.memory["dram"] = board.dram;
  if (board.bandwidth_bytes > 0) options.memory["bandwidth"] = std::to_string(board.bandwidth_bytes);

  driver::DeviceOptions memory;
  memory.backend = options.memory;
  driver::dram_options("board", config, memory, true, {});  // a wrong one ends this before the command starts

  const char* path = std::getenv("PATH");
  const std::map<std::string, std::string> environment = {
      {"TESSERA_BOARD", options.socket_path},
      {"TESSERA_XCLBIN", folder.path().string()},
      {"XILINX_XRT", xrt_root().string()},
      {"XCL_EMULATION_MODE", "hw_emu"},
      {"PATH", (path == nullptr ? std::string("/usr/bin:/bin") : std::string(path)) + ":" + program_folder().string()}};

  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  if (sigprocmask(SIG_BLOCK, &signals, nullptr) != 0) fail("sigprocmask");
  const int arrived = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (arrived < 0) fail("signalfd");

  driver::Board card(options);  // listens before the command starts
  pid_t child = -1;
  if (board.command.empty()) {
    for (const auto& [name, value] : environment) {
      if (name != "PATH") std::printf("export %s='%s'\n", name.c_str(), value.c_str());
    }
    std::printf("# The simulated board serves programs with this environment until Ctrl-C.\n");
    std::fflush(stdout);
  } else {
    child = start(board.command, environment, signals);
  }
  for (;;) {
    card.serve(arrived);
    signalfd_siginfo info;
    while (read(arrived, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo != SIGCHLD) {
        if (child < 0) return 0;
        if (info.ssi_signo != SIGINT) kill(child, static_cast<int>(info.ssi_signo));  // Ctrl-C reaches both
        continue;
      }
      int status = 0;
      while (true) {
        const pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended <= 0) break;
        if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
    }
  }
}

#endif

}  // namespace tessera
