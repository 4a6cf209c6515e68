// SPDX-License-Identifier: Apache-2.0
// Assembler and disassembler: a scanner of blank-separated tokens that remembers columns, and one visitor over the
// fields for each direction.
#include "isa/assembler.h"

#include <charconv>
#include <limits>
#include <type_traits>

#include "base/error.h"

namespace tessera::isa {
namespace {

struct Token {
  std::string_view text;
  size_t column;  // from 1
};

/// Where an error is reported.
struct Place {
  std::string_view source;
  size_t line;
  [[noreturn]] void fail(size_t column, const std::string& message) const {
    throw Error(ErrorCode::kInvalidProgram,
                std::string(source) + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + message);
  }
};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

std::vector<Token> split_blanks(std::string_view line) {
  std::vector<Token> tokens;
  for (size_t at = 0; at < line.size();) {
    if (is_blank(line[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < line.size() && !is_blank(line[end])) ++end;
    tokens.push_back({line.substr(at, end - at), at + 1});
    at = end;
  }
  return tokens;
}

std::vector<Token> split_commas(Token list) {
  std::vector<Token> items;
  for (;;) {
    const size_t comma = list.text.find(',');
    items.push_back({list.text.substr(0, comma), list.column});
    if (comma == std::string_view::npos) return items;
    list = {list.text.substr(comma + 1), list.column + comma + 1};
  }
}

int64_t parse_integer(const Place& place, Token token) {
  std::string_view digits = token.text;
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  int base = 10;
  if (digits.starts_with("0x") || digits.starts_with("0X")) {
    base = 16;
    digits.remove_prefix(2);
  }
  uint64_t magnitude = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, status] = std::from_chars(digits.data(), end, magnitude, base);
  if (status == std::errc::result_out_of_range ||
      (status == std::errc() && magnitude > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))) {
    place.fail(token.column, quoted(token.text) + " is too large");
  }
  if (status != std::errc() || stop != end || digits.empty()) {
    place.fail(token.column, quoted(token.text) + " is not an integer");
  }
  const auto value = static_cast<int64_t>(magnitude);
  return negative ? -value : value;
}

/// The value of one element, checked against its field.
int64_t parse_element(const Place& place, const Field& field, Token token) {
  if (field.kind == FieldKind::kEnum) {
    std::string known;
    for (size_t k = 0; k < field.names.size(); ++k) {
      if (field.names[k].empty()) continue;
      if (field.names[k] == token.text) return static_cast<int64_t>(k);
      known += (known.empty() ? "" : ", ") + std::string(field.names[k]);
    }
    place.fail(token.column, quoted(token.text) + " is none of " + known);
  }
  const int64_t value = parse_integer(place, token);
  const bool is_signed = field.kind == FieldKind::kSigned;
  const int64_t low = is_signed ? -(int64_t{1} << (field.width - 1)) : 0;
  const int64_t high = (int64_t{1} << (field.width - (is_signed ? 1 : 0))) - 1;
  if (value < low || value > high) {
    place.fail(token.column, std::string(field.name) + " = " + std::string(token.text) + " must be in " +
                                 std::to_string(low) + ".." + std::to_string(high));
  }
  return value;
}

template <typename T>
void assign(const Place& place, const Field& field, Token value, T& member) {
  member = static_cast<T>(parse_element(place, field, value));
}

template <typename T, size_t N>
void assign(const Place& place, const Field& field, Token value, std::array<T, N>& member) {
  const std::vector<Token> items = split_commas(value);
  if (items.size() > N) {
    place.fail(items[N].column, std::string(field.name) + " has " + std::to_string(N) + " elements, not " +
                                    std::to_string(items.size()));
  }
  for (size_t k = 0; k < items.size(); ++k) assign(place, field, items[k], member[k]);
}

void parse_waits(const Place& place, Token value, Header& header) {
  const std::vector<Token> items = split_commas(value);
  if (items.size() > kWaits) {
    place.fail(items[kWaits].column,
               "an instruction has " + std::to_string(kWaits) + " conditions; a fence takes more");
  }
  for (size_t k = 0; k < items.size(); ++k) {
    Token item = items[k];
    if (item.text == "-") continue;
    Wait& wait = header.waits[k];
    wait.enable = !item.text.starts_with('!');
    if (!wait.enable) item = {item.text.substr(1), item.column + 1};
    const size_t colon = item.text.find(':');
    if (colon == std::string_view::npos) place.fail(item.column, "a condition is engine:count, '-' or !engine:count");
    wait.engine = static_cast<Engine>(
        parse_element(place, kHeaderFields[kHeaderWaitEngine], {item.text.substr(0, colon), item.column}));
    wait.count = static_cast<decltype(wait.count)>(
        parse_element(place, kHeaderFields[kHeaderWaitCount], {item.text.substr(colon + 1), item.column + colon + 1}));
  }
}

template <typename T>
Instruction parse_operands(const Place& place, std::string_view name, std::span<const Token> operands) {
  T instruction;
  std::vector<std::string_view> seen;
  for (const Token& operand : operands) {
    const size_t equals = operand.text.find('=');
    const std::string_view key = operand.text.substr(0, equals);
    for (std::string_view earlier : seen) {
      if (earlier == key) place.fail(operand.column, std::string(key) + " is given twice");
    }
    seen.push_back(key);
    const bool bare = equals == std::string_view::npos;
    const Token value =
        bare ? Token{"1", operand.column} : Token{operand.text.substr(equals + 1), operand.column + equals + 1};
    if (key == "signal") {
      assign(place, kHeaderFields[kHeaderSignal], value, instruction.header.signal);
      continue;
    }
    bool found = false;
    if (key == "wait") {
      if (bare) place.fail(operand.column, "wait needs a value");
      parse_waits(place, value, instruction.header);
      continue;
    }
    visit_fields(instruction, [&](const Field& field, auto& member) {
      if (field.name != key) return;
      found = true;
      if (bare && field.kind != FieldKind::kBool) place.fail(operand.column, std::string(key) + " needs a value");
      assign(place, field, value, member);
    });
    if (!found) place.fail(operand.column, std::string(name) + " has no field " + quoted(key));
  }
  return instruction;
}

template <size_t Index = 0>
Instruction parse_instruction(const Place& place, std::span<const Token> tokens) {
  if constexpr (Index < std::variant_size_v<Instruction>) {
    if (kInstructions[Index].name == tokens[0].text) {
      return parse_operands<std::variant_alternative_t<Index, Instruction>>(place, tokens[0].text, tokens.subspan(1));
    }
    return parse_instruction<Index + 1>(place, tokens);
  }
  place.fail(tokens[0].column, "no instruction " + quoted(tokens[0].text));
}

std::string element_text(const Field& field, int64_t value) {
  if (field.kind == FieldKind::kEnum && value >= 0 && value < static_cast<int64_t>(field.names.size()) &&
      !field.names[value].empty()) {
    return std::string(field.names[value]);
  }
  return std::to_string(value);
}

template <typename T>
void append(std::string& out, const Field& field, const T& member) {
  const auto value = static_cast<int64_t>(member);
  if (value == field.default_value) return;
  out += " " + std::string(field.name);
  if (field.kind == FieldKind::kBool && value == 1) return;
  out += '=';
  out += element_text(field, value);
}

template <typename T, size_t N>
void append(std::string& out, const Field& field, const std::array<T, N>& member) {
  size_t used = N;
  while (used > 0 && static_cast<int64_t>(member[used - 1]) == field.default_value) --used;
  if (used == 0) return;
  out += " " + std::string(field.name) + "=";
  for (size_t k = 0; k < used; ++k) {
    if (k > 0) out += ',';
    out += element_text(field, static_cast<int64_t>(member[k]));
  }
}

void append_waits(std::string& out, const Header& header) {
  size_t used = header.waits.size();
  while (used > 0 && header.waits[used - 1] == Wait{}) --used;
  if (used == 0) return;
  out += " wait=";
  for (size_t k = 0; k < used; ++k) {
    const Wait& wait = header.waits[k];
    if (k) out += ",";
    if (wait == Wait{}) {
      out += "-";
    } else {
      if (!wait.enable) out += '!';
      out += to_string(wait.engine);
      out += ':';
      out += std::to_string(wait.count);
    }
  }
}

}  // namespace

std::vector<Instruction> assemble(std::string_view text, std::string_view source) {
  std::vector<Instruction> program;
  Place place{source, 0};
  while (!text.empty()) {
    ++place.line;
    const size_t newline = text.find('\n');
    std::string_view line = text.substr(0, newline);
    text = newline == std::string_view::npos ? std::string_view() : text.substr(newline + 1);
    line = line.substr(0, line.find('#'));
    const std::vector<Token> tokens = split_blanks(line);
    if (tokens.empty()) continue;
    if (tokens.size() == 1 && tokens[0].text.ends_with(':')) continue;
    program.push_back(parse_instruction(place, tokens));
  }
  return program;
}

std::string disassemble(const Instruction& instruction) {
  std::string out(info_of(instruction).name);
  std::visit(
      [&](const auto& i) {
        visit_fields(i, [&](const Field& field, const auto& member) { append(out, field, member); });
        append_waits(out, i.header);
        if (i.header.signal) out += " signal";
      },
      instruction);
  return out;
}

std::string listing(std::span<const Instruction> program, std::span<const std::string> notes) {
  TESSERA_INVARIANT(notes.empty() || notes.size() == program.size(), "one note for each instruction");
  std::string out;
  for (size_t n = 0; n < program.size(); ++n) {
    if (!notes.empty() && (n == 0 ? !notes[n].empty() : notes[n] != notes[n - 1])) {
      std::string note = notes[n];
      for (char& c : note) {
        if (c == '\n' || c == '\r') c = ' ';
      }
      out += "# " + note + "\n";
    }
    out += disassemble(program[n]) + "  # " + std::to_string(n) + "\n";
  }
  return out;
}

}  // namespace tessera::isa
