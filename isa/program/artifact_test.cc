// SPDX-License-Identifier: Apache-2.0
// An artifact with every kind of content goes round unchanged; files that are cut, flipped, foreign or newer are
// refused with the cause; each promise of artifact.h broken alone is found; damage that keeps the checksums right never
// does harm.
#include "isa/program/artifact.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <random>

#include "base/error.h"
#include "isa/assembler.h"
#include "isa/program/container.h"

namespace tessera::program {
namespace {

ValueInfo tensor(std::string name, DType dtype, std::vector<int64_t> shape, int64_t constant = -1) {
  ValueInfo v;
  v.name = std::move(name);
  v.dtype = dtype;
  v.ranked = true;
  v.shape = std::move(shape);
  v.constant = constant;
  return v;
}

/// Values: 0 x, 1 device input, 2 device output, 3 condition, 4 y, 5 constant, 6 then result, 7 else result, 8 tail, 9
/// dynamic.
Artifact sample() {
  Artifact a;
  a.producer = "test";
  a.config = isa::find_config("npu64");
  a.values = {tensor("x", DType::kFloat, {1, 3, 5, 7}), tensor("q", DType::kInt8, {1, 3, 5, 7}),
              tensor("r", DType::kInt8, {1, 8, 5, 7}),  tensor("c", DType::kBool, {}),
              tensor("y", DType::kInt8, {1, 8, 5, 7}),  tensor("k", DType::kInt32, {2, 3}, 0),
              tensor("", DType::kInt8, {1, 8, 5, 7}),   tensor("", DType::kInt8, {1, 8, 5, 7}),
              tensor("t", DType::kFloat, {4}),          tensor("d", DType::kInt64, {-1, 2})};
  a.values[9].dim_names = {"batch", ""};
  a.values.push_back({});
  a.values.back().name = "unranked";
  a.values.back().dtype = DType::kFloat16;
  a.values.back().kind = ValueKind::kSequence;
  a.constant_blob.assign(100, 7);
  a.constants = {{DType::kInt32, {2, 3}, 64, 24, {}}, {DType::kString, {2}, 0, 0, {"a", std::string("b\0c", 3)}}};
  a.device_constants.assign(128, 9);

  KernelStep quantize{
      .op_type = "QuantizeLinear", .version = 13, .node_name = "quant", .inputs = {0, 5, -1}, .outputs = {1}};
  quantize.attributes = {{.name = "axis", .kind = Attribute::kInt, .i = -1},
                         {.name = "f", .kind = Attribute::kFloat, .f = -0.0f},
                         {.name = "s", .kind = Attribute::kString, .s = "\xff text"},
                         {.name = "is", .kind = Attribute::kInts, .ints = {1, INT64_MIN, INT64_MAX}},
                         {.name = "fs", .kind = Attribute::kFloats, .floats = {1.5f, INFINITY}},
                         {.name = "ss", .kind = Attribute::kStrings, .strings = {"", "b"}},
                         {.name = "t", .kind = Attribute::kTensor, .tensor = 1}};
  quantize.layer = 0;
  DeviceTensor in{.value = 1, .offset = 512, .dtype = DType::kInt8, .n = 1, .h = 5, .w = 7, .c = 3};
  in.axes = {0, 3, 1, 2};
  in.pixel_pitch = 8;
  in.row_pitch = 72;
  in.image_pitch = 600;
  in.border_top = in.border_left = in.border_bottom = in.border_right = 1;
  in.padded_c = 8;
  in.border_value = 0x80;
  DeviceTensor out{.value = 2, .offset = 2048, .dtype = DType::kInt8, .n = 1, .h = 5, .w = 7, .c = 8};
  out.axes = {0, 3, 1, 2};
  out.pixel_pitch = 8;
  out.row_pitch = 56;
  out.image_pitch = 280;
  out.padded_c = 8;
  NpuStep npu{.program = 0, .inputs = {in}, .outputs = {out}};
  CodeStep code{
      .symbol = "cpu_0", .node_name = "compare", .inputs = {2, 5}, .outputs = {3, 8}, .scratch_bytes = 256, .layer = 1};
  KernelStep branch{
      .domain = "ai.onnx.ml", .op_type = "If", .version = 16, .node_name = "if", .inputs = {3}, .outputs = {4, -1}};
  branch.attributes = {{.name = "then_branch", .kind = Attribute::kPlan, .plan = 2},
                       {.name = "else_branch", .kind = Attribute::kPlan, .plan = 1}};
  a.plans.resize(3);
  a.plans[0] = {{0}, {4, 5}, {quantize, npu, code, branch}, {}};
  a.plans[1] = {{}, {7}, {KernelStep{.op_type = "Identity", .version = 1, .inputs = {2}, .outputs = {7}}}, {2}};
  a.plans[2] = {{}, {6}, {KernelStep{.op_type = "Neg", .version = 1, .inputs = {2}, .outputs = {6}}}, {2}};

  NpuProgram program;
  program.instructions = instruction_bytes(
      isa::assemble("load space=inp base=1 dram_offset=448 length=600 signal\nload space=wgt base=0 length=128 signal\n"
                    "gemm wait=load:2 signal\nalu dst=out wait=gemm:1 signal\nstore space=out base=1 dram_offset=2048 "
                    "length=280 wait=alu:1 signal\n"
                    "finish wait=store:1"));
  program.layer_of_instruction = {0, 0, 0, 0, 0, kNoLayer};
  program.constant_bytes = 128;
  program.arena_bytes = 4096;
  program.layers = {{"conv1",
                     "conv+relu",
                     "npu",
                     12345,
                     "{\"levels\": []}",
                     {"conv1", "relu1"},
                     100,
                     90,
                     728,
                     280,
                     {600, 128, 0, 0, 280, 64}}};
  a.npu_programs = {program};
  a.cpu = {"x86_64-unknown-linux-gnu", "generic", "+sse2", {1, 2, 3}, {4, 5}};
  a.cpu_layers = {{.name = "quant", .op = "QuantizeLinear", .placement = "cpu"},
                  {.name = "compare", .op = "Greater", .placement = "cpu"}};
  a.output_names.assign(a.plans[0].outputs.size(), "result");
  a.output_keys.resize(a.plans[0].outputs.size());
  a.totals = {7, 2, uint64_t{1} << 40, 5, 4096};
  return a;
}

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArtifact);
    return error.what();
  }
  return "accepted";
}

