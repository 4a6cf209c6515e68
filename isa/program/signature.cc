// SPDX-License-Identifier: Apache-2.0
// Keys are read and written as text; the curve is libsodium's.
#include "isa/program/signature.h"

#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "isa/program/container.h"

namespace tessera::program {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPublicWord = "tessera-ed25519";
constexpr std::string_view kSecretWord = "tessera-ed25519-secret";
constexpr std::string_view kPurpose = "Tessera artifact, container version 2";  // so that no other signature passes
constexpr std::string_view kMagic = "TSRSIGN1";
constexpr uintmax_t kLargestKeyFile = uintmax_t{1} << 20;

static_assert(std::tuple_size_v<PublicKey> == crypto_sign_PUBLICKEYBYTES);
static_assert(std::tuple_size_v<SecretKey> == crypto_sign_SECRETKEYBYTES);
static_assert(kSignatureBytes == kMagic.size() + crypto_sign_PUBLICKEYBYTES + crypto_sign_BYTES);

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidArtifact, message); }

void start_sodium() {
  if (sodium_init() < 0) throw Error(ErrorCode::kInternal, "libsodium does not start");
}

template <size_t N>
std::string hex(const std::array<uint8_t, N>& bytes) {
  std::string text(2 * N + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), bytes.data(), N);
  text.pop_back();
  return text;
}

/// Whether the word is the key in digits, and nothing else.
template <size_t N>
bool parse_hex(const std::string& word, std::array<uint8_t, N>& bytes) {
  size_t length = 0;
  return word.size() == 2 * N &&
         sodium_hex2bin(bytes.data(), N, word.data(), word.size(), nullptr, &length, nullptr) == 0 && length == N;
}

std::string read_key_file(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error) && fs::file_size(path, error) > kLargestKeyFile)
    throw Error(ErrorCode::kInvalidArgument, "'" + path + "' is too large for a file of keys");
  std::ifstream in(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in) throw Error(ErrorCode::kIo, "cannot read keys from '" + path + "'");
  return text;
}

void write_key_file(const std::string& path, const std::string& text, mode_t mode) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0) throw Error(ErrorCode::kIo, "cannot write '" + path + "': " + std::strerror(errno));
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (close(file) != 0 || !written) throw Error(ErrorCode::kIo, "cannot write '" + path + "'");
}

void add_keys(const std::string& path, std::set<PublicKey>& keys) {
  std::istringstream text(read_key_file(path));
  std::string line;
  for (size_t number = 1; std::getline(text, line); ++number) {
    std::istringstream words(line);
    std::string kind, digits;
    words >> kind >> digits;
    if (kind.empty() || kind[0] == '#') continue;
    const std::string where = "'" + path + "', line " + std::to_string(number) + ": ";
    if (kind == kSecretWord)
      throw Error(ErrorCode::kInvalidArgument,
                  where + "this is a secret key; keep it to yourself and trust the file .pub beside it");
    PublicKey key{};
    if (kind != kPublicWord || !parse_hex(digits, key))
      throw Error(ErrorCode::kInvalidArgument,
                  where + "a public key is '" + std::string(kPublicWord) + "' and 64 hexadecimal digits");
    keys.insert(key);
  }
}

/// What is signed, on its way through the hash.
crypto_sign_state hashed(std::span<const uint8_t> bytes) {
  start_sodium();
  crypto_sign_state state;
  crypto_sign_init(&state);
  crypto_sign_update(&state, reinterpret_cast<const unsigned char*>(kPurpose.data()), kPurpose.size());
  crypto_sign_update(&state, bytes.data(), bytes.size());
  return state;
}

}  // namespace

std::string to_text(const PublicKey& key) { return hex(key); }

PublicKey make_key(const std::string& prefix) {
  start_sodium();
  PublicKey key{};
  SecretKey secret{};
  crypto_sign_keypair(key.data(), secret.data());
  write_key_file(prefix + ".pub", std::string(kPublicWord) + " " + hex(key) + "\n", 0644);
  try {
    write_key_file(prefix + ".key", std::string(kSecretWord) + " " + hex(secret) + "\n", 0600);
  } catch (...) {
    unlink((prefix + ".pub").c_str());  // made just now, and of no use
    throw;
  }
  sodium_memzero(secret.data(), secret.size());
  return key;
}

SecretKey load_secret_key(const std::string& path) {
  start_sodium();
  std::istringstream words(read_key_file(path));
  std::string kind, digits, more;
  words >> kind >> digits >> more;
  SecretKey secret{};
  // The second half must be the public key of the first: with another one a signature would tell the secret.
  PublicKey key{};
  SecretKey again{};
  const bool read = kind == kSecretWord && more.empty() && parse_hex(digits, secret) &&
                    crypto_sign_seed_keypair(key.data(), again.data(), secret.data()) == 0 && again == secret;
  if (!read) throw Error(ErrorCode::kInvalidArgument, "'" + path + "' is no secret key; tessera keygen makes one");
  return secret;
}

TrustedKeys TrustedKeys::load(const std::string& path) {
  start_sodium();
  std::set<PublicKey> keys;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(path, error)) {
      if (entry.path().extension() == ".pub") files.push_back(entry.path().string());
    }
    if (error) throw Error(ErrorCode::kIo, "cannot read the folder of keys '" + path + "': " + error.message());
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) add_keys(file, keys);
    if (keys.empty()) throw Error(ErrorCode::kInvalidArgument, "the folder '" + path + "' has no keys in files *.pub");
    return TrustedKeys(std::move(keys));
  }
  add_keys(path, keys);
  if (keys.empty()) throw Error(ErrorCode::kInvalidArgument, "'" + path + "' holds no public key");
  return TrustedKeys(std::move(keys));
}

std::vector<uint8_t> sign(std::span<const uint8_t> bytes, const SecretKey& key) {
  std::vector<uint8_t> out = with_signature_place(bytes);
  const std::span<uint8_t> place = std::span(out).last(kSignatureBytes);
  crypto_sign_state state = hashed(std::span(out).first(out.size() - kSignatureBytes));
  std::copy(kMagic.begin(), kMagic.end(), place.begin());
  std::copy(key.begin() + crypto_sign_SEEDBYTES, key.end(), place.begin() + kMagic.size());
  crypto_sign_final_create(&state, place.data() + kMagic.size() + crypto_sign_PUBLICKEYBYTES, nullptr, key.data());
  return out;
}

std::optional<PublicKey> signer(std::span<const uint8_t> bytes) {
  const std::span<const uint8_t> place = unframe(bytes).signature;
  if (place.empty()) return std::nullopt;
  PublicKey key{};
  std::copy_n(place.begin() + kMagic.size(), key.size(), key.begin());
  crypto_sign_state state = hashed(bytes.first(bytes.size() - kSignatureBytes));
  if (!std::equal(kMagic.begin(), kMagic.end(), place.begin()) ||
      crypto_sign_final_verify(&state, place.data() + kMagic.size() + crypto_sign_PUBLICKEYBYTES, key.data()) != 0) {
    refuse("the signature is not that of this artifact: one of the two was altered");
  }
  return key;
}

void require_trusted(std::span<const uint8_t> bytes, const TrustedKeys& keys) {
  const std::optional<PublicKey> key = signer(bytes);
  if (!key)
    refuse("the artifact is not signed, and only those with a trusted signature are loaded; tessera sign signs one");
  if (!keys.contains(*key))
    refuse("the artifact is signed with the key " + to_text(*key) + ", which is not among the trusted");
}

}  // namespace tessera::program
