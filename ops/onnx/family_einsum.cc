// SPDX-License-Identifier: Apache-2.0
// Einsum in its full notation: named subscripts, repeated ones (diagonals), "...", and an explicit or implied result.
// Operands are contracted from left to right: each pair becomes one batched matrix product over [shared and kept, own,
// summed] subscripts, so that a contraction costs what it must; subscripts that only one operand has and nobody needs
// are summed first.
#include <algorithm>
#include <cctype>
#include <map>

#include "ops/kernels/elementwise_kernel.h"
#include "ops/kernels/product.h"

namespace tessera::ops {

namespace {

/// Subscripts are characters; the dimensions of "..." are the codes below 'A', counted from the last dimension: 0 is
/// the last.
using Labels = std::vector<int>;
constexpr int kMaxEllipsis = 'A' - 1;

struct Term {
  Labels letters;     // without the ellipsis
  int ellipsis = -1;  // number of letters before "...", -1: none
};

struct Equation {
  std::vector<Term> inputs;
  Term output;
  bool has_output = false;
};

Term parse_term(const Node& node, const std::string& text) {
  Term term;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 3, "...") == 0) {
      if (term.ellipsis >= 0) node.fail(ErrorCode::kInvalidModel, "the term '" + text + "' has two ellipses");
      term.ellipsis = static_cast<int>(term.letters.size());
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(text[i]))) {
      term.letters.push_back(text[i]);
    } else {
      const bool printable = std::isprint(static_cast<unsigned char>(text[i])) != 0;
      node.fail(ErrorCode::kInvalidModel,
                "the character " +
                    (printable ? std::string("'") + text[i] + "'"
                               : "with code " + std::to_string(static_cast<unsigned char>(text[i]))) +
                    " has no meaning in an equation");
    }
  }
  return term;
}

Equation parse(const Node& node) {
  std::string text;
  for (char each : node.get_string("equation", ""))
    if (!std::isspace(static_cast<unsigned char>(each))) text += each;
  if (!node.has("equation")) node.fail(ErrorCode::kInvalidModel, "attribute 'equation' is missing");
  Equation equation;
  const size_t arrow = text.find("->");
  std::string left = text.substr(0, arrow);
  for (size_t start = 0;;) {
    const size_t comma = left.find(',', start);
    equation.inputs.push_back(parse_term(node, left.substr(start, comma - start)));
    if (comma == std::string::npos) break;
    start = comma + 1;
  }
  const bool any_ellipsis =
      std::any_of(equation.inputs.begin(), equation.inputs.end(), [](const Term& t) { return t.ellipsis >= 0; });
  std::map<int, int> uses;
  for (const Term& term : equation.inputs)
    for (int letter : term.letters) ++uses[letter];
  if (arrow != std::string::npos) {
    equation.output = parse_term(node, text.substr(arrow + 2));
    Labels sorted = equation.output.letters;
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < sorted.size(); ++i) {
      if (i > 0 && sorted[i] == sorted[i - 1])
        node.fail(ErrorCode::kInvalidModel,
                  std::string("the result names '") + static_cast<char>(sorted[i]) + "' twice");
      if (uses.count(sorted[i]) == 0)
        node.fail(ErrorCode::kInvalidModel, std::string("no operand names '") + static_cast<char>(sorted[i]) + "'");
    }
    if (any_ellipsis != (equation.output.ellipsis >= 0))
      node.fail(ErrorCode::kInvalidModel, "'...' must stand in operands and result or in neither");
  } else {
    if (any_ellipsis) equation.output.ellipsis = 0;
    for (const auto& [letter, count] : uses)
      if (count == 1) equation.output.letters.push_back(letter);
  }
  return equation;
}

/// Subscript of every dimension of a term whose ellipsis stands for `extra` dimensions.
Labels expand(const Term& term, int64_t extra) {
  Labels labels = term.letters;
  if (term.ellipsis < 0) return labels;
  Labels inner;
  for (int64_t i = extra; i-- > 0;) inner.push_back(static_cast<int>(i));
  labels.insert(labels.begin() + term.ellipsis, inner.begin(), inner.end());
  return labels;
}

/// Dimensions that "..." of a term stands for in a tensor of `rank` dimensions.
int64_t ellipsis_rank(const Node& node, const Term& term, int64_t rank) {
  const int64_t extra = rank - static_cast<int64_t>(term.letters.size());
  if (extra < 0 || (term.ellipsis < 0 && extra > 0) || extra >= kMaxEllipsis)
    node.fail(ErrorCode::kInvalidModel, "an operand of rank " + std::to_string(rank) + " meets a term of " +
                                            std::to_string(term.letters.size()) + " subscripts");
  return term.ellipsis < 0 ? 0 : extra;
}

