// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts of domain com.microsoft: MoE with weights of floats, QMoE with weights of 2, 4 or 8 bits. Tokens
// and the router's scores enter; each token is the weighted sum of what its k best experts make of it. An expert is
// computed for the tokens that chose it alone. Routing and roundings follow ONNX Runtime's CPU provider.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/expansion.h"
#include "ops/kernels/elementwise_kernel.h"
#include "ops/kernels/gemm_kernel.h"
#include "ops/kernels/pointwise.h"

namespace tessera::ops {

namespace {

namespace experts {

using kernel::elements;
using kernel::mutable_elements;

/// Where the operands of one product stand; beyond the list: absent.
struct ProductAt {
  size_t weights, scales, bias, zeros;
};
constexpr size_t kAbsent = 99;
constexpr ProductAt kMoeProducts[] = {{2, kAbsent, 3, kAbsent}, {4, kAbsent, 5, kAbsent}, {6, kAbsent, 7, kAbsent}};
constexpr ProductAt kQmoeProducts[] = {{2, 3, 4, 11}, {5, 6, 7, 12}, {8, 9, 10, 13}};
constexpr size_t kRouterWeights = 14;  // of QMoE

bool is_quantised(const Node& node) { return node.op_type == "QMoE"; }
const ProductAt* products(const Node& node) { return is_quantised(node) ? kQmoeProducts : kMoeProducts; }

int64_t extent(const TypeInfo& t, size_t d) { return t.ranked ? t.shape[d] : -1; }

/// Two halves of one product, the gate and what it weighs, that a SwiGLU has.
bool is_gated(const Node& node) { return node.get_string("activation_type", "relu") == "swiglu"; }
bool is_fused(const Node& node) { return is_gated(node) && node.get_int("swiglu_fusion", 0) != 0; }

int64_t weight_bits(const Node& node, size_t product) {
  static constexpr const char* kOverrides[] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits",
                                               "fc3_expert_weight_bits"};
  return node.get_int(kOverrides[product], node.get_int("expert_weight_bits", 4));
}

void check_quantisation(const Node& node) {
  const std::string type = node.get_string("quant_type", "int");
  if (type != "int")
    node.fail(ErrorCode::kUnsupported, "quant_type '" + type + "' is not served; quantise the experts as 'int'");
  for (size_t p = 0; p < 3; ++p) {
    const int64_t bits = weight_bits(node, p);
    if (bits != 2 && bits != 4 && bits != 8)
      node.fail(ErrorCode::kUnsupported, "weights of " + std::to_string(bits) + " bits are not served; 2, 4 and 8 are");
    if (node.get_int("weights_prepacked", -1) == 1 && bits != 8)
      node.fail(ErrorCode::kUnsupported,
                "weights_prepacked = 1 is a layout of one processor; export the weights with weights_prepacked = 0");
  }
  const int64_t block = node.get_int("block_size", 0);
  if (block < 0 || block > (int64_t{1} << 20))
    node.fail(ErrorCode::kInvalidModel, "attribute 'block_size' = " + std::to_string(block) + " is out of range");
}

void check_activation(const Node& node) {
  const std::string name = node.get_string("activation_type", "relu");
  for (const char* known : {"relu", "gelu", "silu", "swiglu", "identity"})
    if (name == known) return;
  node.fail(ErrorCode::kUnsupported,
            "activation_type '" + name + "' is not served; relu, gelu, silu, swiglu and identity are");
}

void require_shape(const Node& node, const TypeInfo& t, const Shape& wanted, const std::string& what) {
  if (!t.ranked) return;
  bool fits = t.shape.size() == wanted.size();
  for (size_t d = 0; fits && d < wanted.size(); ++d) fits = wanted[d] < 0 || t.shape[d] < 0 || wanted[d] == t.shape[d];
  if (!fits)
    node.fail(ErrorCode::kInvalidModel, what + " " + to_string(t.shape) + " must have shape " + to_string(wanted));
}

/// Checks the weights [experts, rows, depth] of one product and what belongs to them.
void check_product(const InferContext& c, size_t p, int64_t experts, int64_t rows, int64_t depth) {
  const Node& node = c.node;
  const ProductAt& at = products(node)[p];
  const std::string name = "of fc" + std::to_string(p + 1);
  const int64_t bits = is_quantised(node) ? weight_bits(node, p) : 8, block = node.get_int("block_size", 0);
  const auto bytes = [&](int64_t n) { return n < 0 ? -1 : (n * bits + 7) / 8; };
  if (is_quantised(node) && depth >= 0 && (depth * bits % 8 != 0 || (block > 0 && depth % block != 0)))
    node.fail(ErrorCode::kInvalidModel, "weights " + name + " do not divide into bytes and blocks");
  require_shape(node, c.input(at.weights), {experts, rows, bytes(depth)}, "weights " + name);
  if (c.has(at.bias)) require_shape(node, c.input(at.bias), {experts, rows}, "bias " + name);
  if (!is_quantised(node)) return kernel::require_same_type(node, c.input(0), c.input(at.weights));
  kernel::require_type(node, c.input(at.weights).dtype, kernel::set_of({DType::kUint8}), "a quantised weight");
  if (!c.has(at.scales)) node.fail(ErrorCode::kInvalidModel, "scales " + name + " are missing");
  const int64_t blocks = depth < 0 ? -1 : depth / std::max<int64_t>(block, 1);
  require_shape(node, c.input(at.scales), block > 0 ? Shape{experts, rows, blocks} : Shape{experts, rows},
                "scales " + name);
  if (c.has(at.zeros))
    require_shape(node, c.input(at.zeros),
                  block > 0 ? Shape{experts, rows, bytes(blocks)} : Shape{experts, bytes(rows)}, "zero points " + name);
}

void infer_experts(InferContext& c) {
  const Node& node = c.node;
  const TypeInfo &x = c.input(0), &router = c.input(1);
  check_activation(node);
  if (is_quantised(node)) check_quantisation(node);
  kernel::require_type(node, x.dtype, kernel::set_of({DType::kFloat, DType::kFloat16, DType::kBfloat16}), "the input");
  if (x.ranked && x.shape.size() != 2 && x.shape.size() != 3)
    node.fail(ErrorCode::kInvalidModel, "the input " + to_string(x.shape) + " must have rank 2 or 3");
  const ProductAt* const at = products(node);
  for (size_t p = 0; p < 2; ++p)
    if (!c.has(at[p].weights)) node.fail(ErrorCode::kInvalidModel, "weights of the experts are missing");
  kernel::require_rank(node, router, 2, "router_probs");
  kernel::require_rank(node, c.input(at[0].weights), 3, "the weights of fc1");
  const int64_t experts = extent(router, 1), k = node.get_int("k", 1);
  if (k < 1 || (experts >= 0 && k > experts))
    node.fail(ErrorCode::kInvalidModel, "attribute 'k' = " + std::to_string(k) + " is not between 1 and the " +
                                            std::to_string(experts) + " experts");
  const int64_t hidden = x.ranked ? x.shape.back() : -1, rows = extent(c.input(at[0].weights), 1);
  if (is_fused(node) && rows >= 0 && rows % 2 != 0)
    node.fail(ErrorCode::kInvalidModel, "fc1 has no pairs of rows, as a fused swiglu needs");
  const int64_t inner = rows < 0 || !is_fused(node) ? rows : rows / 2;
  check_product(c, 0, experts, rows, hidden);
  check_product(c, 1, experts, hidden, inner);
  if (c.has(at[2].weights))
    check_product(c, 2, experts, inner, hidden);
  else if (is_gated(node) && !is_fused(node))
    node.fail(ErrorCode::kInvalidModel, "swiglu needs fc3, or swiglu_fusion = 1 or 2 with both halves in fc1");
  const int64_t tokens = x.ranked ? kernel::product(x.shape, 0, x.shape.size() - 1) : -1;
  require_shape(node, router, {tokens, experts}, "router_probs");
  if (is_quantised(node) && c.has(kRouterWeights))
    require_shape(node, c.input(kRouterWeights), {tokens, experts}, "router_weights");
  c.outputs[0] = kernel::without_constant(x);
}

// ------------------------------------------------------------------------------------------------------------ routing

/// A token that chose an expert, and its share in the token's result.
struct Choice {
  int64_t token;
  float share;
};

void softmax(std::vector<float>& row) {
  const float top = *std::max_element(row.begin(), row.end());
  float sum = 0;
  for (float& v : row) sum += v = std::exp(v - top);
  for (float& v : row) v /= sum;
}

void normalise(std::vector<float>& shares) {
  const float sum = std::accumulate(shares.begin(), shares.end(), 0.0f);
  if (sum != 0)
    for (float& share : shares) share /= sum;
}

/// The shares of the chosen experts of one token. MoE takes a softmax over all experts, QMoE over the chosen ones,
/// unless router_weights says the shares.
std::vector<float> shares_of(const EvalContext& c, const std::vector<float>& scores, const std::vector<int64_t>& chosen,
                             const float* weights) {
  const bool quantised = is_quantised(c.node);
  std::vector<float> all = scores, shares;
  if (!quantised) softmax(all);
  for (const int64_t e : chosen) shares.push_back(weights != nullptr ? weights[e] : all[static_cast<size_t>(e)]);
  if (quantised && weights == nullptr) softmax(shares);
  if (c.node.get_int("normalize_routing_weights", 0) != 0) normalise(shares);
  return shares;
}

/// For each expert the tokens that chose it with a share above 0.
std::vector<std::vector<Choice>> route(const EvalContext& c) {
  const Tensor router = kernel::widen(c.input(1));
  const int64_t experts = router.shape()[1], k = c.node.get_int("k", 1);
  Tensor weights;
  const bool weighted = is_quantised(c.node) && c.has(kRouterWeights);
  if (weighted) weights = kernel::widen(c.input(kRouterWeights));
  std::vector<std::vector<Choice>> result(static_cast<size_t>(experts));
  for (int64_t token = 0; token < router.shape()[0]; ++token) {
    const float* const row = elements<float>(router) + token * experts;
    const std::vector<float> scores(row, row + experts);
    std::vector<int64_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    order.resize(static_cast<size_t>(k));
    const std::vector<float> shares =
        shares_of(c, scores, order, weighted ? elements<float>(weights) + token * experts : nullptr);
    for (size_t i = 0; i < order.size(); ++i)
      if (shares[i] > 0) result[static_cast<size_t>(order[i])].push_back({token, shares[i]});
  }
  return result;
}

// ------------------------------------------------------------------------------------------------------------ experts

/// The attribute that an expansion writes: which products multiply floats.
constexpr const char* kFloatProducts = "float_products";

/// The CPU provider rounds activations to 8 bits for blocks of 8 bits, and of 4 bits with accuracy_level 4.
bool may_round_activations(const Node& node, size_t product) {
  if (node.get_int("block_size", 0) <= 0) return false;
  const int64_t bits = weight_bits(node, product);
  return bits == 8 || (bits == 4 && node.get_int("accuracy_level", 0) == 4);
}

/// The provider prepares constant operands alone for products of integers. Where others are known at run time only, the
/// same operator says that these products multiply floats.
std::optional<Expansion> expand_experts(const Node& node, const std::vector<TypeInfo>& inputs) {
  if (node.has(kFloatProducts)) return std::nullopt;
  const auto is_late = [&](size_t i) { return i < inputs.size() && inputs[i].present && !inputs[i].constant; };
  std::vector<int64_t> floats;
  for (size_t p = 0; p < 3; ++p) {
    const ProductAt& at = products(node)[p];
    if (may_round_activations(node, p) && (is_late(at.weights) || is_late(at.scales) || is_late(at.zeros)))
      floats.push_back(static_cast<int64_t>(p));
  }
  if (floats.empty()) return std::nullopt;
  Expander e(node, inputs, node.version);
  Expander::Attributes attributes = node.attributes;
  attributes[kFloatProducts] = floats;
  return e.finish(e.steps(node.op_type, e.inputs(), attributes, node.output_count, kMicrosoft, node.version));
}

/// One product of all experts: rows of x by the transposed weights of an expert, plus its bias.
class ExpertProduct {
 public:
  ExpertProduct(const EvalContext& c, size_t p, int64_t rows, int64_t depth)
      : node_(c.node), product_(p), rows_(rows), depth_(depth) {
    const ProductAt& at = products(c.node)[p];
    weights_ = is_quantised(c.node) ? c.input(at.weights) : kernel::widen(c.input(at.weights));
    if (c.has(at.bias)) bias_ = kernel::widen(c.input(at.bias));
    if (!is_quantised(c.node)) return;
    scales_ = kernel::widen(c.input(at.scales));
    if (c.has(at.zeros)) zeros_ = c.input(at.zeros);
  }

