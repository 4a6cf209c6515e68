// SPDX-License-Identifier: Apache-2.0
// Structures as `key=value` fields, described once for printing and parsing. A structure says its fields in a function
//
//   template <typename IO>
//   void fields(IO& io, text::In<IO, Pool> pool) {
//     io.id("input", pool.input);
//     io.field("kind", pool.kind);
//   }
//
// found by argument-dependent lookup. A FieldWriter enters it and text leaves; a FieldReader enters it and the values
// are set. A field that holds its default is left out. Long vectors of numbers are constants: a file's section
// `constants { #0 = i16 "0x..." }` holds them, and fields name them.
#pragma once

#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "compiler/text/text.h"

namespace tessera::text {

/// The parameter type of a fields() function: read by a writer, written by a reader.
template <typename IO, typename T>
using In = typename IO::template Ref<T>;

/// Specialised for each enumeration that is a field: `static constexpr std::array<std::string_view, N> value`.
template <typename Enum>
struct Names;

/// Element types that constants have.
template <typename T>
struct ConstantType {
  static constexpr std::string_view name = "";
};
template <>
struct ConstantType<uint8_t> {
  static constexpr std::string_view name = "u8";
};
template <>
struct ConstantType<int16_t> {
  static constexpr std::string_view name = "i16";
};
template <>
struct ConstantType<int32_t> {
  static constexpr std::string_view name = "i32";
};
template <>
struct ConstantType<float> {
  static constexpr std::string_view name = "f32";
};
template <typename T>
inline constexpr bool kIsConstant = !ConstantType<T>::name.empty();

/// The constants of a text, numbered in the order of their first use; equal ones are one. Little-endian.
class Constants {
 public:
  /// Vectors of at most `inline_elements` stand where they are used. `elide`: the section says types and counts, not
  /// the bytes, and the text cannot be read back.
  explicit Constants(bool elide = false, size_t inline_elements = 16) : elide_(elide), inline_(inline_elements) {}

  size_t inline_elements() const { return inline_; }
  /// The number of a constant.
  size_t add(std::string_view type, std::vector<uint8_t> bytes);
  /// The section; nothing where no constant was added.
  void print(Printer& printer) const;

  /// Reads the section wherever it stands in a text. Errors: kInvalidArgument.
  static Constants find(std::string_view text, const std::string& source);
  /// Reads the section at `reader`.
  static Constants read(Reader& reader);
  /// Reads `#number`; that constant's bytes. Fails there when there is none, it is elided or of another type.
  const std::vector<uint8_t>& get(Reader& reader, std::string_view type) const;

 private:
  struct Entry {
    std::string type;
    std::vector<uint8_t> bytes;
    bool elided = false;
  };
  std::vector<Entry> entries_;
  std::map<std::pair<std::string, std::vector<uint8_t>>, size_t> known_;
  bool elide_ = false;
  size_t inline_ = 16;
};

class FieldWriter {
 public:
  template <typename T>
  using Ref = const T&;

  explicit FieldWriter(Constants& constants) : constants_(constants) {}

  template <typename T>
  void field(std::string_view key, const T& value, const std::type_identity_t<T>& otherwise = T{}) {
    if (value != otherwise) put(key, format(value));
  }
  /// A field that is always there.
  template <typename T>
  void required(std::string_view key, const T& value) {
    put(key, format(value));
  }
  /// The number of a tensor or value, as %number; -1: left out.
  void id(std::string_view key, int32_t value) {
    if (value >= 0) put(key, "%" + std::to_string(value));
  }
  void ids(std::string_view key, const std::vector<int32_t>& values);
  /// Several integers as one list.
  template <typename... Ints>
  void pack(std::string_view key, const std::array<int64_t, sizeof...(Ints)>& otherwise, const Ints&... values) {
    const std::array<int64_t, sizeof...(Ints)> all{static_cast<int64_t>(values)...};
    if (all != otherwise) put(key, list(all));
  }

  /// The fields behind `head` on lines of at most 118 columns, indented below it.
  void print(Printer& printer, std::string head) const;
  /// `{key=value ...}`.
  std::string nested() const;

 private:
  void put(std::string_view key, const std::string& value) { items_.push_back(std::string(key) + "=" + value); }

