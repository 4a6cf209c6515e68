// SPDX-License-Identifier: Apache-2.0
#include "driver/remote/frames.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tessera::driver {

FrameSocket::~FrameSocket() { ::close(descriptor_); }

bool FrameSocket::receive_exactly(char* to, size_t count) {
  while (count > 0) {
    const ssize_t got = ::recv(descriptor_, to, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    count -= static_cast<size_t>(got);
  }
  return true;
}

std::optional<Frame> FrameSocket::receive() {
  std::array<char, 5> header{};
  if (!receive_exactly(header.data(), header.size())) return std::nullopt;
  uint32_t length = 0;
  std::memcpy(&length, header.data(), sizeof length);
  Frame frame;
  frame.kind = static_cast<FrameKind>(header[4]);
  frame.payload.resize(length);
  if (!receive_exactly(frame.payload.data(), length)) return std::nullopt;
  return frame;
}

bool FrameSocket::send(FrameKind kind, std::string_view payload) {
  std::array<char, 5> header{};
  const auto length = static_cast<uint32_t>(payload.size());
  std::memcpy(header.data(), &length, sizeof length);
  header[4] = static_cast<char>(kind);
  const std::lock_guard lock(mutex_);
  const auto write = [&](std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t put = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(put));
    }
    return true;
  };
  return write({header.data(), header.size()}) && write(payload);
}

}  // namespace tessera::driver
