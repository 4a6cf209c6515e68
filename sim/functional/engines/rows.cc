// SPDX-License-Identifier: Apache-2.0
// Rows one after another, in program order. The arithmetic of an element is base/row_arithmetic.h.
#include "sim/functional/engines/rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/row_arithmetic.h"
#include "isa/verify/effects.h"
#include "sim/functional/engines/nest.h"

namespace tessera::sim {
namespace {

int32_t element(uint8_t byte, bool is_unsigned) { return is_unsigned ? byte : static_cast<int8_t>(byte); }

/// The numbers of four byte tables.
std::array<uint32_t, 256> numbers(const Scratchpads& scratchpads, size_t table) {
  const uint8_t* bytes = scratchpads.bytes(isa::Space::kTable).data() + table * 256;
  std::array<uint32_t, 256> all{};
  for (size_t d = 0; d < all.size(); ++d) {
    for (size_t p = 0; p < rows::kRowTables; ++p) all[d] |= uint32_t{bytes[p * 256 + d]} << (8 * p);
    all[d] &= 0x7fffffff;
  }
  return all;
}

/// Elements of a row that count.
uint64_t row_limit(bool limited, uint64_t base) { return limited ? base & isa::kRowLimitMask : UINT64_MAX; }

/// Lanes of an ACC entry.
class Scalars {
 public:
  Scalars(const isa::MachineConfig& config, Scratchpads& scratchpads)
      : row_(static_cast<size_t>(config.block_out)),
        batch_(static_cast<size_t>(config.batch)),
        acc_(scratchpads.bytes(isa::Space::kAcc).data()) {}

  rows::RowScalars read(int32_t entry, size_t b) const {
    rows::RowScalars scalars;
    std::memcpy(scalars.data(), at(entry, b), sizeof scalars);
    return scalars;
  }
  void write(int32_t entry, size_t b, const rows::RowScalars& scalars) const {
    std::memset(at(entry, b), 0, 4 * row_);
    std::memcpy(at(entry, b), scalars.data(), sizeof scalars);
  }

 private:
  uint8_t* at(int32_t entry, size_t b) const { return acc_ + 4 * row_ * (static_cast<size_t>(entry) * batch_ + b); }

  size_t row_, batch_;
  uint8_t* acc_;
};

/// ACC with the instruction's sources as bytes, at the places of their entries.
std::vector<uint8_t> rounded_sources(const isa::RowMap& i, const isa::MachineConfig& config, Scratchpads& scratchpads) {
  const auto lanes = static_cast<size_t>(config.block_out);
  const uint8_t* acc = scratchpads.bytes(isa::Space::kAcc).data();
  const uint8_t* words = scratchpads.bytes(isa::Space::kParam).data() + static_cast<size_t>(i.param_addr) * 8 * lanes;
  std::vector<uint8_t> bytes(static_cast<size_t>(config.acc_depth()) * lanes);
  const Nest<1> nest = make_nest(0, isa::kLoops, i.extent, i.src_stride);
  for_each_iteration(nest, {i.src_addr}, [&](const std::array<int32_t, 1>& at) {
    for (size_t o = 0; o < lanes; ++o) {
      const size_t lane = static_cast<size_t>(at[0]) * lanes + o;
      uint32_t value, bias;
      float scale;
      std::memcpy(&value, acc + 4 * lane, sizeof value);
      std::memcpy(&bias, words + 4 * o, sizeof bias);
      std::memcpy(&scale, words + 4 * (lanes + o), sizeof scale);
      const float g = static_cast<float>(static_cast<int32_t>(value + bias)) * scale;
      const float at_least = g > -128 ? g : -128;  // NaN becomes -128
      bytes[lane] = static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(std::min(at_least, 127.0F))));
    }
  });
  return bytes;
}

}  // namespace

