// SPDX-License-Identifier: Apache-2.0
// The outer frame of a .tsr file: a preamble of 64 bytes and three sections, each at a multiple of 64 and padded with
// zeros. Enters: sections or a file's bytes. Leaves: the other. All corruption that a checksum can find is found here,
// before the metadata is looked at.
//
//   0  magic, 8 bytes                 32  bytes of the device constants
//   8  version, u32                   40  checksum of the sections
//  12  bytes of the preamble, u32     48  bytes of the signature: 0 or 104
//  16  bytes of the metadata          56  checksum of bytes 0..55
//  24  bytes of the constant blob
//
// A signature (signature.h) stands behind the last section: magic, 8 bytes; the public key, 32; Ed25519ph of everything
// before it, 64. Here it is only found.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::program {

inline constexpr uint32_t kContainerVersion = 2;
inline constexpr size_t kPreambleBytes = 64;
inline constexpr size_t kSignatureBytes = 104;

struct Sections {
  std::span<const uint8_t> metadata;  // a FlatBuffer of program.fbs
  std::span<const uint8_t> constant_blob;
  std::span<const uint8_t> device_constants;
  std::span<const uint8_t> signature;  // empty when the file has none; frame() writes none
};

std::vector<uint8_t> frame(const Sections& sections);

/// Views into `bytes`. Throws Error kInvalidArtifact when the file is foreign, truncated, damaged or of another
/// version.
Sections unframe(std::span<const uint8_t> bytes);

/// The file with a place for a signature behind it, zeros, in place of the one it may have. Errors: as unframe.
std::vector<uint8_t> with_signature_place(std::span<const uint8_t> bytes);

/// 64-bit hash by multiplication over little-endian words. Each step is a bijection of the state, so that a change
/// within any one word always changes the result.
uint64_t checksum(std::span<const uint8_t> bytes);

}  // namespace tessera::program
