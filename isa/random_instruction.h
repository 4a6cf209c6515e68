// SPDX-License-Identifier: Apache-2.0
// Random instructions for tests: every field takes any value its bits can hold, extremes more often than the middle,
// defaults often. They encode, but most break the operand rules; programs that run come from generators that know the
// semantics.
#pragma once

#include <random>
#include <type_traits>

#include "isa/generated/instructions.h"

namespace tessera::isa {

/// A random value that fits the field.
inline int64_t random_field_value(std::mt19937_64& random, const Field& field) {
  if (field.kind == FieldKind::kEnum) {
    for (;;) {
      const auto value = static_cast<size_t>(random() % field.names.size());
      if (!field.names[value].empty()) return static_cast<int64_t>(value);
    }
  }
  const bool is_signed = field.kind == FieldKind::kSigned;
  const int64_t low = is_signed ? -(int64_t{1} << (field.width - 1)) : 0;
  const int64_t high = (int64_t{1} << (field.width - (is_signed ? 1 : 0))) - 1;
  switch (random() % 8) {
    case 0: return low;
    case 1: return high;
    case 2: return field.default_value;
    case 3: return is_signed ? -1 : 1;
    default: return low + static_cast<int64_t>(random() % (static_cast<uint64_t>(high - low) + 1));
  }
}

template <typename T>
void randomise(std::mt19937_64& random, const Field& field, T& member) {
  member = static_cast<T>(random_field_value(random, field));
}

template <typename T, size_t N>
void randomise(std::mt19937_64& random, const Field& field, std::array<T, N>& member) {
  const bool keep = random() % 8 == 0;
  for (T& element : member) {
    if (!keep) randomise(random, field, element);
  }
}

/// A random instruction of the variant's alternative `kind`.
template <size_t Index = 0>
Instruction random_instruction(std::mt19937_64& random, size_t kind) {
  if constexpr (Index < std::variant_size_v<Instruction>) {
    if (Index != kind) return random_instruction<Index + 1>(random, kind);
    std::variant_alternative_t<Index, Instruction> instruction;
    instruction.header.signal = random() % 2 != 0;
    for (Wait& wait : instruction.header.waits) {
      if (random() % 2 != 0) continue;
      wait.enable = random() % 4 != 0;
      wait.engine = static_cast<Engine>(random_field_value(random, kHeaderFields[kHeaderWaitEngine]));
      wait.count = static_cast<uint16_t>(random_field_value(random, kHeaderFields[kHeaderWaitCount]));
    }
    visit_fields(instruction, [&](const Field& field, auto& member) { randomise(random, field, member); });
    return instruction;
  }
  return Finish{};
}

}  // namespace tessera::isa
