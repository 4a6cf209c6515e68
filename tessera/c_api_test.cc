// SPDX-License-Identifier: Apache-2.0
// The C interface from outside: the bundled digits network opens, runs and reports; failures are statuses with
// messages.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tessera.h"

namespace {

constexpr const char* kModel = "examples/digits/digits.onnx";

TEST(CApi, RunsTheDigitsNetworkOnTheSimulatorAsOnTheReference) {
  std::vector<float> image(64);
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(i % 17) / 16.0f;
  std::vector<float> logits[2];
  const char* devices[2] = {"reference", "fsim"};
  for (int d = 0; d < 2; ++d) {
    tessera_session* session = nullptr;
    ASSERT_EQ(tessera_session_open(kModel, devices[d], "npu64", &session), TESSERA_OK) << tessera_last_error();
    ASSERT_EQ(tessera_input_count(session), 1u);
    tessera_port port;
    ASSERT_EQ(tessera_input(session, 0, &port), TESSERA_OK);
    EXPECT_STREQ(port.name, "image");
    EXPECT_EQ(port.dtype, 1);
    ASSERT_EQ(port.rank, 4u);
    EXPECT_EQ(port.shape[0], -1);
    const int64_t shape[4] = {1, 1, 8, 8};
    const tessera_tensor input = {1, 4, shape, image.data(), image.size() * 4};
    tessera_tensor output;
    ASSERT_EQ(tessera_run(session, &port.name, &input, 1, &output), TESSERA_OK) << tessera_last_error();
    ASSERT_EQ(output.bytes, 40u);
    logits[d].resize(10);
    std::memcpy(logits[d].data(), output.data, output.bytes);
    const char* json = nullptr;
    ASSERT_EQ(tessera_stats(session, &json), TESSERA_OK);
    EXPECT_NE(std::string(json).find(devices[d]), std::string::npos);
    tessera_session_close(session);
  }
  EXPECT_EQ(logits[0], logits[1]);
}

TEST(CApi, TensorsThatCannotBeReadAreRefused) {
  const std::vector<float> image(64);
  const int64_t shape[4] = {1, 1, 8, 8}, large[4] = {int64_t{1} << 40, 1, 8, 8}, negative[4] = {1, 1, 8, -1},
                beyond[4] = {int64_t{1} << 40, int64_t{1} << 40, 8, 8};
  const size_t bytes = image.size() * 4;
  tessera_session* session = nullptr;
  ASSERT_EQ(tessera_session_open(kModel, "fsim", "npu64", &session), TESSERA_OK) << tessera_last_error();
  const std::pair<tessera_tensor, const char*> cases[] = {
      {{1, 4, nullptr, image.data(), bytes}, "its shape is NULL"},
      {{1, 4, shape, nullptr, bytes}, "its data is NULL"},
      {{1, SIZE_MAX, shape, image.data(), bytes}, "its rank is"},
      {{257, 4, shape, image.data(), bytes}, "element type 257"},  // 1 in the lowest byte
      {{1, 4, large, image.data(), bytes}, "too few for"},
      {{1, 4, negative, image.data(), bytes}, "input 'image': shape [1,1,8,?] has a negative"},
      {{1, 4, beyond, image.data(), bytes}, "input 'image': shape"},
      {{1, 4, shape, image.data(), 8}, "8 bytes given, float32 [1,1,8,8] has 256"},
  };
  const char* names[2] = {"image", "image"};
  tessera_tensor output;
  for (const auto& [tensor, said] : cases) {
    EXPECT_EQ(tessera_run(session, names, &tensor, 1, &output), TESSERA_INVALID_ARGUMENT) << said;
    EXPECT_NE(std::string(tessera_last_error()).find(said), std::string::npos) << tessera_last_error();
  }
  const tessera_tensor good = {1, 4, shape, image.data(), bytes}, twice[2] = {good, good};
  EXPECT_EQ(tessera_run(session, names, twice, 2, &output), TESSERA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tessera_last_error()).find("given twice"), std::string::npos);
  EXPECT_EQ(tessera_run(session, names, nullptr, 1, &output), TESSERA_INVALID_ARGUMENT);
  EXPECT_EQ(tessera_run(session, names, &good, 1, &output), TESSERA_OK) << tessera_last_error();
  tessera_session_close(session);
}

