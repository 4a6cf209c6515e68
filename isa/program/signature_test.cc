// SPDX-License-Identifier: Apache-2.0
// A signed artifact is the same artifact; with any byte altered, cut, of another key or with the signature of another
// file it is refused; files of keys that are none are told.
#include "isa/program/signature.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "isa/program/artifact.h"
#include "isa/program/container.h"

namespace tessera::program {
namespace {

namespace fs = std::filesystem;

/// An artifact that gives its input back.
std::vector<uint8_t> artifact(const std::string& producer = "test") {
  Artifact a;
  a.producer = producer;
  a.config = isa::find_config("npu64");
  ValueInfo value;
  value.name = "x";
  value.dtype = DType::kFloat;
  value.ranked = true;
  value.shape = {2, 3};
  a.values = {value};
  a.plans = {{.inputs = {0}, .outputs = {0}}};
  a.constant_blob.assign(70, 1);
  a.device_constants.assign(64, 2);
  return serialize(a);
}

std::string message_of(ErrorCode code, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

class Signature : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string made = (fs::temp_directory_path() / "tessera-signature-XXXXXX").string();
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    folder = made;
    key = make_key(folder + "/own");
    other = make_key(folder + "/other");
    secret = load_secret_key(folder + "/own.key");
  }
  void TearDown() override { fs::remove_all(folder); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder + "/" + name, std::ios::binary) << text;
    return folder + "/" + name;
  }
  std::string refusal(const std::vector<uint8_t>& bytes) const {
    return message_of(ErrorCode::kInvalidArtifact, [&] { require_trusted(bytes, TrustedKeys({key})); });
  }

  std::string folder;
  PublicKey key{}, other{};
  SecretKey secret{};
};

TEST_F(Signature, ASignedArtifactIsTheSameArtifact) {
  const std::vector<uint8_t> plain = artifact(), made = sign(plain, secret);
  EXPECT_EQ(made.size(), plain.size() + kSignatureBytes);
  EXPECT_EQ(parse(made), parse(plain));
  EXPECT_EQ(signer(made), key);
  EXPECT_EQ(signer(plain), std::nullopt);
  require_trusted(made, TrustedKeys({other, key}));
  require_trusted(made, TrustedKeys::load(folder + "/own.pub"));
  require_trusted(made, TrustedKeys::load(folder));
  // A second signature takes the place of the first.
  const std::vector<uint8_t> again = sign(made, load_secret_key(folder + "/other.key"));
  EXPECT_EQ(again.size(), made.size());
  EXPECT_EQ(signer(again), other);
  EXPECT_EQ(sign(again, secret), made);
}

TEST_F(Signature, EveryByteIsSigned) {
  const std::vector<uint8_t> made = sign(artifact(), secret);
  for (size_t at = 0; at < made.size(); ++at) {
    for (const uint8_t change : {0x01, 0x80}) {
      std::vector<uint8_t> altered = made;
      altered[at] ^= change;
      EXPECT_NE(refusal(altered), "") << at;
    }
  }
}

/// The same with checksums made right again: nothing but the signature stands against it.
TEST_F(Signature, ChecksumsThatAreMadeRightDoNotHelp) {
  const std::vector<uint8_t> made = sign(artifact(), secret);
  const auto put = [](std::vector<uint8_t>& bytes, size_t at, uint64_t value) {
    for (int k = 0; k < 8; ++k) bytes[at + static_cast<size_t>(k)] = static_cast<uint8_t>(value >> (8 * k));
  };
  for (size_t at = kPreambleBytes; at < made.size() - kSignatureBytes; ++at) {
    std::vector<uint8_t> altered = made;
    altered[at] ^= 0x10;
    const size_t held = altered.size() - kSignatureBytes - kPreambleBytes;
    put(altered, 40, checksum(std::span(altered).subspan(kPreambleBytes, held)));
    put(altered, 56, checksum(std::span(altered).first(56)));
    EXPECT_EQ(refusal(altered), "the signature is not that of this artifact: one of the two was altered") << at;
  }
}