  std::vector<float> multiply(int64_t expert, std::vector<float> x) const {
    const auto count = static_cast<int64_t>(x.size()) / std::max<int64_t>(depth_, 1);
    std::vector<float> y(static_cast<size_t>(count * rows_)), numbers;
    const float* w = nullptr;
    if (is_quantised(node_)) {
      if (rounds_activations()) round_blocks(x);
      numbers = dequantised(expert);
      w = numbers.data();
    } else {
      w = elements<float>(weights_) + expert * rows_ * depth_;
    }
    ops::multiply<float>(count, rows_, depth_, {x.data(), depth_, 1}, {w, 1, depth_}, y.data(), rows_);
    if (bias_.size() > 0)
      for (int64_t i = 0; i < count * rows_; ++i)
        y[static_cast<size_t>(i)] += elements<float>(bias_)[expert * rows_ + i % rows_];
    return y;
  }

 private:
  int64_t bits() const { return weight_bits(node_, product_); }
  int64_t block() const {
    const int64_t given = node_.get_int("block_size", 0);
    return given > 0 ? given : depth_;
  }

  bool rounds_activations() const {
    const std::vector<int64_t> floats = node_.get_ints(kFloatProducts);
    return may_round_activations(node_, product_) &&
           std::find(floats.begin(), floats.end(), static_cast<int64_t>(product_)) == floats.end();
  }

