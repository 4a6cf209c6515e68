// SPDX-License-Identifier: Apache-2.0
// Sequences and optionals. A sequence holds tensors of one element type; its TypeInfo carries that type and, when every
// element is known to share it, the shape of the elements. An optional is its value or nothing at run time; its
// TypeInfo is the kind kOptional over a tensor, while an optional sequence has the kind of the sequence.
#include "ops/control_types.h"

namespace tessera::ops {

namespace {

using namespace kernel;
using Kind = TypeInfo::Kind;

TypeInfo as_kind(const TypeInfo& type, Kind kind) {
  TypeInfo out = without_constant(type);
  out.kind = kind;
  return out;
}

const TypeInfo& sequence_type(const InferContext& c, size_t i) {
  const TypeInfo& type = c.input(i);
  if (type.kind != Kind::kSequence)
    c.node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " must be a sequence");
  return type;
}

const TypeInfo& tensor_type(const InferContext& c, size_t i) {
  const TypeInfo& type = c.input(i);
  if (type.kind == Kind::kSequence)
    c.node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " is a sequence where a tensor is needed");
  return type;
}

const std::vector<Value>& sequence_of(const EvalContext& c, size_t i) {
  if (!c.has(i) || c.inputs[i].kind != Value::Kind::kSequence)
    c.node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " must be a sequence");
  return c.inputs[i].sequence;
}

Value sequence_value(std::vector<Value> elements, DType dtype) {
  Value value = Value::make_sequence(std::move(elements));
  value.sequence_dtype = dtype;
  return value;
}

void check_position_type(const InferContext& c, size_t i) {
  if (!c.has(i)) return;
  require_type(c.node, c.inputs[i].dtype, kIndex, "position");
  if (c.inputs[i].is_static() && element_count(c.inputs[i].shape) != 1)
    c.node.fail(ErrorCode::kInvalidModel, "position must be one integer");
}

/// Position given by input i, negative ones counted from the end; [0, size) or, with `end`, [0, size].
size_t position(const EvalContext& c, size_t i, size_t size, int64_t fallback, bool end) {
  int64_t at = fallback;
  const int64_t count = static_cast<int64_t>(size);
  if (c.has(i)) {
    if (c.input(i).size() != 1) c.node.fail(ErrorCode::kInvalidModel, "position must be one integer");
    at = c.input(i).at_int64(0);
    if (at < -count || at > (end ? count : count - 1))
      c.node.fail(ErrorCode::kInvalidArgument,
                  "position " + std::to_string(at) + " lies outside a sequence of " + std::to_string(size));
    if (at < 0) at += count;
  }
  if (at < 0) c.node.fail(ErrorCode::kInvalidArgument, "the sequence is empty");
  return static_cast<size_t>(at);
}

// ----------------------------------------------------------------------------------------------- building and reading

void infer_construct(InferContext& c) {
  TypeInfo out = as_kind(tensor_type(c, 0), Kind::kTensor);
  for (size_t i = 1; i < c.inputs.size(); ++i) {
    require_same_type(c.node, c.input(0), tensor_type(c, i));
    out = cover_types(c.node, out, c.input(i), "element " + std::to_string(i));
  }
  c.outputs[0] = as_kind(out, Kind::kSequence);
}

void evaluate_construct(EvalContext& c, const std::vector<TypeInfo>& types) {
  std::vector<Value> elements;
  for (size_t i = 0; i < c.inputs.size(); ++i) elements.emplace_back(c.input(i));
  c.outputs[0] = sequence_value(std::move(elements), types[0].dtype);
}

void infer_empty(InferContext& c) {
  const int64_t dtype = c.node.get_int("dtype", 1);
  if (dtype < 1 || dtype > kLastDType)
    c.node.fail(ErrorCode::kInvalidModel, "dtype " + std::to_string(dtype) + " is not one of ONNX");
  c.outputs[0] = as_kind(TypeInfo::unranked(static_cast<DType>(dtype)), Kind::kSequence);
}

void evaluate_empty(EvalContext& c, const std::vector<TypeInfo>& types) {
  c.outputs[0] = sequence_value({}, types[0].dtype);
}

void infer_at(InferContext& c) {
  check_position_type(c, 1);
  c.outputs[0] = as_kind(sequence_type(c, 0), Kind::kTensor);
}

void evaluate_at(EvalContext& c, const std::vector<TypeInfo>&) {
  const std::vector<Value>& sequence = sequence_of(c, 0);
  c.outputs[0] = sequence[position(c, 1, sequence.size(), 0, false)];
}

