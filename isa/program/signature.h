// SPDX-License-Identifier: Apache-2.0
// Who made an artifact. Enters: the bytes of a .tsr file and keys. Leaves: the bytes with a signature, or the verdict
// on the one they have. The signature is Ed25519ph (RFC 8032, by libsodium) of every byte before it, preamble included,
// behind a text that says what is signed; it stands at the end of the file. An artifact carries machine code, so who
// loads one asks for a trusted signature before anything else is read of it (docs/security.md).
//
// Key files are text. A line of a file of public keys is "tessera-ed25519 KEY [comment]", KEY in 64 hexadecimal digits;
// empty lines and those that begin with # are left out. A secret key is one line "tessera-ed25519-secret KEY", KEY in
// 128 digits.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace tessera::program {

using PublicKey = std::array<uint8_t, 32>;
using SecretKey = std::array<uint8_t, 64>;  // the seed, then the public key

/// 64 hexadecimal digits.
std::string to_text(const PublicKey& key);

/// Draws a key and writes PREFIX.key, which only its owner may read, and PREFIX.pub. Errors: kIo when one cannot be
/// written or exists already.
PublicKey make_key(const std::string& prefix);

/// Errors: kIo, kInvalidArgument naming the file.
SecretKey load_secret_key(const std::string& path);

class TrustedKeys {
 public:
  /// A file of public keys, or a folder whose files *.pub are such. Errors: kIo; kInvalidArgument naming file and line
  /// for what is no key, and when there is none.
  static TrustedKeys load(const std::string& path);
  explicit TrustedKeys(std::set<PublicKey> keys) : keys_(std::move(keys)) {}
  bool contains(const PublicKey& key) const { return keys_.contains(key); }

 private:
  std::set<PublicKey> keys_;
};

/// The file signed, in place of a signature it may have. Errors: kInvalidArtifact when it is no artifact.
std::vector<uint8_t> sign(std::span<const uint8_t> bytes, const SecretKey& key);

/// The key that an artifact is signed with. Nothing when it has no signature. Errors: kInvalidArtifact when the file is
/// no whole artifact or the signature is not that of its bytes.
std::optional<PublicKey> signer(std::span<const uint8_t> bytes);

/// Returns when the artifact is signed with one of the keys. Errors: kInvalidArtifact, which says what is missing: the
/// signature, the trust in its key, or that the bytes are those that were signed.
void require_trusted(std::span<const uint8_t> bytes, const TrustedKeys& keys);

}  // namespace tessera::program
