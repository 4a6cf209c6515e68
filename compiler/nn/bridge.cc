// SPDX-License-Identifier: Apache-2.0
// Conversions between the `nn` dialect and the operator library, builders, and names of nodes and values.
#include "compiler/nn/bridge.h"

#include <cstring>

#include "llvm/ADT/TypeSwitch.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/DialectResourceBlobManager.h"

namespace tessera::nn {

// --- types -------------------------------------------------------------------------------------------------

mlir::Type to_element_type(mlir::MLIRContext* context, ops::DType dtype) {
  using ops::DType;
  mlir::Builder b(context);
  auto integer = [&](unsigned width, bool is_unsigned = false) -> mlir::Type {
    return mlir::IntegerType::get(context, width,
                                  is_unsigned ? mlir::IntegerType::Unsigned : mlir::IntegerType::Signless);
  };
  switch (dtype) {
    case DType::kFloat: return b.getF32Type();
    case DType::kUint8: return integer(8, true);
    case DType::kInt8: return integer(8);
    case DType::kUint16: return integer(16, true);
    case DType::kInt16: return integer(16);
    case DType::kInt32: return integer(32);
    case DType::kInt64: return integer(64);
    case DType::kString: return StringType::get(context);
    case DType::kBool: return integer(1);
    case DType::kFloat16: return b.getF16Type();
    case DType::kDouble: return b.getF64Type();
    case DType::kUint32: return integer(32, true);
    case DType::kUint64: return integer(64, true);
    case DType::kComplex64: return mlir::ComplexType::get(b.getF32Type());
    case DType::kComplex128: return mlir::ComplexType::get(b.getF64Type());
    case DType::kBfloat16: return b.getBF16Type();
    case DType::kFloat8E4M3FN: return b.getFloat8E4M3FNType();
    case DType::kFloat8E4M3FNUZ: return b.getFloat8E4M3FNUZType();
    case DType::kFloat8E5M2: return b.getFloat8E5M2Type();
    case DType::kFloat8E5M2FNUZ: return b.getFloat8E5M2FNUZType();
    case DType::kUint4: return integer(4, true);
    case DType::kInt4: return integer(4);
    case DType::kFloat4E2M1: return Float4E2M1Type::get(context);
    case DType::kFloat8E8M0: return Float8E8M0Type::get(context);
    case DType::kUint2: return integer(2, true);
    case DType::kInt2: return integer(2);
    case DType::kFloat6E2M3: return Float6E2M3Type::get(context);
    case DType::kFloat6E3M2: return Float6E3M2Type::get(context);
    case DType::kUndefined: break;
  }
  throw Error(ErrorCode::kInvalidModel,
              "a tensor has an unknown element type (" + std::to_string(static_cast<int>(dtype)) + ")");
}

ops::DType to_dtype(mlir::Type type) {
  using ops::DType;
  if (auto integer = llvm::dyn_cast<mlir::IntegerType>(type)) {
    if (integer.isSigned()) return DType::kUndefined;
    bool u = integer.isUnsigned();
    switch (integer.getWidth()) {
      case 1: return u ? DType::kUndefined : DType::kBool;
      case 2: return u ? DType::kUint2 : DType::kInt2;
      case 4: return u ? DType::kUint4 : DType::kInt4;
      case 8: return u ? DType::kUint8 : DType::kInt8;
      case 16: return u ? DType::kUint16 : DType::kInt16;
      case 32: return u ? DType::kUint32 : DType::kInt32;
      case 64: return u ? DType::kUint64 : DType::kInt64;
      default: return DType::kUndefined;
    }
  }
  if (auto complex = llvm::dyn_cast<mlir::ComplexType>(type)) {
    if (complex.getElementType().isF32()) return DType::kComplex64;
    return complex.getElementType().isF64() ? DType::kComplex128 : DType::kUndefined;
  }
  return llvm::TypeSwitch<mlir::Type, DType>(type)
      .Case<mlir::Float32Type>([](auto) { return DType::kFloat; })
      .Case<mlir::Float64Type>([](auto) { return DType::kDouble; })
      .Case<mlir::Float16Type>([](auto) { return DType::kFloat16; })
      .Case<mlir::BFloat16Type>([](auto) { return DType::kBfloat16; })
      .Case<mlir::Float8E4M3FNType>([](auto) { return DType::kFloat8E4M3FN; })
      .Case<mlir::Float8E4M3FNUZType>([](auto) { return DType::kFloat8E4M3FNUZ; })
      .Case<mlir::Float8E5M2Type>([](auto) { return DType::kFloat8E5M2; })
      .Case<mlir::Float8E5M2FNUZType>([](auto) { return DType::kFloat8E5M2FNUZ; })
      .Case<StringType>([](auto) { return DType::kString; })
      .Case<Float4E2M1Type>([](auto) { return DType::kFloat4E2M1; })
      .Case<Float8E8M0Type>([](auto) { return DType::kFloat8E8M0; })
      .Case<Float6E2M3Type>([](auto) { return DType::kFloat6E2M3; })
      .Case<Float6E3M2Type>([](auto) { return DType::kFloat6E3M2; })
      .Default([](auto) { return DType::kUndefined; });
}

ops::DType dtype_of(mlir::Value value) {
  auto tensor = llvm::dyn_cast<mlir::TensorType>(value.getType());
  return tensor ? to_dtype(tensor.getElementType()) : ops::DType::kUndefined;
}

mlir::Type to_type(mlir::MLIRContext* context, const ops::TypeInfo& info) {
  if (!info.present) return mlir::NoneType::get(context);
  mlir::Type element = to_element_type(context, info.dtype);
  mlir::Type tensor;
  if (info.ranked) {
    llvm::SmallVector<int64_t> dims;
    for (int64_t d : info.shape) dims.push_back(d < 0 ? mlir::ShapedType::kDynamic : d);
    tensor = mlir::RankedTensorType::get(dims, element);
  } else {
    tensor = mlir::UnrankedTensorType::get(element);
  }
  switch (info.kind) {
    case ops::TypeInfo::Kind::kTensor: return tensor;
    case ops::TypeInfo::Kind::kSequence: return SequenceType::get(context, tensor);
    case ops::TypeInfo::Kind::kOptional: return OptionalType::get(context, tensor);
  }
  return tensor;
}

ops::TypeInfo to_type_info(mlir::Type type) {
  if (llvm::isa<mlir::NoneType>(type)) return ops::TypeInfo::absent();
  if (auto sequence = llvm::dyn_cast<SequenceType>(type)) {
    ops::TypeInfo info = to_type_info(sequence.getElement());
    info.kind = ops::TypeInfo::Kind::kSequence;
    return info;
  }
  if (auto optional = llvm::dyn_cast<OptionalType>(type)) {
    ops::TypeInfo info = to_type_info(optional.getElement());
    if (info.kind == ops::TypeInfo::Kind::kTensor) info.kind = ops::TypeInfo::Kind::kOptional;
    return info;
  }
  ops::TypeInfo info;
  auto tensor = llvm::dyn_cast<mlir::TensorType>(type);
  if (!tensor) return info;
  info.dtype = to_dtype(tensor.getElementType());
  info.ranked = tensor.hasRank();
  if (info.ranked) {
    for (int64_t d : tensor.getShape()) info.shape.push_back(mlir::ShapedType::isDynamic(d) ? -1 : d);
  }
  return info;
}

ops::TypeInfo to_type_info(mlir::Value value) {
  ops::TypeInfo info = to_type_info(value.getType());
  if (auto constant = constant_value(value)) info.constant = std::move(*constant);
  return info;
}

std::optional<ops::Shape> shape_of(mlir::Value value) {
  auto tensor = llvm::dyn_cast<mlir::RankedTensorType>(value.getType());
  if (!tensor) return std::nullopt;
  return to_type_info(tensor).shape;
}

bool is_static(mlir::Value value) {
  auto tensor = llvm::dyn_cast<mlir::RankedTensorType>(value.getType());
  return tensor && tensor.hasStaticShape();
}

// --- tensors -----------------------------------------------------------------------------------------------

mlir::ElementsAttr to_attribute(mlir::MLIRContext* context, const ops::Tensor& tensor) {
  auto type = mlir::RankedTensorType::get(tensor.shape(), to_element_type(context, tensor.dtype()));
  if (tensor.dtype() == ops::DType::kString) {
    llvm::SmallVector<llvm::StringRef> strings(tensor.strings().begin(), tensor.strings().end());
    return llvm::cast<mlir::ElementsAttr>(mlir::DenseStringElementsAttr::get(type, strings));
  }
  const char* data = reinterpret_cast<const char*>(tensor.data());
  // MLIR writes the elements of its own types.
  const bool own = llvm::isa<Float4E2M1Type, Float6E2M3Type, Float6E3M2Type, Float8E8M0Type>(type.getElementType());
  if (!own && tensor.bytes() <= kSmallConstantBytes) {
    if (tensor.dtype() == ops::DType::kBool) {
      llvm::SmallVector<bool> bits;
      for (int64_t i = 0; i < tensor.size(); ++i) bits.push_back(data[i] != 0);
      return mlir::DenseElementsAttr::get(type, bits);
    }
    llvm::ArrayRef<char> bytes(data, static_cast<size_t>(tensor.bytes()));
    return mlir::DenseElementsAttr::getFromRawBuffer(type, bytes);
  }
  auto deleter = [owner = tensor](void*, size_t, size_t) mutable { owner = ops::Tensor(); };
  llvm::ArrayRef<char> bytes(data, static_cast<size_t>(tensor.bytes()));
  mlir::AsmResourceBlob blob(bytes, 16, std::move(deleter), /*dataIsMutable=*/false);
  return mlir::DenseResourceElementsAttr::get(type, "tensor", std::move(blob));
}

ops::Tensor to_tensor(mlir::ElementsAttr attribute) {
  mlir::ShapedType type = attribute.getShapedType();
  ops::DType dtype = to_dtype(type.getElementType());
  if (dtype == ops::DType::kUndefined)
    throw Error(ErrorCode::kInternal, "a constant has an element type that no ONNX tensor has");
  ops::Shape shape(type.getShape().begin(), type.getShape().end());
  if (auto resource = llvm::dyn_cast<mlir::DenseResourceElementsAttr>(attribute)) {
    mlir::AsmResourceBlob* blob = resource.getRawHandle().getBlob();
    int64_t bytes = ops::element_count(shape) * ops::element_bytes(dtype);
    if (!blob || static_cast<int64_t>(blob->getData().size()) != bytes) {
      throw Error(ErrorCode::kInternal,
                  "resource '" + resource.getRawHandle().getKey().str() + "' does not have the size of its type");
    }
    return ops::Tensor::view(dtype, shape, nullptr, reinterpret_cast<const std::byte*>(blob->getData().data()));
  }
  ops::Tensor tensor(dtype, shape);
  if (auto strings = llvm::dyn_cast<mlir::DenseStringElementsAttr>(attribute)) {
    auto& out = tensor.mutable_strings();
    auto raw = strings.getRawStringData();
    for (size_t i = 0; i < out.size(); ++i) out[i] = raw[strings.isSplat() ? 0 : i].str();
    return tensor;
  }
  auto dense = llvm::dyn_cast<mlir::DenseElementsAttr>(attribute);
  if (!dense) throw Error(ErrorCode::kInternal, "a constant is neither dense nor a resource");
  std::byte* out = tensor.mutable_data();
  if (dtype == ops::DType::kBool) {
    for (bool bit : dense.getValues<bool>()) *out++ = static_cast<std::byte>(bit);
    return tensor;
  }
  llvm::ArrayRef<char> raw = dense.getRawData();
  if (!dense.isSplat() || tensor.size() <= 1) {
    if (tensor.size() > 0) std::memcpy(out, raw.data(), static_cast<size_t>(tensor.bytes()));
    return tensor;
  }
  size_t width = static_cast<size_t>(ops::element_bytes(dtype));
  for (int64_t i = 0; i < tensor.size(); ++i) std::memcpy(out + static_cast<size_t>(i) * width, raw.data(), width);
  return tensor;
}

ops::Tensor copy_of(const ops::Tensor& tensor) {
  ops::Tensor copy(tensor.dtype(), tensor.shape());
  if (tensor.dtype() == ops::DType::kString) {
    copy.mutable_strings() = tensor.strings();
  } else if (tensor.bytes() > 0) {
    std::memcpy(copy.mutable_data(), tensor.data(), static_cast<size_t>(tensor.bytes()));
  }
  return copy;
}

std::optional<ops::Tensor> constant_value(mlir::Value value) {
  if (!value) return std::nullopt;
  auto constant = value.getDefiningOp<ConstantOp>();
  if (!constant) return std::nullopt;
  return to_tensor(constant.getValue());
}

std::optional<double> constant_scalar(mlir::Value value) {
  auto tensor = constant_value(value);
  if (!tensor || tensor->size() != 1 || tensor->dtype() == ops::DType::kString) return std::nullopt;
  return tensor->at_double(0);
}

bool is_none(mlir::Value value) { return value && llvm::isa<mlir::NoneType>(value.getType()); }

// --- nodes -------------------------------------------------------------------------------------------------

mlir::DictionaryAttr to_dictionary(mlir::MLIRContext* context,
                                   const std::map<std::string, ops::Attribute>& attributes) {
  mlir::Builder b(context);
  llvm::SmallVector<mlir::NamedAttribute> named;
  for (const auto& [name, attribute] : attributes) {
    mlir::Attribute value;
    if (auto* i = std::get_if<int64_t>(&attribute)) {
      value = b.getI64IntegerAttr(*i);
    } else if (auto* f = std::get_if<float>(&attribute)) {
      value = b.getF32FloatAttr(*f);
    } else if (auto* s = std::get_if<std::string>(&attribute)) {
      value = b.getStringAttr(*s);
    } else if (auto* is = std::get_if<std::vector<int64_t>>(&attribute)) {
      value = b.getDenseI64ArrayAttr(*is);
    } else if (auto* fs = std::get_if<std::vector<float>>(&attribute)) {
      value = b.getDenseF32ArrayAttr(*fs);
    } else if (auto* ss = std::get_if<std::vector<std::string>>(&attribute)) {
      llvm::SmallVector<mlir::Attribute> strings;
      for (const std::string& s : *ss) strings.push_back(b.getStringAttr(s));
      value = b.getArrayAttr(strings);
    } else if (auto* t = std::get_if<ops::Tensor>(&attribute)) {
      value = to_attribute(context, *t);
    } else {
      continue;
    }
    named.push_back(b.getNamedAttr(name, value));
  }
  return b.getDictionaryAttr(named);
}

std::map<std::string, ops::Attribute> to_attributes(mlir::DictionaryAttr dictionary) {
  std::map<std::string, ops::Attribute> attributes;
  for (mlir::NamedAttribute named : dictionary) {
    std::string name = named.getName().str();
    mlir::Attribute value = named.getValue();
    if (auto i = llvm::dyn_cast<mlir::IntegerAttr>(value)) {
      attributes[name] = i.getInt();
    } else if (auto f = llvm::dyn_cast<mlir::FloatAttr>(value)) {
      attributes[name] = static_cast<float>(f.getValueAsDouble());
    } else if (auto s = llvm::dyn_cast<mlir::StringAttr>(value)) {
      attributes[name] = s.getValue().str();
    } else if (auto is = llvm::dyn_cast<mlir::DenseI64ArrayAttr>(value)) {
      attributes[name] = std::vector<int64_t>(is.asArrayRef().begin(), is.asArrayRef().end());
    } else if (auto fs = llvm::dyn_cast<mlir::DenseF32ArrayAttr>(value)) {
      attributes[name] = std::vector<float>(fs.asArrayRef().begin(), fs.asArrayRef().end());
    } else if (auto ss = llvm::dyn_cast<mlir::ArrayAttr>(value)) {
      std::vector<std::string> strings;
      for (mlir::Attribute s : ss) {
        auto text = llvm::dyn_cast<mlir::StringAttr>(s);
        if (!text)
          throw Error(ErrorCode::kInvalidModel, "attribute '" + name + "' is an array of something that is no string");
        strings.push_back(text.getValue().str());
      }
      attributes[name] = strings;
    } else if (auto t = llvm::dyn_cast<mlir::ElementsAttr>(value)) {
      attributes[name] = to_tensor(t);
    } else {
      throw Error(ErrorCode::kInvalidModel, "attribute '" + name + "' has a kind that no ONNX attribute has");
    }
  }
  return attributes;
}

ops::Node to_named_node(NodeOp op) {
  ops::Node node;
  node.domain = op.getDomain().str();
  node.op_type = op.getOpType().str();
  node.version = static_cast<int>(op.getVersion());
  node.name = node_name(op);
  for (const mlir::NamedAttribute named : op.getOnnxAttributes()) node.attributes[named.getName().str()];
  node.output_count = op.getNumResults();
  return node;
}

ops::Node to_node(NodeOp op, const BodyMap& bodies) {
  ops::Node node = to_named_node(op);
  node.attributes = to_attributes(op.getOnnxAttributes());
  for (const auto& [name, body] : bodies) node.attributes[name] = body;
  return node;
}

mlir::Value input_or_null(NodeOp op, unsigned index) {
  if (index >= op.getNumOperands()) return {};
  mlir::Value value = op->getOperand(index);
  return is_none(value) ? mlir::Value() : value;
}

NodeOp defining_op(mlir::Value value) { return value ? value.getDefiningOp<NodeOp>() : NodeOp(); }

NodeOp defining_op(mlir::Value value, llvm::StringRef op_type, llvm::StringRef domain) {
  NodeOp op = defining_op(value);
  return op && op.is(op_type, domain) ? op : NodeOp();
}

// --- builders ----------------------------------------------------------------------------------------------

namespace {

llvm::SmallVector<mlir::Value> complete_operands(mlir::OpBuilder& builder, mlir::Location location,
                                                 mlir::ValueRange operands) {
  llvm::SmallVector<mlir::Value> values(operands.begin(), operands.end());
  while (!values.empty() && (!values.back() || is_none(values.back()))) values.pop_back();
  for (mlir::Value& value : values) {
    if (!value) value = create_none(builder, location);
  }
  return values;
}

}  // namespace

NodeOp create_op(mlir::OpBuilder& builder, mlir::Location location, llvm::StringRef op_type, llvm::StringRef domain,
                 int version, mlir::ValueRange operands, const std::map<std::string, ops::Attribute>& attributes,
                 mlir::TypeRange result_types) {
  auto values = complete_operands(builder, location, operands);
  return builder.create<NodeOp>(location, result_types, values, builder.getStringAttr(op_type),
                                builder.getStringAttr(domain), builder.getI64IntegerAttr(version),
                                to_dictionary(builder.getContext(), attributes), builder.getStrArrayAttr({}),
                                /*bodiesCount=*/0);
}

NodeOp create_op(mlir::OpBuilder& builder, mlir::Location location, llvm::StringRef op_type, llvm::StringRef domain,
                 int version, mlir::ValueRange operands, const std::map<std::string, ops::Attribute>& attributes,
                 size_t result_count) {
  auto values = complete_operands(builder, location, operands);
  ops::Node node{domain.str(), op_type.str(), version, node_name(location), attributes, result_count};
  std::vector<ops::TypeInfo> inputs;
  for (mlir::Value value : values) inputs.push_back(to_type_info(value));
  llvm::SmallVector<mlir::Type> types;
  for (const ops::TypeInfo& info : ops::infer(node, inputs)) types.push_back(to_type(builder.getContext(), info));
  return create_op(builder, location, op_type, domain, version, values, attributes, types);
}

mlir::Value create_constant(mlir::OpBuilder& builder, mlir::Location location, const ops::Tensor& tensor) {
  mlir::ElementsAttr value = to_attribute(builder.getContext(), tensor);
  return builder.create<ConstantOp>(location, value.getShapedType(), value);
}

mlir::Value create_none(mlir::OpBuilder& builder, mlir::Location location) {
  return builder.create<NoneOp>(location, builder.getNoneType());
}

// --- names -------------------------------------------------------------------------------------------------

mlir::Location make_location(mlir::MLIRContext* context, llvm::StringRef name,
                             llvm::ArrayRef<std::string> output_names) {
  mlir::Builder b(context);
  llvm::SmallVector<mlir::Attribute> names;
  for (const std::string& output : output_names) names.push_back(b.getStringAttr(output));
  mlir::Location unknown = b.getUnknownLoc();
  mlir::Location child = names.empty() ? unknown : mlir::FusedLoc::get({unknown}, b.getArrayAttr(names), context);
  return mlir::NameLoc::get(b.getStringAttr(name), child);
}

mlir::Location fuse_locations(mlir::Operation* primary, llvm::ArrayRef<mlir::Operation*> others) {
  llvm::SmallVector<mlir::Location> locations{primary->getLoc()};
  for (mlir::Operation* other : others) locations.push_back(other->getLoc());
  return mlir::FusedLoc::get(primary->getContext(), locations);
}

mlir::Location location_for(mlir::Operation* node, llvm::ArrayRef<mlir::Value> results,
                            llvm::ArrayRef<mlir::Operation*> others) {
  std::vector<std::string> names;
  for (mlir::Value result : results) names.push_back(result ? value_name(result) : std::string());
  llvm::SmallVector<mlir::Location> locations{make_location(node->getContext(), node_name(node), names)};
  for (mlir::Operation* other : others) locations.push_back(other->getLoc());
  return mlir::FusedLoc::get(node->getContext(), locations);
}

namespace {

void collect_names(mlir::Location location, std::vector<mlir::NameLoc>& names) {
  if (auto name = llvm::dyn_cast<mlir::NameLoc>(location)) {
    names.push_back(name);
  } else if (auto fused = llvm::dyn_cast<mlir::FusedLoc>(location)) {
    for (mlir::Location inner : fused.getLocations()) collect_names(inner, names);
  } else if (auto call = llvm::dyn_cast<mlir::CallSiteLoc>(location)) {
    collect_names(call.getCallee(), names);
  }
}

}  // namespace

std::string node_name(mlir::Location location) {
  std::vector<mlir::NameLoc> names;
  collect_names(location, names);
  return names.empty() ? std::string() : names.front().getName().str();
}

std::string node_name(mlir::Operation* op) { return node_name(op->getLoc()); }

std::vector<std::string> node_names(mlir::Location location) {
  std::vector<mlir::NameLoc> names;
  collect_names(location, names);
  std::vector<std::string> result;
  for (mlir::NameLoc name : names) result.push_back(name.getName().str());
  return result;
}

std::string value_name(mlir::Value value) {
  if (auto result = llvm::dyn_cast<mlir::OpResult>(value)) {
    std::vector<mlir::NameLoc> names;
    collect_names(result.getOwner()->getLoc(), names);
    if (names.empty()) return "";
    auto fused = llvm::dyn_cast<mlir::FusedLoc>(names.front().getChildLoc());
    if (!fused) return "";
    auto outputs = llvm::dyn_cast_or_null<mlir::ArrayAttr>(fused.getMetadata());
    if (!outputs || outputs.size() <= result.getResultNumber()) return "";
    auto text = llvm::dyn_cast<mlir::StringAttr>(outputs[result.getResultNumber()]);
    return text ? text.getValue().str() : "";
  }
  auto argument = llvm::cast<mlir::BlockArgument>(value);
  if (auto func = llvm::dyn_cast_or_null<mlir::func::FuncOp>(argument.getOwner()->getParentOp())) {
    auto name = func.getArgAttrOfType<mlir::StringAttr>(argument.getArgNumber(), kNameAttr);
    return name ? name.getValue().str() : "";
  }
  return node_name(argument.getLoc());
}

}  // namespace tessera::nn
