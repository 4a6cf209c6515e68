// SPDX-License-Identifier: Apache-2.0
// Walks character by character, and byte by byte where there is none.
#include "tessera/message.h"

namespace tessera {
namespace {

/// Bytes of the UTF-8 character at the beginning; 0 when there is none.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char first = byte(0);
  const size_t size = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (size == 0 || size > text.size()) return 0;
  for (size_t k = 1; k < size; ++k) {
    if ((byte(k) & 0xc0) != 0x80) return 0;
  }
  // Longer than needed, half of a surrogate pair, or beyond the last character.
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f) || (first == 0xf0 && byte(1) < 0x90) ||
      (first == 0xf4 && byte(1) > 0x8f)) {
    return 0;
  }
  return size;
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    const size_t size = first < 0x20 || first == 0x7f ? 0 : character_bytes(text);
    if (size > 0) {
      line += text.substr(0, size);
    } else if (first == '\n') {
      line += "\\n";
    } else {
      constexpr std::string_view kDigits = "0123456789abcdef";
      line += {'\\', 'x', kDigits[first >> 4], kDigits[first & 15]};
    }
    text.remove_prefix(size > 0 ? size : 1);
  }
  return line;
}

}  // namespace tessera