void infer_insert(InferContext& c) {
  check_position_type(c, 2);
  const TypeInfo &sequence = sequence_type(c, 0), &element = tensor_type(c, 1);
  require_same_type(c.node, sequence, element);
  c.outputs[0] =
      as_kind(cover_types(c.node, as_kind(sequence, Kind::kTensor), as_kind(element, Kind::kTensor), "the element"),
              Kind::kSequence);
}

void evaluate_insert(EvalContext& c, const std::vector<TypeInfo>& types) {
  std::vector<Value> elements = sequence_of(c, 0);
  const size_t at = position(c, 2, elements.size(), static_cast<int64_t>(elements.size()), true);
  elements.insert(elements.begin() + static_cast<int64_t>(at), Value(c.input(1)));
  c.outputs[0] = sequence_value(std::move(elements), types[0].dtype);
}

void infer_erase(InferContext& c) {
  check_position_type(c, 1);
  c.outputs[0] = without_constant(sequence_type(c, 0));
}

void evaluate_erase(EvalContext& c, const std::vector<TypeInfo>& types) {
  std::vector<Value> elements = sequence_of(c, 0);
  const size_t at = position(c, 1, elements.size(), static_cast<int64_t>(elements.size()) - 1, false);
  elements.erase(elements.begin() + static_cast<int64_t>(at));
  c.outputs[0] = sequence_value(std::move(elements), types[0].dtype);
}

void infer_length(InferContext& c) {
  sequence_type(c, 0);
  c.outputs[0] = TypeInfo::tensor(DType::kInt64, {});
}

void evaluate_length(EvalContext& c, const std::vector<TypeInfo>&) {
  c.outputs[0] = Tensor::scalar_i64(static_cast<int64_t>(sequence_of(c, 0).size()));
}

// ------------------------------------------------------------------------------------------- splitting and joining

/// Lengths of the parts; `split` is null for parts of one.
std::vector<int64_t> part_lengths(const Node& node, const Tensor* split, int64_t dim) {
  std::vector<int64_t> parts;
  if (split == nullptr || split->rank() == 0) {
    const int64_t length = split ? split->at_int64(0) : 1;
    if (length <= 0) node.fail(ErrorCode::kInvalidArgument, "split " + std::to_string(length) + " is not positive");
    for (int64_t at = 0; at < dim; at += std::min(length, dim - at)) parts.push_back(std::min(length, dim - at));
    return parts;
  }
  if (split->rank() != 1) node.fail(ErrorCode::kInvalidModel, "split must be a scalar or a vector");
  parts = split->to_int64s();
  int64_t rest = dim;
  for (int64_t part : parts) {
    if (part < 0 || part > rest)
      node.fail(ErrorCode::kInvalidArgument, "split does not add up to the axis of " + std::to_string(dim));
    rest -= part;
  }
  if (rest != 0) node.fail(ErrorCode::kInvalidArgument, "split does not add up to the axis of " + std::to_string(dim));
  return parts;
}

void infer_split_to_sequence(InferContext& c) {
  const TypeInfo& in = tensor_type(c, 0);
  if (c.has(1)) require_type(c.node, c.inputs[1].dtype, kIndex, "split");
  c.outputs[0] = as_kind(TypeInfo::unranked(in.dtype), Kind::kSequence);
  if (!in.ranked) return;
  const size_t axis = axis_attribute(c.node, 0, in.shape);
  Shape shape = in.shape;
  if (!c.has(1) && c.node.get_int("keepdims", 1) == 0) {
    shape.erase(shape.begin() + static_cast<int64_t>(axis));
  } else if (!c.has(1)) {
    shape[axis] = 1;
  } else {
    shape[axis] = -1;
    if (c.inputs[1].constant && in.shape[axis] >= 0) {
      const std::vector<int64_t> parts = part_lengths(c.node, &*c.inputs[1].constant, in.shape[axis]);
      if (!parts.empty() && std::all_of(parts.begin(), parts.end(), [&](int64_t part) { return part == parts[0]; }))
        shape[axis] = parts[0];
    }
  }
  c.outputs[0] = as_kind(TypeInfo::tensor(in.dtype, std::move(shape)), Kind::kSequence);
}

void evaluate_split(EvalContext& c, const std::vector<TypeInfo>&) {
  const Tensor& in = c.input(0);
  const size_t axis = axis_attribute(c.node, 0, in.shape());
  const bool drop = !c.has(1) && c.node.get_int("keepdims", 1) == 0;
  const std::vector<int64_t> strides = row_strides(in.shape());
  std::vector<Value> elements;
  int64_t at = 0;
  for (int64_t part : part_lengths(c.node, c.has(1) ? &c.input(1) : nullptr, in.shape()[axis])) {
    Shape shape = in.shape();
    shape[axis] = part;
    Tensor piece = gather_strided(in, shape, at * strides[axis], strides);
    if (drop) shape.erase(shape.begin() + static_cast<int64_t>(axis));
    elements.emplace_back(piece.reshaped(shape));
    at += part;
  }
  c.outputs[0] = sequence_value(std::move(elements), in.dtype());
}

