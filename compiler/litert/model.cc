// SPDX-License-Identifier: Apache-2.0
#include "compiler/litert/model.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"

namespace tessera::litert {
namespace {

constexpr uint32_t kVersion = 3;
constexpr size_t kMostAxes = 32;
constexpr std::string_view kIdentifier = "TFL3";

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::kInvalidModel, message); }

/// Content of the model's buffers. Those of files above 2 GiB stand behind the flatbuffer, at an offset from the start.
class Buffers {
 public:
  Buffers(Bytes file, const Table& model) : file_(file), buffers_(model[ModelTable::buffers]) {}

  Bytes operator[](size_t i) const {
    if (i >= buffers_.size()) fail_damaged();
    const Table buffer = buffers_[i];
    const uint64_t offset = buffer[BufferTable::offset];
    return offset > 1 ? part(file_, offset, buffer[BufferTable::size]) : buffer[BufferTable::data].bytes();
  }

 private:
  Bytes file_;
  Vector<Table> buffers_;
};

Quantisation read_quantisation(const Table& table, const std::string& what) {
  Quantisation result;
  if (!table.present() || !table.has(QuantizationParameters::scale)) return result;
  if (table[QuantizationParameters::details_type] > 1)
    throw Error(ErrorCode::kUnsupported, what +
                                             " is quantised in blocks or along several axes; quantise it for each "
                                             "tensor or for each channel");
  result.scales = table[QuantizationParameters::scale].to<std::vector<float>>();
  result.zero_points = table[QuantizationParameters::zero_point].to<std::vector<int64_t>>();
  result.axis = table[QuantizationParameters::quantized_dimension];
  if (result.zero_points.size() == 1 && result.scales.size() > 1)
    result.zero_points.resize(result.scales.size(), result.zero_points.front());
  if (result.zero_points.empty()) result.zero_points.resize(result.scales.size());
  if (result.zero_points.size() != result.scales.size())
    fail(what + " has " + std::to_string(result.scales.size()) + " scales and " +
         std::to_string(result.zero_points.size()) + " zero points");
  return result;
}

/// Zero points are integers of the tensor's type.
void check_zero_points(const TensorInfo& tensor, const std::string& what) {
  int64_t low = INT32_MIN, high = INT32_MAX;
  if (tensor.type == TensorType::kInt8) low = -128, high = 127;
  if (tensor.type == TensorType::kUint8) low = 0, high = 255;
  if (tensor.type == TensorType::kInt16) low = -32768, high = 32767;
  for (const int64_t zero : tensor.quantisation.zero_points)
    if (zero < low || zero > high) fail(what + " has the zero point " + std::to_string(zero));
}

ops::Shape read_shape(const Table& tensor, const std::string& what) {
  const auto shape = tensor[TensorTable::shape], signature = tensor[TensorTable::shape_signature];
  if (shape.size() > kMostAxes) fail(what + " has " + std::to_string(shape.size()) + " axes");
  ops::Shape result = shape.to<ops::Shape>();
  if (signature.size() == shape.size())
    for (size_t i = 0; i < shape.size(); ++i)
      if (signature[i] < 0) result[i] = -1;
  for (int64_t& extent : result) extent = std::max<int64_t>(extent, -1);
  return result;
}

TensorInfo read_tensor(const Table& table, const Buffers& buffers, size_t index) {
  TensorInfo tensor;
  tensor.name = table[TensorTable::name];
  if (tensor.name.empty()) tensor.name = "tensor_" + std::to_string(index);
  const std::string what = "tensor '" + tensor.name + "'";
  tensor.type = static_cast<TensorType>(table[TensorTable::type]);
  tensor.shape = read_shape(table, what);
  tensor.is_variable = table[TensorTable::is_variable];
  tensor.quantisation = read_quantisation(table[TensorTable::quantization], what);
  check_zero_points(tensor, what);
  tensor.sparsity = table[TensorTable::sparsity];
  if (table[TensorTable::external_buffer] != 0)
    throw Error(ErrorCode::kUnsupported, what + " lies in another file; store the model in one file");
  const uint32_t buffer = table[TensorTable::buffer];
  if (buffer != 0) tensor.data = buffers[buffer];
  tensor.is_constant = buffer != 0 && !tensor.data.empty() && !tensor.is_variable;
  return tensor;
}

void check_indices(const std::vector<int32_t>& indices, size_t count, int32_t least, const std::string& what) {
  for (const int32_t index : indices)
    if (index < least || index >= static_cast<int64_t>(count))
      fail(what + " names tensor " + std::to_string(index) + " of " + std::to_string(count));
}

struct Code {
  BuiltinOperator code;
  std::string name;
  int32_t version;
};

