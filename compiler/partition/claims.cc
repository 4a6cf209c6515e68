// SPDX-License-Identifier: Apache-2.0
// One matcher for each kind of operation the machine computes. A matcher reads shapes and constants through
// compiler/nn/bridge.h and writes the machine's constants by the formulas of docs/numerics.md: a requantisation's
// multiplier is rounded once for each operation, as ONNX Runtime does.
#include "compiler/partition/claims.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/partition/claims_kernel.h"
#include "compiler/partition/claims_util.h"
#include "compiler/partition/parameters.h"
#include "compiler/schedule/registry.h"

namespace tessera::partition {
namespace {

std::optional<std::vector<int16_t>> byte_values(const ops::Tensor& tensor) {
  if (!is_byte(tensor.dtype())) return std::nullopt;
  std::vector<int16_t> out(static_cast<size_t>(tensor.size()));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = tensor.dtype() == DType::kUint8 ? static_cast<int16_t>(tensor.as<uint8_t>()[i])
                                             : static_cast<int16_t>(tensor.as<int8_t>()[i]);
  return out;
}

/// A raw int32 result.
npu::Stage raw_stage() {
  npu::Stage stage;
  stage.raw = true;
  return stage;
}

}  // namespace

npu::Stage& product_stage(graph::Operation& operation) {
  if (auto* product = std::get_if<graph::Product>(&operation.what)) return product->stage;
  if (auto* matmul = std::get_if<graph::Matmul>(&operation.what)) return matmul->what.stage;
  return std::get<graph::Convolution>(operation.what).what.stage;
}

std::optional<std::vector<int32_t>> bias_values(NodeOp op, unsigned index, int64_t channels) {
  mlir::Value value = nn::input_or_null(op, index);
  if (!value) return std::vector<int32_t>{};
  const auto tensor = nn::constant_value(value);
  if (!tensor || tensor->dtype() != DType::kInt32 || (tensor->size() != channels && tensor->size() != 1))
    return std::nullopt;
  // Only the last axis may vary.
  if (tensor->size() != 1 && (tensor->rank() == 0 || tensor->shape().back() != channels)) return std::nullopt;
  std::vector<int32_t> out;
  for (int64_t b : tensor->to_int64s()) out.push_back(static_cast<int32_t>(b));
  return out;
}

namespace {

/// Weights, window and groups of QLinearConv and ConvInteger.
std::optional<npu::Convolution> convolution_body(NodeOp op, mlir::Value x, const ops::Tensor& w, int32_t x_zero,
                                                 const std::vector<int32_t>& w_zero) {
  const Shape in = *nn::shape_of(x), out = *nn::shape_of(op.getResult(0));
  if (in.size() < 3 || in.size() > 4 || w.rank() != static_cast<int64_t>(in.size()) || out.size() != in.size())
    return std::nullopt;
  const ops::Node node = nn::to_node(op);
  npu::Convolution conv;
  conv.groups = node.get_int("group", 1);
  const auto win = window(node, Shape(w.shape().begin() + 2, w.shape().end()), Shape(in.begin() + 2, in.end()),
                          Shape(out.begin() + 2, out.end()));
  if (!win || conv.groups < 1 || in[1] % conv.groups || w.shape()[0] % conv.groups ||
      w.shape()[1] * conv.groups != in[1])
    return std::nullopt;
  apply(*win, conv);
  auto weights = byte_values(w);
  if (!weights) return std::nullopt;
  conv.weights = std::move(*weights);
  conv.weight_zero = w_zero;
  if (w_zero.size() != 1 && static_cast<int64_t>(w_zero.size()) != w.shape()[0]) return std::nullopt;
  conv.input_zero = x_zero;
  return conv;
}

std::optional<Claim> claim_qlinear_conv(NodeOp op) {
  mlir::Value x = nn::input_or_null(op, 0), w_value = nn::input_or_null(op, 3);
  const auto qx = operand_quantisation(op, 1, 2), qw = operand_quantisation(op, 4, 5),
             qy = result_quantisation(op, 6, 7);
  if (!x || !w_value || !qx || !qw || !qy || !qx->scalar() || !qy->scalar()) return std::nullopt;
  const auto w = nn::constant_value(w_value);
  if (!w) return std::nullopt;
  auto conv = convolution_body(op, x, *w, qx->z(), qw->zero);
  const auto bias = bias_values(op, 8, w->shape()[0]);
  if (!conv || !bias || (qw->scale.size() != 1 && static_cast<int64_t>(qw->scale.size()) != w->shape()[0]))
    return std::nullopt;
  conv->stage = requantise(requantisation_multipliers(qx->s(), qw->scale, qy->s()), *bias, *qy);
  Claim c = base_claim(op, {x});
  c.op.what = graph::Convolution{std::move(*conv)};
  return c;
}

std::optional<Claim> claim_conv_integer(NodeOp op) {
  mlir::Value x = nn::input_or_null(op, 0), w_value = nn::input_or_null(op, 1);
  if (!x || !w_value || !is_byte(nn::dtype_of(x))) return std::nullopt;
  const auto w = nn::constant_value(w_value);
  if (!w) return std::nullopt;
  std::vector<int32_t> zeros[2] = {{0}, {0}};
  for (unsigned i = 0; i < 2; ++i)
    if (mlir::Value z = nn::input_or_null(op, 2 + i)) {
      const auto tensor = nn::constant_value(z);
      if (!tensor) return std::nullopt;
      zeros[i].clear();
      for (int64_t v : tensor->to_int64s()) zeros[i].push_back(static_cast<int32_t>(v));
    }
  if (zeros[0].size() != 1 || zeros[1].empty()) return std::nullopt;
  auto conv = convolution_body(op, x, *w, zeros[0][0], zeros[1]);
  if (!conv) return std::nullopt;
  conv->stage = raw_stage();
  Claim c = base_claim(op, {x});
  c.op.what = graph::Convolution{std::move(*conv)};
  return c;
}

/// [.., rows, k] (or [k, rows]) x constant [.., k, n] (or [n, k]).
std::optional<Claim> matrix_claim(NodeOp op, mlir::Value a, const ops::Tensor& b, bool transposed_a, bool transposed_b,
                                  int32_t a_zero, const std::vector<int32_t>& b_zero, npu::Stage stage) {
  const Shape shape = *nn::shape_of(a);
  if (shape.empty() || b.rank() < 2 || !is_byte(nn::dtype_of(a))) return std::nullopt;
  const ops::Shape batch(b.shape().begin(), b.shape().end() - 2);
  const int64_t matrices = ops::element_count(batch);
  if (matrices != 1) {
    auto weights = byte_values(b);
    const int64_t k = b.shape()[batch.size()], n = b.shape().back(), each = k * n;
    if (!weights || transposed_b || matrices > 256 || shape.size() < 2 || shape.back() != k ||
        (b_zero.size() != 1 && static_cast<int64_t>(b_zero.size()) != n))
      return std::nullopt;
    graph::Matmul what;
    what.batch = batch;
    for (int64_t i = 0; i < matrices; ++i) {
      const std::vector<int16_t> own(weights->begin() + i * each, weights->begin() + (i + 1) * each);
      npu::Convolution product = npu::make_matmul(npu::kNoTensor, npu::kNoTensor, a_zero, k, n, own, b_zero, stage);
      what.each.push_back(std::move(product.weights));
      product.weights.clear();
      what.what = std::move(product);
    }
    Claim c = base_claim(op, {a});
    c.op.what = std::move(what);
    return c;
  }
  if (b.rank() > static_cast<int64_t>(shape.size()) && b.rank() > 2) return std::nullopt;
  const int64_t first = b.shape()[static_cast<size_t>(b.rank() - 2)], last = b.shape().back();
  const int64_t k = transposed_b ? last : first, n = transposed_b ? first : last;
  auto weights = byte_values(b);
  if (!weights || shape[transposed_a ? 0 : shape.size() - 1] != k ||
      (b_zero.size() != 1 && static_cast<int64_t>(b_zero.size()) != n))
    return std::nullopt;
  if (transposed_b) {
    std::vector<int16_t> kn(weights->size());
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < k; ++j) kn[static_cast<size_t>(j * n + i)] = (*weights)[static_cast<size_t>(i * k + j)];
    *weights = std::move(kn);
  }
  Claim c = base_claim(op, {a});
  c.op.what =
      graph::Matmul{npu::make_matmul(npu::kNoTensor, npu::kNoTensor, a_zero, k, n, *weights, b_zero, std::move(stage)),
                    transposed_a,
                    {},
                    {}};
  return c;
}

std::optional<Claim> claim_qlinear_matmul(NodeOp op) {
  mlir::Value a = nn::input_or_null(op, 0), b_value = nn::input_or_null(op, 3);
  const auto qa = operand_quantisation(op, 1, 2), qb = operand_quantisation(op, 4, 5),
             qy = result_quantisation(op, 6, 7);
  if (!a || !b_value || !qa || !qb || !qy || !qa->scalar() || !qy->scalar()) return std::nullopt;
  const auto b = nn::constant_value(b_value);
  if (!b || b->rank() < 2) return std::nullopt;
  const auto columns = static_cast<size_t>(b->shape().back());
  if (qb->scale.size() != 1 && qb->scale.size() != columns) return std::nullopt;
  return matrix_claim(op, a, *b, false, false, qa->z(), qb->zero,
                      requantise(requantisation_multipliers(qa->s(), qb->scale, qy->s()), {}, *qy));
}

std::optional<Claim> claim_matmul_integer(NodeOp op) {
  mlir::Value a = nn::input_or_null(op, 0), b_value = nn::input_or_null(op, 1);
  if (!a || !b_value) return std::nullopt;
  const auto b = nn::constant_value(b_value);
  if (!b) return std::nullopt;
  std::vector<int32_t> zeros[2] = {{0}, {0}};
  for (unsigned i = 0; i < 2; ++i)
    if (mlir::Value z = nn::input_or_null(op, 2 + i)) {
      const auto tensor = nn::constant_value(z);
      if (!tensor) return std::nullopt;
      zeros[i].clear();
      for (int64_t v : tensor->to_int64s()) zeros[i].push_back(static_cast<int32_t>(v));
    }
  if (zeros[0].size() != 1 || zeros[1].empty()) return std::nullopt;
  return matrix_claim(op, a, *b, false, false, zeros[0][0], zeros[1], raw_stage());
}

/// com.microsoft QGemm: A, a_scale, a_zero, B, b_scale, b_zero, C?, y_scale?, y_zero?.
std::optional<Claim> claim_qgemm(NodeOp op) {
  mlir::Value a = nn::input_or_null(op, 0), b_value = nn::input_or_null(op, 3);
  const auto qa = operand_quantisation(op, 1, 2), qb = operand_quantisation(op, 4, 5),
             qy = result_quantisation(op, 7, 8);
  const ops::Node node = nn::to_node(op);
  if (!a || !b_value || !qa || !qb || !qy || !qa->scalar() || !qy->scalar() || !nn::input_or_null(op, 8))
    return std::nullopt;
  const bool transposed = node.get_int("transB", 0) != 0;
  const auto b = nn::constant_value(b_value);
  if (!b || b->rank() != 2 || nn::shape_of(a)->size() != 2) return std::nullopt;
  const int64_t n = b->shape()[transposed ? 0 : 1];
  const auto bias = bias_values(op, 6, n);
  if (!bias || (qb->scale.size() != 1 && static_cast<int64_t>(qb->scale.size()) != n)) return std::nullopt;
  const float alpha = node.get_float("alpha", 1.0f);
  auto multiplier = gemm_multipliers(alpha, qa->s(), qb->scale, qy->s());
  return matrix_claim(op, a, *b, node.get_int("transA", 0) != 0, transposed, qa->z(), qb->zero,
                      requantise(std::move(multiplier), *bias, *qy));
}

}  // namespace

