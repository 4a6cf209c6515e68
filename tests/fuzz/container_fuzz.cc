// SPDX-License-Identifier: Apache-2.0
// The frame of a .tsr file. Enters: bytes. A mutation changes bytes, sizes, or whole sections, and mostly makes the
// checksums right again, so that it gets past them. Property: what is accepted and framed again has the same sections,
// and an altered byte under an old checksum is never accepted.
#include <cstring>

#include "isa/program/artifact.h"
#include "isa/program/container.h"
#include "tests/fuzz/fuzz.h"

namespace tessera::fuzz {
namespace {

using Bytes = std::vector<uint8_t>;

void store(Bytes& bytes, size_t at, uint64_t value, size_t width) {
  for (size_t k = 0; k < width && at + k < bytes.size(); ++k) bytes[at + k] = static_cast<uint8_t>(value >> (8 * k));
}

uint64_t fetch(const Bytes& bytes, size_t at, size_t width) {
  uint64_t value = 0;
  for (size_t k = 0; k < width && at + k < bytes.size(); ++k) value |= uint64_t{bytes[at + k]} << (8 * k);
  return value;
}

/// The checksums of what stands there now (container.h).
void seal(Bytes& bytes) {
  if (bytes.size() < program::kPreambleBytes) return;
  const size_t signature = fetch(bytes, 48, 8) == program::kSignatureBytes ? program::kSignatureBytes : 0;
  if (bytes.size() < program::kPreambleBytes + signature) return;
  const size_t held = bytes.size() - program::kPreambleBytes - signature;
  store(bytes, 40, program::checksum(std::span(bytes).subspan(program::kPreambleBytes, held)), 8);
  store(bytes, 56, program::checksum(std::span(bytes).first(56)), 8);
}

void mutate(Random& random, Bytes& bytes, size_t limit) {
  switch (random.below(8)) {
    case 7:  // a signature comes or goes
      store(bytes, 48, fetch(bytes, 48, 8) == 0 ? program::kSignatureBytes : 0, 8);
      bytes.resize(fetch(bytes, 48, 8) == 0
                       ? std::max(bytes.size(), program::kSignatureBytes) - program::kSignatureBytes
                       : bytes.size() + program::kSignatureBytes);
      break;
    case 0: {  // any field of the preamble
      const size_t at = random.below(16) * 4, width = random.chance(50) ? 4 : 8;
      store(bytes, at, static_cast<uint64_t>(random.integer(static_cast<int64_t>(fetch(bytes, at, width)))), width);
      break;
    }
    case 1: {  // the size of a section
      const size_t at = 16 + 8 * random.below(3);
      store(bytes, at, static_cast<uint64_t>(random.integer(static_cast<int64_t>(fetch(bytes, at, 8)))), 8);
      break;
    }
    case 2: bytes.resize(random.below(bytes.size() + 1)); break;
    case 3: bytes.resize(std::min(limit, bytes.size() + random.below(200))); break;
    case 4: {  // bytes move from one section to the next
      const size_t at = 16 + 8 * random.below(2);
      const uint64_t moved = 64 * (1 + random.below(8));
      store(bytes, at, fetch(bytes, at, 8) - moved, 8);
      store(bytes, at + 8, fetch(bytes, at + 8, 8) + moved, 8);
      break;
    }
    default: {
      const size_t size = bytes.size();
      bytes.resize(limit);
      bytes.resize(LLVMFuzzerMutate(bytes.data(), size, limit));
    }
  }
  if (random.chance(85)) seal(bytes);
}

}  // namespace
}  // namespace tessera::fuzz

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  fuzz::accepts([&] {
    const program::Sections sections = program::unframe(bytes);
    const std::vector<uint8_t> again = program::frame(sections);
    const program::Sections same = program::unframe(again);
    fuzz::check(std::ranges::equal(sections.metadata, same.metadata) &&
                    std::ranges::equal(sections.constant_blob, same.constant_blob) &&
                    std::ranges::equal(sections.device_constants, same.device_constants),
                "a frame changes its sections");
    std::vector<uint8_t> altered(bytes.begin(), bytes.end());
    const size_t at = program::checksum(bytes) % (altered.size() - sections.signature.size());
    altered[at] ^= static_cast<uint8_t>(1 + at % 255);
    fuzz::check(!fuzz::accepts([&] { program::unframe(altered); }), "an altered byte is accepted");
  });
  fuzz::accepts([&] {
    const program::Artifact artifact = program::parse(bytes);
    const std::vector<uint8_t> written = program::serialize(artifact);
    fuzz::check(program::serialize(program::parse(written)) == written, "a program changes when it is written");
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t limit, unsigned seed) {
  fuzz::Random random(seed);
  std::vector<uint8_t> bytes(data, data + size);
  fuzz::mutate(random, bytes, limit);
  return fuzz::give_back(data, size, limit, bytes.data(), bytes.size());
}