void run_row_reduce(const isa::RowReduce& i, const isa::MachineConfig& config, Scratchpads& scratchpads,
                    uint64_t limit) {
  const auto batch = static_cast<size_t>(config.batch), lanes = static_cast<size_t>(config.block_out);
  const uint8_t* src = scratchpads.bytes(space_of(i.src)).data();
  const Scalars acc(config, scratchpads);
  std::array<uint32_t, 256> table{};
  if (i.operation == isa::Reduction::kSumExp) table = numbers(scratchpads, i.table);
  const rows::MomentsForm form{i.length, i.shift, i.offset, i.epsilon, i.centre};
  const int outer = isa::kLoops - i.row;
  const Nest<1> inner = make_nest(outer, i.row, i.extent, i.src_stride);
  const uint64_t entries = inner.iterations();

  const auto row = [&](int32_t first, int32_t scalar, size_t b) {
    uint64_t left = entries;
    uint64_t within = row_limit(i.limited, limit);
    const auto each = [&](auto&& visit) {
      for_each_iteration(inner, {first}, [&](const std::array<int32_t, 1>& at) {
        const uint8_t* bytes = src + (static_cast<size_t>(at[0]) * batch + b) * lanes;
        const size_t count = std::min<uint64_t>(--left == 0 ? i.tail : lanes, within);
        within -= std::min<uint64_t>(within, lanes);
        for (size_t o = 0; o < count; ++o) visit(element(bytes[o], i.src_unsigned));
      });
    };
    switch (i.operation) {
      case isa::Reduction::kMax: {
        int32_t most = INT32_MIN;
        each([&](int32_t x) { most = std::max(most, x); });
        return acc.write(scalar, b, {most == INT32_MIN ? 0 : most, 0, 0, 0});
      }
      case isa::Reduction::kSumExp: {
        const int32_t most = acc.read(scalar, b)[0];
        uint32_t sum = 0;
        each([&](int32_t x) { sum = rows::add_row_numbers(sum, table[static_cast<uint32_t>(most - x) & 255]); });
        return acc.write(scalar, b, {most, static_cast<int32_t>(sum), 0, 0});
      }
      case isa::Reduction::kMoments: {
        int64_t sum = 0, squares = 0;
        each([&](int32_t x) {
          sum += x - i.zero;
          squares += int64_t{x - i.zero} * (x - i.zero);
        });
        return acc.write(scalar, b, rows::moments(sum, squares, form));
      }
    }
  };
  const Nest<2> rows = make_nest(0, outer, i.extent, i.src_stride, i.scalar_stride);
  for_each_iteration(rows, {i.src_addr, i.scalar_addr}, [&](const std::array<int32_t, 2>& at) {
    for (size_t b = 0; b < batch; ++b) row(at[0], at[1], b);
  });
}

/// Group by group, and in a group entry by entry, which tells where entries are written twice.
void run_sum_softmax(const isa::RowMap& i, const isa::MachineConfig& config, Scratchpads& scratchpads, uint64_t limit) {
  const auto lanes = static_cast<size_t>(config.block_out);  // rows have no batch
  uint8_t* dst = scratchpads.bytes(space_of(i.dst)).data();
  const Scalars acc(config, scratchpads);
  const std::array<uint32_t, 256> table = numbers(scratchpads, i.table), sum_table = numbers(scratchpads, i.sum_table);
  const uint64_t end = row_limit(i.limited, limit);

  struct Row {
    int32_t source, target, most;
    uint32_t sum;
  };
  std::vector<Row> rows;
  const int outer = isa::kLoops - i.row;
  const Nest<3> over = make_nest(0, outer, i.extent, i.src_stride, i.dst_stride, i.scalar_stride);
  for_each_iteration(over, {i.src_addr, i.dst_addr, i.scalar_addr}, [&](const std::array<int32_t, 3>& at) {
    rows.push_back({at[0], at[1], acc.read(at[2], 0)[0], 0});
  });
  std::vector<std::array<int32_t, 2>> entries;
  const Nest<2> inner = make_nest(outer, i.row, i.extent, i.src_stride, i.dst_stride);
  for_each_iteration(inner, {0, 0}, [&](const std::array<int32_t, 2>& at) { entries.push_back(at); });

  std::vector<uint8_t> rounded;
  if (i.src == isa::AluSpace::kAcc) rounded = rounded_sources(i, config, scratchpads);
  const uint8_t* src = rounded.empty() ? scratchpads.bytes(space_of(i.src)).data() : rounded.data();
  const auto number = [&](const std::array<uint32_t, 256>& of, const Row& row, size_t entry, size_t o) {
    const uint8_t byte = src[static_cast<size_t>(row.source + entries[entry][0]) * lanes + o];
    return entry * lanes + o < end ? of[static_cast<uint32_t>(row.most - element(byte, i.src_unsigned)) & 255] : 0;
  };
  for (Row& row : rows) {
    for (size_t e = 0; e < entries.size(); ++e) {
      const size_t count = e + 1 == entries.size() ? i.tail : lanes;
      for (size_t o = 0; o < count; ++o) row.sum = rows::add_row_numbers(row.sum, number(sum_table, row, e, o));
    }
  }
  const auto group = static_cast<size_t>(4 * config.row_lanes);
  for (size_t first = 0; first < rows.size(); first += group) {
    for (size_t e = 0; e < entries.size(); ++e) {
      for (size_t r = first; r < std::min(rows.size(), first + group); ++r) {
        uint8_t* to = dst + static_cast<size_t>(rows[r].target + entries[e][1]) * lanes;
        for (size_t o = 0; o < lanes; ++o) {
          const int64_t quotient = rows::divide_row_numbers(number(table, rows[r], e, o), rows[r].sum);
          to[o] = static_cast<uint8_t>(std::clamp<int64_t>(quotient, i.low, i.high) + i.out_zero);
        }
      }
    }
  }
}

