// SPDX-License-Identifier: Apache-2.0
// Frame of a .tsr file. Magic and version are judged before the preamble's checksum, so that a file of another kind or
// of a later version is called so and not "damaged".
#include "isa/program/container.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "base/error.h"

namespace tessera::program {
namespace {

// Text-mode transfers and seven-bit channels alter it.
constexpr std::array<uint8_t, 8> kMagic = {'T', 'S', 'R', 0x9a, '\r', '\n', 0x1a, '\n'};

uint64_t get(std::span<const uint8_t> bytes, size_t at, int size) {
  uint64_t value = 0;
  for (int k = 0; k < size; ++k) value |= static_cast<uint64_t>(bytes[at + k]) << (8 * k);
  return value;
}

void put(std::vector<uint8_t>& bytes, size_t at, uint64_t value, int size) {
  for (int k = 0; k < size; ++k) bytes[at + k] = static_cast<uint8_t>(value >> (8 * k));
}

uint64_t padded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::kInvalidArtifact, message); }

}  // namespace

uint64_t checksum(std::span<const uint8_t> bytes) {
  uint64_t hash = 0x9ae16a3b2f90404full ^ bytes.size();
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * 0xc2b2ae3d27d4eb4full;
    hash ^= hash >> 29;
  };
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    mix(std::endian::native == std::endian::little ? word : get(bytes, at, 8));
  }
  if (at < bytes.size()) mix(get(bytes, at, static_cast<int>(bytes.size() - at)));
  return hash;
}

std::vector<uint8_t> frame(const Sections& sections) {
  const std::array<std::span<const uint8_t>, 3> parts = {sections.metadata, sections.constant_blob,
                                                         sections.device_constants};
  uint64_t total = kPreambleBytes;
  for (const auto& part : parts) total += padded(part.size());
  std::vector<uint8_t> out(total);
  size_t at = kPreambleBytes;
  for (size_t k = 0; k < parts.size(); ++k) {
    if (!parts[k].empty()) std::memcpy(out.data() + at, parts[k].data(), parts[k].size());
    at += padded(parts[k].size());
    put(out, 16 + 8 * k, parts[k].size(), 8);
  }
  std::copy(kMagic.begin(), kMagic.end(), out.begin());
  put(out, 8, kContainerVersion, 4);
  put(out, 12, kPreambleBytes, 4);
  put(out, 40, checksum(std::span(out).subspan(kPreambleBytes)), 8);
  put(out, 56, checksum(std::span(out).first(56)), 8);
  return out;
}

Sections unframe(std::span<const uint8_t> bytes) {
  const size_t head = std::min(bytes.size(), kMagic.size());
  if (bytes.empty() || !std::equal(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(head), kMagic.begin())) {
    fail("not a Tessera program: the file does not begin like one");
  }
  if (bytes.size() < kPreambleBytes)
    fail("the program is truncated: it ends after " + std::to_string(bytes.size()) + " bytes");
  const uint64_t version = get(bytes, 8, 4);
  if (version != kContainerVersion) {
    fail("the program has container version " + std::to_string(version) + ", this Tessera reads version " +
         std::to_string(kContainerVersion) +
         (version > kContainerVersion ? "; use a newer Tessera or compile the model again"
                                      : "; compile the model again"));
  }
  if (get(bytes, 56, 8) != checksum(bytes.first(56)) || get(bytes, 12, 4) != kPreambleBytes ||
      (get(bytes, 48, 8) != 0 && get(bytes, 48, 8) != kSignatureBytes)) {
    fail("the program is damaged: its preamble does not match its checksum");
  }
  std::array<uint64_t, 3> sizes{};
  const uint64_t signature = get(bytes, 48, 8);
  uint64_t total = kPreambleBytes + signature;
  for (size_t k = 0; k < sizes.size(); ++k) {
    sizes[k] = get(bytes, 16 + 8 * k, 8);
    if (sizes[k] > uint64_t{1} << 56) fail("the program is damaged: a section is impossibly large");
    total += padded(sizes[k]);
  }
  if (bytes.size() != total) {
    fail("the program is " + std::string(bytes.size() < total ? "truncated" : "damaged") + ": it has " +
         std::to_string(bytes.size()) + " bytes, its preamble says " + std::to_string(total));
  }
  if (get(bytes, 40, 8) != checksum(bytes.subspan(kPreambleBytes, total - kPreambleBytes - signature))) {
    fail("the program is damaged: its content does not match its checksum");
  }
  Sections sections;
  size_t at = kPreambleBytes;
  sections.metadata = bytes.subspan(at, sizes[0]);
  at += padded(sizes[0]);
  sections.constant_blob = bytes.subspan(at, sizes[1]);
  at += padded(sizes[1]);
  sections.device_constants = bytes.subspan(at, sizes[2]);
  sections.signature = bytes.last(signature);
  return sections;
}

std::vector<uint8_t> with_signature_place(std::span<const uint8_t> bytes) {
  const size_t held = bytes.size() - unframe(bytes).signature.size();
  std::vector<uint8_t> out(held + kSignatureBytes);
  std::copy_n(bytes.begin(), held, out.begin());
  put(out, 48, kSignatureBytes, 8);
  put(out, 56, checksum(std::span(out).first(56)), 8);
  return out;
}

}  // namespace tessera::program
