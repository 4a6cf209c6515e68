// SPDX-License-Identifier: Apache-2.0
// Transfers as nests of runs. Loops whose strides continue a run on both sides are merged into it, so that a contiguous
// block is one memcpy. Padding splits loops 0 and 1 into leading, middle and trailing parts, executed in program order,
// because later runs may overwrite earlier ones.
#include "sim/functional/engines/transfer.h"

#include <array>
#include <cstddef>
#include <cstring>

namespace tessera::sim {
namespace {

constexpr int kLoops = isa::kTransferLoops;

/// A nest of runs: `to` and `from` advance by their strides. Fills have from strides 0 and no source.
struct Runs {
  std::array<int64_t, kLoops> extent{1, 1, 1, 1};
  std::array<int64_t, kLoops> to_stride{};
  std::array<int64_t, kLoops> from_stride{};
  int64_t length = 0;

  /// Merges loops, innermost first, that continue the run. `fill` ignores the source side.
  void merge(bool fill) {
    int kept = kLoops;  // loops [kept, kLoops) stand packed at the inner end
    for (int k = kLoops - 1; k >= 0; --k) {
      if (extent[k] == 1) continue;
      if (kept == kLoops && to_stride[k] == length && (fill || from_stride[k] == length)) {
        length *= extent[k];
        continue;
      }
      --kept;
      extent[kept] = extent[k];
      to_stride[kept] = to_stride[k];
      from_stride[kept] = from_stride[k];
    }
    for (int k = 0; k < kept; ++k) {
      extent[k] = 1;
      to_stride[k] = from_stride[k] = 0;
    }
  }

  template <typename Body>
  void for_each(Body&& body) const {
    for (int64_t i0 = 0; i0 < extent[0]; ++i0) {
      for (int64_t i1 = 0; i1 < extent[1]; ++i1) {
        for (int64_t i2 = 0; i2 < extent[2]; ++i2) {
          int64_t to = i0 * to_stride[0] + i1 * to_stride[1] + i2 * to_stride[2];
          int64_t from = i0 * from_stride[0] + i1 * from_stride[1] + i2 * from_stride[2];
          for (int64_t i3 = 0; i3 < extent[3]; ++i3, to += to_stride[3], from += from_stride[3]) body(to, from);
        }
      }
    }
  }
};

void copy(Runs runs, uint8_t* to, const uint8_t* from) {
  runs.merge(false);
  const auto length = static_cast<size_t>(runs.length);
  runs.for_each([&](int64_t to_at, int64_t from_at) { std::memcpy(to + to_at, from + from_at, length); });
}

void fill(Runs runs, uint8_t* to, uint8_t value) {
  runs.merge(true);
  const auto length = static_cast<size_t>(runs.length);
  runs.for_each([&](int64_t to_at, int64_t) { std::memset(to + to_at, value, length); });
}

/// The part of a loop that is neither leading nor trailing padding.
int64_t middle(const isa::Load& load, int loop) {
  return int64_t{load.extent[loop]} - load.pad_before[loop] - load.pad_after[loop];
}

}  // namespace

void run_load(const isa::Load& load, uint8_t* scratchpad, const uint8_t* dram) {
  Runs runs;
  for (int k = 0; k < kLoops; ++k) {
    runs.extent[k] = load.extent[k];
    runs.to_stride[k] = load.sp_stride[k];
    runs.from_stride[k] = load.dram_stride[k];
  }
  runs.length = load.length;
  uint8_t* to = scratchpad + load.sp_addr;
  if (load.fill) {
    fill(runs, to, load.pad_value);
    return;
  }
  // A nest with `count` iterations of a loop.
  const auto part = [](Runs r, int loop, int64_t count) {
    r.extent[loop] = count;
    return r;
  };
  // Loop 1 of a nest whose loop 0 is not padding.
  const auto padded_rows = [&](const Runs& r, uint8_t* row, int64_t source) {
    const int64_t before = load.pad_before[1];
    const int64_t inside = middle(load, 1);
    if (before > 0) fill(part(r, 1, before), row, load.pad_value);
    if (inside > 0) copy(part(r, 1, inside), row + before * r.to_stride[1], dram + source);
    if (load.pad_after[1] > 0) {
      fill(part(r, 1, load.pad_after[1]), row + (before + inside) * r.to_stride[1], load.pad_value);
    }
  };
  const int64_t before = load.pad_before[0];
  const int64_t inside = middle(load, 0);
  if (before > 0) fill(part(runs, 0, before), to, load.pad_value);
  if (load.pad_before[1] == 0 && load.pad_after[1] == 0) {
    if (inside > 0) copy(part(runs, 0, inside), to + before * runs.to_stride[0], dram);
  } else {
    const Runs row = part(runs, 0, 1);
    for (int64_t i = 0; i < inside; ++i) {
      padded_rows(row, to + (before + i) * runs.to_stride[0], i * runs.from_stride[0]);
    }
  }
  if (load.pad_after[0] > 0) {
    fill(part(runs, 0, load.pad_after[0]), to + (before + inside) * runs.to_stride[0], load.pad_value);
  }
}

void run_packed_load(const isa::Load& load, const isa::MachineConfig& config, uint8_t* weights, const uint8_t* dram) {
  Runs entries;
  for (int k = 0; k < kLoops; ++k) {
    entries.extent[k] = load.extent[k];
    entries.to_stride[k] = load.sp_stride[k];
    entries.from_stride[k] = load.dram_stride[k];
  }
  const int header = config.packed_header_bytes(), row_bytes = config.block_in / 2;
  entries.for_each([&](int64_t to_at, int64_t from_at) {
    const uint8_t* scales = dram + from_at;
    const uint8_t* from = scales + header;
    uint8_t* to = weights + load.sp_addr + to_at;
    for (int row = 0; row < config.block_out; ++row) {
      const int scale = 1 + (scales[row / 2] >> (row % 2 * 4) & 15);
      for (int n = 0; n < row_bytes; ++n, ++from) {
        *to++ = static_cast<uint8_t>(((*from & 15) ^ 8) * scale - 8 * scale);
        *to++ = static_cast<uint8_t>(((*from >> 4) ^ 8) * scale - 8 * scale);
      }
    }
  });
}

void run_store(const isa::Store& store, const uint8_t* scratchpad, uint8_t* dram) {
  Runs runs;
  for (int k = 0; k < kLoops; ++k) {
    runs.extent[k] = store.extent[k];
    runs.to_stride[k] = store.dram_stride[k];
    runs.from_stride[k] = store.sp_stride[k];
  }
  runs.length = store.length;
  copy(runs, dram, scratchpad + store.sp_addr);
}

}  // namespace tessera::sim