  /// Each block of a row to a multiple of a 127th of its largest magnitude.
  void round_blocks(std::vector<float>& x) const {
    for (auto at = x.begin(); at != x.end(); at += block()) {
      float most = 0;
      for (int64_t i = 0; i < block(); ++i) most = std::max(most, std::fabs(at[i]));
      const float inverse = most > 0 ? 127.0f / most : 0.0f, step = most / 127.0f;
      for (int64_t i = 0; i < block(); ++i) at[i] = std::nearbyint(at[i] * inverse) * step;
    }
  }

  int64_t packed(const Tensor& t, int64_t row, int64_t row_bytes, int64_t column) const {
    const int64_t per_byte = 8 / bits(), mask = (int64_t{1} << bits()) - 1;
    return (elements<uint8_t>(t)[row * row_bytes + column / per_byte] >> (column % per_byte * bits())) & mask;
  }

  /// The weights of an expert as float32 [rows, depth].
  std::vector<float> dequantised(int64_t expert) const {
    const bool blocked = node_.get_int("block_size", 0) > 0;
    const int64_t blocks = blocked ? depth_ / block() : 1;
    const auto bytes = [&](int64_t n) { return (n * bits() + 7) / 8; };
    std::vector<float> result(static_cast<size_t>(rows_ * depth_));
    for (int64_t n = 0; n < rows_; ++n) {
      const int64_t row = expert * rows_ + n;
      for (int64_t k = 0; k < depth_; ++k) {
        const int64_t b = blocked ? k / block() : 0;
        int64_t zero = int64_t{1} << (bits() - 1);
        if (zeros_.size() > 0)
          zero = blocked ? packed(zeros_, row, bytes(blocks), b) : packed(zeros_, expert, bytes(rows_), n);
        result[static_cast<size_t>(n * depth_ + k)] =
            static_cast<float>(packed(weights_, row, bytes(depth_), k) - zero) *
            elements<float>(scales_)[row * blocks + b];
      }
    }
    return result;
  }

