// SPDX-License-Identifier: Apache-2.0
// The tokenizer with one token of lookahead beyond the current one, and the printers of lines and values.
#include "compiler/text/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/error.h"

namespace tessera::text {

namespace {

bool begins_word(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool inside_word(char c) { return begins_word(c) || std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.'; }
bool digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

int hex_digit(char c) {
  if (digit(c)) return c - '0';
  const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::string shown(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd: return "the end of the text";
    case TokenKind::kString: return quote(token.text);
    default: return "'" + token.text + "'";
  }
}

template <typename Value>
std::string shortest(Value value) {
  std::array<char, 64> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  TESSERA_INVARIANT(error == std::errc(), "a number needs more than 64 characters");
  return {buffer.data(), end};
}

}  // namespace

Reader::Reader(std::string_view text, std::string source) : text_(text), source_(std::move(source)) {
  token_ = lex();
  next_ = lex();
}

void Reader::fail_at(const Token& token, const std::string& message) const {
  throw Error(ErrorCode::kInvalidArgument,
              source_ + ":" + std::to_string(token.line) + ":" + std::to_string(token.column) + ": " + message);
}

char Reader::take() {
  const char c = text_[at_++];
  if (c == '\n') {
    ++line_;
    column_ = 1;
  } else {
    ++column_;
  }
  return c;
}

void Reader::skip_blanks() {
  while (at_ < text_.size()) {
    if (std::isspace(static_cast<unsigned char>(peek())) != 0) {
      take();
    } else if (peek() == '/' && peek(1) == '/') {
      while (at_ < text_.size() && peek() != '\n') take();
    } else {
      return;
    }
  }
}

void Reader::lex_string(Token& token) {
  token.kind = TokenKind::kString;
  take();
  while (peek() != '"') {
    if (at_ == text_.size() || peek() == '\n') fail_at(token, "a string without its closing quote");
    char c = take();
    if (c == '\\') {
      const char escape = at_ < text_.size() ? take() : '\0';
      if (escape == 'n') {
        c = '\n';
      } else if (escape == 't') {
        c = '\t';
      } else if (escape == 'x' && hex_digit(peek()) >= 0 && hex_digit(peek(1)) >= 0) {
        const int high = hex_digit(take());
        c = static_cast<char>(high * 16 + hex_digit(take()));
      } else if (escape == '"' || escape == '\\') {
        c = escape;
      } else {
        fail_at(token, "an escape that is none of \\\" \\\\ \\n \\t \\xHH");
      }
    }
    token.text += c;
  }
  take();
}

Token Reader::lex() {
  skip_blanks();
  Token token;
  token.line = line_;
  token.column = column_;
  if (at_ == text_.size()) return token;
  const char c = peek();
  const bool sign = c == '-' || c == '+';
  if (c == '"') {
    lex_string(token);
  } else if (begins_word(c) || ((c == '%' || c == '@' || c == '#') && inside_word(peek(1)))) {
    token.kind = TokenKind::kWord;
    token.text += take();
    while (inside_word(peek())) token.text += take();
  } else if (digit(c) || (sign && (digit(peek(1)) || peek(1) == '.' || peek(1) == 'i' || peek(1) == 'n'))) {
    token.kind = TokenKind::kNumber;
    token.text += take();
    while (inside_word(peek()) || ((peek() == '-' || peek() == '+') && std::tolower(token.text.back()) == 'e' &&
                                   token.text.find('x') == std::string::npos))
      token.text += take();
  } else {
    token.kind = TokenKind::kPunctuation;
    token.text += take();
    if (c == '-' && peek() == '>') token.text += take();
  }
  return token;
}

void Reader::step() {
  token_ = std::move(next_);
  next_ = lex();
}

bool Reader::at(std::string_view token) const {
  return (token_.kind == TokenKind::kPunctuation || token_.kind == TokenKind::kWord) && token_.text == token;
}

bool Reader::accept(std::string_view token) {
  if (!at(token)) return false;
  step();
  return true;
}

void Reader::expect(std::string_view token) {
  if (!accept(token)) fail("expected '" + std::string(token) + "', found " + shown(token_));
}

Token Reader::expected(TokenKind kind, std::string_view what) {
  if (token_.kind != kind) fail("expected " + std::string(what) + ", found " + shown(token_));
  Token token = token_;
  step();
  return token;
}

std::string Reader::word() { return expected(TokenKind::kWord, "a word").text; }

std::string Reader::symbol(char sigil) {
  if (token_.kind != TokenKind::kWord || token_.text[0] != sigil)
    fail("expected a name with '" + std::string(1, sigil) + "', found " + shown(token_));
  return expected(TokenKind::kWord, "a name").text.substr(1);
}

std::string Reader::string() { return expected(TokenKind::kString, "a string").text; }

int64_t Reader::integer() {
  const Token token = expected(TokenKind::kNumber, "an integer");
  const bool negative = token.text[0] == '-';
  std::string_view digits = token.text;
  if (negative || token.text[0] == '+') digits.remove_prefix(1);
  const bool hexadecimal = digits.starts_with("0x");
  if (hexadecimal) digits.remove_prefix(2);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, hexadecimal ? 16 : 10);
  const uint64_t most = (uint64_t{1} << 63) - (negative ? 0 : 1);
  if (error != std::errc() || end != digits.data() + digits.size() || value > most)
    fail_at(token, "expected an integer, found '" + token.text + "'");
  return static_cast<int64_t>(negative ? uint64_t{0} - value : value);
}

int64_t Reader::integer(int64_t low, int64_t high) {
  const Token token = token_;
  const int64_t value = integer();
  if (value < low || value > high)
    fail_at(token, token.text + " is not within " + std::to_string(low) + ".." + std::to_string(high));
  return value;
}

double Reader::number() {
  const Token token = token_;
  // inf and nan are words without a sign.
  if (token.kind == TokenKind::kWord) {
    const std::string text = word();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    fail_at(token, "expected a number, found '" + text + "'");
  }
  const std::string text = expected(TokenKind::kNumber, "a number").text;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size()) fail_at(token, "expected a number, found '" + text + "'");
  return value;
}

float Reader::number32() {
  const Token token = token_;
  if (token.kind != TokenKind::kNumber) return static_cast<float>(number());
  const std::string text = expected(TokenKind::kNumber, "a number").text;
  char* end = nullptr;
  const float value = std::strtof(text.c_str(), &end);
  if (end != text.c_str() + text.size()) fail_at(token, "expected a number, found '" + text + "'");
  return value;
}

bool Reader::boolean() {
  if (accept("true")) return true;
  if (accept("false")) return false;
  fail("expected true or false, found " + shown(token_));
}

std::vector<uint8_t> Reader::bytes() {
  const Token token = token_;
  const std::string text = string();
  if (!text.starts_with("0x") || text.size() % 2 != 0) fail_at(token, "expected bytes as \"0x...\"");
  std::vector<uint8_t> result;
  result.reserve(text.size() / 2 - 1);
  for (size_t i = 2; i < text.size(); i += 2) {
    const int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
    if (high < 0 || low < 0) fail_at(token, "expected bytes as \"0x...\"");
    result.push_back(static_cast<uint8_t>(high * 16 + low));
  }
  return result;
}

size_t Reader::one_of(std::span<const std::string_view> names, std::string_view what) {
  const Token token = token_;
  const std::string text = word();
  const auto found = std::find(names.begin(), names.end(), text);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  std::string known;
  for (const std::string_view name : names) known += (known.empty() ? "" : ", ") + std::string(name);
  fail_at(token, "unknown " + std::string(what) + " '" + text + "'; known: " + known);
}

void Reader::list(std::string_view open, std::string_view close, std::string_view separator,
                  const std::function<void()>& item) {
  expect(open);
  for (bool first = true; !accept(close); first = false) {
    if (!first && !separator.empty()) expect(separator);
    if (at_end()) fail("expected '" + std::string(close) + "', found the end of the text");
    item();
  }
}

void Reader::fields(const std::function<bool(const std::string& key)>& field) {
  // A name with a sigil is defined by its '=', and is no field.
  while (token_.kind == TokenKind::kWord && begins_word(token_.text[0]) && next_.kind == TokenKind::kPunctuation &&
         next_.text == "=") {
    const Token key = token_;
    step();
    step();
    if (!field(key.text)) fail_at(key, "unknown field '" + key.text + "'");
  }
}

Printer& Printer::line(std::string_view text) {
  text_.append(static_cast<size_t>(2 * depth_), ' ').append(text) += '\n';
  return *this;
}

Printer& Printer::open(std::string_view head) {
  line(std::string(head) + " {");
  ++depth_;
  return *this;
}

Printer& Printer::close() {
  TESSERA_INVARIANT(depth_ > 0, "a block is closed that was never opened");
  --depth_;
  return line("}");
}

Line& Line::word(std::string_view word) {
  if (!text_.empty()) text_ += ' ';
  text_ += word;
  return *this;
}

Line& Line::field(std::string_view key, std::string_view value) {
  word(key);
  text_.append("=").append(value);
  return *this;
}

Line& Line::field(std::string_view key, int64_t value) { return field(key, std::string_view(std::to_string(value))); }
Line& Line::field(std::string_view key, bool value) { return field(key, value ? "true" : "false"); }
Line& Line::field(std::string_view key, double value) { return field(key, std::string_view(number(value))); }
Line& Line::field(std::string_view key, float value) { return field(key, std::string_view(number(value))); }

std::string quote(std::string_view text) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      (result += '\\') += c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      ((result += "\\x") += kHex[byte >> 4]) += kHex[byte & 15];
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string number(double value) { return shortest(value); }
std::string number(float value) { return shortest(value); }

std::string hex(std::span<const uint8_t> bytes) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string result = "\"0x";
  result.reserve(2 * bytes.size() + 4);
  for (const uint8_t byte : bytes) (result += kHex[byte >> 4]) += kHex[byte & 15];
  return result + '"';
}

}  // namespace tessera::text
