// SPDX-License-Identifier: Apache-2.0
// What a worker and the server that has started it say to each other on a socket: a length of four bytes, a kind, and
// so many bytes. The other end is tessera/python/tessera/serving/workers.py.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::driver {

enum class FrameKind : char {
  kMessage = 'M',  // to the worker: a request of the client
  kGo = 'G',       // to the worker: the answer to kTurn and kMemory, one byte
  kReply = 'R',    // for the client
  kDone = 'D',     // all replies to a request have been sent
  kTurn = 'T',     // may the worker run a program? 1: somebody else ran one since, 0: nobody did
  kEnd = 'E',      // it has run
  kMemory = 'B',   // may it have so many bytes (8 bytes, little-endian)? 1: yes
};

struct Frame {
  FrameKind kind = FrameKind::kMessage;
  std::string payload;
};

/// One end of a connected socket, which it owns. One thread receives, any thread sends.
class FrameSocket {
 public:
  explicit FrameSocket(int descriptor) : descriptor_(descriptor) {}
  ~FrameSocket();
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  /// The next frame; nothing when the other end is closed.
  std::optional<Frame> receive();
  /// False when the other end is closed.
  bool send(FrameKind kind, std::string_view payload = {});

 private:
  bool receive_exactly(char* to, size_t count);
  int descriptor_;
  std::mutex mutex_;
};

}  // namespace tessera::driver