void run_row_map(const isa::RowMap& i, const isa::MachineConfig& config, Scratchpads& scratchpads, uint64_t limit) {
  if (i.operation == isa::Mapping::kSumSoftmax) return run_sum_softmax(i, config, scratchpads, limit);
  const auto batch = static_cast<size_t>(config.batch), lanes = static_cast<size_t>(config.block_out);
  const uint8_t* src = scratchpads.bytes(space_of(i.src)).data();
  uint8_t* dst = scratchpads.bytes(space_of(i.dst)).data();
  const uint8_t* param = scratchpads.bytes(isa::Space::kParam).data();
  const Scalars acc(config, scratchpads);
  const bool softmax = i.operation == isa::Mapping::kSoftmax;
  std::array<uint32_t, 256> table{};
  if (softmax) table = numbers(scratchpads, i.table);
  Strides param_stride{};
  if (i.param_loop < isa::kLoops) param_stride[i.param_loop] = 1;

  const uint64_t end = row_limit(i.limited, limit);
  const uint64_t entries = make_nest(isa::kLoops - i.row, i.row, i.extent, i.src_stride).iterations();
  uint64_t entry = 0;  // of its row

  const auto value = [&](int32_t x, const rows::RowScalars& c, const uint8_t* words, size_t o) -> int64_t {
    if (softmax) {
      const uint32_t a = entry * lanes + o < end ? table[static_cast<uint32_t>(c[0] - x) & 255] : 0;
      return rows::divide_row_numbers(a, static_cast<uint32_t>(c[1]) & 0x7fffffff);
    }
    int32_t addend, factor;
    std::memcpy(&addend, words + 4 * o, 4);
    std::memcpy(&factor, words + 4 * (lanes + o), 4);
    return rows::normalise(x - i.zero, c, factor, addend);
  };
  const Nest<4> nest = make_nest(0, isa::kLoops, i.extent, i.src_stride, i.dst_stride, i.scalar_stride, param_stride);
  const std::array<int32_t, 4> start{i.src_addr, i.dst_addr, i.scalar_addr, i.param_addr};
  for_each_iteration(nest, start, [&](const std::array<int32_t, 4>& at) {
    const uint8_t* words = param + static_cast<size_t>(at[3]) * 8 * lanes;
    for (size_t b = 0; b < batch; ++b) {
      const rows::RowScalars scalars = acc.read(at[2], b);
      const uint8_t* from = src + (static_cast<size_t>(at[0]) * batch + b) * lanes;
      uint8_t* to = dst + (static_cast<size_t>(at[1]) * batch + b) * lanes;
      for (size_t o = 0; o < lanes; ++o) {
        const int64_t r = value(element(from[o], i.src_unsigned), scalars, words, o);
        to[o] = static_cast<uint8_t>(std::clamp<int64_t>(r, i.low, i.high) + i.out_zero);
      }
    }
    entry = entry + 1 == entries ? 0 : entry + 1;
  });
}

}  // namespace tessera::sim