Code read_code(const Table& table) {
  // The number moved to a wider field when 127 did not suffice; old files fill the narrow one only.
  const int32_t number =
      std::max<int32_t>(table[OperatorCode::deprecated_builtin_code], table[OperatorCode::builtin_code]);
  Code code{static_cast<BuiltinOperator>(number), "", table[OperatorCode::version]};
  if (code.code == BuiltinOperator::kCustom) {
    code.name = table[OperatorCode::custom_code];
  } else if (number >= 0 && number < static_cast<int32_t>(kBuiltinNames.size())) {
    code.name = kBuiltinNames[static_cast<size_t>(number)];
  }
  if (code.name.empty()) code.name = "operator " + std::to_string(number);
  return code;
}

OperatorInfo read_operator(const Table& table, const std::vector<Code>& codes, size_t tensors) {
  const uint32_t index = table[OperatorTable::opcode_index];
  if (index >= codes.size())
    fail("an operator has code " + std::to_string(index) + " of " + std::to_string(codes.size()));
  OperatorInfo op;
  op.code = codes[index].code;
  op.name = codes[index].name;
  op.version = codes[index].version;
  op.options = table[OperatorTable::builtin_options];
  op.options2 = table[OperatorTable::builtin_options2];
  op.custom_options = table[OperatorTable::custom_options].bytes();
  op.inputs = table[OperatorTable::inputs].to<std::vector<int32_t>>();
  op.outputs = table[OperatorTable::outputs].to<std::vector<int32_t>>();
  op.intermediates = table[OperatorTable::intermediates].to<std::vector<int32_t>>();
  check_indices(op.inputs, tensors, -1, op.name);
  check_indices(op.outputs, tensors, 0, op.name);
  check_indices(op.intermediates, tensors, -1, op.name);
  return op;
}

/// Each tensor of a subgraph gets a name of its own: the second of one name has its index behind it.
void make_unique(std::vector<TensorInfo>& tensors) {
  std::set<std::string> names;
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::string& name = tensors[i].name;
    while (!names.insert(name).second) name += ":" + std::to_string(i);
  }
}

Subgraph read_subgraph(const Table& table, const Buffers& buffers, const std::vector<Code>& codes) {
  Subgraph graph;
  graph.name = table[SubGraphTable::name];
  const auto tensors = table[SubGraphTable::tensors];
  for (size_t i = 0; i < tensors.size(); ++i) graph.tensors.push_back(read_tensor(tensors[i], buffers, i));
  make_unique(graph.tensors);
  graph.inputs = table[SubGraphTable::inputs].to<std::vector<int32_t>>();
  graph.outputs = table[SubGraphTable::outputs].to<std::vector<int32_t>>();
  check_indices(graph.inputs, tensors.size(), 0, "the graph's inputs");
  check_indices(graph.outputs, tensors.size(), 0, "the graph's outputs");
  const auto operators = table[SubGraphTable::operators];
  for (size_t i = 0; i < operators.size(); ++i)
    graph.operators.push_back(read_operator(operators[i], codes, tensors.size()));
  return graph;
}

Signature read_signature(const Table& table, const std::vector<Subgraph>& subgraphs) {
  Signature signature;
  signature.key = table[SignatureDef::signature_key];
  signature.subgraph = table[SignatureDef::subgraph_index];
  if (signature.subgraph >= subgraphs.size()) fail("signature '" + signature.key + "' has no subgraph");
  const auto names = [&](const Vector<Table>& maps) {
    std::vector<std::pair<std::string, uint32_t>> result;
    for (size_t i = 0; i < maps.size(); ++i) {
      result.emplace_back(maps[i][TensorMap::name], maps[i][TensorMap::tensor_index]);
      if (result.back().second >= subgraphs[signature.subgraph].tensors.size())
        fail("signature '" + signature.key + "' names a tensor that does not exist");
    }
    return result;
  };
  signature.inputs = names(table[SignatureDef::inputs]);
  signature.outputs = names(table[SignatureDef::outputs]);
  return signature;
}

/// Strings are stored as their number, the offsets of all and of the end, and their bytes.
ops::Tensor strings_of(const TensorInfo& tensor) {
  ops::Tensor result(ops::DType::kString, tensor.shape);
  const auto count = load<int32_t>(tensor.data, 0);
  if (count != result.size()) fail("tensor '" + tensor.name + "' has " + std::to_string(count) + " strings");
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<uint64_t>(4 * (i + 1));
    const uint32_t first = load<uint32_t>(tensor.data, at), end = load<uint32_t>(tensor.data, at + 4);
    if (end < first) fail_damaged();
    const Bytes text = part(tensor.data, first, end - first);
    result.mutable_strings()[static_cast<size_t>(i)] = {reinterpret_cast<const char*>(text.data()), text.size()};
  }
  return result;
}

}  // namespace

