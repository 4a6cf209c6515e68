// SPDX-License-Identifier: Apache-2.0
// What a process that uses the simulated board and the board say to each other. Enters: a connection to the board's
// socket (SOCK_SEQPACKET: one message is one datagram). The board greets with two descriptors: the card's memory, to be
// mapped, and a second socket on which it reports finished commands. After that the process sends a Request, some with
// a payload, and receives one Reply for each. Everything the process holds ends with its connection, so that a killed
// process leaves nothing behind. Both sides are of one build; the version guards against a stale library.
#pragma once

#include <array>
#include <cstdint>

namespace tessera::driver::emu {

inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr uint32_t kMaxMessageBytes = 8192;  // a Request and its payload
inline constexpr uint32_t kAllUnits = UINT32_MAX;   // a context on the card, not on a compute unit

/// The environment variable with the path of the board's socket.
inline constexpr const char* kBoardVariable = "TESSERA_BOARD";

enum class Op : uint32_t {
  kProgram,        // payload: Image, then its text; the card becomes what the image describes
  kOpenContext,    // unit, shared (0: exclusive)
  kCloseContext,   // unit
  kAllocate,       // bank, size -> address
  kFree,           // address
  kReadRegister,   // unit, offset -> value
  kWriteRegister,  // unit, offset, value
  kExecute,        // id; payload: the words of an ERT packet
  kAbort,          // id of a command of this connection
};

struct Request {
  uint32_t version = kProtocolVersion;
  Op op = Op::kProgram;
  uint32_t unit = 0;
  uint32_t bank = 0;
  uint32_t offset = 0;
  uint32_t value = 0;
  uint32_t shared = 0;
  uint32_t payload_bytes = 0;
  uint64_t size = 0;
  uint64_t address = 0;
  uint64_t id = 0;
};

/// Of Op::kProgram: which image and how many compute units; text_bytes of a configuration file follow.
struct Image {
  std::array<uint8_t, 16> uuid{};
  uint32_t units = 0;
  uint32_t text_bytes = 0;
};

struct Reply {
  int32_t error = 0;  // an errno value, 0 when done
  uint32_t value = 0;
  uint64_t address = 0;
  std::array<char, 240> message{};  // what went wrong, for people
};

/// The board's first message, with the descriptors of the memory and of the completions' socket.
struct Greeting {
  uint32_t version = kProtocolVersion;
  uint32_t clock_mhz = 0;
  uint64_t memory_base = 0;  // of the used bank
  uint64_t memory_bytes = 0;
};

/// On the second socket.
struct Completion {
  uint64_t id = 0;
  uint32_t state = 0;  // ert_cmd_state
  uint32_t reserved = 0;
};

// The values of ert.h that both sides use.
inline constexpr uint32_t kStartUnit = 0;     // ERT_START_CU
inline constexpr uint32_t kAbortCommand = 4;  // ERT_ABORT
inline constexpr uint32_t kStateCompleted = 4;
inline constexpr uint32_t kStateError = 5;
inline constexpr uint32_t kStateAborted = 6;

}  // namespace tessera::driver::emu
