// SPDX-License-Identifier: Apache-2.0
// Constants stored once, tables loaded once, slots placed one nest after the other.
#include "compiler/npu/lowering/emitter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/row_arithmetic.h"
#include "compiler/npu/graph/row_tables.h"
#include "compiler/npu/lowering/legalise.h"

namespace tessera::npu {

namespace {

constexpr int64_t kTableBytes = 256, kRowTableBytes = rows::kRowTables * kTableBytes;

/// Words at a time, then what is left.
uint64_t hash_of(const std::vector<uint8_t>& bytes) {
  uint64_t hash = 1469598103934665603ull, word = 0;
  for (size_t at = 0; at < bytes.size(); at += sizeof(word)) {
    word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof(word), bytes.size() - at));
    hash = std::rotl((hash ^ word) * 0x9e3779b97f4a7c15ull, 29);
  }
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
  const int64_t offset = add_blank(size);
  std::copy(bytes.begin(), bytes.end(), bytes_.begin() + offset);
  known_.emplace(hash, std::pair{offset, size});
  return offset;
}

int64_t ConstantPool::add_blank(int64_t bytes) {
  const int64_t offset = (static_cast<int64_t>(bytes_.size()) + kAlignment - 1) / kAlignment * kAlignment;
  bytes_.resize(static_cast<size_t>(offset + bytes), 0);
  return offset;
}

int64_t ConstantPool::reserve(int64_t bytes) {
  // Beyond whatever add() will fill: nothing is kept there.
  reserved_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return kReserved + reserved_;
}

bool Emitter::unbiased(int64_t entry, int64_t entries) const {
  const auto known = static_cast<int64_t>(unbiased_.size());
  return entry + entries <= known &&
         std::all_of(unbiased_.begin() + entry, unbiased_.begin() + entry + entries, [](bool zero) { return zero; });
}

void Emitter::set_unbiased(int64_t entry, int64_t entries, bool zero) {
  unbiased_.resize(static_cast<size_t>(config.depth(isa::Space::kParam)));
  std::fill(unbiased_.begin() + entry, unbiased_.begin() + entry + entries, zero);
}

int Emitter::table(const Table& bytes) {
  std::vector<Table> parts;
  for (auto at = bytes.begin(); at != bytes.end(); at += kTableBytes) parts.emplace_back(at, at + kTableBytes);
  return table_slot(parts, [&] { return std::pair{kConstantBase, constants.add(bytes)}; });
}

std::pair<int, int> Emitter::softmax_tables(const RowForm& form, int64_t longest) {
  if (form.shortest == 0) return {table(form.sum_tables), table(form.map_tables)};
  const auto count = static_cast<size_t>(longest - form.shortest + 1);
  std::optional<LengthTables> made;
  const auto slot = [&](Table LengthTables::* which, uint8_t number) {
    // No table of bytes is as short as a key of these.
    Table key{number};
    for (const float scale : {form.input_scale, form.output_scale})
      for (const uint8_t byte : std::bit_cast<std::array<uint8_t, 4>>(scale)) key.push_back(byte);
    std::vector<Table> keys(rows::kRowTables, key);
    for (size_t p = 0; p < keys.size(); ++p) keys[p].push_back(static_cast<uint8_t>(p));
    return table_slot(keys, [&] {
      if (weights == WeightBytes::kPlacesOnly || weights == WeightBytes::kWorksOnly)
        return std::pair{kLengthTableBase, constants.reserve(static_cast<int64_t>(count) * kRowTableBytes)};
      if (!made) made = length_tables(form, longest);
      return std::pair{kLengthTableBase, constants.add((*made).*which)};
    });
  };
  const int sums = slot(&LengthTables::sums, 0);
  return {sums, slot(&LengthTables::maps, 1)};
}

int Emitter::table_slot(const std::vector<Table>& keys, const std::function<std::pair<uint32_t, int64_t>()>& load) {
  const auto count = static_cast<int>(keys.size()), slots = config.table_count;
  tables_.resize(static_cast<size_t>(slots));
  const auto holds = [&](int slot) { return std::equal(keys.begin(), keys.end(), tables_.begin() + slot); };
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
  std::copy(keys.begin(), keys.end(), tables_.begin() + slot);
  Transfer transfer;
  transfer.space = isa::Space::kTable;
  std::tie(transfer.base, transfer.dram_offset) = load();
  transfer.sp_addr = kTableBytes * slot;
  transfer.length = kTableBytes * count;
  std::vector<isa::Instruction> loads;
  append_transfer(transfer, loads);
  for (const isa::Instruction& instruction : loads) push(instruction, Stream::kParams);
  return slot;
}

int64_t Emitter::pushed() const {
  int64_t all = 0;
  for (const Step& step : steps_) all += static_cast<int64_t>(step.pushed.size());
  return all;
}

Pointed Emitter::pointed(const ArenaBytes& results) const {
  std::vector<Streamed> stream;
  stream.reserve(static_cast<size_t>(pushed()));
  for (const Step& step : steps_) {
    for (size_t i = 0; i < step.instructions.size(); ++i)
      stream.push_back({step.instructions[i], *step.pushed[i].work, true});
  }
  return npu::pointed(std::move(stream), results, config);
}

Forwarded Emitter::forward(Pointed all, const ArenaBytes& results, const std::set<size_t>& loads) {
  const Forwarded done = npu::forward(all, results, config, loads);
  if (!done.changed) return done;
  auto next = all.stream.begin();
  for (Step& step : steps_) {
    Step rest;
    rest.fetches = std::move(step.fetches);
    for (size_t i = 0; i < step.instructions.size(); ++i, ++next) {
      Pushed pushed = step.pushed[i];
      int64_t& bytes = stream_bytes_of(pushed.layer)[static_cast<size_t>(pushed.stream)];
      bytes -= pushed.work->dram_bytes;
      if (!next->kept) continue;
      bytes += next->work.dram_bytes;
      pushed.work = pool.add(next->work);
      rest.instructions.push_back(std::move(next->instruction));
      rest.pushed.push_back(pushed);
    }
    step = std::move(rest);
  }
  return done;
}

}  // namespace tessera::npu
