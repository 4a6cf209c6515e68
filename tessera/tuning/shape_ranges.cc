// SPDX-License-Identifier: Apache-2.0
#include "tessera/tuning/shape_ranges.h"

#include <charconv>
#include <string_view>

#include "base/error.h"

namespace tessera {

namespace {

constexpr size_t kMostShapes = 1000;
constexpr int64_t kLargest = int64_t{1} << 40;

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "--shapes '" + std::string(text) + "': " + why);
}

/// The part in front of a mark, which is taken off with it; all of it where there is no mark.
std::string_view take(std::string_view& rest, char mark) {
  const size_t at = rest.find(mark);
  const std::string_view part = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view() : rest.substr(at + 1);
  return part;
}

int64_t number(std::string_view digits, std::string_view text) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0 || value > kLargest)
    refuse(text, "'" + std::string(digits) + "' is no size; give N, FIRST-LAST or FIRST-LAST/STEP for each dimension");
  return value;
}

std::vector<int64_t> sizes(std::string_view range, std::string_view text) {
  if (range.find('-') == std::string_view::npos) return {number(range, text)};
  std::string_view step = range;
  std::string_view last = take(step, '/');
  const int64_t first = number(take(last, '-'), text), end = number(last, text);
  const int64_t by = range.find('/') == std::string_view::npos ? 1 : number(step, text);
  if (by < 1 || end < first || (end - first) / by >= static_cast<int64_t>(kMostShapes))
    refuse(text, "'" + std::string(range) + "' is no range of at most 1000 sizes");
  std::vector<int64_t> all;
  for (int64_t size = first; size <= end; size += by) all.push_back(size);
  return all;
}

/// Each of `lists` with each of `ends` behind it.
template <typename List, typename Add>
std::vector<List> combined(const std::vector<List>& lists, size_t ends, std::string_view text, Add&& add) {
  if (lists.size() * ends > kMostShapes) refuse(text, "these are more than 1000 shapes");
  std::vector<List> all;
  for (const List& list : lists) {
    for (size_t k = 0; k < ends; ++k) add(all.emplace_back(list), k);
  }
  return all;
}

}  // namespace

std::vector<std::map<std::string, ops::Shape>> shapes_of_ranges(const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<ops::Shape>> alternatives;
  for (const std::string& text : texts) {
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0) refuse(text, "it is not NAME=D0,D1,...");
    std::vector<ops::Shape> shapes(1);
    std::string_view rest = std::string_view(text).substr(equals + 1);
    for (bool more = !rest.empty(); more;) {
      more = rest.find(',') != std::string_view::npos;
      const std::vector<int64_t> all = sizes(take(rest, ','), text);
      shapes = combined(shapes, all.size(), text, [&](ops::Shape& shape, size_t k) { shape.push_back(all[k]); });
    }
    auto& of = alternatives[text.substr(0, equals)];
    of.insert(of.end(), shapes.begin(), shapes.end());
  }
  std::vector<std::map<std::string, ops::Shape>> result(1);
  for (const auto& [name, shapes] : alternatives) {
    result = combined(result, shapes.size(), name,
                      [&name = name, &shapes = shapes](auto& given, size_t k) { given[name] = shapes[k]; });
  }
  return result;
}

}  // namespace tessera