std::optional<Claim> claim_integer_sums(NodeOp product) {
  if (product.is("ConvInteger")) return claim_conv_integer(product);
  if (!product.is("MatMulInteger")) return std::nullopt;
  auto c = claim_matmul_integer(product);
  return c ? c : claim_integer_product(product);
}

namespace {

/// Add of an integer product and a constant for each channel: the product's bias.
std::optional<Claim> claim_integer_bias(NodeOp op) {
  if (nn::dtype_of(op.getResult(0)) != DType::kInt32) return std::nullopt;
  for (unsigned i = 0; i < 2; ++i) {
    NodeOp product = nn::defining_op(op.getInputs()[i]);
    const auto bias = nn::constant_value(op.getInputs()[1 - i]);
    if (!product || !bias || bias->dtype() != DType::kInt32 || !product->hasOneUse()) continue;
    const bool convolution = product.is("ConvInteger");
    if (!convolution && !product.is("MatMulInteger")) continue;
    auto c = claim_integer_sums(product);
    const Shape out = *nn::shape_of(op.getResult(0));
    if (!c || nn::shape_of(product.getResult(0)) != out) continue;
    // Only the channel axis of the bias may be longer than 1.
    const auto rank = static_cast<int64_t>(out.size());
    const int64_t axis = convolution ? 1 : rank - 1, missing = rank - bias->rank();
    if (missing < 0) continue;
    bool fits = bias->size() == 1;
    if (!fits) {
      fits = axis >= missing && bias->size() == out[static_cast<size_t>(axis)] &&
             bias->shape()[static_cast<size_t>(axis - missing)] == bias->size();
    }
    if (!fits) continue;
    npu::Stage& stage = product_stage(c->op);
    for (int64_t b : bias->to_int64s()) stage.bias.push_back(static_cast<int32_t>(b));
    c->root = op;
    c->covered.push_back(op.getOperation());
    return c;
  }
  return std::nullopt;
}

/// Copies each operand, or requantises it through its own table: com.microsoft QLinearConcat and Concat of bytes.
std::optional<Claim> claim_concat(NodeOp op) {
  const ops::Node node = nn::to_node(op);
  const Shape out = *nn::shape_of(op.getResult(0));
  int64_t axis = node.get_int("axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(out.size());
  if (axis < 0 || axis >= static_cast<int64_t>(out.size())) return std::nullopt;
  graph::Concat concat;
  concat.axis = axis;
  std::vector<mlir::Value> operands;
  if (op.is("Concat")) {
    if (!is_byte(nn::dtype_of(op.getResult(0)))) return std::nullopt;
    for (mlir::Value v : op.getInputs()) operands.push_back(v);
    concat.tables.resize(operands.size());
  } else {
    const auto qy = result_quantisation(op, 0, 1);
    if (!qy || !qy->scalar() || op.getInputs().size() < 5 || op.getInputs().size() % 3 != 2) return std::nullopt;
    for (unsigned i = 2; i < op.getInputs().size(); i += 3) {
      const auto qx = operand_quantisation(op, i + 1, i + 2);
      mlir::Value v = nn::input_or_null(op, i);
      if (!qx || !qx->scalar() || !v || !is_byte(nn::dtype_of(v))) return std::nullopt;
      operands.push_back(v);
      npu::Table table;
      if (qx->s() != qy->s() || qx->z() != qy->z() || qx->dtype != qy->dtype) {
        // The operator itself on all 256 values, alone.
        ops::Node one = node;
        one.attributes["axis"] = int64_t{0};
        ops::Tensor all(nn::dtype_of(v), {256});
        for (int b = 0; b < 256; ++b) all.as_mutable<uint8_t>()[static_cast<size_t>(b)] = static_cast<uint8_t>(b);
        const auto constant = [&](unsigned at) { return ops::Value(*nn::constant_value(op.getInputs()[at])); };
        const auto result =
            ops::evaluate(one, {constant(0), constant(1), ops::Value(all), constant(i + 1), constant(i + 2)});
        table.resize(256);
        std::memcpy(table.data(), result[0].tensor.data(), 256);
      }
      concat.tables.push_back(std::move(table));
    }
  }
  if (!llvm::all_of(operands, has_elements) ||
      llvm::all_of(operands, [](mlir::Value v) { return nn::constant_value(v).has_value(); }))
    return std::nullopt;
  Claim c = base_claim(op, operands);
  c.op.what = std::move(concat);
  return c;
}

/// Whether an operator's shapes are such that matchers may look at it.
bool may_match(NodeOp op) {
  if (op.getInputs().empty() || op.getOutputs().empty() || !all_static(op) || !op.getBodies().empty()) return false;
  return std::all_of(op.getOutputs().begin(), op.getOutputs().end(), has_elements);
}

}  // namespace

MatcherRegistry::MatcherRegistry()
    : matchers_{
          {"qlinear-conv", "", "QLinearConv", claim_qlinear_conv},
          {"conv-integer", "", "ConvInteger", claim_conv_integer},
          {"qlinear-matmul", "", "QLinearMatMul", claim_qlinear_matmul},
          {"matmul-integer", "", "MatMulInteger", claim_matmul_integer},
          {"qgemm", "com.microsoft", "QGemm", claim_qgemm},
          {"qlinear-product", "", "QLinearMatMul", claim_qlinear_product},
          {"integer-product", "", "MatMulInteger", claim_integer_product},
          {"gemm-product", "com.microsoft", "QGemm", claim_gemm_product},
          {"qlinear-softmax", "com.microsoft", "QLinearSoftmax", claim_qlinear_softmax},
          {"fixed-shift-softmax", nn::kTesseraDomain.str(), "FixedShiftSoftmax", claim_qlinear_softmax},
          {"normalise-rows", nn::kTesseraDomain.str(), "NormaliseRows", claim_normalise_rows},
          {"kernel", nn::kTesseraDomain.str(), "Kernel", claim_kernel},
          {"integer-bias", "", "Add", claim_integer_bias},
          {"requantise", "", "QuantizeLinear", claim_requantise},
          {"requantise-sums", nn::kTesseraDomain.str(), "Requantise", claim_requantise_sums},
          {"window-sum", nn::kTesseraDomain.str(), "WindowSum", claim_byte_sums},
          {"axis-sum", nn::kTesseraDomain.str(), "AxisSum", claim_byte_sums},
          {"pairs", nn::kTesseraDomain.str(), "Pairs", claim_pairs},
          {"max-pool", "", "MaxPool", claim_max_pool},
          {"global-average-pool", "com.microsoft", "QLinearGlobalAveragePool", claim_global_average_pool},
          {"average-pool", "com.microsoft", "QLinearAveragePool", claim_average_pool},
          {"reduce-mean", "com.microsoft", "QLinearReduceMean", claim_reduce_mean},
          {"reduce-max", "", "ReduceMax", claim_reduce_max},
          {"float-pool", "", "QuantizeLinear", claim_float_pool},
          {"transposed", "", "QuantizeLinear", claim_transposed},
          {"float-concat", "", "QuantizeLinear", claim_float_concat},
          {"binary", "com.microsoft", "QLinearAdd", claim_binary},
          {"binary-qlinearmul", "com.microsoft", "QLinearMul", claim_binary},
          {"litert-average-pool", nn::kLitertDomain.str(), "AveragePool", claim_litert_average_pool},
          {"litert-mean", nn::kLitertDomain.str(), "Mean", claim_litert_mean},
          {"litert-transposed", nn::kLitertDomain.str(), "Requantise", claim_litert_transposed},
          {"litert-add", nn::kLitertDomain.str(), "Add", claim_litert_binary},
          {"litert-sub", nn::kLitertDomain.str(), "Sub", claim_litert_binary},
          {"litert-mul", nn::kLitertDomain.str(), "Mul", claim_litert_binary},
          {"concat", "com.microsoft", "QLinearConcat", claim_concat},
          {"concat-concat", "", "Concat", claim_concat},
          {"moves", "", "", claim_moves},
          {"table", "", "", claim_table},
          {"moved-table", "", "", claim_moved_table},
          {"float-binary", "", "", claim_float_binary},
      } {}

MatcherRegistry& MatcherRegistry::instance() {
  static MatcherRegistry registry;
  return registry;
}

void MatcherRegistry::add(Matcher matcher, const std::string& before) {
  const auto named = [&](const std::string& name) {
    return std::find_if(matchers_.begin(), matchers_.end(), [&](const Matcher& m) { return m.name == name; });
  };
  if (named(matcher.name) != matchers_.end())
    throw Error(ErrorCode::kInvalidArgument, "a matcher named '" + matcher.name + "' is registered already");
  auto at = matchers_.end();
  if (!before.empty()) {
    at = named(before);
    if (at == matchers_.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "matcher '" + matcher.name + "' wants to stand before '" + before + "', which does not exist");
    }
  }
  matchers_.insert(at, std::move(matcher));
}

RegisterMatcher::RegisterMatcher(Matcher matcher, const std::string& before) {
  schedule::guarded_registration([&] { MatcherRegistry::instance().add(std::move(matcher), before); });
}

/// Whether an operand or a result is known to have no element.
bool is_empty(NodeOp op) {
  const auto empty = [](mlir::Value value) {
    const auto shape = nn::is_none(value) ? std::nullopt : nn::shape_of(value);
    return shape && std::find(shape->begin(), shape->end(), 0) != shape->end();
  };
  return llvm::any_of(op.getInputs(), empty) || llvm::any_of(op->getResults(), empty);
}

std::optional<Claim> claim(NodeOp op) {
  if (!may_match(op) || is_empty(op)) return std::nullopt;
  try {
    for (const Matcher& matcher : MatcherRegistry::instance().matchers()) {
      if (!matcher.op_type.empty() && !op.is(matcher.op_type, matcher.domain)) continue;
      if (auto found = matcher.match(op)) return found;
    }
  } catch (const Error&) {
    // An operator the library refuses is reported where it runs.
  }
  return std::nullopt;
}

}  // namespace tessera::partition
