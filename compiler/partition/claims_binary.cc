// SPDX-License-Identifier: Apache-2.0
// Elementwise operators with two run-time byte operands. QLinearAdd and QLinearMul are exact by formula. What computes
// in fp32 between DequantizeLinear and QuantizeLinear is exact by proof: the operator library evaluates all 65,536
// pairs, and the operator is placed in a form of the machine that gives every one of these bytes, or not at all.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "compiler/npu/graph/second.h"
#include "compiler/partition/claims_util.h"
#include "compiler/partition/parameters.h"

namespace tessera::partition {

namespace {

/// True if `a` is the broadcast operand in the innermost run of elements in which the shapes do not agree on both
/// being 1.
bool is_innermost_scalar(const Shape& a, const Shape& b) {
  const size_t shared = std::min(a.size(), b.size());
  if (shared == 0) return a.empty() || a.back() <= 1;
  for (size_t k = 1; k <= shared; ++k) {
    const int64_t da = a[a.size() - k], db = b[b.size() - k];
    if (std::max(da, db) > 1 || k == shared) return da <= 1;
  }
  return false;
}

}  // namespace

/// com.microsoft QLinearAdd and QLinearMul: A, a_scale, a_zero, B, b_scale, b_zero, c_scale, c_zero.
std::optional<Claim> claim_binary(NodeOp op) {
  mlir::Value a = nn::input_or_null(op, 0), b = nn::input_or_null(op, 3);
  const auto qa = operand_quantisation(op, 1, 2), qb = operand_quantisation(op, 4, 5),
             qc = result_quantisation(op, 6, 7);
  if (!a || !b || !qa || !qb || !qc || !qa->scalar() || !qb->scalar() || !qc->scalar()) return std::nullopt;
  if (!is_byte(nn::dtype_of(a)) || nn::dtype_of(a) != nn::dtype_of(b)) return std::nullopt;
  const auto constant_scalar = [](mlir::Value v) {
    return ops::element_count(*nn::shape_of(v)) == 1 && nn::constant_value(v);
  };
  if (constant_scalar(a) || constant_scalar(b)) return std::nullopt;  // a table
  const Range range = range_of(qc->dtype);
  graph::Binary binary;
  npu::SecondOperation& second = binary.second;
  second.low = range.low;
  second.high = range.high;
  if (op.getOpType() == "QLinearAdd") {
    // The operand that is constant along the innermost varying run is added first (docs/numerics.md): it becomes y.
    auto first = *qa, other = *qb;
    if (is_innermost_scalar(*nn::shape_of(a), *nn::shape_of(b))) {
      std::swap(a, b);
      std::swap(first, other);
    }
    const AddParameters p = add_parameters(first.s(), first.z(), other.s(), other.z(), qc->s(), qc->z());
    second.kind = npu::SecondOperation::Kind::kAdd;
    second.rx = p.rx, second.ry = p.ry, second.f = p.f;
  } else {
    second.kind = npu::SecondOperation::Kind::kMul;
    second.rx = mul_multiplier(qa->s(), qb->s(), qc->s());
    second.f = static_cast<float>(qc->z());
    second.zx = qa->z(), second.zy = qb->z();
  }
  const isa::IntegerRange bytes = npu::byte_range(nn::dtype_of(a) == DType::kUint8);
  if (!npu::second_constants(second, bytes, bytes)) return std::nullopt;
  Claim c = base_claim(op, {a, b});
  c.op.what = std::move(binary);
  return c;
}

namespace {

/// The operations between `value` and two byte tensors, in an order in which they can be evaluated.
bool collect_pair(mlir::Value value, std::vector<mlir::Value>& sources, std::vector<NodeOp>& order,
                  std::set<mlir::Operation*>& seen) {
  if (is_scalar_constant(value)) return true;
  NodeOp op = nn::defining_op(value);
  if (!op || seen.size() > 64 || !is_elementwise(op) || !all_static(op)) return false;
  if (seen.count(op.getOperation())) return true;
  for (mlir::Value operand : op.getInputs()) {
    if (nn::is_none(operand)) continue;
    if (is_byte(nn::dtype_of(operand)) && !is_scalar_constant(operand)) {
      if (std::find(sources.begin(), sources.end(), operand) == sources.end()) sources.push_back(operand);
      if (sources.size() > 2) return false;
    } else if (!collect_pair(operand, sources, order, seen)) {
      return false;
    }
  }
  seen.insert(op.getOperation());
  order.push_back(op);
  return true;
}

using Pairs = std::vector<int32_t>;  // results by byte of x * 256 + byte of y

int32_t byte_value(size_t byte, bool is_unsigned) {
  return is_unsigned ? static_cast<int32_t>(byte) : static_cast<int32_t>(static_cast<int8_t>(byte));
}

/// All pairs through the operator library.
std::optional<Pairs> evaluate_pairs(const std::vector<mlir::Value>& sources, const std::vector<NodeOp>& order,
                                    mlir::Value result) {
  llvm::DenseMap<mlir::Value, ops::Value> values;
  for (size_t s = 0; s < 2; ++s) {
    ops::Tensor all(nn::dtype_of(sources[s]), {65536});
    for (size_t i = 0; i < 65536; ++i) all.as_mutable<uint8_t>()[i] = static_cast<uint8_t>(s == 0 ? i / 256 : i % 256);
    values[sources[s]] = all;
  }
  for (NodeOp step : order) {
    std::vector<ops::Value> inputs;
    for (mlir::Value operand : step.getInputs()) {
      const auto constant = nn::is_none(operand) || values.count(operand) ? std::nullopt : nn::constant_value(operand);
      if (nn::is_none(operand))
        inputs.emplace_back();
      else if (constant)
        inputs.emplace_back(constant->rank() <= 1 ? *constant : constant->reshaped({}));
      else
        inputs.push_back(values[operand]);
    }
    ops::Node node = nn::to_node(step);
    if (!ops::lookup(node, inputs.size()).deterministic) return std::nullopt;
    node.attributes.erase("axis");
    auto outputs = ops::evaluate(node, inputs);
    if (outputs.size() != 1 || outputs[0].kind != ops::Value::Kind::kTensor || outputs[0].tensor.size() != 65536)
      return std::nullopt;
    values[step.getResult(0)] = outputs[0];
  }
  const ops::Tensor& tensor = values[result].tensor;
  const bool is_unsigned = tensor.dtype() == DType::kUint8;
  Pairs pairs(65536);
  for (size_t i = 0; i < 65536; ++i) pairs[i] = byte_value(static_cast<uint8_t>(tensor.data()[i]), is_unsigned);
  return pairs;
}

/// The second operation of isa/semantics.md.
int32_t apply(const npu::SecondOperation& s, int32_t x, int32_t y) {
  float g = 0;
  if (s.kind == npu::SecondOperation::Kind::kAdd) {
    g = std::fma(static_cast<float>(x), s.rx, std::fma(static_cast<float>(y), s.ry, s.f));
  } else if (s.kind == npu::SecondOperation::Kind::kMul) {
    const auto p = static_cast<float>((x - s.zx) * (y - s.zy));
    const float scaled = p * s.rx;
    g = s.fused ? std::fma(p, s.rx, s.f) : scaled + s.f;
  } else {
    g = static_cast<float>(s.minimum ? std::min(x, y) : std::max(x, y));
  }
  return static_cast<int32_t>(
             std::nearbyintf(std::min(std::max(g, static_cast<float>(s.low)), static_cast<float>(s.high)))) +
         s.zero;
}

float step_of(float value, int ulps) {
  return value == 0 ? value : std::bit_cast<float>(std::bit_cast<int32_t>(value) + ulps);
}

/// Tries constants within a few units in the last place: near ties the last bits of an fp32 chain decide, and often one
/// choice of constants decides all of them alike.
bool fit(npu::SecondOperation& form, const Pairs& wanted, bool x_unsigned, bool y_unsigned) {
  const npu::SecondOperation start = form;
  const auto on_the_machine = [&] {
    return npu::second_constants(form, npu::byte_range(x_unsigned), npu::byte_range(y_unsigned)).has_value();
  };
  std::vector<size_t> hard;  // pairs that refused an earlier choice, asked first
  for (int round = 0; round < 343; ++round) {
    // Small changes first: 0, 1, -1, 2, -2, 3, -3 in each constant.
    const auto ulps = [](int i) { return i % 2 == 0 ? -i / 2 : (i + 1) / 2; };
    form = start;
    form.f = step_of(start.f, ulps(round % 7));
    form.rx = step_of(start.rx, ulps(round / 7 % 7));
    form.ry = step_of(start.ry, ulps(round / 49));
    const auto equal = [&](size_t i) {
      return apply(form, byte_value(i / 256, x_unsigned), byte_value(i % 256, y_unsigned)) == wanted[i];
    };
    if (!std::all_of(hard.begin(), hard.end(), equal)) continue;
    size_t wrong = 0;
    while (wrong < wanted.size() && equal(wrong)) ++wrong;
    if (wrong == wanted.size()) return on_the_machine();
    if (hard.size() > 64) return false;  // no matter of last bits
    hard.push_back(wrong);
  }
  return false;
}

/// Two byte tensors joined by an fp32 expression that `op` quantises.
struct Pair {
  std::vector<mlir::Value> sources;
  std::vector<NodeOp> order;  // as they are evaluated
  NodeOp join;                // the operator that reads both
  Quantisation q[2], y;

