// SPDX-License-Identifier: Apache-2.0
// Packs and unpacks instructions. Enters: a struct or a 64-byte word. Leaves: the other. One loop over the generated
// field tables serves all instructions, so that the encoding stands only in isa.toml.
#include <bit>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "isa/generated/instructions.h"

namespace tessera::isa {
namespace {

/// Eight bytes of the word, the first the least significant.
inline uint64_t eight_bytes(const Word& word, int first) {
  uint64_t value = 0;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&value, &word[static_cast<size_t>(first)], sizeof(value));
  } else {
    for (int k = 0; k < 8; ++k) value |= uint64_t{word[static_cast<size_t>(first + k)]} << (8 * k);
  }
  return value;
}

/// `width` is 1 to 64.
inline uint64_t get_bits(const Word& word, int lsb, int width) {
  const int first = std::min(lsb / 8, kInstructionBytes - 8);
  const int shift = lsb - 8 * first;
  uint64_t value = eight_bytes(word, first) >> shift;
  if (shift + width > 64) value |= uint64_t{word[static_cast<size_t>(first + 8)]} << (64 - shift);
  return value & (~uint64_t{0} >> (64 - width));
}

void put_bits(Word& word, int lsb, int width, uint64_t value) {
  for (int done = 0; done < width;) {
    const int bit = lsb + done;
    const int take = std::min(8 - bit % 8, width - done);
    const unsigned mask = (1u << take) - 1;
    word[bit / 8] = static_cast<uint8_t>(word[bit / 8] | (((value >> done) & mask) << (bit % 8)));
    done += take;
  }
}

template <typename T>
int64_t to_number(T value) {
  return static_cast<int64_t>(value);
}

bool fits(const Field& field, int64_t value) {
  switch (field.kind) {
    case FieldKind::kSigned: {
      const int64_t bound = int64_t{1} << (field.width - 1);
      return -bound <= value && value < bound;
    }
    case FieldKind::kEnum:
      return value >= 0 && value < static_cast<int64_t>(field.names.size()) && !field.names[value].empty();
    case FieldKind::kUnsigned:
    case FieldKind::kBool: return value >= 0 && (field.width >= 63 || value < int64_t{1} << field.width);
  }
  return false;
}

void put_element(Word& word, std::string_view instruction, const Field& field, int k, int64_t value) {
  if (!fits(field, value)) {
    std::string name = std::string(instruction) + "." + std::string(field.name);
    if (field.array > 0) name += "[" + std::to_string(k) + "]";
    throw Error(ErrorCode::kInvalidProgram, name + " = " + std::to_string(value) + " does not fit its field of " +
                                                std::to_string(field.width) + " bits");
  }
  put_bits(word, field.lsb + k * field.stride, field.width, static_cast<uint64_t>(value));
}

inline int64_t get_element(const Word& word, const Field& field, int k) {
  const uint64_t raw = get_bits(word, field.lsb + k * field.stride, field.width);
  if (field.kind == FieldKind::kSigned && field.width < 64 && (raw >> (field.width - 1)) != 0) {
    return static_cast<int64_t>(raw | (~uint64_t{0} << field.width));
  }
  return static_cast<int64_t>(raw);
}

template <typename T>
struct IsArray : std::false_type {};
template <typename T, size_t N>
struct IsArray<std::array<T, N>> : std::true_type {};

/// Fills the fields of one instruction; false when an enumeration has no such value.
template <typename T>
bool decode_fields(const Word& word, T& instruction) {
  bool valid = true;
  for (int k = 0; k < kWaits; ++k) {
    Wait& wait = instruction.header.waits[k];
    wait.enable = get_element(word, kHeaderFields[kHeaderWaitEnable], k) != 0;
    wait.engine = static_cast<Engine>(get_element(word, kHeaderFields[kHeaderWaitEngine], k));
    wait.count = static_cast<decltype(wait.count)>(get_element(word, kHeaderFields[kHeaderWaitCount], k));
  }
  instruction.header.signal = get_element(word, kHeaderFields[kHeaderSignal], 0) != 0;
  // Inlined, each field is a load, a shift and a mask with numbers that the compiler knows.
  visit_fields(instruction, [&](const Field& field, auto& member) __attribute__((always_inline)) {
    const auto read = [&](auto& element, int k) __attribute__((always_inline)) {
      const int64_t value = get_element(word, field, k);
      if (field.kind == FieldKind::kEnum && !fits(field, value)) valid = false;  // numbers fit by their width
      element = static_cast<std::remove_reference_t<decltype(element)>>(value);
    };
    if constexpr (IsArray<std::remove_reference_t<decltype(member)>>::value) {
      for (size_t k = 0; k < member.size(); ++k) read(member[k], static_cast<int>(k));
    } else {
      read(member, 0);
    }
  });
  return valid;
}

template <size_t Index = 0>
bool decode_alternative(const Word& word, size_t index, std::optional<Instruction>& out) {
  if constexpr (Index < std::variant_size_v<Instruction>) {
    if (Index == index) {
      std::variant_alternative_t<Index, Instruction> instruction;
      if (!decode_fields(word, instruction)) return false;
      out = instruction;
      return true;
    }
    return decode_alternative<Index + 1>(word, index, out);
  }
  return false;
}

}  // namespace

Word encode(const Instruction& instruction) {
  const InstructionInfo& info = info_of(instruction);
  Word word{};
  put_element(word, info.name, kHeaderFields[kHeaderOpcode], 0, info.opcode);
  std::visit(
      [&](const auto& i) {
        put_element(word, info.name, kHeaderFields[kHeaderSignal], 0, i.header.signal);
        for (int k = 0; k < kWaits; ++k) {
          const Wait& wait = i.header.waits[k];
          put_element(word, info.name, kHeaderFields[kHeaderWaitEnable], k, wait.enable);
          put_element(word, info.name, kHeaderFields[kHeaderWaitEngine], k, to_number(wait.engine));
          put_element(word, info.name, kHeaderFields[kHeaderWaitCount], k, wait.count);
        }
        visit_fields(i, [&](const Field& field, const auto& member) {
          if constexpr (IsArray<std::remove_cvref_t<decltype(member)>>::value) {
            for (size_t k = 0; k < member.size(); ++k) {
              put_element(word, info.name, field, static_cast<int>(k), to_number(member[k]));
            }
          } else {
            put_element(word, info.name, field, 0, to_number(member));
          }
        });
      },
      instruction);
  return word;
}

Decoded decode(const Word& word) {
  const auto opcode = static_cast<uint64_t>(get_element(word, kHeaderFields[kHeaderOpcode], 0));
  for (size_t index = 0; index < kInstructions.size(); ++index) {
    const InstructionInfo& info = kInstructions[index];
    if (info.opcode != opcode) continue;
    for (const BitRange& range : info.reserved) {
      for (int done = 0; done < range.width; done += 64) {
        if (get_bits(word, range.lsb + done, std::min(64, range.width - done)) != 0)
          return {{}, Fault::kIllegalOperand};
      }
    }
    Decoded decoded;
    if (!decode_alternative(word, index, decoded.instruction)) return {{}, Fault::kIllegalOperand};
    return decoded;
  }
  return {{}, Fault::kIllegalOpcode};
}

}  // namespace tessera::isa
