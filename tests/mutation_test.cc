// SPDX-License-Identifier: Apache-2.0
// Deliberate mistakes in compiled programs and in the arithmetic must be seen by the checks that the other tests rely
// on: a dropped wait by the race checker, a wrong halo or padding byte by comparison with the reference interpreter,
// another rounding or swapped operands by the inputs the tests use.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "compiler/pipeline/model.h"
#include "driver/registry.h"
#include "ops/operator.h"
#include "runtime/executor.h"

namespace tessera {
namespace {

constexpr const char* kModel = "examples/digits/digits.onnx";

struct Compiled {
  program::Artifact artifact;
  std::vector<ops::Value> inputs, expected;
};

/// The digits network, with tensors that stay on chip or without.
const Compiled& compiled(bool chains = true) {
  const auto make = [](bool with) {
    compiler::ImportOptions import;
    import.shapes["image"] = {2, 1, 8, 8};
    auto model = compiler::Model::from_file(kModel, import);
    Compiled c;
    ops::Tensor image(ops::DType::kFloat, {2, 1, 8, 8});
    std::mt19937 random(1);
    for (float& v : image.as_mutable<float>()) v = static_cast<float>(random() % 17) / 16.0f;
    c.inputs = {image};
    c.expected = model.interpret(c.inputs);
    compiler::CompileOptions options;
    options.chains = with;
    c.artifact = model.compile(isa::find_config("npu64"), options);
    return c;
  };
  static const Compiled chained = make(true), apart = make(false);
  return chains ? chained : apart;
}

/// Runs the digits network with its instructions changed; nothing when the machine or the race checker refuses.
std::optional<std::vector<float>> run_changed(const std::function<void(std::vector<isa::Instruction>&)>& change,
                                              std::string* message = nullptr, bool chains = true) {
  auto artifact = std::make_shared<program::Artifact>(compiled(chains).artifact);
  auto instructions = program::instructions_of(artifact->npu_programs[0]);
  change(instructions);
  artifact->npu_programs[0].instructions = program::instruction_bytes(instructions);
  std::shared_ptr<driver::Device> device = driver::open_device("fsim", artifact->config);
  runtime::Executor executor(artifact, device);
  runtime::RunOptions options;
  options.check_races = true;
  options.poison = 1;
  try {
    const auto out = executor.run(compiled().inputs, options);
    return out[0].tensor.to_floats();
  } catch (const Error& e) {
    if (message) *message = e.what();
    return std::nullopt;
  }
}

TEST(Mutation, NoneIsRight) {
  const auto out = run_changed([](auto&) {});
  ASSERT_TRUE(out.has_value());
  EXPECT_EQ(*out, compiled().expected[0].tensor.to_floats());
}

TEST(Mutation, EveryDroppedWaitIsARace) {
  const auto program = program::instructions_of(compiled().artifact.npu_programs[0]);
  size_t dropped = 0;
  for (size_t i = 0; i < program.size(); ++i) {
    if (std::holds_alternative<isa::Finish>(program[i])) continue;  // FINISH waits for idle engines anyway
    for (size_t w = 0; w < 3; ++w) {
      const auto enabled = std::visit([&](const auto& x) { return x.header.waits[w].enable; }, program[i]);
      if (!enabled) continue;
      ++dropped;
      std::string message;
      const auto out =
          run_changed([&](auto& p) { std::visit([&](auto& x) { x.header.waits[w].enable = false; }, p[i]); }, &message);
      EXPECT_FALSE(out.has_value()) << "instruction " << i << ", wait " << w
                                    << " is not needed or its loss is not seen";
      EXPECT_NE(message.find("race"), std::string::npos) << message;
    }
  }
  EXPECT_GT(dropped, 20u);
}

TEST(Mutation, ADroppedSignalStopsTheMachineWithARecord) {
  std::string message;
  const auto out = run_changed(
      [](auto& p) {
        for (auto& instruction : p)
          if (auto* load = std::get_if<isa::Load>(&instruction); load && load->header.signal) {
            load->header.signal = false;
            return;
          }
      },
      &message);
  EXPECT_FALSE(out.has_value());
  EXPECT_TRUE(message.find("no_progress") != std::string::npos || message.find("race") != std::string::npos) << message;
}

TEST(Mutation, PaddingWithAnotherByteIsSeen) {
  size_t padded = 0;
  const auto out = run_changed([&](auto& p) {
    for (auto& instruction : p)
      if (auto* load = std::get_if<isa::Load>(&instruction))
        if (load->pad_before[0] || load->pad_before[1] || load->pad_after[0] || load->pad_after[1]) {
          load->pad_value = static_cast<uint8_t>(load->pad_value + 64);
          ++padded;
        }
  });
  ASSERT_GT(padded, 0u);
  ASSERT_TRUE(out.has_value());
  EXPECT_NE(*out, compiled().expected[0].tensor.to_floats());
}

TEST(Mutation, AHaloOffByOneIsSeen) {
  size_t changed = 0;
  const auto shift = [&](auto& p) {
    for (auto& instruction : p)
      if (auto* load = std::get_if<isa::Load>(&instruction);
          load && load->space == isa::Space::kInp && load->pad_before[0] == 1) {
        load->pad_before[0] = 0;  // one row too early: the image moves against its padding
        load->pad_after[0] += 1;
        ++changed;
      }
  };
  const auto out = run_changed(shift, nullptr, false);
  ASSERT_GT(changed, 0u);
  ASSERT_TRUE(out.has_value());
  EXPECT_NE(*out, compiled().expected[0].tensor.to_floats());
}

TEST(Mutation, AnotherPaddingOnChipIsSeen) {
  size_t changed = 0;
  const auto out = run_changed([&](auto& p) {
    for (auto& instruction : p)
      if (auto* alu = std::get_if<isa::Alu>(&instruction);
          alu && !alu->convert && alu->dst != isa::AluSpace::kAcc && alu->low == alu->high) {
        alu->low = alu->high = static_cast<int16_t>(alu->low + 64);
        ++changed;
      }
  });
  ASSERT_GT(changed, 0u);
  ASSERT_TRUE(out.has_value());
  EXPECT_NE(*out, compiled().expected[0].tensor.to_floats());
}

// A kernel may give another shape than the artifact declares. Machine code looks at no shape.
TEST(Mutation, AnotherShapeDoesNotReachMachineCode) {
  auto artifact = std::make_shared<program::Artifact>(compiled().artifact);
  program::Plan& plan = artifact->plans[0];
  const int64_t input = plan.inputs[0], flat = static_cast<int64_t>(artifact->values.size());
  artifact->values.push_back(artifact->values[static_cast<size_t>(input)]);
  artifact->values.back().name = "flat";
  bool found = false;
  for (program::Step& step : plan.steps) {
    auto* code = std::get_if<program::CodeStep>(&step);
    if (code == nullptr) continue;
    const auto read = std::find(code->inputs.begin(), code->inputs.end(), input);
    if (read == code->inputs.end()) continue;
    *read = flat;
    found = true;
    break;
  }
  ASSERT_TRUE(found);
  program::KernelStep flatten{.op_type = "Flatten", .version = 13, .inputs = {input}, .outputs = {flat}};
  plan.steps.insert(plan.steps.begin(), flatten);
  program::validate(*artifact);
  std::shared_ptr<driver::Device> device = driver::open_device("fsim", artifact->config);
  runtime::Executor executor(artifact, device);
  try {
    executor.run(compiled().inputs);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArtifact);
    EXPECT_NE(std::string(error.what()).find("was compiled for float32 [2,1,8,8] as 'flat', got float32 [2,64]"),
              std::string::npos)
        << error.what();
  }
}

// --- arithmetic: the values the random tests draw tell these mistakes apart
// ------------------------------------------------------

ops::Value f32(float v) { return ops::Tensor::scalar_f32(v); }
ops::Value u8(int v) { return ops::Tensor::of<uint8_t>(ops::DType::kUint8, {}, {static_cast<uint8_t>(v)}); }

TEST(Mutation, AnotherRoundingIsSeen) {
  // y = x / 2 over all bytes: every odd x is a tie.
  ops::Tensor x(ops::DType::kUint8, {1, 1, 16, 16});
  for (size_t i = 0; i < 256; ++i) x.as_mutable<uint8_t>()[i] = static_cast<uint8_t>(i);
  const ops::Tensor w = ops::Tensor::of<uint8_t>(ops::DType::kUint8, {1, 1, 1, 1}, {1});
  ops::Node node{"", "QLinearConv", 10, "conv", {}, 1};
  const auto y = ops::evaluate(node, {x, f32(0.5f), u8(0), w, f32(1.0f), u8(0), f32(1.0f), u8(0)})[0].tensor;
  size_t half_away = 0, truncated = 0;
  for (int i = 0; i < 256; ++i) {
    const int got = y.as<uint8_t>()[static_cast<size_t>(i)];
    EXPECT_EQ(got, static_cast<int>(std::nearbyint(i / 2.0)));
    half_away += got != static_cast<int>(std::floor(i / 2.0 + 0.5));
    truncated += got != i / 2;
  }
  EXPECT_EQ(half_away, 64u);
  EXPECT_EQ(truncated, 64u);
}

TEST(Mutation, SwappedOperandsOfAddAreSeen) {
  ops::Tensor a(ops::DType::kUint8, {65536}), b(ops::DType::kUint8, {65536});
  for (size_t i = 0; i < 65536; ++i) {
    a.as_mutable<uint8_t>()[i] = static_cast<uint8_t>(i >> 8);
    b.as_mutable<uint8_t>()[i] = static_cast<uint8_t>(i & 255);
  }
  ops::Node node{"com.microsoft", "QLinearAdd", 1, "add", {}, 1};
  std::mt19937 random(3);
  std::uniform_real_distribution<float> exponent(-6.0f, -2.0f);
  size_t differing = 0;
  for (int set = 0; set < 300; ++set) {
    const ops::Value sa = f32(std::exp2(exponent(random))), sb = f32(std::exp2(exponent(random))),
                     sc = f32(std::exp2(exponent(random)));
    const ops::Value za = u8(static_cast<int>(random() % 256)), zb = u8(static_cast<int>(random() % 256)),
                     zc = u8(static_cast<int>(random() % 256));
    const auto right = ops::evaluate(node, {a, sa, za, b, sb, zb, sc, zc})[0].tensor;
    const auto swapped = ops::evaluate(node, {b, sb, zb, a, sa, za, sc, zc})[0].tensor;
    differing += std::memcmp(right.data(), swapped.data(), 65536) != 0;
  }
  EXPECT_GT(differing, 0u) << "no parameter set tells the order of the operands";
}

}  // namespace
}  // namespace tessera