float Quantisation::scale() const {
  if (scales.empty()) throw Error(ErrorCode::kInvalidModel, "a tensor that must be quantised has no scale");
  if (!(scales.front() > 0 && std::isfinite(scales.front())))
    throw Error(ErrorCode::kInvalidModel, "a tensor has the scale " + std::to_string(scales.front()));
  return scales.front();
}

int64_t Quantisation::zero() const {
  scale();
  return zero_points.empty() ? 0 : zero_points.front();
}

bool is_litert(std::string_view bytes) { return bytes.size() >= 8 && bytes.substr(4, 4) == kIdentifier; }

Model read_model(Bytes file) {
  const Table table(file, follow(file, 0));
  if (table[ModelTable::version] != kVersion)
    fail("a LiteRT model of schema version " + std::to_string(table[ModelTable::version]) + "; version 3 is read");
  Model model;
  const Buffers buffers(file, table);
  std::vector<Code> codes;
  const auto operator_codes = table[ModelTable::operator_codes];
  for (size_t i = 0; i < operator_codes.size(); ++i) codes.push_back(read_code(operator_codes[i]));
  const auto subgraphs = table[ModelTable::subgraphs];
  if (subgraphs.empty()) fail("the LiteRT model has no graph; it may be damaged");
  for (size_t i = 0; i < subgraphs.size(); ++i) model.subgraphs.push_back(read_subgraph(subgraphs[i], buffers, codes));
  const auto signatures = table[ModelTable::signature_defs];
  for (size_t i = 0; i < signatures.size(); ++i)
    model.signatures.push_back(read_signature(signatures[i], model.subgraphs));
  model.description = table[ModelTable::description];
  return model;
}

ops::DType to_dtype(TensorType type, const std::string& what) {
  using ops::DType;
  switch (type) {
    case TensorType::kFloat32: return DType::kFloat;
    case TensorType::kFloat16: return DType::kFloat16;
    case TensorType::kBfloat16: return DType::kBfloat16;
    case TensorType::kFloat64: return DType::kDouble;
    case TensorType::kInt2: return DType::kInt2;
    case TensorType::kInt4: return DType::kInt4;
    case TensorType::kUint4: return DType::kUint4;
    case TensorType::kInt8: return DType::kInt8;
    case TensorType::kInt16: return DType::kInt16;
    case TensorType::kInt32: return DType::kInt32;
    case TensorType::kInt64: return DType::kInt64;
    case TensorType::kUint8: return DType::kUint8;
    case TensorType::kUint16: return DType::kUint16;
    case TensorType::kUint32: return DType::kUint32;
    case TensorType::kUint64: return DType::kUint64;
    case TensorType::kBool: return DType::kBool;
    case TensorType::kString: return DType::kString;
    case TensorType::kComplex64: return DType::kComplex64;
    case TensorType::kComplex128: return DType::kComplex128;
    default: break;
  }
  throw Error(ErrorCode::kUnsupported, what + " has type " + std::to_string(static_cast<int>(type)) +
                                           " of LiteRT's schema (a resource or a variant), which is not supported");
}