  const Node& node_;
  size_t product_;
  int64_t rows_, depth_;
  Tensor weights_, bias_, scales_, zeros_;
};

float activated(const std::string& name, float v) {
  const scalar::Number<float> x{v};
  if (name == "relu") return std::max(v, 0.0f);
  if (name == "gelu") return scalar::gelu_by_tanh(x).value;
  if (name == "silu") return v * scalar::sigmoid(x).value;
  return v;
}

/// The hidden values of the rows that fc1 made, in place; `up`: what fc3 made of them, or nothing.
void activate(const Node& node, std::vector<float>& h, const std::vector<float>& up, int64_t width) {
  const std::string name = node.get_string("activation_type", "relu");
  if (name != "swiglu") {
    for (size_t i = 0; i < h.size(); ++i) h[i] = activated(name, h[i]) * (up.empty() ? 1.0f : up[i]);
    return;
  }
  const float alpha = node.get_float("activation_alpha", 1.0f), beta = node.get_float("activation_beta", 0.0f);
  const float limit = node.get_float("swiglu_limit", INFINITY);
  const bool after = node.get_int("swiglu_limit_after_activation", 0) != 0;
  const auto unit = [&](float gate, float linear) {
    if (!after) gate = std::min(gate, limit);
    const float activated_gate = gate * scalar::sigmoid(scalar::Number<float>{alpha * gate}).value;
    return (after ? std::min(activated_gate, limit) : activated_gate) * (std::clamp(linear, -limit, limit) + beta);
  };
  if (!up.empty()) {
    for (size_t i = 0; i < h.size(); ++i) h[i] = unit(h[i], up[i]);
    return;
  }
  const bool interleaved = node.get_int("swiglu_fusion", 0) == 1;
  std::vector<float> result(h.size() / 2);
  for (size_t i = 0; i < result.size(); ++i) {
    const size_t row = i / static_cast<size_t>(width), column = i % static_cast<size_t>(width),
                 start = 2 * row * static_cast<size_t>(width);
    result[i] = interleaved ? unit(h[start + 2 * column], h[start + 2 * column + 1])
                            : unit(h[start + column], h[start + static_cast<size_t>(width) + column]);
  }
  h = std::move(result);
}

void evaluate_experts(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor x = kernel::widen(c.input(0));
  const ProductAt* const at = products(c.node);
  const int64_t hidden = x.shape().back(), rows = c.input(at[0].weights).shape()[1],
                inner = is_fused(c.node) ? rows / 2 : rows;
  const ExpertProduct first(c, 0, rows, hidden), second(c, 1, hidden, inner);
  std::optional<ExpertProduct> third;
  if (c.has(at[2].weights)) third.emplace(c, 2, inner, hidden);
  const std::vector<std::vector<Choice>> routes = route(c);
  Tensor y(DType::kFloat, x.shape());
  for (size_t e = 0; e < routes.size(); ++e) {
    if (routes[e].empty() || hidden == 0 || inner == 0) continue;
    std::vector<float> chosen, up;
    for (const Choice& choice : routes[e]) {
      const float* const token = elements<float>(x) + choice.token * hidden;
      chosen.insert(chosen.end(), token, token + hidden);
    }
    const auto expert = static_cast<int64_t>(e);
    std::vector<float> h = first.multiply(expert, chosen);
    if (third) up = third->multiply(expert, chosen);
    activate(c.node, h, up, inner);
    const std::vector<float> made = second.multiply(expert, std::move(h));
    for (size_t i = 0; i < routes[e].size(); ++i)
      for (int64_t d = 0; d < hidden; ++d)
        mutable_elements<float>(y)[routes[e][i].token * hidden + d] +=
            routes[e][i].share * made[i * static_cast<size_t>(hidden) + static_cast<size_t>(d)];
  }
  c.outputs[0] = kernel::narrow(std::move(y), types[0].dtype);
}

}  // namespace experts

}  // namespace

void register_experts(Registry& registry) {
  std::set<std::string> attributes = {
      "activation_alpha",          "activation_beta", "activation_type", "k",
      "normalize_routing_weights", "swiglu_fusion",   "swiglu_limit",    "swiglu_limit_after_activation",
      "use_sparse_mixer"};
  kernel::add(registry, "MoE", 1, {5, 8}, experts::infer_experts, experts::evaluate_experts, attributes, kernel::kOne,
              "com.microsoft");
  attributes.insert({"accuracy_level", "block_size", "expert_weight_bits", "fc1_expert_weight_bits",
                     "fc2_expert_weight_bits", "fc3_expert_weight_bits", experts::kFloatProducts, "quant_type",
                     "weights_prepacked"});
  kernel::add(registry, "QMoE", 1, {6, 15}, experts::infer_experts, experts::evaluate_experts, attributes, kernel::kOne,
              "com.microsoft", experts::expand_experts);
}

}  // namespace tessera::ops
