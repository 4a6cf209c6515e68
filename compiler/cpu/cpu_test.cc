// SPDX-License-Identifier: Apache-2.0
// Single operators compiled, loaded and run, compared bit for bit with the operator library.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "compiler/cpu/codegen.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "runtime/cpu_code.h"

namespace tessera::cpu {
namespace {

using ops::DType;
using ops::Shape;

ops::Tensor random_floats(const Shape& shape, uint32_t seed) {
  ops::Tensor t(DType::kFloat, shape);
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  for (float& v : t.as_mutable<float>()) v = normal(generator);
  return t;
}

/// Runs nodes in sequence: each takes values by number (inputs first, then results of earlier nodes).
struct Step {
  const char* op;
  std::vector<int> inputs;
  std::map<std::string, ops::Attribute> attributes = {};
  int version = 13;
};

/// `from_bitcode`: as on a host that the object was not made for.
void check(const std::vector<ops::Tensor>& inputs, const std::vector<Step>& steps, bool from_bitcode = false) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.loadDialect<nn::NNDialect, mlir::func::FuncDialect>();
  auto location = mlir::UnknownLoc::get(&context);
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(location);
  mlir::OpBuilder builder = mlir::OpBuilder::atBlockEnd(module->getBody());
  llvm::SmallVector<mlir::Type> types;
  for (const auto& t : inputs) types.push_back(nn::to_type(&context, ops::TypeInfo::tensor(t.dtype(), t.shape())));
  auto function = builder.create<mlir::func::FuncOp>(location, "main", builder.getFunctionType(types, {}));
  builder.setInsertionPointToStart(function.addEntryBlock());
  std::vector<mlir::Value> values(function.getArguments().begin(), function.getArguments().end());
  const std::vector<mlir::Value> arguments = values;
  std::vector<ops::Value> expected(inputs.begin(), inputs.end());
  std::vector<nn::NodeOp> nodes;
  for (const Step& step : steps) {
    llvm::SmallVector<mlir::Value> operands;
    std::vector<ops::Value> in;
    for (int i : step.inputs) {
      operands.push_back(values[static_cast<size_t>(i)]);
      in.push_back(expected[static_cast<size_t>(i)]);
    }
    nodes.push_back(nn::create_op(builder, location, step.op, "", step.version, operands, step.attributes));
    values.push_back(nodes.back().getOutputs()[0]);
    expected.push_back(ops::evaluate(nn::to_node(nodes.back()), in)[0]);
  }
  auto codegen = create_codegen(context);
  for (nn::NodeOp node : nodes) ASSERT_TRUE(codegen->supports(node)) << node.getOpType().str();
  SCOPED_TRACE(steps.back().op);
  auto step = codegen->add(nodes, arguments, {values.back()});
  ASSERT_TRUE(step.has_value());
  program::CpuModule code = codegen->finish();
  EXPECT_FALSE(code.triple.empty());
  EXPECT_FALSE(code.object.empty());
  if (from_bitcode) code.object.clear();
  runtime::CpuCode loaded(code);
  auto run = loaded.find(step->symbol);
  // Memory that nobody has written holds a pattern, and so does what follows each buffer.
  constexpr std::byte kPattern{0xa5};
  std::vector<std::vector<std::byte>> memory;
  std::vector<void*> buffers;
  std::vector<size_t> sizes;
  const auto buffer = [&](size_t bytes) {
    memory.emplace_back(bytes + 256, kPattern);
    auto address = reinterpret_cast<uintptr_t>(memory.back().data());
    buffers.push_back(reinterpret_cast<void*>((address + 63) / 64 * 64));
    sizes.push_back(bytes);
    return buffers.back();
  };
  for (const auto& t : inputs)
    std::memcpy(buffer(static_cast<size_t>(t.bytes())), t.data(), static_cast<size_t>(t.bytes()));
  const ops::Tensor& want = expected.back().tensor;
  void* out = buffer(static_cast<size_t>(want.bytes()));
  if (step->scratch_bytes) buffer(step->scratch_bytes);
  run(buffers.data());
  for (size_t i = 0; i < buffers.size(); ++i)
    for (size_t k = 0; k < 128; ++k)
      ASSERT_EQ(static_cast<std::byte*>(buffers[i])[sizes[i] + k], kPattern) << "written behind buffer " << i;
  EXPECT_EQ(0, std::memcmp(out, want.data(), static_cast<size_t>(want.bytes())));
}

TEST(Cpu, BroadcastsAndFuses) {
  check({random_floats({3, 1, 17}, 1), random_floats({5, 1}, 2)}, {{"Add", {0, 1}}});
  check({random_floats({4, 100}, 1), random_floats({4, 100}, 2)}, {{"Add", {0, 1}}, {"Mul", {2, 0}}, {"Relu", {3}}});
  check({random_floats({}, 1), random_floats({1}, 2)}, {{"Sub", {0, 1}}});
}

TEST(Cpu, ElementWise) {
  for (const char* op : {"Neg",       "Abs",         "Sign",      "Reciprocal", "Sqrt",
                         "Exp",       "Log",         "Floor",     "Ceil",       "Round",
                         "Tanh",      "Erf",         "Sin",       "Cos",        "Relu",
                         "LeakyRelu", "Elu",         "Celu",      "Selu",       "ThresholdedRelu",
                         "Sigmoid",   "HardSigmoid", "HardSwish", "Mish",       "Softplus",
                         "Softsign",  "IsNaN",       "IsInf"})
    for (const Shape& shape : {Shape{2, 3, 35}, Shape{1}}) check({random_floats(shape, 3)}, {{op, {0}, {}, 22}});
  check({random_floats({37}, 4)}, {{"Gelu", {0}, {}, 20}, {"Gelu", {1}, {{"approximate", std::string("tanh")}}, 20}});
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "PRelu", "Less", "Equal", "GreaterOrEqual"})
    check({random_floats({5, 33}, 5), random_floats({5, 1}, 6)}, {{op, {0, 1}, {}, 16}});
  for (DType to : {DType::kInt32, DType::kInt64, DType::kUint8, DType::kInt8, DType::kDouble, DType::kBool,
                   DType::kUint32, DType::kUint64, DType::kInt16})
    check({random_floats({129}, 7)}, {{"Mul", {0, 0}},
                                      {"Mul", {1, 1}},
                                      {"Cast", {2}, {{"to", static_cast<int64_t>(to)}}},
                                      {"Cast", {3}, {{"to", int64_t{1}}}}});
}

