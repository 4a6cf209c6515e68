// SPDX-License-Identifier: Apache-2.0
// The interpreter is $TESSERA_PYTHON or the one that the build made the Python package for. The package is found before
// what PYTHONPATH names: in $TESSERA_PYTHON_PACKAGES, which the wheel's command sets, or in the build and in the
// sources.
#include "tessera/command/quantise.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace tessera {
namespace {

constexpr const char* kQuantiser = "tessera.quantization";

/// The variable, or what the build says where it is not set.
std::string either(const char* variable, const char* of_build) {
  const char* given = std::getenv(variable);
  return given != nullptr && *given != '\0' ? given : of_build;
}

void find_package() {
  const char* given = std::getenv("PYTHONPATH");
  const std::string own = either("TESSERA_PYTHON_PACKAGES", TESSERA_PYTHON_PACKAGES);
  const std::string path = given != nullptr && *given != '\0' ? own + ":" + given : own;
  ::setenv("PYTHONPATH", path.c_str(), 1);
}

[[noreturn]] void refuse(const std::string& python, int error) {
  throw Error(ErrorCode::kUnsupported,
              "the quantiser needs Python, and '" + python + "' cannot be started: " + std::strerror(error) +
                  "; name an interpreter that has numpy, onnx and onnxruntime in TESSERA_PYTHON");
}

/// The command line as exec takes it; the strings stay with `words`.
std::vector<char*> arguments_of(std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  return arguments;
}

/// `python -m module words`, but Ctrl-C ends it without a word until the module says what Ctrl-C does: Python would
/// write where it was among its imports. Where the caller has it ignored it stays so.
std::vector<std::string> line_of(const std::string& python, const std::string& module,
                                 const std::vector<std::string>& words) {
  const std::string script =
      "import signal\n"
      "if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:\n"
      "    signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
      "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])\n"
      "import runpy\n"
      "runpy.run_module('" +
      module + "', run_name='__main__', alter_sys=True)";
  std::vector<std::string> line = {python, "-c", script};
  line.insert(line.end(), words.begin(), words.end());
  return line;
}

/// Waits for a child and returns its exit status; 1 when a signal ended it.
int status_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

std::string quantiser_interpreter() { return either("TESSERA_PYTHON", TESSERA_PYTHON_EXECUTABLE); }

std::string output_of_python(const std::string& script) {
  const std::string python = quantiser_interpreter();
  find_package();
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw Error(ErrorCode::kIo, "cannot make a pipe");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<std::string> line = {python, "-c", script};
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, python.c_str(), &actions, nullptr, arguments_of(line).data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string said;
  std::array<char, 4096> some{};
  for (ssize_t count = 1; failed == 0 && (count > 0 || errno == EINTR);) {
    count = ::read(ends[0], some.data(), some.size());
    if (count > 0) said.append(some.data(), static_cast<size_t>(count));
    if (count == 0) break;
  }
  ::close(ends[0]);
  if (failed != 0) refuse(python, failed);
  if (status_of(child) != 0) throw Error(ErrorCode::kUnsupported, "'" + python + "' fails on a short script");
  return said;
}

void become_python(const std::string& module, const std::vector<std::string>& words) {
  const std::string python = quantiser_interpreter();
  find_package();
  std::vector<std::string> line = line_of(python, module, words);
  sigset_t interrupt;  // waits while Python starts
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  ::sigprocmask(SIG_BLOCK, &interrupt, nullptr);
  ::execvp(python.c_str(), arguments_of(line).data());
  const int failed = errno;
  ::sigprocmask(SIG_UNBLOCK, &interrupt, nullptr);
  refuse(python, failed);
}

QuantisedModel::QuantisedModel(const std::string& model, const std::vector<std::string>& words) {
  std::error_code error;
  std::string name = (std::filesystem::temp_directory_path(error) / "tessera_XXXXXX").string();
  if (error || ::mkdtemp(name.data()) == nullptr)
    throw Error(ErrorCode::kIo, "cannot make a temporary folder for the quantised model");
  folder_ = name;
  const std::string python = quantiser_interpreter();
  find_package();
  std::vector<std::string> line = line_of(python, kQuantiser, {model, "-o", path()});
  line.insert(line.end(), words.begin(), words.end());
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, python.c_str(), nullptr, nullptr, arguments_of(line).data(), environ);
  if (failed != 0) {
    std::filesystem::remove_all(folder_, error);
    refuse(python, failed);
  }
  status_ = status_of(child);
}

QuantisedModel::~QuantisedModel() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace tessera
