// SPDX-License-Identifier: Apache-2.0
// posix_spawn, with nothing on standard input; a shell has no part in it, so that no character of a path is special.
#include "sim/verilator/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

extern char** environ;

namespace tessera::sim {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

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

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, "cannot read '" + path.string() + "'");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

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

FileLock::FileLock(const fs::path& path, const std::string& name)
    : fd_(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644)) {
  if (fd_ < 0) throw Error(ErrorCode::kIo, "cannot create '" + path.string() + "'; XDG_CACHE_HOME moves the cache");
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  std::fprintf(stderr, "tessera: another process makes the machine '%s'; waiting for it\n", name.c_str());
  while (flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

FileLock::~FileLock() { close(fd_); }

Library::Library(const fs::path& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) throw Error(ErrorCode::kInternal, std::string("cannot load the machine: ") + dlerror());
}

Library::~Library() {
  if (handle_ != nullptr) dlclose(handle_);
}

}  // namespace tessera::sim
