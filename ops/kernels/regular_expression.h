// SPDX-License-Identifier: Apache-2.0
// Regular expressions in the syntax of RE2 on UTF-8 strings, matched against a whole string or searched in it, in time
// proportional to pattern times text: the pattern becomes a small program of character sets, splits and assertions, of
// which all alternatives run side by side. There is no backtracking, so neither pattern nor text can make it explode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::ops {

/// Code points of a string; a byte that is no UTF-8 becomes kRawByte + byte.
inline constexpr char32_t kRawByte = 0x110000;
std::u32string decode_utf8(std::string_view text);
/// Appends one code point.
void encode_utf8(char32_t c, std::string& out);

class RegularExpression {
 public:
  /// Throws Error: kInvalidModel for what is no pattern, kUnsupported for Unicode classes (\p), \C and patterns beyond
  /// 100000 steps.
  explicit RegularExpression(const std::string& pattern);
  /// Whether the pattern matches the whole text.
  bool matches(std::string_view text) const;
  /// Where the first match at or behind `from` stands, the longest of those that begin there: its beginning and its
  /// end. Nothing where there is none. Assertions see the text in front of `from`.
  std::optional<std::pair<size_t, size_t>> search(const std::u32string& text, size_t from) const;

 private:
  friend class PatternParser;
  enum class Op : uint8_t { kSet, kSplit, kJump, kAssert, kMatch };
  enum class Assertion : uint8_t { kTextBegin, kTextEnd, kLineBegin, kLineEnd, kWordEdge, kNoWordEdge };
  struct Instruction {
    Op op;
    uint32_t a = 0, b = 0;  // kSet: set; kSplit: both targets; kJump: target; kAssert: kind
  };
  struct Set {
    std::vector<std::pair<char32_t, char32_t>> ranges;
    bool negated = false, folds = false;
  };

  /// A place in the program, and where in the text the alternative that stands there began.
  struct Thread {
    uint32_t at;
    size_t begin;
  };
  /// Appends the sets and ends that follow `start` without reading a character; `seen` holds the position at which each
  /// place was last reached, so that the first to reach it wins.
  void follow(Thread start, const std::u32string& text, size_t at, std::vector<size_t>& seen,
              std::vector<Thread>& into) const;
  bool contains(const Set& set, char32_t c) const;
  bool holds(Assertion assertion, const std::u32string& text, size_t at) const;

  std::vector<Instruction> program_;
  std::vector<Set> sets_;
};

}  // namespace tessera::ops