int64_t join_axis(const Node& node, int64_t rank, bool fresh) {
  if (!node.has("axis")) node.fail(ErrorCode::kInvalidModel, "attribute 'axis' is missing");
  return normalise_axis(node, node.get_int("axis", 0), rank + (fresh ? 1 : 0));
}

void infer_join(InferContext& c) {
  const TypeInfo& sequence = sequence_type(c, 0);
  const bool fresh = c.node.get_int("new_axis", 0) != 0;
  c.outputs[0] = TypeInfo::unranked(sequence.dtype);
  if (!sequence.ranked) return;
  Shape shape = sequence.shape;
  const int64_t axis = join_axis(c.node, static_cast<int64_t>(shape.size()), fresh);
  if (fresh)
    shape.insert(shape.begin() + axis, -1);
  else
    shape[static_cast<size_t>(axis)] = -1;
  c.outputs[0] = TypeInfo::tensor(sequence.dtype, std::move(shape));
}

void evaluate_join(EvalContext& c, const std::vector<TypeInfo>& types) {
  const std::vector<Value>& sequence = sequence_of(c, 0);
  if (sequence.empty()) c.node.fail(ErrorCode::kInvalidArgument, "the sequence is empty");
  const bool fresh = c.node.get_int("new_axis", 0) != 0;
  const int64_t axis = join_axis(c.node, sequence[0].tensor.rank(), fresh);
  const size_t at = static_cast<size_t>(axis);
  std::vector<Tensor> parts;
  Shape whole;
  for (const Value& value : sequence) {
    Shape shape = value.tensor.shape();
    if (fresh && axis <= static_cast<int64_t>(shape.size())) shape.insert(shape.begin() + axis, 1);
    if (whole.empty()) {
      whole = shape;
    } else {
      bool agree = shape.size() == whole.size();
      for (size_t d = 0; agree && d < shape.size(); ++d) agree = d == at || shape[d] == whole[d];
      if (!agree)
        c.node.fail(ErrorCode::kInvalidArgument,
                    "elements of shapes " + to_string(whole) + " and " + to_string(shape) + " do not join");
      whole[at] += shape[at];
    }
    parts.push_back(value.tensor.reshaped(shape));
  }
  Tensor out(types[0].dtype, whole);
  const int64_t outer = product(whole, 0, at), inner = product(whole, at + 1, whole.size());
  visit_storage(out.dtype(), [&]<typename T>(Tag<T>) {
    T* y = mutable_elements<T>(out);
    for (int64_t o = 0; o < outer; ++o)
      for (const Tensor& part : parts) {
        const int64_t row = part.shape()[at] * inner;
        y = std::copy(elements<T>(part) + o * row, elements<T>(part) + (o + 1) * row, y);
      }
  });
  c.outputs[0] = std::move(out);
}

// ------------------------------------------------------------------------------------------------------ SequenceMap

void infer_map(InferContext& c) {
  const auto body = c.node.get_subgraph("body");
  sequence_type(c, 0);
  std::vector<TypeInfo> arguments;
  for (const TypeInfo& input : c.inputs)
    arguments.push_back(input.kind == Kind::kSequence ? as_kind(input, Kind::kTensor) : without_constant(input));
  const std::vector<TypeInfo> results = body->infer(arguments);
  if (results.size() != c.outputs.size())
    c.node.fail(ErrorCode::kInvalidModel, "the body leaves " + std::to_string(results.size()) + " results");
  for (size_t i = 0; i < results.size(); ++i) c.outputs[i] = as_kind(results[i], Kind::kSequence);
}

