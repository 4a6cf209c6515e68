// SPDX-License-Identifier: Apache-2.0
// Operators that move, choose or convert elements. Movements (ops/kernels/movement.h) that only rename the shape are
// views, those that keep the axes in place slices; concatenations and pads are copies between views; the rest reads at
// affine indices, or at computed ones (Gather). Positions must be known at compile time, except gathered indices.
#include <algorithm>
#include <numeric>

#include "compiler/cpu/expressions/lowering.h"

namespace tessera::cpu {

namespace {

/// The elements of x that a movement takes, in its shape: a view where no axis changes places or runs backwards.
Tensor read(Graph& graph, const Tensor& x, const ops::Movement& m) {
  if (m.is_whole()) return x;
  // Axes walked forwards are cut out first, so that loops walk whole axes; the others are read backwards.
  std::vector<int64_t> first = m.start, stride = m.step;
  Shape cut = m.as;
  bool view = m.shape.size() == m.as.size();
  for (size_t d = 0; d < cut.size(); ++d) {
    view = view && m.from[d] == static_cast<int64_t>(d) && m.step[d] > 0;
    if (m.step[d] > 0)
      cut[d] = m.from[d] < 0 ? 1 : m.shape[static_cast<size_t>(m.from[d])];
    else
      first[d] = 0, stride[d] = 1;
  }
  const Tensor part = cut == m.as ? x : graph.slice(x, first, stride, cut);
  if (view) return part;
  return graph.compute(x.dtype, m.shape, [&](Body& body, const Indices& i) {
    Indices at;
    for (size_t d = 0; d < cut.size(); ++d) {
      const Index index =
          m.from[d] < 0 ? mlir::getAffineConstantExpr(0, body.context()) : i[static_cast<size_t>(m.from[d])];
      at.push_back(m.step[d] > 0 ? index : index * m.step[d] + m.start[d]);
    }
    return body.load(part, at);
  });
}

void concat(Operator& o) {
  const Shape shape = o.shape();
  std::vector<Tensor> parts;
  for (size_t i = 0; i < o.inputs.size(); ++i) parts.push_back(o.in(i));
  o.yield(o.graph.concat(parts, ops::axis_attribute(o.node, 0, shape), shape));
}

void pad(Operator& o) {
  const Tensor x = o.in(0);
  const bool attributes = o.node.version < 11;
  const std::string mode = o.node.get_string("mode", "constant");
  const std::vector<int64_t> pads = attributes ? o.node.get_ints("pads") : o.constant(1).to_int64s();
  std::optional<std::vector<int64_t>> axes;
  if (o.has(3)) axes = o.constant(3).to_int64s();
  std::vector<int64_t> low, high;
  for (const auto& [begin, end] : ops::pad_amounts(o.node, pads, axes, static_cast<int64_t>(x.rank()))) {
    low.push_back(begin);
    high.push_back(end);
  }
  // Negative amounts crop first.
  Tensor inside = x;
  Shape cropped = x.shape;
  std::vector<int64_t> start(x.rank(), 0);
  for (size_t d = 0; d < x.rank(); ++d) {
    cropped[d] += std::min<int64_t>(low[d], 0) + std::min<int64_t>(high[d], 0);
    start[d] = std::max<int64_t>(-low[d], 0);
    low[d] = std::max<int64_t>(low[d], 0);
    require(cropped[d] > 0);
  }
  if (cropped != x.shape) inside = o.graph.slice(x, start, std::vector<int64_t>(x.rank(), 1), cropped);
  const Shape shape = o.shape();
  if (mode == "constant") {
    o.yield(o.graph.pad(inside, low, shape, [&](Body& body) {
      if (!attributes && o.has(2)) return body.load(o.in(2), only_element(body, o.in(2)));
      return body.number(x.dtype, attributes && ops::is_floating(x.dtype) ? o.node.get_float("value", 0) : 0);
    }));
    return;
  }
  o.yield(o.graph.compute(x.dtype, shape, [&](Body& body, const Indices& i) {
    std::vector<Scalar> at;
    for (size_t d = 0; d < i.size(); ++d) {
      const int64_t length = cropped[d];
      Scalar n = body.index(i[d] - low[d]);
      const auto number = [&](int64_t v) { return body.integer(DType::kInt64, v); };
      if (mode == "edge") {
        n = larger(smaller(n, number(length - 1)), number(0));
      } else {  // periodic; reflection runs back in the second half of a period
        const int64_t period = mode == "wrap" ? length : std::max<int64_t>(1, 2 * (length - 1));
        const Scalar r = n % number(period);
        n = select(r < number(0), r + number(period), r);
        n = select(n >= number(length), number(period) - n, n);
      }
      at.push_back(n);
    }
    return body.extract(inside, at);
  }));
}

/// Indices must be constant and inside: compiled code cannot report one that is not.
void check_indices(const Operator& o, size_t input, int64_t dim) {
  for (int64_t index : o.constant(input).to_int64s()) require(index >= -dim && index < dim);
}

Scalar wrapped(Scalar index, int64_t dim) {
  const Scalar i = cast(index, DType::kInt64);
  return select(i < i.same(0), i + i.same(static_cast<double>(dim)), i);
}

void gather(Operator& o) {
  const Tensor x = o.in(0), indices = o.in(1);
  const auto axis = ops::axis_attribute(o.node, 0, x.shape);
  check_indices(o, 1, x.shape[axis]);
  o.yield(o.graph.compute(x.dtype, o.shape(), [&](Body& body, const Indices& i) {
    const auto first = i.begin() + static_cast<int64_t>(axis), last = first + static_cast<int64_t>(indices.rank());
    std::vector<Scalar> at;
    for (auto d = i.begin(); d != first; ++d) at.push_back(body.index(*d));
    at.push_back(wrapped(body.load(indices, Indices(first, last)), x.shape[axis]));
    for (auto d = last; d != i.end(); ++d) at.push_back(body.index(*d));
    return body.extract(x, at);
  }));
}

void gather_elements(Operator& o) {
  const Tensor x = o.in(0), indices = o.in(1);
  const auto axis = ops::axis_attribute(o.node, 0, x.shape);
  check_indices(o, 1, x.shape[axis]);
  o.yield(o.graph.compute(x.dtype, o.shape(), [&](Body& body, const Indices& i) {
    std::vector<Scalar> at;
    for (size_t d = 0; d < i.size(); ++d)
      at.push_back(d == axis ? wrapped(body.load(indices, i), x.shape[d]) : body.index(i[d]));
    return body.extract(x, at);
  }));
}

void trilu(Operator& o) {
  const Tensor x = o.in(0);
  const bool upper = o.node.get_int("upper", 1) != 0;
  const int64_t k = o.has(1) ? o.constant(1).at_int64(0) : 0;
  require(k > -(int64_t{1} << 40) && k < (int64_t{1} << 40));
  o.yield(o.graph.compute(x.dtype, x.shape, [&](Body& body, const Indices& i) {
    const size_t r = i.size();
    const Scalar distance = body.index(i[r - 1]) - body.index(i[r - 2]), limit = body.integer(DType::kInt64, k);
    return select(upper ? distance >= limit : distance <= limit, body.load(x, i), body.number(x.dtype, 0));
  }));
}

/// Resize that repeats elements a whole number of times along each axis. What the library takes where is found by
/// giving it the numbers of the elements.
void repeat(Operator& o) {
  constexpr int64_t kMost = 1 << 20;  // elements that are worth trying
  const Tensor x = o.in(0);
  const Shape shape = o.shape();
  require(o.node.get_string("mode", "nearest") == "nearest" && x.size() <= kMost && ops::element_count(shape) <= kMost);
  require(o.node.get_string("coordinate_transformation_mode", "") != "tf_crop_and_resize");
  ops::Tensor numbers(DType::kInt64, x.shape);
  const auto elements = numbers.as_mutable<int64_t>();
  std::iota(elements.begin(), elements.end(), int64_t{0});
  std::vector<ops::Value> operands{numbers};
  for (size_t i = 1; i < o.inputs.size(); ++i) operands.push_back(o.has(i) ? ops::Value(o.constant(i)) : ops::Value());
  const ops::Tensor taken = ops::evaluate(o.node, operands)[0].tensor;
  require(taken.shape() == shape && shape.size() == x.rank());
  Shape split, factors;
  for (size_t d = 0; d < shape.size(); ++d) {
    require(shape[d] % x.shape[d] == 0);
    factors.push_back(shape[d] / x.shape[d]);
    split.insert(split.end(), {x.shape[d], factors[d]});
  }
  ops::for_each_index(shape, [&](int64_t flat, const std::vector<int64_t>& at) {
    int64_t element = 0;
    for (size_t d = 0; d < at.size(); ++d) element = element * x.shape[d] + at[d] / factors[d];
    require(taken.at_int64(flat) == element);
  });
  const Tensor y = o.graph.compute(x.dtype, split, [&](Body& body, const Indices& i) {
    Indices at;
    for (size_t d = 0; d < shape.size(); ++d) at.push_back(i[2 * d]);
    return body.load(x, at);
  });
  o.yield(o.graph.reshape(y, shape));
}

}  // namespace

void move(Operator& o, const ops::MoveFunction& moves) {
  std::vector<ops::TypeInfo> operands, results;
  for (size_t i = 0; i < o.inputs.size(); ++i) {
    operands.push_back(o.has(i) ? ops::TypeInfo::tensor(o.in(i).dtype, o.in(i).shape) : ops::TypeInfo::absent());
    if (i > 0 && o.has(i)) operands[i].constant = nn::constant_value(nn::input_or_null(o.op, static_cast<unsigned>(i)));
  }
  for (unsigned i = 0; i < o.op->getNumResults(); ++i) results.push_back(ops::TypeInfo::tensor(o.dtype(i), o.shape(i)));
  const std::vector<ops::Movement> movements = moves(o.node, operands, results);
  for (size_t i = 0; i < movements.size(); ++i) {
    const Tensor x = o.graph.reshape(o.in(0), movements[i].as);
    o.yield(o.graph.reshape(read(o.graph, x, movements[i]), results[i].shape));
  }
}

void add_shape(Lowerings& t) {
  for (const char* name : {"Resize", "Upsample"}) t.add(name, repeat);
  t.add("Concat", concat);
  t.add("Pad", pad);
  t.add("Gather", gather);
  t.add("GatherElements", gather_elements);
  t.add("Trilu", trilu);
  t.add("Where", [](Operator& o) {
    const Tensor condition = o.in(0), a = o.in(1), b = o.in(2);
    o.yield(o.graph.compute(o.dtype(), o.shape(), [&](Body& body, const Indices& i) {
      return select(body.broadcast(condition, i), body.broadcast(a, i), body.broadcast(b, i));
    }));
  });
  t.add("Identity", [](Operator& o) { o.yield(o.in(0)); });
  t.add("Dropout", [](Operator& o) {  // nothing in inference; the mask is left to the library
    require(o.op->getNumResults() == 1 && !o.has(2));
    o.yield(o.in(0));
  });
  for (const char* name : {"Cast", "CastLike"})
    t.add(name, [](Operator& o) {
      const Tensor x = o.in(0);
      if (x.dtype == o.dtype()) {
        o.yield(x);
        return;
      }
      o.yield(o.graph.compute(o.dtype(), o.shape(),
                              [&](Body& body, const Indices& i) { return cast(body.load(x, i), o.dtype()); }));
    });
}

}  // namespace tessera::cpu