TEST(Cpu, RunsFromBitcode) {
  check({random_floats({3, 65}, 8), random_floats({65, 37}, 9)}, {{"MatMul", {0, 1}}, {"Softmax", {2}}}, true);
  check({random_floats({1, 4, 9, 9}, 8), random_floats({6, 4, 3, 3}, 9)},
        {{"Conv", {0, 1}, {{"strides", std::vector<int64_t>{2, 2}}}}, {"Sigmoid", {2}}}, true);
}

/// Equal operations share code, buffers of one after the other share scratch memory.
TEST(Cpu, SharesCodeAndMemory) {
  const auto compile = [](size_t repeats) {
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    context.loadDialect<nn::NNDialect, mlir::func::FuncDialect>();
    auto location = mlir::UnknownLoc::get(&context);
    mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(location);
    mlir::OpBuilder builder = mlir::OpBuilder::atBlockEnd(module->getBody());
    const mlir::Type type = nn::to_type(&context, ops::TypeInfo::tensor(DType::kFloat, {32, 32}));
    auto function = builder.create<mlir::func::FuncOp>(location, "main", builder.getFunctionType({type, type}, {}));
    builder.setInsertionPointToStart(function.addEntryBlock());
    std::vector<nn::NodeOp> nodes;
    mlir::Value x = function.getArgument(0);
    for (size_t i = 0; i < repeats; ++i) {
      nodes.push_back(nn::create_op(builder, location, "MatMul", "", 13, {x, function.getArgument(1)}));
      x = nodes.back().getOutputs()[0];
    }
    auto codegen = create_codegen(context);
    auto step = codegen->add(nodes, {function.getArgument(0), function.getArgument(1)}, {x});
    return std::pair(step->scratch_bytes, codegen->finish().object.size());
  };
  const auto [few_scratch, few_code] = compile(3);
  const auto [many_scratch, many_code] = compile(9);
  EXPECT_EQ(few_scratch, 2 * 32 * 32 * sizeof(float));  // all but the last result, two alive at a time
  EXPECT_EQ(many_scratch, few_scratch);
  EXPECT_LT(many_code, few_code + few_code / 4);
}

TEST(Cpu, DeclinesWhatItCannotCompile) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.loadDialect<nn::NNDialect, mlir::func::FuncDialect>();
  auto location = mlir::UnknownLoc::get(&context);
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(location);
  mlir::OpBuilder builder = mlir::OpBuilder::atBlockEnd(module->getBody());
  const auto type = [&](DType dtype, const Shape& shape) {
    return nn::to_type(&context, ops::TypeInfo::tensor(dtype, shape));
  };
  auto function = builder.create<mlir::func::FuncOp>(
      location, "main",
      builder.getFunctionType({type(DType::kFloat, {-1, 3}), type(DType::kFloat, {0, 3}), type(DType::kInt32, {3}),
                               type(DType::kFloat, {4, 3})},
                              {}));
  builder.setInsertionPointToStart(function.addEntryBlock());
  auto codegen = create_codegen(context);
  const auto supported = [&](const char* op, const std::vector<unsigned>& arguments) {
    llvm::SmallVector<mlir::Value> operands;
    for (unsigned i : arguments) operands.push_back(function.getArgument(i));
    return codegen->supports(nn::create_op(builder, location, op, "", 13, operands));
  };
  EXPECT_FALSE(supported("Relu", {0}));       // a dynamic dimension
  EXPECT_FALSE(supported("Relu", {1}));       // no elements
  EXPECT_FALSE(supported("Div", {2, 2}));     // a divisor that may be 0
  EXPECT_FALSE(supported("NonZero", {3}));    // a shape that depends on data
  EXPECT_FALSE(supported("Gather", {3, 2}));  // indices that may be out of range
  EXPECT_TRUE(supported("Relu", {3}));
  EXPECT_EQ(codegen->finish().object.size(), 0u);
}

}  // namespace
}  // namespace tessera::cpu
