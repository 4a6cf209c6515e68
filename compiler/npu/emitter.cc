// SPDX-License-Identifier: Apache-2.0
// Constants stored once, tables loaded once, slots placed one nest after the other.
#include "compiler/npu/emitter.h"

#include <algorithm>

#include "base/error.h"
#include "compiler/npu/legalise.h"

namespace tessera::npu {

namespace {

uint64_t hash_of(const std::vector<uint8_t>& bytes) {
  uint64_t hash = 1469598103934665603ull;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 1099511628211ull;
  return hash;
}

}  // namespace

int64_t ConstantPool::add(std::vector<uint8_t> bytes) {
  const uint64_t hash = hash_of(bytes);
  const auto size = static_cast<int64_t>(bytes.size());
  const auto [first, last] = known_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const auto [offset, length] = it->second;
    if (length == size && std::equal(bytes.begin(), bytes.end(), bytes_.begin() + offset)) return offset;
  }
  bytes_.resize(static_cast<size_t>((static_cast<int64_t>(bytes_.size()) + alignment_ - 1) / alignment_ * alignment_),
                0);
  const auto offset = static_cast<int64_t>(bytes_.size());
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  known_.emplace(hash, std::pair{offset, size});
  return offset;
}

int64_t ConstantPool::reserve(int64_t bytes) {
  // Beyond whatever add() will fill: nothing is kept there.
  reserved_ += (bytes + alignment_ - 1) / alignment_ * alignment_;
  return kReserved + reserved_;
}

int64_t Emitter::reserve(isa::Space space, int64_t total, int64_t first) {
  const int64_t depth = config.depth(space);
  TESSERA_INVARIANT(total <= depth, "a schedule reserves more than a scratchpad");
  const auto [begin, end] = in_use_[space];
  int64_t best = 0, best_overlap = -1;
  for (const int64_t base : {end, int64_t{0}, begin - total, depth - total}) {
    if (base < 0 || base + total > depth) continue;
    const auto overlap = [&](int64_t size) {
      return std::max<int64_t>(0, std::min(base + size, end) - std::max(base, begin));
    };
    const int64_t cost = overlap(first) * (depth + 1) + overlap(total);
    if (best_overlap >= 0 && cost >= best_overlap) continue;
    best = base;
    best_overlap = cost;
  }
  in_use_[space] = {best, best + total};
  return best;
}

int Emitter::table(const Table& bytes) {
  const auto count = static_cast<int>(bytes.size() / 256), slots = config.table_count;
  const auto part = [&](int k) { return Table(bytes.begin() + 256 * k, bytes.begin() + 256 * (k + 1)); };
  tables_.resize(static_cast<size_t>(slots));
  const auto holds = [&](int slot) {
    for (int k = 0; k < count; ++k) {
      if (tables_[static_cast<size_t>(slot + k)] != part(k)) return false;
    }
    return true;
  };
  const auto pin = [&](int slot) {
    for (int k = 0; k < count; ++k) pinned_.push_back(slot + k);
    return slot;
  };
  // Several at multiples of their number, so that single ones never cut the space between them.
  for (int slot = 0; slot + count <= slots; slot += count) {
    if (holds(slot)) return pin(slot);
  }
  const auto taken = [&](int slot) {
    return slot % count != 0 || slot + count > slots || std::any_of(pinned_.begin(), pinned_.end(), [&](int other) {
             return other >= slot && other < slot + count;
           });
  };
  for (int tried = 0; taken(next_table_); ++tried) {
    if (tried == slots) {
      throw Error(ErrorCode::kDoesNotFit,
                  "needs " + std::to_string(slots + 1) + " tables at once, the machine has " + std::to_string(slots));
    }
    next_table_ = (next_table_ + 1) % slots;
  }
  const int slot = pin(next_table_);
  next_table_ = (slot + count) % slots;
  for (int k = 0; k < count; ++k) tables_[static_cast<size_t>(slot + k)] = part(k);
  Transfer transfer;
  transfer.space = isa::Space::kTable;
  transfer.base = kConstantBase;
  transfer.dram_offset = constants.add(bytes);
  transfer.sp_addr = int64_t{256} * slot;
  transfer.length = static_cast<int64_t>(bytes.size());
  std::vector<isa::Instruction> loads;
  append_transfer(transfer, loads);
  for (const isa::Instruction& load : loads) push(load, Stream::kParams);
  return slot;
}

}  // namespace tessera::npu
