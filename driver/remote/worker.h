// SPDX-License-Identifier: Apache-2.0
// The process behind one client of a remote device. Enters: the client's requests, which may be anything, and the word
// of the server when a program may run. Leaves: replies. The worker owns the client's device, so what the client does
// to it concerns nobody else; it ends with its socket, in the midst of whatever it does.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tessera::driver {

struct WorkerSettings {
  std::string device;         // a backend of registry.h
  uint64_t memory_bytes = 0;  // the most that a client may ask for
  std::string cache;          // folder of a ContentStore; empty: none
  uint64_t cache_bytes = 0;
  bool builds = false;                         // device rtl may verilate machines
  std::map<std::string, std::string> options;  // of the device; a client cannot change them

  /// Lines of NAME=VALUE, options as option.NAME. Errors: kInvalidArgument.
  static WorkerSettings parse(std::string_view text);
};

/// Serves one client until the other end of the socket is closed, which it owns from now on. With `exits` the process
/// ends at that moment, without waiting for a program that runs.
void serve_client(int descriptor, const WorkerSettings& settings, bool exits);

/// Makes workers until the other end of this socket (SOCK_SEQPACKET) is closed: a message is the settings of one, with
/// the descriptor of its socket. To be called by a process with one thread.
void run_workers(int descriptor);

}  // namespace tessera::driver