TEST_F(Signature, OtherSignaturesAreRefused) {
  const std::vector<uint8_t> plain = artifact(), made = sign(plain, secret);
  EXPECT_NE(refusal(plain).find("is not signed"), std::string::npos);
  const auto foreign = sign(plain, load_secret_key(folder + "/other.key"));
  EXPECT_NE(refusal(foreign).find("signed with the key " + to_text(other) + ", which is not among"), std::string::npos);
  // Of another file of the same size.
  const std::vector<uint8_t> second = artifact("tset");
  ASSERT_EQ(second.size(), plain.size());
  std::vector<uint8_t> moved = with_signature_place(second);
  std::copy(made.end() - kSignatureBytes, made.end(), moved.end() - kSignatureBytes);
  EXPECT_NE(refusal(moved).find("is not that of this artifact"), std::string::npos);
  // A foreign signature that claims to be of a trusted key.
  std::vector<uint8_t> claimed = foreign;
  std::copy(key.begin(), key.end(), claimed.end() - kSignatureBytes + 8);
  EXPECT_NE(refusal(claimed).find("is not that of this artifact"), std::string::npos);
  EXPECT_NE(refusal(with_signature_place(plain)).find("is not that of this artifact"), std::string::npos);
}

TEST_F(Signature, TruncatedFilesAreRefused) {
  const std::vector<uint8_t> made = sign(artifact(), secret);
  for (size_t size = 0; size < made.size(); ++size)
    EXPECT_NE(refusal({made.begin(), made.begin() + static_cast<ptrdiff_t>(size)}), "");
  std::vector<uint8_t> longer = made;
  longer.push_back(0);
  EXPECT_NE(refusal(longer).find("damaged"), std::string::npos);
}

TEST_F(Signature, KeyFiles) {
  struct stat status{};
  ASSERT_EQ(stat((folder + "/own.key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600);
  EXPECT_NE(message_of(ErrorCode::kIo, [&] { make_key(folder + "/own"); }).find("own.pub"), std::string::npos);
  fs::remove(folder + "/own.pub");
  EXPECT_NE(message_of(ErrorCode::kIo, [&] { make_key(folder + "/own"); }).find("own.key"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder + "/own.pub"));
  EXPECT_EQ(load_secret_key(folder + "/own.key"), secret);

  const auto trusted = [&](const std::string& text) {
    const std::string path = write("keys", text);
    return message_of(ErrorCode::kInvalidArgument, [&] { TrustedKeys::load(path); });
  };
  const std::string good = "tessera-ed25519 " + to_text(key);
  EXPECT_TRUE(TrustedKeys::load(write("keys", "# ours\n\n" + good + " of the factory\n")).contains(key));
  EXPECT_NE(trusted("").find("holds no public key"), std::string::npos);
  EXPECT_NE(trusted("# none\n").find("holds no public key"), std::string::npos);
  EXPECT_NE(trusted(good + "\n" + good.substr(0, 70) + "\n").find("line 2: a public key is"), std::string::npos);
  EXPECT_NE(trusted(good + "00").find("line 1"), std::string::npos);
  EXPECT_NE(trusted("tessera-ed25519").find("line 1"), std::string::npos);
  EXPECT_NE(trusted("ssh-ed25519 " + to_text(key)).find("line 1"), std::string::npos);
  EXPECT_NE(trusted(std::string("\0\xff\x01", 3)).find("line 1"), std::string::npos);
  std::ifstream own(folder + "/own.key");
  EXPECT_NE(trusted(std::string(std::istreambuf_iterator<char>(own), {})).find("secret key"), std::string::npos);
  message_of(ErrorCode::kIo, [&] { TrustedKeys::load(folder + "/none"); });
  message_of(ErrorCode::kIo, [&] { TrustedKeys::load(""); });
  fs::create_directory(folder + "/empty");
  EXPECT_NE(message_of(ErrorCode::kInvalidArgument, [&] { TrustedKeys::load(folder + "/empty"); }).find("no keys"),
            std::string::npos);
  // A folder with one broken file trusts nothing.
  write("broken.pub", "hello\n");
  EXPECT_NE(message_of(ErrorCode::kInvalidArgument, [&] { TrustedKeys::load(folder); }).find("broken.pub"),
            std::string::npos);

  const auto refused = [&](const std::string& text) {
    const std::string path = write("wrong.key", text);
    return message_of(ErrorCode::kInvalidArgument, [&] { load_secret_key(path); });
  };
  EXPECT_NE(refused(good).find("no secret key"), std::string::npos);
  EXPECT_NE(refused("").find("no secret key"), std::string::npos);
  EXPECT_NE(refused("tessera-ed25519-secret " + std::string(128, '0')).find("no secret key"), std::string::npos);
  message_of(ErrorCode::kIo, [&] { load_secret_key(folder + "/none.key"); });
}

}  // namespace
}  // namespace tessera::program
