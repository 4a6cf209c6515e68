// SPDX-License-Identifier: Apache-2.0
// The text form of the compiler's plain structures: graphs, tasks, nests and schedules. A structure's own printer
// writes through Printer and its own parser reads through Reader, so that all of them share one lexical form, which is
// MLIR's:
//
//   nest "conv1" dense {            // a keyword, a name, words, a block
//     extent oc=4 oh=56 ow=56       // fields: key=value
//     input base=1 offset=0x40
//   }
//
// Line breaks and indentation carry no meaning, `//` begins a comment. Text enters the Reader and typed values leave;
// errors say line, column, what stands there and what was expected.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

enum class TokenKind : uint8_t {
  kEnd,
  kWord,         // letters, digits, '_', '.', not beginning with a digit; also with a leading %, @ or #
  kNumber,       // integers and floats, with sign: 12, -0x1f, 1.5e-3, inf, nan
  kString,       // "..." with \" \\ \n \t \xHH
  kPunctuation,  // -> or one character
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of a string: without quotes and escapes
  int line = 1, column = 1;
};

/// Reads one text from front to end. Every function but at_end() and the tests throws Error kInvalidArgument,
/// "<source>:<line>:<column>: ..." when something else stands there.
class Reader {
 public:
  /// `source`: the name that errors begin with, such as a file's. The text is copied.
  explicit Reader(std::string_view text, std::string source = "text");

  bool at_end() const { return token_.kind == TokenKind::kEnd; }
  /// Whether the next token is this punctuation or this word; strings never are.
  bool at(std::string_view token) const;
  bool at(TokenKind kind) const { return token_.kind == kind; }
  /// at(), and then steps over it.
  bool accept(std::string_view token);
  void expect(std::string_view token);
  /// Steps over the next token, whatever it is.
  void skip() { step(); }

  std::string word();
  /// A word that begins with `sigil` ('%', '@', '#'), without it.
  std::string symbol(char sigil);
  std::string string();
  int64_t integer();
  /// Within [low, high].
  int64_t integer(int64_t low, int64_t high);
  double number();
  float number32();
  bool boolean();  // true, false
  /// The bytes of a string "0x..." as hex() writes them.
  std::vector<uint8_t> bytes();
  /// One of the names; its index. `what` appears in the error: "unknown intrinsic 'x'; known: ...".
  size_t one_of(std::span<const std::string_view> names, std::string_view what);
  template <typename Enum, size_t N>
  Enum one_of(const std::array<std::string_view, N>& names, std::string_view what) {
    return static_cast<Enum>(one_of(std::span<const std::string_view>(names), what));
  }

  /// open (item (separator item)*)? close. An empty separator: none stands between items.
  void list(std::string_view open, std::string_view close, std::string_view separator,
            const std::function<void()>& item);
  /// `key=value` as long as a word without a sigil and with '=' behind it follows. `field` reads the value; false: it
  /// knows no such key.
  void fields(const std::function<bool(const std::string& key)>& field);

  /// Where the next token stands, and an error there.
  const Token& token() const { return token_; }
  [[noreturn]] void fail(const std::string& message) const { fail_at(token_, message); }
  [[noreturn]] void fail_at(const Token& token, const std::string& message) const;

 private:
  void step();
  Token lex();
  void skip_blanks();
  void lex_string(Token& token);
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  char take();
  Token expected(TokenKind kind, std::string_view what);

  std::string text_, source_;
  size_t at_ = 0;
  int line_ = 1, column_ = 1;
  Token token_, next_;
};

/// Writes indented lines; blocks open with `{` and close with `}`.
class Printer {
 public:
  /// One line.
  Printer& line(std::string_view text);
  /// `head {`, then lines inside until close().
  Printer& open(std::string_view head);
  Printer& close();
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  int depth_ = 0;
};

/// The words of one line: "extent oc=4 oh=56". Optional fields that hold their default are left out by the caller.
class Line {
 public:
  explicit Line(std::string_view head) : text_(head) {}
  Line& word(std::string_view word);
  Line& field(std::string_view key, int64_t value);
  Line& field(std::string_view key, int value) { return field(key, static_cast<int64_t>(value)); }
  Line& field(std::string_view key, bool value);
  Line& field(std::string_view key, double value);
  Line& field(std::string_view key, float value);
  /// A value that stands as it is: a word, a list, a quoted string.
  Line& field(std::string_view key, std::string_view value);
  Line& field(std::string_view key, const char* value) { return field(key, std::string_view(value)); }
  const std::string& text() const { return text_; }
  operator std::string_view() const { return text_; }  // NOLINT(google-explicit-constructor): a Line is its text

 private:
  std::string text_;
};

/// "..." with escapes.
std::string quote(std::string_view text);
/// The shortest decimal form that reads back as the same value.
std::string number(double value);
std::string number(float value);
/// "0x..." in quotes: bytes as Reader::bytes() reads them.
std::string hex(std::span<const uint8_t> bytes);
/// [a, b, c] of integers.
template <typename Values>
std::string list(const Values& values) {
  std::string text = "[";
  for (const auto& value : values) text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  return text + "]";
}

}  // namespace tessera::text
