// SPDX-License-Identifier: Apache-2.0
// What this installation can do, and what is missing for the rest. Enters: nothing but the machine. Leaves: rows of a
// subject, whether it is there, and what is there or how to get it.
#pragma once

#include <string>

namespace tessera {

/// The rows as a table for people, or as JSON. Opens no device and changes nothing.
std::string doctor_report(bool as_json);

}  // namespace tessera