/// Extent of every subscript; 1 gives way to another extent. Unknown (-1) stays where nothing better is known.
std::map<int, int64_t> extents(const Node& node, const std::vector<Labels>& labels,
                               const std::vector<const Shape*>& shapes) {
  std::map<int, int64_t> result;
  for (size_t i = 0; i < labels.size(); ++i) {
    for (size_t d = 0; d < labels[i].size(); ++d) {
      const int64_t dim = (*shapes[i])[d];
      const auto [it, fresh] = result.emplace(labels[i][d], dim);
      int64_t& have = it->second;
      if (fresh || have == dim || dim == 1) {
        if (dim < 0) have = have > 1 ? have : -1;
        continue;
      }
      if (dim < 0) {
        if (have == 1) have = -1;
      } else if (have <= 1 && have != 0) {
        have = dim;
      } else {
        const int label = labels[i][d];
        node.fail(ErrorCode::kInvalidModel, (label >= 'A' ? std::string("subscript '") + static_cast<char>(label) + "'"
                                                          : std::string("a dimension of '...'")) +
                                                " has extents " + std::to_string(have) + " and " + std::to_string(dim));
      }
    }
  }
  return result;
}

void infer_einsum(InferContext& c) {
  const Equation equation = parse(c.node);
  if (equation.inputs.size() != c.inputs.size())
    c.node.fail(ErrorCode::kInvalidModel, "the equation has " + std::to_string(equation.inputs.size()) + " terms for " +
                                              std::to_string(c.inputs.size()) + " operands");
  const DType dtype = c.input(0).dtype;
  kernel::require_type(c.node, dtype, kernel::kNumeric, "the operands");
  std::vector<Labels> labels;
  std::vector<const Shape*> shapes;
  int64_t widest = 0;
  bool ellipsis_known = true;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    kernel::require_same_type(c.node, c.input(0), c.input(i));
    const Term& term = equation.inputs[i];
    if (!c.input(i).ranked) {
      ellipsis_known = ellipsis_known && term.ellipsis < 0;
      continue;
    }
    const int64_t extra = ellipsis_rank(c.node, term, static_cast<int64_t>(c.input(i).shape.size()));
    widest = std::max(widest, extra);
    labels.push_back(expand(term, extra));
    shapes.push_back(&c.input(i).shape);
  }
  const std::map<int, int64_t> known = extents(c.node, labels, shapes);
  if (equation.output.ellipsis >= 0 && !ellipsis_known) {
    c.outputs[0] = TypeInfo::unranked(dtype);
    return;
  }
  Shape shape;
  const bool complete = shapes.size() == c.inputs.size();
  for (int label : expand(equation.output, widest)) {
    const auto it = known.find(label);
    // An extent of 1 may still give way to that of an operand whose shape is not known.
    shape.push_back(it == known.end() || (!complete && it->second == 1) ? -1 : it->second);
  }
  c.outputs[0] = TypeInfo::tensor(dtype, std::move(shape));
}

// -------------------------------------------------------------------------------------------------------- evaluation

struct LabelledTensor {
  Tensor tensor;
  Labels labels;  // one for each dimension, all different
};

