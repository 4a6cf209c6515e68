// SPDX-License-Identifier: Apache-2.0
// How much of what a stream fetches may still stand on the chip: an estimate from above in one pass, which costs a
// small part of what following each byte costs (stream_values.h). A stream enters, one instruction at a time; bytes
// leave.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "compiler/emit/work.h"
#include "compiler/npu/values/byte_set.h"
#include "compiler/npu/values/stream_values.h"
#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::npu {

/// Of each part of the arena it knows the last transfer that moved it and where its first byte stood on the chip. A
/// LOAD may find its bytes where nothing has been written there since.
class Standing {
 public:
  explicit Standing(const isa::MachineConfig& config);

  void run(const isa::Instruction& instruction, const emit::Work& work);
  /// Of all LOADs that may find all their bytes.
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr int64_t kPage = 4096, kPart = 64;  // bytes of the arena
  struct Source {
    uint32_t time = 0, entry = 0;  // time 0: none; the entry: OUT behind INP
  };
  using Page = std::array<Source, kPage / kPart>;

  bool stands(const Source& source) const { return source.time != 0 && written_[source.entry] <= source.time; }
  /// Calls visit(its source, the first byte of it that is moved) of each part of the arena until it says false.
  template <typename Visit>
  void each_part(const Runs& runs, Visit&& visit);

  const isa::MachineConfig& config_;
  const int64_t entry_bytes_;
  std::vector<uint32_t> written_;  // when each entry was written last
  Pages<Page> arena_;
  uint32_t time_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace tessera::npu
