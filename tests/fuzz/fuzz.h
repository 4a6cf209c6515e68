// SPDX-License-Identifier: Apache-2.0
// What the fuzzers share: drawn numbers that reach the ends of their ranges, and the judge of an error. A fuzzer is a
// source with LLVMFuzzerTestOneInput and LLVMFuzzerCustomMutator; it is linked with libFuzzer (preset fuzz) or with
// standalone.cc (every other build). A finding ends the process: a signal, a sanitizer's report, an exception that is
// no tessera::Error, an error that is a bug of Tessera or no clear line, or a broken property.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

extern "C" {
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t limit, unsigned seed);
/// Of libFuzzer or standalone.cc: changes bytes and returns the new size, at most `limit`.
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t limit);
}

namespace tessera::fuzz {

/// Ends the process with a line that says what is wrong.
[[noreturn]] inline void finding(const std::string& what) {
  std::fprintf(stderr, "finding: %s\n", what.c_str());
  std::abort();
}

inline void check(bool condition, const char* what) {
  if (!condition) finding(what);
}

/// An error names a cause, and none says that Tessera is wrong.
inline void judge(const Error& error) {
  const std::string_view text = error.what();
  if (text.empty()) finding("an error without a message");
  if (error.code() == ErrorCode::kInternal) finding("an internal error: " + std::string(text));
}

/// Whether `body` accepts its input; what it throws else is judged.
template <typename Body>
bool accepts(Body&& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    judge(error);
    return false;
  }
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint64_t bits() { return engine_(); }
  /// From [0, count); 0 when there is nothing to choose from.
  size_t below(size_t count) { return count == 0 ? 0 : static_cast<size_t>(engine_() % count); }
  bool chance(unsigned percent) { return below(100) < percent; }

  template <typename T>
  T& of(std::vector<T>& values) {
    return values[below(values.size())];
  }
  template <typename T, size_t N>
  const T& of(const T (&values)[N]) {
    return values[below(N)];
  }

  template <typename T>
  T of(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }

  /// A number near `value`, at the end of a range, or small.
  int64_t integer(int64_t value) {
    const auto moved = static_cast<uint64_t>(value);
    switch (below(10)) {
      case 0: return static_cast<int64_t>(moved + 1);
      case 1: return static_cast<int64_t>(moved - 1);
      case 2: return static_cast<int64_t>(moved * 2);
      case 3: return value / 2;
      case 4: return static_cast<int64_t>(uint64_t{0} - moved);
      case 5: return static_cast<int64_t>(below(9)) - 2;
      case 6: return static_cast<int64_t>((uint64_t{1} << below(64)) - below(3));
      case 7: return static_cast<int64_t>(moved ^ (uint64_t{1} << below(64)));
      case 8: return static_cast<int64_t>(below(256));
      default: return of<int64_t>({0, 1, -1, 64, 4096, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN});
    }
  }

  double number(double value) {
    switch (below(8)) {
      case 0: return -value;
      case 1: return value * 2;
      case 2: return value / 3;
      case 3: return 0.0;
      case 4: return of({1e30, -1e30, 1e-30, 1.0, -0.0});
      case 5: return std::numeric_limits<double>::quiet_NaN();
      case 6: return std::numeric_limits<double>::infinity();
      default: return value + 1;
    }
  }

  /// Bytes that libFuzzer would change, at most `limit` of them afterwards.
  std::string text(std::string value, size_t limit = 256) {
    const size_t size = value.size();
    value.resize(std::max(size, limit));
    value.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(value.data()), std::min(size, limit), limit));
    return value;
  }

 private:
  std::mt19937_64 engine_;
};

/// Writes what a mutator made into libFuzzer's buffer; what does not fit leaves the old input.
inline size_t give_back(uint8_t* data, size_t size, size_t limit, const void* made, size_t made_size) {
  if (made_size > limit) return size;
  std::copy_n(static_cast<const uint8_t*>(made), made_size, data);
  return made_size;
}

}  // namespace tessera::fuzz
