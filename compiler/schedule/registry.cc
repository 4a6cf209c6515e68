// SPDX-License-Identifier: Apache-2.0
// Refused registrations, until somebody asks.
#include "compiler/schedule/registry.h"

#include <utility>

namespace tessera::schedule {
namespace {

std::string& refused() {
  static std::string messages;
  return messages;
}

}  // namespace

void guarded_registration(const std::function<void()>& registration) {
  try {
    registration();
  } catch (const Error& error) {
    refused() += (refused().empty() ? "" : "; ") + std::string(error.what());
  }
}

std::string take_registration_errors() { return std::exchange(refused(), {}); }

}  // namespace tessera::schedule