std::string parse_error(std::span<const uint8_t> bytes) {
  return error_of([&] { parse(bytes); });
}

TEST(Artifact, RoundTrip) {
  const Artifact a = sample();
  const std::vector<uint8_t> bytes = serialize(a);
  const Artifact b = parse(bytes);
  EXPECT_EQ(a, b);
  EXPECT_TRUE(std::signbit(std::get<KernelStep>(b.plans[0].steps[0]).attributes[1].f));
  EXPECT_EQ(serialize(b), bytes);
  EXPECT_EQ(instructions_of(b.npu_programs[0]).size(), 6u);
}

TEST(Artifact, Files) {
  const std::string path = testing::TempDir() + "artifact_test.tsr";
  save(sample(), path);
  EXPECT_EQ(load(path), sample());
  std::remove(path.c_str());
  try {
    load(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
  }
  try {
    save(sample(), "/no/such/folder/a.tsr");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
  }
}

TEST(Artifact, EveryTruncationIsRefused) {
  const std::vector<uint8_t> bytes = serialize(sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string message = parse_error(std::span(bytes).first(size));
    EXPECT_TRUE(message.find("truncated") != std::string::npos || size == 0) << size << ": " << message;
  }
  std::vector<uint8_t> longer = bytes;
  longer.push_back(0);
  EXPECT_NE(parse_error(longer).find("damaged"), std::string::npos);
}

TEST(Artifact, EveryFlippedBitIsRefused) {
  std::vector<uint8_t> bytes = serialize(sample());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    ASSERT_NE(parse_error(bytes), "accepted") << "bit " << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
  }
  EXPECT_EQ(parse_error(bytes), "accepted");
}

