// SPDX-License-Identifier: Apache-2.0
#include "compiler/litert/flexbuffer.h"

namespace tessera::litert {
namespace {

// Types of the format, each shifted behind the two bits of a width.
constexpr uint8_t kInt = 1, kUint = 2, kFloat = 3, kIndirectInt = 6, kIndirectUint = 7, kIndirectFloat = 8, kMap = 9,
                  kBool = 26;

bool is_width(uint64_t width) { return width == 1 || width == 2 || width == 4 || width == 8; }

uint64_t unsigned_at(Bytes file, uint64_t at, uint64_t width) {
  switch (width) {
    case 1: return load<uint8_t>(file, at);
    case 2: return load<uint16_t>(file, at);
    case 4: return load<uint32_t>(file, at);
    default: return load<uint64_t>(file, at);
  }
}

double signed_at(Bytes file, uint64_t at, uint64_t width) {
  switch (width) {
    case 1: return load<int8_t>(file, at);
    case 2: return load<int16_t>(file, at);
    case 4: return load<int32_t>(file, at);
    default: return static_cast<double>(load<int64_t>(file, at));
  }
}

double real_at(Bytes file, uint64_t at, uint64_t width) {
  return width == 8 ? load<double>(file, at) : width == 4 ? static_cast<double>(load<float>(file, at)) : 0;
}

/// Offsets count backwards from where they stand.
uint64_t target(Bytes file, uint64_t at, uint64_t width) {
  const uint64_t back = unsigned_at(file, at, width);
  if (back > at) fail_damaged();
  return at - back;
}

std::string text_at(Bytes file, uint64_t at) {
  std::string text;
  for (char c = load<char>(file, at); c != 0; c = load<char>(file, ++at)) text.push_back(c);
  return text;
}

/// A map is a vector of values in front of which stand the offset of its keys, the width of those, and its length; the
/// types of the values follow it.
std::map<std::string, double> numbers_of(Bytes file, uint64_t values, uint64_t width) {
  if (values < 3 * width) fail_damaged();
  const uint64_t count = unsigned_at(file, values - width, width),
                 key_width = unsigned_at(file, values - 2 * width, width),
                 keys = target(file, values - 3 * width, width);
  if (!is_width(key_width) || count > file.size()) fail_damaged();
  std::map<std::string, double> numbers;
  for (uint64_t i = 0; i < count; ++i) {
    const std::string name = text_at(file, target(file, keys + i * key_width, key_width));
    const auto packed = load<uint8_t>(file, values + count * width + i);
    const uint64_t at = values + i * width, own = uint64_t{1} << (packed & 3);
    switch (packed >> 2) {
      case kInt: numbers[name] = signed_at(file, at, width); break;
      case kUint:
      case kBool: numbers[name] = static_cast<double>(unsigned_at(file, at, width)); break;
      case kFloat: numbers[name] = real_at(file, at, width); break;
      case kIndirectInt: numbers[name] = signed_at(file, target(file, at, width), own); break;
      case kIndirectUint: numbers[name] = static_cast<double>(unsigned_at(file, target(file, at, width), own)); break;
      case kIndirectFloat: numbers[name] = real_at(file, target(file, at, width), own); break;
      default: break;
    }
  }
  return numbers;
}

}  // namespace

std::map<std::string, double> read_numbers(Bytes options) {
  if (options.size() < 3) fail_damaged();
  // The last bytes: the root, its type, its width.
  const auto width = load<uint8_t>(options, options.size() - 1), packed = load<uint8_t>(options, options.size() - 2);
  if (!is_width(width) || options.size() < 2U + width || packed >> 2 != kMap) fail_damaged();
  return numbers_of(options, target(options, options.size() - 2 - width, width), uint64_t{1} << (packed & 3));
}

}  // namespace tessera::litert
