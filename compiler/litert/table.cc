// SPDX-License-Identifier: Apache-2.0
#include "compiler/litert/table.h"

#include "base/error.h"

namespace tessera::litert {

void fail_damaged() {
  throw Error(ErrorCode::kInvalidModel,
              "not a LiteRT model, or a truncated or damaged one: an offset leads out of the file");
}

Table::Table(Bytes file, uint64_t position) : file_(file), position_(position) {
  // The virtual table stands before or behind, at a signed distance.
  const int64_t vtable = static_cast<int64_t>(position) - load<int32_t>(file, position);
  if (vtable < 0) fail_damaged();
  vtable_ = static_cast<uint64_t>(vtable);
  vtable_bytes_ = load<uint16_t>(file, vtable_);
  part(file, vtable_, vtable_bytes_);
}

uint16_t Table::offset_of(uint16_t number) const {
  const uint32_t at = 4U + 2U * number;
  return at + 2U > vtable_bytes_ ? uint16_t{0} : load<uint16_t>(file_, vtable_ + at);
}

}  // namespace tessera::litert