void evaluate_map(EvalContext& c) {
  const auto body = c.node.get_subgraph("body");
  const size_t count = sequence_of(c, 0).size();
  std::vector<std::vector<Value>> results(c.outputs.size());
  for (size_t n = 0; n < count; ++n) {
    std::vector<Value> arguments;
    for (const Value& input : c.inputs) {
      if (input.kind != Value::Kind::kSequence)
        arguments.push_back(input);
      else if (input.sequence.size() == count)
        arguments.push_back(input.sequence[n]);
      else
        c.node.fail(ErrorCode::kInvalidArgument, "the sequences differ in length");
    }
    std::vector<Value> row = body->run(arguments);
    if (row.size() != results.size())
      c.node.fail(ErrorCode::kInvalidModel, "the body leaves " + std::to_string(row.size()) + " results");
    for (size_t i = 0; i < row.size(); ++i) results[i].push_back(std::move(row[i]));
  }
  std::vector<TypeInfo> types(c.outputs.size());
  if (count == 0) {
    std::vector<TypeInfo> arguments;
    for (const Value& input : c.inputs) {
      TypeInfo type = type_of(input);
      arguments.push_back(type.kind == Kind::kSequence ? as_kind(type, Kind::kTensor) : without_constant(type));
    }
    types = body->infer(arguments);
  }
  for (size_t i = 0; i < results.size(); ++i)
    c.outputs[i] = sequence_value(
        std::move(results[i]),
        count ? results[i].empty() ? DType::kUndefined : results[i][0].tensor.dtype() : types.at(i).dtype);
}

// -------------------------------------------------------------------------------------------------------- optionals

void infer_optional(InferContext& c) {
  if (c.has(0)) {
    c.outputs[0] = without_constant(c.input(0));
    if (c.outputs[0].kind == Kind::kTensor) c.outputs[0].kind = Kind::kOptional;
    return;
  }
  c.outputs[0] = TypeInfo::absent();
  // The attribute `type` names the type that is not there: "tensor(float32)", "seq(tensor(float32))", maybe inside
  // "optional(...)".
  const std::string text = c.node.get_string("type", "");
  const size_t at = text.find("tensor(");
  if (at == std::string::npos) return;
  const std::string name = text.substr(at + 7, text.find(')', at) - at - 7);
  for (int number = 1; number <= kLastDType; ++number)
    if (to_string(static_cast<DType>(number)) == name)
      c.outputs[0] = as_kind(TypeInfo::unranked(static_cast<DType>(number)),
                             text.find("seq(") == std::string::npos ? Kind::kOptional : Kind::kSequence);
}

void evaluate_optional(EvalContext& c) { c.outputs[0] = c.has(0) ? c.inputs[0] : Value(); }

void infer_has_element(InferContext& c) {
  c.outputs[0] = TypeInfo::tensor(DType::kBool, {});
  if (c.has(0) && c.inputs[0].kind == Kind::kTensor) c.outputs[0].constant = Tensor::of<uint8_t>(DType::kBool, {}, {1});
  if (!c.has(0)) c.outputs[0].constant = Tensor::of<uint8_t>(DType::kBool, {}, {0});
}

void evaluate_has_element(EvalContext& c) {
  c.outputs[0] = Tensor::of<uint8_t>(DType::kBool, {}, {static_cast<uint8_t>(c.has(0))});
}

void infer_get_element(InferContext& c) {
  c.outputs[0] = without_constant(c.input(0));
  if (c.outputs[0].kind == Kind::kOptional) c.outputs[0].kind = Kind::kTensor;
}

void evaluate_get_element(EvalContext& c) {
  if (!c.has(0)) c.node.fail(ErrorCode::kInvalidArgument, "the optional holds nothing");
  c.outputs[0] = c.inputs[0];
}

}  // namespace

void register_sequence(Registry& r) {
  add(r, "SequenceConstruct", 11, {1, -1}, infer_construct, evaluate_construct);
  add(r, "SequenceEmpty", 11, {0, 0}, infer_empty, evaluate_empty, {"dtype"});
  add(r, "SequenceAt", 11, kTwo, infer_at, evaluate_at);
  add(r, "SequenceInsert", 11, {2, 3}, infer_insert, evaluate_insert);
  add(r, "SequenceErase", 11, {1, 2}, infer_erase, evaluate_erase);
  add(r, "SequenceLength", 11, kOne, infer_length, evaluate_length);
  add(r, "SplitToSequence", 11, {1, 2}, infer_split_to_sequence, evaluate_split, {"axis", "keepdims"});
  add(r, "ConcatFromSequence", 11, kOne, infer_join, evaluate_join, {"axis", "new_axis"});
  add_checked(r, "SequenceMap", 17, {1, -1}, infer_map, evaluate_map, {"body"}, {1, -1});
  add_checked(r, "Optional", 15, {0, 1}, infer_optional, evaluate_optional, {"type"});
  add_checked(r, "OptionalHasElement", 15, kOne, infer_has_element, evaluate_has_element);
  add_checked(r, "OptionalGetElement", 15, kOne, infer_get_element, evaluate_get_element);
  add_checked(r, "OptionalHasElement", 18, {0, 1}, infer_has_element, evaluate_has_element);
  add_checked(r, "OptionalGetElement", 18, kOne, infer_get_element, evaluate_get_element);
}

}  // namespace tessera::ops