TEST(CApi, BindingsKeepTensorsOnTheDevice) {
  std::vector<float> image(64);
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(i % 13) / 16.0f;
  const int64_t shape[4] = {1, 1, 8, 8};
  const tessera_tensor input = {1, 4, shape, image.data(), image.size() * 4};
  tessera_session* session = nullptr;
  ASSERT_EQ(tessera_session_open(kModel, "fsim", "npu64", &session), TESSERA_OK) << tessera_last_error();
  tessera_port in, out;
  ASSERT_EQ(tessera_input(session, 0, &in), TESSERA_OK);
  ASSERT_EQ(tessera_output(session, 0, &out), TESSERA_OK);
  tessera_tensor expected;
  ASSERT_EQ(tessera_run(session, &in.name, &input, 1, &expected), TESSERA_OK);
  const std::vector<float> want(static_cast<const float*>(expected.data),
                                static_cast<const float*>(expected.data) + 10);

  tessera_binding* binding = nullptr;
  ASSERT_EQ(tessera_binding_create(session, &binding), TESSERA_OK);
  EXPECT_EQ(tessera_run_binding(binding), TESSERA_INVALID_ARGUMENT);
  EXPECT_EQ(tessera_bind_input(binding, "none", &input), TESSERA_INVALID_ARGUMENT);
  tessera_device_tensor* held = nullptr;
  ASSERT_EQ(tessera_to_device(session, &input, &held), TESSERA_OK) << tessera_last_error();
  ASSERT_EQ(tessera_bind_device_input(binding, in.name, held), TESSERA_OK) << tessera_last_error();
  tessera_device_tensor_release(held);
  ASSERT_EQ(tessera_bind_output_to_device(binding, out.name), TESSERA_OK);
  ASSERT_EQ(tessera_run_binding(binding), TESSERA_OK) << tessera_last_error();
  tessera_tensor host;
  EXPECT_EQ(tessera_binding_output(binding, 0, &host), TESSERA_INVALID_ARGUMENT);
  EXPECT_EQ(tessera_binding_device_output(binding, 1, &held), TESSERA_INVALID_ARGUMENT);
  ASSERT_EQ(tessera_binding_device_output(binding, 0, &held), TESSERA_OK) << tessera_last_error();
  tessera_binding_release(binding);
  tessera_session_close(session);
  // The tensor outlives both.
  tessera_tensor description;
  ASSERT_EQ(tessera_device_tensor_describe(held, &description), TESSERA_OK);
  EXPECT_EQ(description.dtype, 1);
  ASSERT_EQ(description.bytes, 40u);
  std::vector<float> got(10);
  EXPECT_EQ(tessera_device_tensor_copy_to_host(held, got.data(), 36), TESSERA_INVALID_ARGUMENT);
  ASSERT_EQ(tessera_device_tensor_copy_to_host(held, got.data(), 40), TESSERA_OK) << tessera_last_error();
  EXPECT_EQ(got, want);
  tessera_device_tensor_release(held);
}

