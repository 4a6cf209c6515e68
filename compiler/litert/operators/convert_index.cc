// SPDX-License-Identifier: Apache-2.0
// Operators that look up, scatter, search, sort and reduce by index.
#include <algorithm>

#include "compiler/litert/build.h"

namespace tessera::litert {
namespace {

using ops::DType;

/// With batch axes each index is completed by its position in the batch.
void convert_gather(Op& op) {
  const int64_t rank = rank_of(op.input(0)), axis = normal_axis(op, op.option(GatherOptions::axis), rank);
  int64_t batch = op.option(GatherOptions::batch_dims);
  if (batch < 0) batch += rank_of(op.input(1));
  const Value indices = int64_value(op, 1);
  if (batch == 0) return op.give(0, op.node("Gather", {op.value(0), indices}, {{"axis", axis}}));
  if (batch < 0 || batch > axis || batch > rank_of(op.input(1)))
    op.refuse("batch_dims does not fit", ErrorCode::kInvalidModel);
  // The axes between batch and axis go behind, so that GatherND serves, and come back at the end.
  std::vector<int64_t> perm, back;
  for (int64_t i = 0; i < batch; ++i) perm.push_back(i);
  perm.push_back(axis);
  for (int64_t i = batch; i < rank; ++i)
    if (i != axis) perm.push_back(i);
  const Value found =
      op.node("GatherND", {op.transpose(op.value(0), perm), unsqueeze(op, indices, {-1})}, {{"batch_dims", batch}});
  // batch, indices, between, behind -> batch, between, indices, behind
  const int64_t inner = rank_of(op.input(1)) - batch, between = axis - batch, all = rank - 1 + inner;
  for (int64_t i = 0; i < batch; ++i) back.push_back(i);
  for (int64_t i = 0; i < between; ++i) back.push_back(batch + inner + i);
  for (int64_t i = 0; i < inner; ++i) back.push_back(batch + i);
  for (int64_t i = batch + inner + between; i < all; ++i) back.push_back(i);
  op.give(0, op.transpose(found, back));
}

void convert_gather_nd(Op& op) { op.give(0, op.node("GatherND", {op.value(0), int64_value(op, 1)})); }

/// Updates of one place add up; of booleans one that is true makes it true.
void convert_scatter_nd(Op& op) {
  const bool logical = op.input(1).type == TensorType::kBool;
  const DType dtype = logical ? DType::kInt32 : op.dtype(1);
  const Value updates = logical ? op.cast(op.value(1), dtype) : op.value(1);
  const Value zeros = filled(op, int64_value(op, 2), op.scalar(dtype, 0));
  const Value sums = op.node("ScatterND", {zeros, int64_value(op, 0), updates}, {{"reduction", std::string("add")}});
  op.give(0, logical ? op.cast(sums, DType::kBool) : sums);
}

/// Indices [n], [n, rank] or one alone; values are as many, or one for all.
void convert_sparse_to_dense(Op& op) {
  const int64_t index_rank = rank_of(op.input(0));
  Value indices = int64_value(op, 0);
  if (index_rank == 0) indices = op.reshape(indices, {1, 1});
  if (index_rank == 1) indices = unsqueeze(op, indices, {1});
  const Value count = op.node("Slice", {op.node("Shape", {indices}), op.ints({0}), op.ints({1})});
  const Value values = op.node("Expand", {op.value(2), count});
  const Value all = filled(op, int64_value(op, 1), op.reshape(op.value(3), {}));
  op.give(0, op.node("ScatterND", {all, indices, values}));
}

/// ONNX counts negative indices from the end; LiteRT leaves what lies outside off.
void convert_one_hot(Op& op) {
  const int64_t rank = rank_of(op.input(0)), axis = normal_axis(op, op.option(OneHotOptions::axis), rank + 1);
  const Value depth = op.reshape(int64_value(op, 1), {});
  Value numbers = op.node("Range", {op.scalar(DType::kInt64, 0), depth, op.scalar(DType::kInt64, 1)});
  std::vector<int64_t> behind;
  for (int64_t i = axis + 1; i <= rank; ++i) behind.push_back(i - axis);
  numbers = unsqueeze(op, numbers, behind);
  const Value hit = op.node("Equal", {unsqueeze(op, int64_value(op, 0), {axis}), numbers});
  op.give(0, choose(op, hit, op.reshape(op.value(2), {}), op.reshape(op.value(3), {})));
}

/// Whether row equals column, [rows, columns].
Value diagonal_mask(Op& op, int64_t rows, int64_t columns) {
  ops::Tensor mask(DType::kBool, {rows, columns});
  for (int64_t i = 0; i < std::min(rows, columns); ++i)
    mask.as_mutable<uint8_t>()[static_cast<size_t>(i * columns + i)] = 1;
  return op.constant(mask);
}

void convert_matrix_diag(Op& op) {
  const ops::Shape& shape = fixed_shape(op, 0);
  if (shape.empty()) op.refuse("the diagonal is a scalar", ErrorCode::kInvalidModel);
  op.give(0, choose(op, diagonal_mask(op, shape.back(), shape.back()), unsqueeze(op, op.value(0), {-1}),
                    op.scalar(op.dtype(0), 0)));
}

void convert_matrix_set_diag(Op& op) {
  const ops::Shape &shape = fixed_shape(op, 0), &diagonal = fixed_shape(op, 1);
  if (shape.size() < 2 || diagonal.size() + 1 != shape.size() ||
      diagonal.back() != std::min(shape.back(), shape[shape.size() - 2]))
    op.refuse("the diagonal does not fit the matrices", ErrorCode::kInvalidModel);
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  // As a column: element i of the diagonal stands in row i.
  Value column = op.value(1);
  if (diagonal.back() < rows) {
    std::vector<int64_t> amounts(2 * diagonal.size(), 0);
    amounts.back() = rows - diagonal.back();
    column = op.node("Pad", {column, op.ints(amounts), op.scalar(op.dtype(1), 0)});
  }
  op.give(0, choose(op, diagonal_mask(op, rows, columns), unsqueeze(op, column, {-1}), op.value(0)));
}

/// A start outside is moved so that the update lies inside.
void convert_dynamic_update_slice(Op& op) {
  op.give(0, op.node("DynamicUpdateSlice", {op.value(0), op.value(1), int64_value(op, 2)}, {}, kDomain));
}

/// Rows of a table; those of integers come as real numbers where the result is real.
void convert_embedding_lookup(Op& op) {
  const bool real = op.input(1).is_quantised() && !op.output().is_quantised();
  Value table = real && op.input(1).type != TensorType::kUint8 ? op.real(1) : op.value(1);
  if (real && op.input(1).type == TensorType::kUint8) {  // an old way to store int8
    const Value bytes = op.node("BitCast", {table}, {{"to", static_cast<int64_t>(DType::kInt8)}}, kDomain);
    table = op.node("DequantizeLinear", {bytes, op.scale(op.input(1))});
  }
  const Value rows = op.node("Gather", {table, int64_value(op, 0)}, {{"axis", int64_t{0}}});
  real ? op.give_real(0, rows) : op.give(0, rows);
}

/// Weighted sums of rows, by groups; combiner 0 sums, 1 divides by the sum of weights, 2 by the root of that of
/// squares.
void convert_embedding_lookup_sparse(Op& op) {
  const ops::Shape& table = fixed_shape(op, 4);
  const std::vector<int64_t> dense = op.integers(2, "the dense shape");
  if (table.empty() || dense.size() < 2) op.refuse("the dense shape must have two axes", ErrorCode::kInvalidModel);
  const int64_t last = static_cast<int64_t>(dense.size());
  const Value rows = op.node("Gather", {op.real(4), int64_value(op, 0)}, {{"axis", int64_t{0}}});
  std::vector<int64_t> wide(table.size(), 1);
  wide[0] = -1;
  const Value weights = op.real(3), terms = op.node("Mul", {rows, op.reshape(weights, wide)});
  // The last coordinate of an index counts inside of a group and is left out.
  Value groups = int64_value(op, 1);
  if (rank_of(op.input(1)) != 2) op.refuse("indices must be a matrix", ErrorCode::kInvalidModel);
  groups = slice(op, groups, 0, last - 1, 1);
  const ops::Shape outer(dense.begin(), dense.end() - 1);
  ops::Shape shape = outer;
  shape.insert(shape.end(), table.begin() + 1, table.end());
  const auto sum = [&](const Value& values, const ops::Shape& extent) {
    return op.node("ScatterND", {filled(op, op.ints(extent), op.scalar(DType::kFloat, 0)), groups, values},
                   {{"reduction", std::string("add")}});
  };
  Value result = sum(terms, shape);
  const int combiner = op.option(EmbeddingLookupSparseOptions::combiner);
  if (combiner != 0) {
    Value divisor = sum(combiner == 1 ? weights : op.node("Mul", {weights, weights}), outer);
    if (combiner == 2) divisor = op.node("Sqrt", {divisor});
    // A group without rows stays zero.
    const Value zero = op.scalar(DType::kFloat, 0), one = op.scalar(DType::kFloat, 1);
    divisor = choose(op, op.node("Equal", {divisor, zero}), one, divisor);
    std::vector<int64_t> axes;
    for (size_t i = outer.size(); i < shape.size(); ++i) axes.push_back(static_cast<int64_t>(i));
    result = op.node("Div", {result, unsqueeze(op, divisor, axes)});
  }
  op.give_real(0, result);
}

/// Rows by key, zeros where there is none; the second result says which were found.
void convert_hashtable_lookup(Op& op) {
  const int64_t rank = rank_of(op.input(2));
  const Value hits = op.node("Equal", {unsqueeze(op, op.value(0), {1}), unsqueeze(op, op.value(1), {0})});
  const Value numbers = op.cast(hits, DType::kInt32);
  const Value row = op.node("ArgMax", {numbers}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
  const Value found = op.node("ReduceMax", {numbers, op.ints({1})}, {{"keepdims", int64_t{0}}});
  std::vector<int64_t> axes;
  for (int64_t i = 1; i < rank; ++i) axes.push_back(i);
  const Value rows = op.node("Gather", {op.value(2), row}, {{"axis", int64_t{0}}});
  op.give(0, choose(op, unsqueeze(op, op.cast(found, DType::kBool), axes), rows, op.scalar(op.dtype(2), 0)));
  op.give(1, op.cast(found, op.output_dtype(1)));
}

// ------------------------------------------------------------------------------------------- search and sort

void convert_where(Op& op) {
  Value x = op.value(0);
  if (op.input(0).type != TensorType::kBool) x = op.cast(x, DType::kBool);
  op.give(0, op.cast(op.transpose(op.node("NonZero", {x}), {1, 0}), op.output_dtype()));
}

void convert_topk(Op& op) {
  const Value k = op.reshape(int64_value(op, 1), {1});
  const Values results = op.nodes("TopK", {op.value(0), k}, {{"axis", int64_t{-1}}}, 2);
  op.give(0, results[0]);
  op.give(1, op.cast(results[1], op.output_dtype(1)));
}

void convert_unique(Op& op) {
  const Values results = op.nodes("Unique", {op.value(0)}, {{"sorted", int64_t{0}}}, 4);
  op.give(0, results[0]);
  op.give(1, op.cast(results[2], op.output_dtype(1)));
}

/// The number of boundaries that are not above the element.
void convert_bucketize(Op& op) {
  const auto boundaries = op.option(BucketizeOptions::boundaries).to<std::vector<float>>();
  const DType dtype = op.dtype(0) == DType::kDouble ? DType::kDouble : DType::kFloat;
  const Value edges = op.cast(
      op.constant(ops::Tensor::of<float>(DType::kFloat, {static_cast<int64_t>(boundaries.size())}, boundaries)), dtype);
  const Value above = op.node("GreaterOrEqual", {unsqueeze(op, op.cast(op.value(0), dtype), {-1}), edges});
  op.give(0, op.node("ReduceSum", {op.cast(above, op.output_dtype()), op.ints({-1})}, {{"keepdims", int64_t{0}}}));
}

Conversion arg_extremum(const char* name) {
  return [name](Op& op) {
    const int64_t axis = constant_axis(op, 1, 0);
    Value x = op.value(0);
    if (op.input(0).type == TensorType::kBool) x = op.cast(x, DType::kInt32);
    const Value index = op.node(name, {x}, {{"axis", axis}, {"keepdims", int64_t{0}}});
    op.give(0, op.cast(index, op.output_dtype()));
  };
}

void convert_cumsum(Op& op) {
  const Attributes attributes = {{"exclusive", int64_t{op.option(CumsumOptions::exclusive)}},
                                 {"reverse", int64_t{op.option(CumsumOptions::reverse)}}};
  op.give(0, op.node("CumSum", {op.value(0), op.reshape(int64_value(op, 1), {})}, attributes));
}

// -------------------------------------------------------------------------------------------------- segments

/// The number that a reduction starts with.
double neutral(const std::string& reduction, DType dtype) {
  if (reduction == "add") return 0;
  if (reduction == "mul") return 1;
  const bool real = dtype == DType::kFloat;
  if (reduction == "max") return real ? -3.4028234663852886e38 : -2147483648.0;
  return real ? 3.4028234663852886e38 : 2147483647.0;
}

/// Rows of `data` reduced by `ids` (of the first axes of data) into `count` rows; a negative id drops its rows.
void convert_segments(Op& op, const std::string& reduction, const Value& count, bool sparse) {
  const int64_t rank = rank_of(op.input(0)), own = rank_of(op.input(1));
  Value ids = int64_value(op, 1), rows = count;
  if (sparse) {  // what is dropped goes into a row more, which is cut off
    rows = op.node("Add", {count, op.ints({1})});
    ids = choose(op, op.node("Less", {ids, op.scalar(DType::kInt64, 0)}), count, ids);
  }
  Values shape = {rows};
  if (rank > own) shape.push_back(op.node("Slice", {extents(op, 0), op.ints({own}), op.ints({rank})}));
  const Value start = filled(op, concat(op, shape, 0), op.scalar(op.dtype(0), neutral(reduction, op.dtype(0))));
  const Value all = op.node("ScatterND", {start, unsqueeze(op, ids, {-1}), op.value(0)}, {{"reduction", reduction}});
  op.give(0, sparse ? op.node("Slice", {all, op.ints({0}), count, op.ints({0})}) : all);
}

Conversion unsorted_segments(const char* reduction) {
  return [reduction](Op& op) { convert_segments(op, reduction, op.reshape(int64_value(op, 2), {1}), true); };
}

/// Ascending ids: there are as many rows as the last one says.
void convert_segment_sum(Op& op) {
  const Value last = slice(op, int64_value(op, 1), -1, INT64_MAX, 0);
  convert_segments(op, "add", op.node("Add", {last, op.ints({1})}), false);
}

/// Window, strides and dilations are operands; the function an option.
void convert_reduce_window(Op& op) {
  static const std::map<int32_t, std::string> kNames = {{1, "add"}, {2, "mul"}, {3, "min"},
                                                        {4, "max"}, {5, "all"}, {6, "any"}};
  const auto name = kNames.find(op.info().options2[ReduceWindowOptions::reduce_function]);
  if (name == kNames.end()) op.refuse("has no function", ErrorCode::kInvalidModel);
  op.give(0, op.node("ReduceWindow", {op.value(0), op.reshape(op.value(1), {})},
                     {{"window", op.integers(2, "the window")},
                      {"strides", op.integers(3, "the vector of strides")},
                      {"dilations", op.integers(4, "the vector of dilations")},
                      {"reduction", name->second}},
                     kDomain));
}

}  // namespace

void register_index(Conversions& conversions) {
  using B = BuiltinOperator;
  conversions.add(B::kGather, convert_gather);
  conversions.add(B::kGatherNd, convert_gather_nd);
  conversions.add(B::kScatterNd, convert_scatter_nd);
  conversions.add(B::kSparseToDense, convert_sparse_to_dense);
  conversions.add(B::kOneHot, convert_one_hot);
  conversions.add(B::kMatrixDiag, convert_matrix_diag);
  conversions.add(B::kMatrixSetDiag, convert_matrix_set_diag);
  conversions.add(B::kDynamicUpdateSlice, convert_dynamic_update_slice);
  conversions.add(B::kEmbeddingLookup, convert_embedding_lookup);
  conversions.add(B::kEmbeddingLookupSparse, convert_embedding_lookup_sparse);
  conversions.add(B::kHashtableLookup, convert_hashtable_lookup);
  conversions.add(B::kWhere, convert_where);
  conversions.add(B::kTopkV2, convert_topk);
  conversions.add(B::kUnique, convert_unique);
  conversions.add(B::kBucketize, convert_bucketize);
  conversions.add(B::kArgMax, arg_extremum("ArgMax"));
  conversions.add(B::kArgMin, arg_extremum("ArgMin"));
  conversions.add(B::kCumsum, convert_cumsum);
  conversions.add(B::kSegmentSum, convert_segment_sum);
  conversions.add(B::kUnsortedSegmentSum, unsorted_segments("add"));
  conversions.add(B::kUnsortedSegmentProd, unsorted_segments("mul"));
  conversions.add(B::kUnsortedSegmentMax, unsorted_segments("max"));
  conversions.add(B::kUnsortedSegmentMin, unsorted_segments("min"));
  conversions.add(B::kReduceWindow, convert_reduce_window);
}

}  // namespace tessera::litert
