// SPDX-License-Identifier: Apache-2.0
// Workers are forks of a process that has loaded everything and started nothing.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include <google/protobuf/stubs/logging.h>

#include "base/error.h"
#include "driver/remote/worker.h"

namespace tessera::driver {
namespace {

/// The next message and its descriptor; -1 when the other end is closed.
int receive(int descriptor, std::string& text) {
  std::array<char, 16384> bytes{};
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(descriptor, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (got <= 0 || header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
  text.assign(bytes.data(), static_cast<size_t>(got));
  int passed = -1;
  std::memcpy(&passed, CMSG_DATA(header), sizeof passed);
  return passed;
}

[[noreturn]] void become_worker(int client, const std::string& settings) {
  std::signal(SIGCHLD, SIG_DFL);  // the verilator of device rtl is a child
  // Where memory ends, the kernel takes a worker and not the server.
  if (std::FILE* file = std::fopen("/proc/self/oom_score_adj", "w")) {
    std::fputs("500", file);
    std::fclose(file);
  }
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  try {
    serve_client(client, WorkerSettings::parse(settings), true);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera: error (internal): a worker: %s\n", error.what());
    ::_exit(1);
  }
  ::_exit(0);
}

}  // namespace

void run_workers(int descriptor) {
  std::signal(SIGCHLD, SIG_IGN);  // nobody waits for workers
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE})
    std::signal(number, SIG_IGN);            // they end with their sockets
  google::protobuf::SetLogHandler(nullptr);  // what clients send wrongly is not for the server's log
  ::prctl(PR_SET_NAME, "tessera-workers");
  std::string settings;
  for (;;) {
    const int client = receive(descriptor, settings);
    if (client < 0) return;
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(descriptor);
      become_worker(client, settings);
    }
    if (child < 0) std::perror("tessera: a worker cannot be started");
    ::close(client);  // the server sees the end of it
  }
}

}  // namespace tessera::driver