TEST(CApi, ModelsInMemory) {
  std::ifstream file(kModel, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  tessera_session* session = nullptr;
  const char* option = "effort=quick";
  ASSERT_EQ(tessera_session_open_memory(content.data(), content.size(), nullptr, "npu64", &option, 1, &session),
            TESSERA_OK)
      << tessera_last_error();
  EXPECT_EQ(tessera_input_count(session), 1U);
  tessera_session_close(session);
  EXPECT_EQ(tessera_session_open_memory("no model", 8, nullptr, nullptr, nullptr, 0, &session), TESSERA_INVALID_MODEL);
  EXPECT_EQ(session, nullptr);
  EXPECT_EQ(tessera_session_open_memory(nullptr, 8, nullptr, nullptr, nullptr, 0, &session), TESSERA_INVALID_ARGUMENT);
}

TEST(CApi, FailuresAreStatusesWithMessages) {
  tessera_session* session = nullptr;
  EXPECT_EQ(tessera_session_open("no/such/file.onnx", nullptr, nullptr, &session), TESSERA_IO);
  EXPECT_EQ(session, nullptr);
  EXPECT_NE(std::string(tessera_last_error()).find("no/such/file.onnx"), std::string::npos);
  EXPECT_EQ(tessera_session_open(kModel, "abacus", nullptr, &session), TESSERA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tessera_last_error()).find("fsim"), std::string::npos);
  ASSERT_EQ(tessera_session_open(kModel, nullptr, nullptr, &session), TESSERA_OK) << tessera_last_error();
  const char* name = "image";
  const int64_t shape[3] = {1, 8, 8};
  std::vector<float> image(64);
  const tessera_tensor input = {1, 3, shape, image.data(), 256};
  tessera_tensor output;
  EXPECT_EQ(tessera_run(session, &name, &input, 1, &output), TESSERA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tessera_last_error()).find("[1,8,8]"), std::string::npos) << tessera_last_error();
  EXPECT_EQ(tessera_input(nullptr, 0, nullptr), TESSERA_INVALID_ARGUMENT);
  tessera_session_close(session);
}

/// A field of a protobuf message, of wire type 2.
std::string field(int number, const std::string& content) {
  std::string bytes(1, static_cast<char>(number << 3 | 2));
  bytes += static_cast<char>(content.size());
  return bytes + content;
}
std::string number(int field, int value) { return {static_cast<char>(field << 3), static_cast<char>(value)}; }

/// y = x + w of one element, where w has the value 2.5 unless a run gives it.
std::string model_with_default() {
  const std::string shape = field(2, field(1, number(1, 1)));
  const auto port = [&](const std::string& name) { return field(1, name) + field(2, field(1, number(1, 1) + shape)); };
  const float value = 2.5F;
  const std::string raw(reinterpret_cast<const char*>(&value), sizeof value);
  const std::string tensor = number(1, 1) + number(2, 1) + field(8, "w") + field(9, raw);
  const std::string node = field(1, "x") + field(1, "w") + field(2, "y") + field(4, "Add");
  const std::string graph = field(1, node) + field(2, "g") + field(5, tensor) + field(11, port("x")) +
                            field(11, port("w")) + field(12, port("y"));
  return number(1, 8) + field(7, graph) + field(8, number(2, 13));
}

TEST(CApi, InitializersMayBeGiven) {
  const std::string path = ::testing::TempDir() + "/with_default.onnx";
  std::ofstream(path, std::ios::binary) << model_with_default();
  tessera_session* session = nullptr;
  ASSERT_EQ(tessera_session_open(path.c_str(), "fsim", "npu64", &session), TESSERA_OK) << tessera_last_error();
  EXPECT_EQ(tessera_input_count(session), 1u);
  ASSERT_EQ(tessera_overridable_count(session), 1u);
  tessera_port port;
  ASSERT_EQ(tessera_overridable(session, 0, &port), TESSERA_OK);
  EXPECT_STREQ(port.name, "w");
  EXPECT_EQ(tessera_overridable(session, 1, &port), TESSERA_INVALID_ARGUMENT);
  const int64_t shape[1] = {1};
  const float x = 1, w = 7;
  const tessera_tensor inputs[2] = {{1, 1, shape, &x, 4}, {1, 1, shape, &w, 4}};
  const char* names[2] = {"x", "w"};
  for (const auto& [given, expected] : {std::pair<size_t, float>{1, 3.5F}, {2, 8}, {1, 3.5F}}) {
    tessera_tensor output;
    ASSERT_EQ(tessera_run(session, names, inputs, given, &output), TESSERA_OK) << tessera_last_error();
    EXPECT_EQ(*static_cast<const float*>(output.data), expected);
  }
  tessera_session_close(session);
}

}  // namespace