TEST(Artifact, ForeignAndNewerFiles) {
  const std::string onnx =
      "\x08\x07\x12\x05torch and much more text than a preamble has, so that only the magic can tell";
  const auto* data = reinterpret_cast<const uint8_t*>(onnx.data());
  EXPECT_EQ(parse_error({data, onnx.size()}), "not a Tessera program: the file does not begin like one");
  EXPECT_EQ(parse_error({}), "not a Tessera program: the file does not begin like one");
  std::vector<uint8_t> bytes = serialize(sample());
  bytes[8] = 9;
  EXPECT_EQ(parse_error(bytes),
            "the program has container version 9, this Tessera reads version 2; use a newer Tessera or compile the "
            "model again");
}

TEST(Artifact, DamageUnderARightChecksumDoesNoHarm) {
  // What a checksum cannot see (a writer's bug, a forged file) must end in an Error or in a valid artifact.
  const std::vector<uint8_t> bytes = serialize(sample());
  const Sections sections = unframe(bytes);
  std::mt19937_64 random(1);
  int accepted = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<uint8_t> metadata(sections.metadata.begin(), sections.metadata.end());
    const int edits = 1 + static_cast<int>(random() % 3);
    for (int k = 0; k < edits; ++k) {
      uint8_t& byte = metadata[random() % metadata.size()];
      byte = random() % 2 ? static_cast<uint8_t>(random()) : static_cast<uint8_t>(byte ^ (1u << (random() % 8)));
    }
    if (random() % 8 == 0) metadata.resize(random() % (metadata.size() + 1));
    const std::vector<uint8_t> forged = frame({metadata, sections.constant_blob, sections.device_constants});
    try {
      const Artifact a = parse(forged);
      validate(a);
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kInvalidArtifact) << error.what();
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 15000);
}

TEST(Artifact, Checksum) {
  std::vector<uint8_t> bytes(37, 0);
  const uint64_t zeros = checksum(bytes);
  EXPECT_NE(checksum(std::span(bytes).first(36)), zeros);
  for (size_t k = 0; k < bytes.size(); ++k) {
    bytes[k] = 1;
    EXPECT_NE(checksum(bytes), zeros);
    bytes[k] = 0;
  }
}

TEST(Types, SizesAndNames) {
  EXPECT_EQ(tensor_bytes(DType::kFloat, std::vector<int64_t>{2, 3}), 24u);
  EXPECT_EQ(tensor_bytes(DType::kInt4, std::vector<int64_t>{3}), 2u);
  EXPECT_EQ(tensor_bytes(DType::kDouble, {}), 8u);
  EXPECT_EQ(tensor_bytes(DType::kBool, std::vector<int64_t>{5, 0, 1 << 30, 1 << 30}), 0u);
  EXPECT_EQ(dtype_name(DType::kBfloat16), "bfloat16");
  EXPECT_EQ(dtype_name(DType::kFloat4E2M1), "float4e2m1");
  EXPECT_EQ(dtype_name(DType::kFloat8E8M0), "float8e8m0");
  EXPECT_EQ(dtype_name(DType::kFloat6E3M2), "float6e3m2");
  EXPECT_EQ(dtype_name(static_cast<DType>(99)), "?");
  for (const auto& [dtype, shape] : std::vector<std::pair<DType, std::vector<int64_t>>>{
           {DType::kInt8, {-1}}, {DType::kString, {1}}, {DType::kInt8, {int64_t{1} << 62, int64_t{1} << 62}}}) {
    try {
      tensor_bytes(dtype, shape);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    }
  }
}

TEST(Artifact, PlansNestAsDeepAsTheStackAllows) {
  const auto nested = [](size_t depth) {
    Artifact a;
    a.config = isa::find_config("npu64");
    a.values = {tensor("c", DType::kBool, {})};
    a.plans.resize(depth);
    a.plans[0].inputs = {0};
    for (size_t k = 0; k + 1 < depth; ++k) {
      KernelStep step{.op_type = "If", .version = 13};
      step.attributes = {{.name = "then_branch", .kind = Attribute::kPlan, .plan = static_cast<int64_t>(k) + 1}};
      a.plans[k].steps = {step};
    }
    return error_of([&] { parse(serialize(a)); });
  };
  EXPECT_EQ(nested(100), "accepted");
  EXPECT_EQ(nested(101), "program: its plans run each other too deeply");
}

struct Broken {
  const char* message;
  std::function<void(Artifact&)> change;
};