  template <typename T>
  std::string format(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value ? "true" : "false";
    } else if constexpr (std::is_enum_v<T>) {
      return std::string(Names<T>::value[static_cast<size_t>(value)]);
    } else if constexpr (std::is_integral_v<T>) {
      return std::to_string(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      return number(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      return quote(value);
    } else {
      FieldWriter inner(constants_);
      fields(inner, value);
      return inner.nested();
    }
  }
  template <typename T>
  std::string format(const std::optional<T>& value) {
    return format(*value);
  }
  template <typename T>
  std::string format(const std::vector<T>& values) {
    if constexpr (kIsConstant<T>) {
      if (values.size() > constants_.inline_elements()) {
        std::vector<uint8_t> bytes(values.size() * sizeof(T));
        std::memcpy(bytes.data(), values.data(), bytes.size());
        return "#" + std::to_string(constants_.add(ConstantType<T>::name, std::move(bytes)));
      }
    }
    std::string out = "[";
    for (size_t i = 0; i < values.size(); ++i) {
      out += (i ? ", " : "") + format(static_cast<T>(values[i]));
    }
    return out + "]";
  }

  Constants& constants_;
  std::vector<std::string> items_;
};

class FieldReader {
 public:
  template <typename T>
  using Ref = T&;

  FieldReader(Reader& reader, const Constants& constants) : reader_(reader), constants_(constants) {}

  template <typename T>
  void field(std::string_view key, T& value, const std::type_identity_t<T>& otherwise = T{}) {
    value = otherwise;
    known_.emplace_back(key, [this, &value] { read(value); });
  }
  template <typename T>
  void required(std::string_view key, T& value) {
    known_.emplace_back(key, [this, &value] { read(value); });
    required_.emplace_back(key);
  }
  void id(std::string_view key, int32_t& value) {
    known_.emplace_back(key, [this, &value] { value = read_id(); });
  }
  void ids(std::string_view key, std::vector<int32_t>& values);
  template <typename... Ints>
  void pack(std::string_view key, const std::array<int64_t, sizeof...(Ints)>& otherwise, Ints&... values) {
    size_t at = 0;
    ((values = static_cast<Ints>(otherwise[at++])), ...);
    known_.emplace_back(key, [this, &values...] {
      reader_.expect("[");
      bool first = true;
      const auto next = [&](auto& value) {
        if (!first) reader_.expect(",");
        first = false;
        read(value);
      };
      (next(values), ...);
      reader_.expect("]");
    });
  }

  /// Reads `key=value` until something else stands there. Errors: an unknown key, one that stands twice, a required
  /// one that is missing.
  void run();

 private:
  int32_t read_id();
  template <typename T>
  void read(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = reader_.boolean();
    } else if constexpr (std::is_enum_v<T>) {
      value = reader_.one_of<T>(Names<T>::value, "word");
    } else if constexpr (std::is_integral_v<T>) {
      if constexpr (sizeof(T) == 8 && std::is_signed_v<T>)
        value = reader_.integer();
      else
        value = static_cast<T>(reader_.integer(static_cast<int64_t>(std::numeric_limits<T>::min()),
                                               static_cast<int64_t>(std::numeric_limits<T>::max())));
    } else if constexpr (std::is_same_v<T, float>) {
      value = reader_.number32();
    } else if constexpr (std::is_same_v<T, double>) {
      value = reader_.number();
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = reader_.string();
    } else {
      reader_.expect("{");
      FieldReader inner(reader_, constants_);
      fields(inner, value);
      inner.run();
      reader_.expect("}");
    }
  }
  template <typename T>
  void read(std::optional<T>& value) {
    T inner{};
    read(inner);
    value = std::move(inner);
  }
  template <typename T>
  void read(std::vector<T>& values) {
    values.clear();
    if constexpr (kIsConstant<T>) {
      if (reader_.at(TokenKind::kWord)) {
        const std::vector<uint8_t>& bytes = constants_.get(reader_, ConstantType<T>::name);
        values.resize(bytes.size() / sizeof(T));
        std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
        return;
      }
    }
    reader_.list("[", "]", ",", [&] {
      T value{};
      read(value);
      values.push_back(std::move(value));
    });
  }
  Reader& reader_;
  const Constants& constants_;
  std::vector<std::pair<std::string, std::function<void()>>> known_;
  std::vector<std::string> required_;
};

}  // namespace tessera::text