  bool is_unsigned(size_t i) const { return nn::dtype_of(sources[i]) == DType::kUint8; }
};

/// Whether the sources broadcast to the result.
bool broadcasts(const Shape (&shapes)[2], const Shape& out) {
  for (size_t k = 1; k <= out.size(); ++k) {
    int64_t extent = 1;
    for (const Shape& s : shapes) extent = std::max(extent, k <= s.size() ? s[s.size() - k] : 1);
    if (extent != out[out.size() - k]) return false;
  }
  return std::all_of(std::begin(shapes), std::end(shapes), [&](const Shape& s) { return s.size() <= out.size(); });
}

/// Finds the operator that joins the two, and their scales.
bool find_join(Pair& pair, NodeOp op) {
  std::optional<Quantisation> q[2];
  for (NodeOp step : pair.order) {
    if (step.is("QuantizeLinear") && step != op) return false;
    if (step.is("DequantizeLinear"))
      for (size_t i = 0; i < 2; ++i)
        if (step.getInputs()[0] == pair.sources[i]) q[i] = operand_quantisation(step, 1, 2);
    const auto run_time =
        llvm::count_if(step.getInputs(), [](mlir::Value v) { return !nn::is_none(v) && !is_scalar_constant(v); });
    if (run_time > 1) pair.join = step;
  }
  if (!pair.join || !q[0] || !q[1] || !q[0]->scalar() || !q[1]->scalar()) return false;
  for (size_t i = 0; i < 2; ++i) pair.q[i] = *q[i];
  return true;
}

std::optional<Pair> pair_of(NodeOp op) {
  mlir::Value result = op.getResult(0);
  const auto qy = result_quantisation(op, 1, 2);
  if (!op.is("QuantizeLinear") || !qy || !qy->scalar() || !is_byte(nn::dtype_of(result))) return std::nullopt;
  Pair pair;
  pair.y = *qy;
  std::set<mlir::Operation*> seen;
  if (!collect_pair(result, pair.sources, pair.order, seen) || pair.sources.size() != 2) return std::nullopt;
  const Shape shapes[2] = {*nn::shape_of(pair.sources[0]), *nn::shape_of(pair.sources[1])};
  if (!broadcasts(shapes, *nn::shape_of(result)) || !find_join(pair, op)) return std::nullopt;
  return pair;
}

/// Bounds and zero point of the result.
npu::SecondOperation result_of(const Pair& pair) {
  const Range to = range_of(pair.y.dtype);
  npu::SecondOperation second;
  second.zero = pair.y.z();
  second.low = to.low - pair.y.z();
  second.high = to.high - pair.y.z();
  return second;
}

/// The larger (smaller) of two functions of one byte.
std::optional<graph::Binary> extreme(const Pair& pair, const Pairs& wanted, bool minimum) {
  const auto better = [&](int32_t a, int32_t b) { return minimum ? std::min(a, b) : std::max(a, b); };
  const auto worse = [&](int32_t a, int32_t b) { return minimum ? std::max(a, b) : std::min(a, b); };
  std::array<int32_t, 256> own[2];
  for (auto& values : own) values.fill(minimum ? INT32_MIN : INT32_MAX);
  for (size_t i = 0; i < wanted.size(); ++i) {
    own[0][i / 256] = worse(own[0][i / 256], wanted[i]);
    own[1][i % 256] = worse(own[1][i % 256], wanted[i]);
  }
  for (size_t i = 0; i < wanted.size(); ++i)
    if (better(own[0][i / 256], own[1][i % 256]) != wanted[i]) return std::nullopt;
  graph::Binary binary;
  const Range to = range_of(pair.y.dtype);
  binary.second.kind = npu::SecondOperation::Kind::kMax;
  binary.second.minimum = minimum;
  binary.second.low = to.low, binary.second.high = to.high;
  for (size_t s = 0; s < 2; ++s) {
    npu::Table& table = s == 0 ? binary.x_table : binary.y_table;
    bool same = nn::dtype_of(pair.sources[s]) == pair.y.dtype;
    for (size_t i = 0; i < 256; ++i) {
      table.push_back(static_cast<uint8_t>(own[s][i]));
      same = same && table.back() == i;
    }
    if (same) table.clear();
  }
  return binary;
}

std::optional<graph::Binary> sum(const Pair& pair, const Pairs& wanted) {
  // The first operand of the operator may be the second source.
  std::vector<mlir::Value> first;
  std::vector<NodeOp> inner;
  std::set<mlir::Operation*> visited;
  NodeOp join = pair.join;
  const bool turned =
      collect_pair(join.getInputs()[0], first, inner, visited) && first.size() == 1 && first[0] == pair.sources[1];
  const bool minus = join.is("Sub");
  const double signs[2] = {minus && turned ? -1.0 : 1.0, minus && !turned ? -1.0 : 1.0};
  graph::Binary binary;
  npu::SecondOperation& second = binary.second;
  second = result_of(pair);
  second.kind = npu::SecondOperation::Kind::kAdd;
  second.rx = static_cast<float>(signs[0] * pair.q[0].s() / pair.y.s());
  second.ry = static_cast<float>(signs[1] * pair.q[1].s() / pair.y.s());
  const double zeros = static_cast<double>(second.rx) * pair.q[0].z() + static_cast<double>(second.ry) * pair.q[1].z();
  second.f = static_cast<float>(-zeros);
  npu::SecondOperation before = second;  // the zero point before rounding
  const Range to = range_of(pair.y.dtype);
  before.f = static_cast<float>(pair.y.z() - zeros);
  before.zero = 0;
  before.low = to.low, before.high = to.high;
  if (fit(second, wanted, pair.is_unsigned(0), pair.is_unsigned(1))) return binary;
  if (!fit(before, wanted, pair.is_unsigned(0), pair.is_unsigned(1))) return std::nullopt;
  second = before;
  return binary;
}

std::optional<graph::Binary> product(const Pair& pair, const Pairs& wanted) {
  graph::Binary binary;
  npu::SecondOperation& second = binary.second;
  second = result_of(pair);
  second.kind = npu::SecondOperation::Kind::kMul;
  second.zx = pair.q[0].z(), second.zy = pair.q[1].z();
  second.rx = static_cast<float>(static_cast<double>(pair.q[0].s()) * pair.q[1].s() / pair.y.s());
  if (!fit(second, wanted, pair.is_unsigned(0), pair.is_unsigned(1))) return std::nullopt;
  return binary;
}

/// The machine's form of the joining operator that gives every wanted byte.
std::optional<graph::Binary> form_of(const Pair& pair, const Pairs& wanted) {
  NodeOp join = pair.join;
  if (join.is("Max") || join.is("Min")) return extreme(pair, wanted, join.is("Min"));
  if (join.is("Add") || join.is("Sub")) return sum(pair, wanted);
  if (join.is("Mul")) return product(pair, wanted);
  return std::nullopt;
}

/// Scale and zero point that an operator of domain litert has as attributes.
Quantisation attribute_quantisation(const ops::Node& node, const std::string& name, DType dtype) {
  return {{node.get_float(name + "_scale", 1)}, {static_cast<int32_t>(node.get_int(name + "_zero_point", 0))}, dtype};
}

/// XNNPACK's sum has both factors in as many fraction bits, and halves go upwards: the machine's factors are the same
/// numbers, and half a unit of the last of these bits decides the ties.
std::optional<graph::Binary> litert_sum(const ops::Node& node, const Pair& pair, npu::SecondOperation second,
                                        const Pairs& wanted) {
  const float ratios[2] = {pair.q[0].s() / pair.y.s(), pair.q[1].s() / pair.y.s()};
  const int shift = 20 - std::ilogb(std::max(ratios[0], ratios[1]));
  const auto factor = [&](float ratio) {
    return std::ldexp(static_cast<float>(std::nearbyint(std::ldexp(ratio, shift))), -shift);
  };
  const double sign = node.op_type == "Sub" ? -1 : 1;
  second.kind = npu::SecondOperation::Kind::kAdd;
  graph::Binary binary;
  for (const bool exact : {true, false}) {
    second.rx = exact ? factor(ratios[0]) : ratios[0];
    second.ry = static_cast<float>(sign) * (exact ? factor(ratios[1]) : ratios[1]);
    const double zeros =
        static_cast<double>(second.rx) * pair.q[0].z() + static_cast<double>(second.ry) * pair.q[1].z();
    for (const int finer : {1, 3, 5, 60}) {
      second.f = static_cast<float>(std::ldexp(1.0, -shift - 2 + finer) * (finer == 60 ? 0 : 1) - zeros);
      binary.second = second;
      if (fit(binary.second, wanted, pair.is_unsigned(0), pair.is_unsigned(1))) return binary;
    }
  }
  return std::nullopt;
}

}  // namespace

/// litert Add, Sub and Mul, by proof: all 65,536 pairs by the operator's integer formula.
std::optional<Claim> claim_litert_binary(NodeOp op) {
  const ops::Node node = nn::to_node(op);
  const DType dtype = nn::dtype_of(op.getResult(0));
  mlir::Value a = nn::input_or_null(op, 0), b = nn::input_or_null(op, 1);
  if (!a || !b || !is_byte(dtype) || a == b || is_scalar_constant(a) || is_scalar_constant(b)) return std::nullopt;
  Pair pair;
  pair.sources = {a, b};
  pair.join = op;
  pair.q[0] = attribute_quantisation(node, "a", dtype);
  pair.q[1] = attribute_quantisation(node, "b", dtype);
  pair.y = attribute_quantisation(node, "y", dtype);
  const auto wanted = evaluate_pairs(pair.sources, {op}, op.getResult(0));
  if (!wanted) return std::nullopt;
  npu::SecondOperation second = result_of(pair);
  second.low = static_cast<int32_t>(node.get_int("low", 0)) - pair.y.z();
  second.high = static_cast<int32_t>(node.get_int("high", 0)) - pair.y.z();
  std::optional<graph::Binary> binary;
  if (op.getOpType() != "Mul") {
    binary = litert_sum(node, pair, second, *wanted);
  } else {
    second.kind = npu::SecondOperation::Kind::kMul;
    second.zx = pair.q[0].z(), second.zy = pair.q[1].z();
    second.rx = pair.q[0].s() * pair.q[1].s() / pair.y.s();
    if (fit(second, *wanted, pair.is_unsigned(0), pair.is_unsigned(1))) binary = graph::Binary{.second = second};
  }
  if (!binary) return std::nullopt;
  Claim c = base_claim(op, pair.sources);
  c.op.what = std::move(*binary);
  return c;
}

/// The form that its attributes name, with the constants that they name or those beside them.
std::optional<Claim> claim_pairs(NodeOp op) {
  const ops::Node node = nn::to_node(op);
  const ops::Tensor* table = node.get_tensor("table");
  Pair pair;
  for (mlir::Value v : op.getInputs()) pair.sources.push_back(v);
  if (table == nullptr || is_scalar_constant(pair.sources[0]) || is_scalar_constant(pair.sources[1]))
    return std::nullopt;
  if (pair.sources[0] == pair.sources[1]) {  // a function of one byte
    npu::Table own(256);
    for (size_t i = 0; i < own.size(); ++i) own[i] = static_cast<uint8_t>(table->data()[i * 257]);
    Claim c = base_claim(op, {pair.sources[0]});
    c.op.what = graph::Lookup{std::move(own)};
    return c;
  }
  pair.y = {{1.0F}, {0}, table->dtype()};
  Pairs wanted(65536);
  for (size_t i = 0; i < wanted.size(); ++i)
    wanted[i] = byte_value(static_cast<uint8_t>(table->data()[i]), table->dtype() == DType::kUint8);
  const std::string kind = node.get_string("kind", "add");
  std::optional<graph::Binary> binary;
  if (kind == "max" || kind == "min") {
    binary = extreme(pair, wanted, kind == "min");
  } else {
    npu::SecondOperation second;
    second.kind = kind == "mul" ? npu::SecondOperation::Kind::kMul : npu::SecondOperation::Kind::kAdd;
    second.rx = node.get_float("rx", 1), second.ry = node.get_float("ry", 1), second.f = node.get_float("f", 0);
    second.zx = static_cast<int32_t>(node.get_int("zx", 0)), second.zy = static_cast<int32_t>(node.get_int("zy", 0));
    second.low = static_cast<int32_t>(node.get_int("low", -128));
    second.high = static_cast<int32_t>(node.get_int("high", 127));
    second.zero = static_cast<int32_t>(node.get_int("zero", 0));
    if (fit(second, wanted, pair.is_unsigned(0), pair.is_unsigned(1))) binary = graph::Binary{.second = second};
  }
  if (!binary) return std::nullopt;
  Claim c = base_claim(op, pair.sources);
  c.op.what = std::move(*binary);
  return c;
}

/// QuantizeLinear of an fp32 expression of two dequantised tensors.
std::optional<Claim> claim_float_binary(NodeOp op) {
  auto pair = pair_of(op);
  if (!pair) return std::nullopt;
  const auto wanted = evaluate_pairs(pair->sources, pair->order, op.getResult(0));
  if (!wanted) return std::nullopt;
  auto binary = form_of(*pair, *wanted);
  if (!binary) return std::nullopt;
  Claim c = base_claim(op, pair->sources);
  c.op.kind = pair->join.getOpType().str();
  c.covered.clear();
  for (NodeOp step : pair->order) c.covered.push_back(step.getOperation());
  c.op.what = std::move(*binary);
  return c;
}

}  // namespace tessera::partition