namespace {

/// Numbers of a sparse axis, stored in 32, 16 or 8 bits.
std::vector<int64_t> numbers_of(uint8_t kind, const Table& table) {
  using Numbers = std::vector<int64_t>;
  switch (kind) {
    case 1: return table[Int32Vector::values].to<Numbers>();
    case 2: return table[Uint16Vector::values].to<Numbers>();
    case 3: return table[Uint8Vector::values].to<Numbers>();
    default: fail_damaged();
  }
}

/// The axes of a sparse tensor as they are stored, outermost first: those of the tensor in some order, then those of
/// the blocks that some axes are cut into.
struct SparseAxis {
  bool dense = true;
  int64_t size = 1;                        // of a dense one
  std::vector<int64_t> segments, indices;  // of another
  int64_t stride = 0;                      // of the tensor's elements
};

/// Visits what an axis holds; `place` counts stored entries along the axes outside of it. `visits` ends what a damaged
/// file would repeat without end.
void expand(const std::vector<SparseAxis>& axes, size_t depth, int64_t place, int64_t at, Bytes stored, size_t width,
            ops::Tensor& result, int64_t& visits) {
  if (--visits < 0) fail_damaged();
  if (depth == axes.size()) {
    if (at < 0 || at >= result.size()) fail_damaged();
    const Bytes element = part(stored, static_cast<uint64_t>(place) * width, width);
    std::copy(element.begin(), element.end(), result.mutable_data() + static_cast<size_t>(at) * width);
    return;
  }
  const SparseAxis& axis = axes[depth];
  if (axis.dense) {
    for (int64_t i = 0; i < axis.size; ++i)
      expand(axes, depth + 1, place * axis.size + i, at + i * axis.stride, stored, width, result, visits);
    return;
  }
  if (place + 1 >= static_cast<int64_t>(axis.segments.size())) fail_damaged();
  const int64_t end = axis.segments[static_cast<size_t>(place) + 1];
  if (end > static_cast<int64_t>(axis.indices.size())) fail_damaged();
  for (int64_t i = std::max<int64_t>(axis.segments[static_cast<size_t>(place)], 0); i < end; ++i)
    expand(axes, depth + 1, i, at + axis.indices[static_cast<size_t>(i)] * axis.stride, stored, width, result, visits);
}

/// A constant that is stored sparse.
ops::Tensor dense_of(const TensorInfo& tensor, ops::DType dtype) {
  const auto order = tensor.sparsity[SparsityParameters::traversal_order].to<std::vector<int64_t>>();
  const auto blocks = tensor.sparsity[SparsityParameters::block_map].to<std::vector<int64_t>>();
  const auto metadata = tensor.sparsity[SparsityParameters::dim_metadata];
  const size_t rank = tensor.shape.size();
  if (order.size() != rank + blocks.size() || metadata.size() != order.size() || ops::packed_bits(dtype) % 8 != 0)
    fail("tensor '" + tensor.name + "' is stored sparse in a way that is not known");
  ops::Tensor result(dtype, tensor.shape);
  std::vector<int64_t> strides(rank, 1), block(rank, 1);
  for (size_t d = rank; d-- > 1;) strides[d - 1] = strides[d] * tensor.shape[d];
  std::vector<SparseAxis> axes(order.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    const Table table = metadata[i];
    axes[i].dense = table[DimensionMetadata::format] == 0;
    axes[i].size = table[DimensionMetadata::dense_size];
    if (axes[i].dense && (axes[i].size < 0 || axes[i].size > result.size())) fail_damaged();
    if (!axes[i].dense) {
      axes[i].segments =
          numbers_of(table[DimensionMetadata::array_segments_type], table[DimensionMetadata::array_segments]);
      axes[i].indices =
          numbers_of(table[DimensionMetadata::array_indices_type], table[DimensionMetadata::array_indices]);
    }
  }
  const auto check = [&](int64_t axis, size_t count) {
    if (axis < 0 || axis >= static_cast<int64_t>(count)) fail_damaged();
    return static_cast<size_t>(axis);
  };
  for (size_t i = 0; i < axes.size(); ++i)
    if (const size_t axis = check(order[i], axes.size()); axis >= rank)
      block[check(blocks[axis - rank], rank)] = axes[i].size;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(order[i]);
    const size_t own = axis < rank ? axis : static_cast<size_t>(blocks[axis - rank]);
    axes[i].stride = strides[own] * (axis < rank ? block[own] : 1);
  }
  int64_t visits = (result.size() + 1) * static_cast<int64_t>(axes.size() + 1);
  expand(axes, 0, 0, 0, tensor.data, static_cast<size_t>(ops::element_bytes(dtype)), result, visits);
  return result;
}

}  // namespace

ops::Tensor content_of(const TensorInfo& tensor) {
  const std::string what = "tensor '" + tensor.name + "'";
  if (tensor.type == TensorType::kString) return strings_of(tensor);
  const ops::DType dtype = to_dtype(tensor.type, what);
  if (tensor.sparsity.present() &&
      std::none_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t d) { return d < 0; }))
    return dense_of(tensor, dtype);
  const int64_t bits = ops::packed_bits(dtype);
  if (std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t d) { return d < 0; }))
    fail(what + " is a constant of open shape");
  const auto bytes = static_cast<int64_t>(tensor.data.size());
  const int64_t count = ops::element_count(tensor.shape);
  if (count > bytes * 8 / bits || (count * bits + 7) / 8 != bytes)
    fail(what + " has " + std::to_string(bytes) + " bytes, its shape " + ops::to_string(tensor.shape) +
         " takes others");
  ops::Tensor result(dtype, tensor.shape);
  if (bits % 8 == 0) {
    std::copy(tensor.data.begin(), tensor.data.end(), result.mutable_data());
    return result;
  }
  const unsigned mask = (1U << bits) - 1, sign = ops::is_signed_integer(dtype) ? 1U << (bits - 1) : 0;
  auto elements = result.as_mutable<uint8_t>();
  for (size_t i = 0; i < elements.size(); ++i) {  // the first in the lowest bits
    const size_t first = i * static_cast<size_t>(bits);
    const unsigned value = (std::to_integer<unsigned>(tensor.data[first / 8]) >> first % 8) & mask;
    elements[i] = static_cast<uint8_t>((value ^ sign) - sign);
  }
  return result;
}

}  // namespace tessera::litert
