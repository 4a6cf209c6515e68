// SPDX-License-Identifier: Apache-2.0
// Fields line by line, and the section of constants.
#include "compiler/text/fields.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace tessera::text {
namespace {

constexpr size_t kColumns = 118;

size_t element_bytes(std::string_view type) {
  if (type == "u8") return 1;
  return type == "i16" ? 2 : 4;
}

size_t number_of(Reader& reader) {
  const Token at = reader.token();
  const std::string digits = reader.symbol('#');
  if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string::npos)
    reader.fail_at(at, "constants are #0, #1 and so on, not '#" + digits + "'");
  return static_cast<size_t>(std::stoll(digits));
}

}  // namespace

size_t Constants::add(std::string_view type, std::vector<uint8_t> bytes) {
  std::pair<std::string, std::vector<uint8_t>> key(type, std::move(bytes));
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  entries_.push_back({key.first, elide_ ? std::vector<uint8_t>{} : key.second, elide_});
  if (elide_) entries_.back().type += "[" + std::to_string(key.second.size() / element_bytes(type)) + "]";
  known_.emplace(std::move(key), entries_.size() - 1);
  return entries_.size() - 1;
}

void Constants::print(Printer& printer) const {
  if (entries_.empty()) return;
  printer.open("constants");
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    printer.line("#" + std::to_string(i) + " = " + entry.type + " " + (entry.elided ? "elided" : hex(entry.bytes)));
  }
  printer.close();
}

Constants Constants::find(std::string_view text, const std::string& source) {
  Reader reader(text, source);
  while (!reader.at_end()) {
    if (reader.at("constants")) return read(reader);
    reader.skip();
  }
  return Constants{};
}

Constants Constants::read(Reader& reader) {
  constexpr std::array<std::string_view, 4> kTypes{"u8", "i16", "i32", "f32"};
  Constants constants;
  reader.expect("constants");
  reader.list("{", "}", "", [&] {
    const Token at = reader.token();
    if (number_of(reader) != constants.entries_.size())
      reader.fail_at(at, "constants are numbered in order; expected #" + std::to_string(constants.entries_.size()));
    reader.expect("=");
    Entry entry;
    entry.type = kTypes[reader.one_of(kTypes, "type of a constant")];
    if (reader.accept("[")) {
      reader.integer();
      reader.expect("]");
      reader.expect("elided");
      entry.elided = true;
    } else {
      const Token data = reader.token();
      entry.bytes = reader.bytes();
      if (entry.bytes.size() % element_bytes(entry.type) != 0)
        reader.fail_at(data, std::to_string(entry.bytes.size()) + " bytes are no whole number of " + entry.type);
    }
    constants.entries_.push_back(std::move(entry));
  });
  return constants;
}

const std::vector<uint8_t>& Constants::get(Reader& reader, std::string_view type) const {
  const Token at = reader.token();
  const size_t number = number_of(reader);
  const std::string name = "#" + std::to_string(number);
  if (number >= entries_.size()) reader.fail_at(at, "the text has no constant " + name);
  const Entry& entry = entries_[number];
  if (entry.elided)
    reader.fail_at(at, "constant " + name + " is elided; print the graph with its constants to read it back");
  if (entry.type != type)
    reader.fail_at(at, "constant " + name + " is of type " + entry.type + ", not " + std::string(type));
  return entry.bytes;
}

void FieldWriter::ids(std::string_view key, const std::vector<int32_t>& values) {
  if (values.empty()) return;
  std::string out = "[";
  for (const int32_t value : values) out += (out.size() > 1 ? ", %" : "%") + std::to_string(value);
  put(key, out + "]");
}

std::string FieldWriter::nested() const {
  std::string out = "{";
  for (const std::string& item : items_) out += (out.size() > 1 ? " " : "") + item;
  return out + "}";
}

void FieldWriter::print(Printer& printer, std::string head) const {
  std::string line = std::move(head);
  bool first = true;
  for (const std::string& item : items_) {
    if (!first && line.size() + 1 + item.size() + 4 > kColumns) {
      printer.line(line);
      line = "   ";
    }
    line += " " + item;
    first = false;
  }
  printer.line(line);
}

void FieldReader::ids(std::string_view key, std::vector<int32_t>& values) {
  known_.emplace_back(key, [this, &values] {
    values.clear();
    reader_.list("[", "]", ",", [&] { values.push_back(read_id()); });
  });
}

int32_t FieldReader::read_id() {
  const Token at = reader_.token();
  const std::string digits = reader_.symbol('%');
  if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string::npos)
    reader_.fail_at(at, "tensors and values are %0, %1 and so on, not '%" + digits + "'");
  return static_cast<int32_t>(std::stol(digits));
}

void FieldReader::run() {
  std::set<std::string> seen;
  reader_.fields([&](const std::string& key) {
    const auto found = std::find_if(known_.begin(), known_.end(), [&](const auto& k) { return k.first == key; });
    if (found == known_.end()) return false;
    if (!seen.insert(key).second) reader_.fail("field '" + key + "' stands twice");
    found->second();
    return true;
  });
  for (const std::string& key : required_)
    if (!seen.contains(key)) reader_.fail("field '" + key + "' is missing");
}

}  // namespace tessera::text
