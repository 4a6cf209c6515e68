// SPDX-License-Identifier: Apache-2.0
// How an operation is run on a chip of several cores: how its result is divided among them, and what each core's part
// is run by.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/schedule/chain.h"

namespace tessera::schedule {

inline constexpr std::array<std::string_view, 4> kDivisionAxes = {"images", "rows", "columns", "channels"};

/// How a result is divided: an axis and the first element behind each core's share; without an axis `core` makes all.
struct Division {
  std::optional<size_t> axis;
  std::vector<int64_t> ends;
  size_t core = 0;
  std::optional<bool>
      own;  // whether each core makes what it reads of the result, or awaits it; nothing: what is cheaper
  bool operator==(const Division&) const = default;
};

/// With the schedules of the parts by core; nothing where a core has none or the compiler is to choose.
struct DividedSchedule {
  Division division;
  std::vector<std::optional<LayerSchedule>> cores;
};

}  // namespace tessera::schedule
