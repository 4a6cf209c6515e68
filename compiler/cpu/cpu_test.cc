// SPDX-License-Identifier: Apache-2.0
// Single operators compiled, loaded and run, compared bit for bit with the operator library.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "compiler/cpu/codegen.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
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

void check(const std::vector<ops::Tensor>& inputs, const std::vector<Step>& steps) {
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
  const program::CpuModule code = codegen->finish();
  runtime::CpuCode loaded(code);
  auto run = loaded.find(step->symbol);
  std::vector<std::vector<std::byte>> memory;
  std::vector<void*> buffers;
  const auto buffer = [&](size_t bytes) {
    memory.emplace_back(bytes + 64);
    auto address = reinterpret_cast<uintptr_t>(memory.back().data());
    buffers.push_back(reinterpret_cast<void*>((address + 63) / 64 * 64));
    return buffers.back();
  };
  for (const auto& t : inputs) std::memcpy(buffer(static_cast<size_t>(t.bytes())), t.data(), static_cast<size_t>(t.bytes()));
  const ops::Tensor& want = expected.back().tensor;
  void* out = buffer(static_cast<size_t>(want.bytes()));
  if (step->scratch_bytes) buffer(step->scratch_bytes);
  run(buffers.data());
  EXPECT_EQ(0, std::memcmp(out, want.data(), static_cast<size_t>(want.bytes())));
}

TEST(Cpu, BroadcastsAndFuses) {
  check({random_floats({3, 1, 17}, 1), random_floats({5, 1}, 2)}, {{"Add", {0, 1}}});
  check({random_floats({4, 100}, 1), random_floats({4, 100}, 2)}, {{"Add", {0, 1}}, {"Mul", {2, 0}}, {"Relu", {3}}});
  check({random_floats({}, 1), random_floats({1}, 2)}, {{"Sub", {0, 1}}});
}

TEST(Cpu, ElementWise) {
  for (const char* op : {"Neg", "Abs", "Sign", "Reciprocal", "Sqrt", "Exp", "Log", "Floor", "Ceil", "Round", "Tanh", "Erf", "Sin", "Cos", "Relu", "LeakyRelu",
                         "Elu", "Celu", "Selu", "ThresholdedRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Mish", "Softplus", "Softsign", "IsNaN", "IsInf"})
    for (const Shape& shape : {Shape{2, 3, 35}, Shape{1}}) check({random_floats(shape, 3)}, {{op, {0}, {}, 22}});
  check({random_floats({37}, 4)}, {{"Gelu", {0}, {}, 20}, {"Gelu", {1}, {{"approximate", std::string("tanh")}}, 20}});
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "PRelu", "Less", "Equal", "GreaterOrEqual"})
    check({random_floats({5, 33}, 5), random_floats({5, 1}, 6)}, {{op, {0, 1}, {}, 16}});
  for (DType to : {DType::kInt32, DType::kInt64, DType::kUint8, DType::kInt8, DType::kDouble, DType::kBool, DType::kUint32, DType::kUint64, DType::kInt16})
    check({random_floats({129}, 7)}, {{"Mul", {0, 0}}, {"Mul", {1, 1}}, {"Cast", {2}, {{"to", static_cast<int64_t>(to)}}}, {"Cast", {3}, {{"to", int64_t{1}}}}});
}

}  // namespace
}  // namespace tessera::cpu
