// SPDX-License-Identifier: Apache-2.0
// Reads a flatbuffer where it lies. Enters: the bytes of a file. Leaves: tables whose fields are read by the numbers of
// schema.h, vectors, texts. Nothing is verified beforehand: each access checks that the bytes that it reads lie inside
// of the file, so a damaged file gives an Error and costs no pass of its own.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "compiler/litert/schema.h"

namespace tessera::litert {

static_assert(std::endian::native == std::endian::little, "flatbuffers are little-endian");

using Bytes = std::span<const std::byte>;

/// Throws Error kInvalidModel: the file is truncated or damaged.
[[noreturn]] void fail_damaged();

/// The part of `file` from `offset` on; an Error unless it holds `size` bytes.
inline Bytes part(Bytes file, uint64_t offset, uint64_t size) {
  if (offset > file.size() || size > file.size() - offset) fail_damaged();
  return file.subspan(static_cast<size_t>(offset), static_cast<size_t>(size));
}

template <typename T>
T load(Bytes file, uint64_t offset) {
  static_assert(std::is_arithmetic_v<T>);
  std::conditional_t<std::is_same_v<T, bool>, uint8_t, T> value;
  std::memcpy(&value, part(file, offset, sizeof(value)).data(), sizeof(value));
  return static_cast<T>(value);
}

/// Where the offset that stands at `at` points to.
inline uint64_t follow(Bytes file, uint64_t at) { return at + load<uint32_t>(file, at); }

/// A table, or an absent one, whose fields all have the values of absent fields.
class Table {
 public:
  Table() = default;
  Table(Bytes file, uint64_t position);

  bool present() const { return position_ != 0; }
  template <typename T>
  bool has(const Field<T>& field) const {
    return offset_of(field.number) != 0;
  }
  template <typename T>
  T operator[](const Field<T>& field) const;

 private:
  /// Of a field from the table's start; 0 where the file leaves it out.
  uint16_t offset_of(uint16_t number) const;

  Bytes file_;
  uint64_t position_ = 0, vtable_ = 0;
  uint16_t vtable_bytes_ = 0;
};

/// A vector of scalars, texts or tables.
template <typename T>
class Vector {
 public:
  Vector() = default;
  Vector(Bytes file, uint64_t position) : file_(file), count_(load<uint32_t>(file, position)), first_(position + 4) {
    part(file, first_, uint64_t{count_} * kBytes);
  }

  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  T operator[](size_t i) const;
  /// All elements at once; of scalars.
  template <typename Container>
  Container to() const {
    Container all;
    all.reserve(size());
    for (size_t i = 0; i < size(); ++i) all.push_back(static_cast<typename Container::value_type>((*this)[i]));
    return all;
  }
  /// The vector's content; of bytes.
  Bytes bytes() const
    requires std::is_same_v<T, uint8_t>
  {
    return part(file_, first_, count_);
  }

 private:
  static constexpr uint64_t kBytes = std::is_same_v<T, bool> ? 1 : std::is_arithmetic_v<T> ? sizeof(T) : 4;

  Bytes file_;
  uint32_t count_ = 0;
  uint64_t first_ = 0;
};

inline std::string_view read_text(Bytes file, uint64_t position) {
  const Bytes text = part(file, position + 4, load<uint32_t>(file, position));
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

template <typename T>
T Table::operator[](const Field<T>& field) const {
  const uint16_t offset = offset_of(field.number);
  if constexpr (std::is_arithmetic_v<T>) {
    return offset == 0 ? field.absent : load<T>(file_, position_ + offset);
  } else if constexpr (std::is_same_v<T, std::string_view>) {
    return offset == 0 ? T() : read_text(file_, follow(file_, position_ + offset));
  } else {
    return offset == 0 ? T() : T(file_, follow(file_, position_ + offset));
  }
}

template <typename T>
T Vector<T>::operator[](size_t i) const {
  if (i >= count_) fail_damaged();
  const uint64_t at = first_ + i * kBytes;
  if constexpr (std::is_arithmetic_v<T>) {
    return load<T>(file_, at);
  } else if constexpr (std::is_same_v<T, std::string_view>) {
    return read_text(file_, follow(file_, at));
  } else {
    return T(file_, follow(file_, at));
  }
}

}  // namespace tessera::litert
