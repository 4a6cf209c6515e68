// SPDX-License-Identifier: Apache-2.0
// Messages between a client of a remote device and its worker, beside their schema: reports of runs to messages and
// back, digests, and limits that both sides know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "driver/device.h"
#include "driver/remote/messages.pb.h"

namespace tessera::driver {

inline constexpr uint32_t kProtocol = 2;
inline constexpr size_t kPieceBytes = size_t{1} << 20;    // of data in one message
inline constexpr size_t kLeastContent = size_t{4} << 10;  // smaller ones are sent and not offered

/// BLAKE2b of 32 bytes, with a key or without.
std::string digest(std::span<const uint8_t> bytes, const std::string& key = {});

/// A key that nobody can guess.
std::string random_key();

remote::RunReport to_message(const RunReport& report);

/// Errors: kIo for a message that is no report.
RunReport to_report(const remote::RunReport& message);

}  // namespace tessera::driver