bool has_label(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

/// The operand's dimensions in the order of `labels`, all of which it has.
Tensor arranged(const LabelledTensor& operand, const Labels& labels) {
  std::vector<int64_t> order;
  for (int label : labels)
    order.push_back(std::find(operand.labels.begin(), operand.labels.end(), label) - operand.labels.begin());
  return std::is_sorted(order.begin(), order.end()) ? operand.tensor : permuted(operand.tensor, order);
}

/// Takes diagonals of repeated subscripts and drops dimensions of 1 whose subscript is longer elsewhere.
LabelledTensor prepare(const Tensor& x, const Labels& labels, const std::map<int, int64_t>& extent) {
  const std::vector<int64_t> strides = kernel::row_strides(x.shape());
  LabelledTensor result;
  Shape shape;
  std::vector<int64_t> from;
  for (size_t d = 0; d < labels.size(); ++d) {
    if (x.shape()[d] == 1 && extent.at(labels[d]) != 1) continue;
    const auto at = std::find(result.labels.begin(), result.labels.end(), labels[d]);
    if (at != result.labels.end()) {
      from[static_cast<size_t>(at - result.labels.begin())] += strides[d];
    } else {
      result.labels.push_back(labels[d]);
      shape.push_back(x.shape()[d]);
      from.push_back(strides[d]);
    }
  }
  result.tensor = result.labels.size() == labels.size() ? x : kernel::gather_strided(x, shape, 0, from);
  return result;
}

/// Sums over the subscripts that are not in `kept`, in row-major order of the rest.
LabelledTensor summed(const LabelledTensor& operand, const Labels& kept) {
  Labels stay, go;
  for (int label : operand.labels) (has_label(kept, label) ? stay : go).push_back(label);
  if (go.empty()) return operand;
  Labels all = stay;
  all.insert(all.end(), go.begin(), go.end());
  const Tensor x = arranged(operand, all);
  const Shape shape(x.shape().begin(), x.shape().begin() + static_cast<int64_t>(stay.size()));
  LabelledTensor result{Tensor(x.dtype(), shape), stay};
  kernel::visit_arithmetic(x.dtype(), [&]<typename T>(kernel::Tag<T>) {
    const T* in = kernel::elements<T>(x);
    T* out = kernel::mutable_elements<T>(result.tensor);
    const int64_t count = result.tensor.size() == 0 ? 0 : x.size() / result.tensor.size();
    for (int64_t i = 0; i < result.tensor.size(); ++i)
      for (int64_t j = 0; j < count; ++j) out[i] = kernel::wrap_add(out[i], in[i * count + j]);
  });
  return result;
}

/// The product of two operands, summed over the subscripts both have and `kept` has not.
LabelledTensor contracted(const Node& node, const LabelledTensor& left, const LabelledTensor& right,
                          const Labels& kept) {
  const auto needed = [&](const LabelledTensor& other) {
    Labels labels = kept;
    labels.insert(labels.end(), other.labels.begin(), other.labels.end());
    return labels;
  };
  const LabelledTensor a = summed(left, needed(right)), b = summed(right, needed(left));
  Labels batch, rows, columns, inner;
  for (int label : a.labels) {
    if (!has_label(b.labels, label))
      rows.push_back(label);
    else
      (has_label(kept, label) ? batch : inner).push_back(label);
  }
  for (int label : b.labels)
    if (!has_label(a.labels, label)) columns.push_back(label);
  const auto joined = [](std::initializer_list<Labels> parts) {
    Labels all;
    for (const Labels& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const Tensor x = arranged(a, joined({batch, rows, inner})), y = arranged(b, joined({batch, inner, columns}));
  const auto count = [](const Shape& shape, size_t first, size_t length) {
    return element_count(
        Shape(shape.begin() + static_cast<int64_t>(first), shape.begin() + static_cast<int64_t>(first + length)));
  };
  const int64_t batches = count(x.shape(), 0, batch.size()), m = count(x.shape(), batch.size(), rows.size());
  const int64_t k = count(x.shape(), batch.size() + rows.size(), inner.size());
  const int64_t n = count(y.shape(), batch.size() + inner.size(), columns.size());
  Shape shape(x.shape().begin(), x.shape().begin() + static_cast<int64_t>(batch.size() + rows.size()));
  shape.insert(shape.end(), y.shape().end() - static_cast<int64_t>(columns.size()), y.shape().end());
  const Tensor product = matrix_product(node, x.reshaped({batches, m, k}), y.reshaped({batches, k, n}));
  return {product.reshaped(shape), joined({batch, rows, columns})};
}

void evaluate_einsum(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Equation equation = parse(c.node);
  std::vector<Labels> labels;
  std::vector<const Shape*> shapes;
  int64_t widest = 0;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const int64_t extra = ellipsis_rank(c.node, equation.inputs[i], c.input(i).rank());
    widest = std::max(widest, extra);
    labels.push_back(expand(equation.inputs[i], extra));
    shapes.push_back(&c.input(i).shape());
  }
  const std::map<int, int64_t> extent = extents(c.node, labels, shapes);
  const Labels output = expand(equation.output, widest);
  LabelledTensor result = prepare(kernel::widen(c.input(0)), labels[0], extent);
  for (size_t i = 1; i < labels.size(); ++i) {
    Labels kept = output;
    for (size_t j = i + 1; j < labels.size(); ++j) kept.insert(kept.end(), labels[j].begin(), labels[j].end());
    result = contracted(c.node, result, prepare(kernel::widen(c.input(i)), labels[i], extent), kept);
  }
  result = summed(result, output);
  c.outputs[0] = kernel::narrow(arranged(result, output), types[0].dtype);
}

}  // namespace

void register_einsum(Registry& registry) {
  kernel::add(registry, "Einsum", 12, {1, -1}, infer_einsum, evaluate_einsum, {"equation"});
}

}  // namespace tessera::ops
