// SPDX-License-Identifier: Apache-2.0
// The programs that make a machine, the files they leave, and the library in this process. Enters: commands. Leaves:
// their output, an exception that shows the end of the log, or symbols of a loaded library.
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"

namespace tessera::sim {

/// A program and its arguments.
using Command = std::vector<std::string>;

/// The variable's value; empty when there is none.
std::string environment(const char* name);

/// The path of a program; empty when there is none.
std::string find_program(const std::string& name);

/// All bytes. Errors: kIo.
std::string read_file(const std::filesystem::path& path);

/// Runs commands side by side in a folder, at most `jobs`; their output goes to the end of the file `log`. Errors:
/// kInternal when one fails, with the end of the log.
void run_all(const std::vector<Command>& commands, unsigned jobs, const std::filesystem::path& folder,
             const std::string& log);

/// What a command prints, without the last line's end. Errors: as run_all.
std::string output_of(const Command& command, const std::filesystem::path& folder);

/// A lock between processes, held until the object goes. Waits, and says so, when another process has it.
class FileLock {
 public:
  /// `name`: of the machine, for the message. Errors: kIo when the file cannot be created.
  FileLock(const std::filesystem::path& path, const std::string& name);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

/// A library in this process until the object goes. Errors: kInternal when it cannot be loaded or lacks a symbol.
class Library {
 public:
  explicit Library(const std::filesystem::path& path);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  template <typename F>
  F* symbol(const std::string& name) const {
    const auto found = reinterpret_cast<F*>(dlsym(handle_, name.c_str()));
    if (found == nullptr) throw Error(ErrorCode::kInternal, "a verilated machine without " + name);
    return found;
  }
  /// The library stays when the object goes.
  void keep() { handle_ = nullptr; }

 private:
  void* handle_;
};

}  // namespace tessera::sim