KernelStep& kernel(Artifact& a, size_t step) { return std::get<KernelStep>(a.plans[0].steps[step]); }
NpuStep& npu(Artifact& a) { return std::get<NpuStep>(a.plans[0].steps[1]); }
CodeStep& code(Artifact& a) { return std::get<CodeStep>(a.plans[0].steps[2]); }
void assemble_into(Artifact& a, const char* text) {
  a.npu_programs[0].instructions = instruction_bytes(isa::assemble(text));
  a.npu_programs[0].layer_of_instruction.clear();
}

class Validate : public testing::TestWithParam<Broken> {};

TEST_P(Validate, FindsTheBrokenPromise) {
  Artifact a = sample();
  validate(a);
  GetParam().change(a);
  EXPECT_EQ(error_of([&] { validate(a); }), GetParam().message);
  EXPECT_EQ(error_of([&] { serialize(a); }), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Values, Validate,
    testing::Values(
        Broken{"configuration npu64: batch = 0 must be in 1..64", [](Artifact& a) { a.config.batch = 0; }},
        Broken{"value 0 'x': unknown data type", [](Artifact& a) { a.values[0].dtype = static_cast<DType>(29); }},
        Broken{"value 0 'x': impossible dimension", [](Artifact& a) { a.values[0].shape[1] = -2; }},
        Broken{"value 0 'x': a shape without a rank", [](Artifact& a) { a.values[0].ranked = false; }},
        Broken{"value 9 'd': names of dimensions do not match the shape",
               [](Artifact& a) { a.values[9].dim_names = {"n"}; }},
        Broken{"value 1 'x': another value has this name", [](Artifact& a) { a.values[1].name = "x"; }},
        Broken{"value 5 'k': it names a constant that is not there", [](Artifact& a) { a.values[5].constant = 2; }},
        Broken{"value 5 'k': type or shape differ from its constant", [](Artifact& a) { a.values[5].shape = {3, 2}; }},
        Broken{"constant 0: its bytes are not those of its shape", [](Artifact& a) { a.constants[0].bytes = 23; }},
        Broken{"constant 0: its offset is no multiple of 64", [](Artifact& a) { a.constants[0].offset = 32; }},
        Broken{"constant 0: it leaves the blob", [](Artifact& a) { a.constants[0].offset = 128; }},
        Broken{"constant 0: it leaves the blob", [](Artifact& a) { a.constants[0].offset = uint64_t{0} - 64; }},
        Broken{"constant 1: the number of strings is not that of its shape",
               [](Artifact& a) { a.constants[1].strings.pop_back(); }},
        Broken{"constant 0: strings in a constant of numbers", [](Artifact& a) { a.constants[0].strings = {"a"}; }},
        Broken{"constant 0: unknown data type", [](Artifact& a) { a.constants[0].dtype = DType::kUndefined; }}));

INSTANTIATE_TEST_SUITE_P(
    Plans, Validate,
    testing::Values(
        Broken{"plan 0, step 1, input 0: it does not fit in the arena",
               [](Artifact& a) {
                 npu(a).inputs[0].border_bottom = INT32_MAX;  // every row in the same place
                 npu(a).inputs[0].row_pitch = 0;
               }},
        Broken{
            "plan 0, step 2: a tensor of more than 2^48 bytes",
            [](Artifact& a) { a.values[static_cast<size_t>(code(a).outputs[0])].shape = {int64_t{1} << 40, 1 << 20}; }},
        Broken{"program: it has no plan", [](Artifact& a) { a.plans.clear(); }},
        Broken{"program: it names some of its outputs only", [](Artifact& a) { a.output_names.emplace_back("more"); }},
        Broken{"program: it has keys of some of its outputs only", [](Artifact& a) { a.output_keys.emplace_back(); }},
        Broken{"output 0: keys are strings and integers", [](Artifact& a) { a.output_keys[0] = {{"a"}, {1}}; }},
        Broken{"output 0: keys that are not one for each column",
               [](Artifact& a) {
                 ValueInfo& v = a.values[static_cast<size_t>(a.plans[0].outputs[0])];
                 v.dtype = DType::kFloat;
                 a.output_keys[0].ints = {1, 2, 3};
               }},
        Broken{"plan 0: the main plan captures values", [](Artifact& a) { a.plans[0].captured = {0}; }},
        Broken{"plan 0: it reads a value before it is defined", [](Artifact& a) { a.plans[0].outputs = {9}; }},
        Broken{"plan 0: it reads a value that is not there", [](Artifact& a) { a.plans[0].outputs = {99}; }},
        Broken{"plan 0: it defines a constant", [](Artifact& a) { a.plans[0].inputs = {0, 5}; }},
        Broken{"plan 0: it defines a value that is defined already", [](Artifact& a) { a.plans[0].inputs = {0, 0}; }},
        Broken{"plan 0, step 0: it reads a value before it is defined",
               [](Artifact& a) { kernel(a, 0).inputs[0] = 2; }},
        Broken{"plan 0, step 0: it reads a value that is not there", [](Artifact& a) { kernel(a, 0).inputs[0] = -2; }},
        Broken{"plan 0, step 0: it defines a value that is not there",
               [](Artifact& a) { kernel(a, 0).outputs[0] = 11; }},
        Broken{"plan 2, step 0: it defines a value that is defined already",
               [](Artifact& a) {
                 std::get<KernelStep>(a.plans[2].steps[0]).outputs[0] = 7;
                 a.plans[2].outputs = {7};
               }},
        Broken{"plan 1, step 0: it reads a value before it is defined",
               [](Artifact& a) { a.plans[1].captured.clear(); }},
        Broken{"plan 0, step 3: it reads a value before it is defined",
               [](Artifact& a) { a.plans[1].captured.push_back(9); }},
        Broken{"plan 0: an attribute names a plan that is not there",
               [](Artifact& a) { kernel(a, 3).attributes[0].plan = 3; }},
        Broken{"plan 0: an attribute names a plan that is not there",
               [](Artifact& a) { kernel(a, 3).attributes[0].plan = 0; }},
        Broken{"program: its plans run each other in a circle",
               [](Artifact& a) {
                 std::get<KernelStep>(a.plans[1].steps[0]).attributes = {
                     {.name = "body", .kind = Attribute::kPlan, .plan = 2}};
                 std::get<KernelStep>(a.plans[2].steps[0]).attributes = {
                     {.name = "body", .kind = Attribute::kPlan, .plan = 1}};
               }},
        Broken{"plan 0, step 0: an attribute names a constant that is not there",
               [](Artifact& a) { kernel(a, 0).attributes[6].tensor = 2; }},
        Broken{"plan 0, step 0: an attribute is given twice",
               [](Artifact& a) { kernel(a, 0).attributes[1].name = "axis"; }},
        Broken{"plan 0, step 0: an attribute has an unknown kind",
               [](Artifact& a) { kernel(a, 0).attributes[1].kind = static_cast<Attribute::Kind>(8); }},
        Broken{"plan 0, step 0: it has no operator", [](Artifact& a) { kernel(a, 0).op_type.clear(); }},
        Broken{"plan 0, step 0: it names a layer that is not there", [](Artifact& a) { kernel(a, 0).layer = 2; }}));

INSTANTIATE_TEST_SUITE_P(
    Code, Validate,
    testing::Values(
        Broken{"plan 0, step 2: it has no symbol", [](Artifact& a) { code(a).symbol.clear(); }},
        Broken{"plan 0, step 2: the program holds no CPU code", [](Artifact& a) { a.cpu.object.clear(); }},
        Broken{"plan 0, step 2: a value's shape is known only at run time",
               [](Artifact& a) { a.values[8].shape = {-1}; }},
        Broken{"plan 0, step 2: a value has no fixed type", [](Artifact& a) { a.values[8].dtype = DType::kString; }},
        Broken{"plan 0, step 2: it reads a value that is not there", [](Artifact& a) { code(a).inputs[0] = -1; }},
        Broken{"plan 0, step 2: impossible size of the scratch memory",
               [](Artifact& a) { code(a).scratch_bytes = UINT64_MAX; }}));

INSTANTIATE_TEST_SUITE_P(
    Device, Validate,
    testing::Values(
        Broken{"plan 0, step 1: it names a program that is not there", [](Artifact& a) { npu(a).program = 1; }},
        Broken{"plan 0, step 1, input 0: its type is not that of its value",
               [](Artifact& a) { npu(a).inputs[0].dtype = DType::kUint8; }},
        Broken{"plan 0, step 1, input 0: it does not place every axis of its value",
               [](Artifact& a) { npu(a).inputs[0].axes.pop_back(); }},
        Broken{"plan 0, step 1, input 0: it places an axis beyond the fourth",
               [](Artifact& a) { npu(a).inputs[0].axes[0] = 4; }},
        Broken{"plan 0, step 1, input 0: its extents are not those of its value",
               [](Artifact& a) { npu(a).inputs[0].axes = {0, 3, 2, 1}; }},
        Broken{"plan 0, step 1, input 0: impossible number of padded channels",
               [](Artifact& a) { npu(a).inputs[0].padded_c = 2; }},
        Broken{"plan 0, step 1, input 0: negative border", [](Artifact& a) { npu(a).inputs[0].border_left = -1; }},
        Broken{"plan 0, step 1, input 0: impossible pitch", [](Artifact& a) { npu(a).inputs[0].row_pitch = -1; }},
        Broken{"plan 0, step 1, input 0: it leaves the arena", [](Artifact& a) { npu(a).inputs[0].border_top = 8; }},
        Broken{"plan 0, step 1, input 0: it leaves the arena",
               [](Artifact& a) { npu(a).inputs[0].offset = UINT64_MAX; }},
        Broken{"plan 0, step 1, output 0: it leaves the arena",
               [](Artifact& a) { npu(a).outputs[0].offset = 4096 - 279; }},
        Broken{"plan 0, step 1, output 0: an output has no border and no padding",
               [](Artifact& a) { npu(a).outputs[0].border_top = 1; }},
        Broken{"npu program 0: its instructions are no whole number of words",
               [](Artifact& a) { a.npu_programs[0].instructions.pop_back(); }},
        Broken{"npu program 0: instruction 1: illegal_opcode",
               [](Artifact& a) { a.npu_programs[0].instructions[64] &= 0xc0; }},
        Broken{"npu program 0: the program is empty; it must end with finish",
               [](Artifact& a) { assemble_into(a, ""); }},
        Broken{"npu program 0: instruction 0 (gemm): the program does not end with finish",
               [](Artifact& a) { assemble_into(a, "gemm"); }},
        Broken{"npu program 0, instruction 0: it leaves the arena",
               [](Artifact& a) { assemble_into(a, "load base=1 dram_offset=4096 length=1\nfinish"); }},
        Broken{"npu program 0, instruction 0: it leaves the constants",
               [](Artifact& a) { assemble_into(a, "load extent=1,2 dram_stride=0,-1 length=1\nfinish"); }},
        Broken{"npu program 0, instruction 0: it writes to the constants",
               [](Artifact& a) { assemble_into(a, "store space=out length=1\nfinish"); }},
        Broken{"npu program 0, instruction 0: it uses a base register that has no meaning",
               [](Artifact& a) { assemble_into(a, "load base=2 length=1\nfinish"); }},
        Broken{"npu program 0: the debug map does not have one entry for each instruction",
               [](Artifact& a) { a.npu_programs[0].layer_of_instruction.pop_back(); }},
        Broken{"npu program 0: the debug map names a layer that is not there",
               [](Artifact& a) { a.npu_programs[0].layer_of_instruction[0] = 1; }},
        Broken{"npu program 0: its constants leave the device constants",
               [](Artifact& a) { a.npu_programs[0].constant_offset = 64; }},
        Broken{"npu program 0: the offset of its constants is no multiple of 64",
               [](Artifact& a) { a.npu_programs[0].constant_offset = 1; }}));

/// The sample with a past: the input "p" [2, -1, 8] lies in the state, and the program appends to it.
Artifact growing() {
  Artifact a = sample();
  const auto past = static_cast<int64_t>(a.values.size());
  a.values.push_back(tensor("p", DType::kInt8, {2, -1, 8}));
  a.values.push_back(tensor("present", DType::kInt8, {2, -1, 8}));
  a.plans[0].inputs.push_back(past);
  a.plans[0].outputs.push_back(past + 1);
  a.output_names.clear();
  a.output_keys.clear();
  a.growth = {.room = 9, .step = 1, .pasts = {{1, 2, 1}}, .state_bytes = 192};
  DeviceTensor before{.value = past, .offset = 0, .dtype = DType::kInt8, .n = 1, .h = 2, .w = 9, .c = 8};
  before.axes = {1, 2, 3};
  before.pixel_pitch = 8;
  before.row_pitch = 80;
  before.padded_c = 8;
  before.base = kStateBase;
  before.growing_axis = 1;
  DeviceTensor after = before;
  after.value = past + 1;
  after.w = 10;
  auto& npu = std::get<NpuStep>(a.plans[0].steps[1]);
  npu.inputs.push_back(before);
  npu.outputs.push_back(after);
  a.npu_programs[0].slides = {{8}};
  a.npu_programs[0].instructions = instruction_bytes(
      isa::assemble("load space=inp base=2 length=160 signal\nalu dst=out wait=load:1 signal\n"
                    "store space=out base=3 dram_offset=72 length=8 wait=alu:1 signal\nfinish wait=store:1"));
  a.npu_programs[0].layer_of_instruction.clear();
  return a;
}

TEST(Artifact, WhatGrows) {
  const Artifact a = growing();
  EXPECT_EQ(parse(serialize(a)), a);
  const std::pair<const char*, std::function<void(Artifact&)>> broken[] = {
      {"it leaves the state", [](Artifact& b) { b.growth.state_bytes = 128; }},
      {"it leaves the state",
       [](Artifact& b) {
         b.npu_programs[0].instructions = instruction_bytes(isa::assemble(
             "alu dst=out signal\nstore space=out base=3 dram_offset=64 length=8 wait=alu:1 signal\nfinish "
             "wait=store:1"));
       }},
      {"it reads where a run appends",
       [](Artifact& b) {
         b.npu_programs[0].instructions = instruction_bytes(
             isa::assemble("load space=inp base=3 dram_offset=72 length=8 signal\nfinish wait=load:1"));
       }},
      {"base register that has no meaning", [](Artifact& b) { b.npu_programs[0].slides.clear(); }},
      {"it leaves the constants",  // at the longest past
       [](Artifact& b) {
         b.npu_programs[0].instructions =
             instruction_bytes(isa::assemble("load space=table base=14 length=1 signal\nfinish wait=load:1"));
       }},
      {"it writes to the constants",
       [](Artifact& b) {
         b.npu_programs[0].instructions =
             instruction_bytes(isa::assemble("store space=out base=14 length=1 signal\nfinish wait=store:1"));
       }},
      {"impossible pitch", [](Artifact& b) { b.npu_programs[0].slides[0].pitch = int64_t{1} << 40; }},
      {"a past is no input", [](Artifact& b) { b.growth.pasts[0].input = 2; }},
      {"a past does not grow", [](Artifact& b) { b.growth.pasts[0].axis = 0; }},
      {"its extents are not those", [](Artifact& b) { std::get<NpuStep>(b.plans[0].steps[1]).inputs[1].w = 8; }},
      {"the axis that grows", [](Artifact& b) { std::get<NpuStep>(b.plans[0].steps[1]).inputs[1].growing_axis = 2; }},
  };
  for (const auto& [message, damage] : broken) {
    Artifact b = growing();
    damage(b);
    try {
      validate(b);
      ADD_FAILURE() << "not found: " << message;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
}

TEST(DeviceTensors, AxesMerge) {
  // [2, 3, 5, 7, 8] with the first two axes as images: 6 images of 5 x 7 x 8.
  Artifact a = sample();
  a.values[1].shape = {2, 3, 5, 7, 8};
  DeviceTensor& t = npu(a).inputs[0];
  t.axes = {0, 0, 1, 2, 3};
  t.n = 6;
  t.c = 8;
  EXPECT_EQ(error_of([&] { validate(a); }), "accepted");
  t.n = 5;
  EXPECT_EQ(error_of([&] { validate(a); }), "plan 0, step 1, input 0: its extents are not those of its value");
}

}  // namespace
}  // namespace tessera::program
