// SPDX-License-Identifier: Apache-2.0
#include "tessera/command/random_values.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include "base/error.h"

namespace tessera {
namespace {

constexpr int64_t kSmall = 8;            // integers without a known meaning lie below
constexpr size_t kSequenceElements = 3;  // of a sequence
constexpr int64_t kChannels = 3;         // of an image
constexpr size_t kMostRank = 4;
constexpr int64_t kExtents[] = {8, 32, 64, 128, 224, 256, 512};
constexpr int64_t kFirstAxes[] = {1, 64};  // where the first axis may count no samples
constexpr int64_t kMostExtent = 4096;      // of the model's constants, for an open dimension
constexpr size_t kOwnExtents = 24;
constexpr std::chrono::seconds kLooking{15};  // for sizes of a model that takes long to read

/// Numbers of 44 bits (xorshift).
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 1) {}
  uint64_t next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_ >> 20;
  }
  /// In [-1, 1), a multiple of 2^-15.
  double real() { return static_cast<double>(next() % 65536) / 32768.0 - 1.0; }

 private:
  uint64_t state_;
};

template <typename T>
void fill(ops::Tensor& tensor, const auto& value) {
  for (T& element : tensor.as_mutable<T>()) element = static_cast<T>(value());
}

/// Real and complex numbers with parts in [-1, 1). False: another type.
bool fill_reals(ops::Tensor& tensor, Numbers& numbers) {
  using ops::DType;
  const DType dtype = tensor.dtype();
  const auto real = [&] { return static_cast<float>(numbers.real()); };
  switch (dtype) {
    case DType::kFloat: fill<float>(tensor, real); return true;
    case DType::kDouble: fill<double>(tensor, [&] { return numbers.real(); }); return true;
    case DType::kFloat16: fill<uint16_t>(tensor, [&] { return ops::float_to_half(real()); }); return true;
    case DType::kBfloat16: fill<uint16_t>(tensor, [&] { return ops::float_to_bfloat16(real()); }); return true;
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2:
    case DType::kFloat8E5M2FNUZ:
      fill<uint8_t>(tensor, [&] { return ops::float_to_float8(dtype, real(), true); });
      return true;
    case DType::kComplex64:
      for (int64_t i = 0; i < 2 * tensor.size(); ++i) reinterpret_cast<float*>(tensor.mutable_data())[i] = real();
      return true;
    case DType::kComplex128:
      for (int64_t i = 0; i < 2 * tensor.size(); ++i)
        reinterpret_cast<double*>(tensor.mutable_data())[i] = numbers.real();
      return true;
    default: return false;
  }
}

/// Any value of the types with few, and small powers of two. False: another type.
bool fill_codes(ops::Tensor& tensor, Numbers& numbers) {
  using ops::DType;
  const auto below = [&](uint64_t bound) { return [&numbers, bound] { return numbers.next() % bound; }; };
  switch (tensor.dtype()) {
    case DType::kFloat8E8M0: fill<uint8_t>(tensor, [&] { return 120 + numbers.next() % 8; }); return true;  // 2^-7 to 1
    case DType::kFloat4E2M1:
    case DType::kUint4: fill<uint8_t>(tensor, below(16)); return true;
    case DType::kFloat6E2M3:
    case DType::kFloat6E3M2: fill<uint8_t>(tensor, below(64)); return true;
    case DType::kBool: fill<uint8_t>(tensor, below(2)); return true;
    case DType::kUint2: fill<uint8_t>(tensor, below(4)); return true;
    case DType::kInt2: fill<int8_t>(tensor, [&] { return static_cast<int>(numbers.next() % 4) - 2; }); return true;
    case DType::kInt4: fill<int8_t>(tensor, [&] { return static_cast<int>(numbers.next() % 16) - 8; }); return true;
    default: return false;
  }
}

/// Integers of 8 bits and more: any where they are short, small ones where they are long, and those that index `rows`
/// rows (0: none) below it. False: another type.
bool fill_integers(ops::Tensor& tensor, int64_t rows, Numbers& numbers) {
  using ops::DType;
  const auto below = [&](uint64_t bound) { return [&numbers, bound] { return numbers.next() % bound; }; };
  const auto up_to = [&](int64_t most, uint64_t otherwise) {  // so that signed ones index rows too
    return below(rows > 0 ? static_cast<uint64_t>(std::min(rows, most)) : otherwise);
  };
  switch (tensor.dtype()) {
    case DType::kUint8:
    case DType::kInt8: fill<uint8_t>(tensor, up_to(128, 256)); return true;
    case DType::kUint16:
    case DType::kInt16: fill<uint16_t>(tensor, up_to(32768, 65536)); return true;
    case DType::kUint32:
    case DType::kInt32: fill<uint32_t>(tensor, below(static_cast<uint64_t>(rows > 0 ? rows : kSmall))); return true;
    case DType::kUint64:
    case DType::kInt64: fill<uint64_t>(tensor, below(static_cast<uint64_t>(rows > 0 ? rows : kSmall))); return true;
    default: return false;
  }
}

ops::Tensor random_tensor(const Port& port, ops::Shape shape, Numbers& numbers) {
  for (int64_t& dim : shape)
    if (dim < 0) dim = 1;
  ops::Tensor tensor(port.dtype, std::move(shape));
  if (port.dtype == ops::DType::kString) {
    for (std::string& text : tensor.mutable_strings()) text = std::to_string(numbers.next() % kSmall);
    return tensor;
  }
  // A type that is unknown stays as it is.
  if (!fill_reals(tensor, numbers) && !fill_codes(tensor, numbers)) fill_integers(tensor, port.rows, numbers);
  return tensor;
}

bool is_open(const Port& port) {
  return port.kind == program::ValueKind::kTensor && port.ranked &&
         std::any_of(port.shape.begin(), port.shape.end(), [](int64_t d) { return d < 0; });
}

bool is_unranked(const Port& port) { return port.kind == program::ValueKind::kTensor && !port.ranked; }

/// [extent], [1, extent], [1, extent, extent] or [1, 3, extent, extent].
ops::Shape of_rank(size_t rank, int64_t extent) {
  ops::Shape shape(rank, extent);
  if (rank > 1) shape[0] = 1;
  if (rank == 4) shape[1] = 3;
  return shape;
}

/// How the open dimensions of an image are read: all alike, or one of them as channels.
enum class Layout { kPlain, kChannelsFirst, kChannelsLast };

/// Of a dimension; one that the model does not name has its own.
std::string name_of(const Port& port, size_t axis) {
  if (axis < port.dim_names.size() && !port.dim_names[axis].empty()) return port.dim_names[axis];
  return port.name + "." + std::to_string(axis);
}

/// The open dimensions that are or are not `first` axes, once each.
std::set<std::string> open_dimensions(const std::vector<Port>& ports, bool first) {
  std::set<std::string> names;
  for (const Port& port : ports)
    for (size_t axis = 0; is_open(port) && axis < port.shape.size(); ++axis)
      if (port.shape[axis] < 0 && (axis == 0) == first) names.insert(name_of(port, axis));
  return names;
}

/// What stands in the place of open dimensions.
struct Extents {
  int64_t first = 1;   // axes, and dimensions of the same name
  int64_t others = 1;  // but the channels of an image
  std::map<std::string, int64_t> named;
  size_t rank = 0;  // of inputs of unknown rank
  Layout layout = Layout::kPlain;
};

std::map<std::string, ops::Shape> with_extents(const std::vector<Port>& ports, const Extents& extents) {
  const std::set<std::string> batches = open_dimensions(ports, true);
  std::map<std::string, ops::Shape> shapes;
  for (const Port& port : ports) {
    if (is_unranked(port)) shapes[port.name] = of_rank(extents.rank, extents.others);
    if (!is_open(port)) continue;
    ops::Shape& shape = shapes[port.name] = port.shape;
    const size_t channels = extents.layout == Layout::kPlain || shape.size() != 4 ? 0
                            : extents.layout == Layout::kChannelsFirst            ? 1
                                                                                  : 3;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] >= 0) continue;
      const bool batch = axis == 0 || batches.count(name_of(port, axis)) != 0;
      const auto named = extents.named.find(name_of(port, axis));
      shape[axis] = named != extents.named.end() ? named->second
                    : batch                      ? extents.first
                    : axis == channels           ? kChannels
                                                 : extents.others;
    }
  }
  return shapes;
}

/// Shapes to try, the likely ones first. `own`: extents of the model's constants.
std::vector<std::map<std::string, ops::Shape>> candidates(const std::vector<Port>& ports, std::vector<int64_t> own) {
  const bool unranked = std::any_of(ports.begin(), ports.end(), is_unranked);
  std::vector<std::map<std::string, ops::Shape>> shapes;
  for (size_t rank = unranked ? 1 : kMostRank; rank <= kMostRank; ++rank)
    for (const int64_t extent : kExtents)
      for (const Layout layout : {Layout::kPlain, Layout::kChannelsFirst, Layout::kChannelsLast})
        shapes.push_back(with_extents(ports, {1, extent, {}, rank, layout}));
  std::erase_if(own, [](int64_t extent) { return extent < 2 || extent > kMostExtent; });
  if (own.size() > kOwnExtents) own.resize(kOwnExtents);
  for (const int64_t first : kFirstAxes) {
    for (const int64_t extent : own) shapes.push_back(with_extents(ports, {first, extent, {}, kMostRank}));
    for (const std::string& name : open_dimensions(ports, false))
      for (const int64_t extent : own)
        shapes.push_back(with_extents(ports, {first, first, {{name, extent}}, kMostRank}));
  }
  return shapes;
}

}  // namespace

ops::Value random_value(const Port& port, uint64_t seed) {
  Numbers numbers(seed);
  if (port.kind != program::ValueKind::kSequence) return random_tensor(port, port.shape, numbers);
  const ops::Shape shape = port.ranked ? port.shape : ops::Shape{2};
  std::vector<ops::Value> elements;
  for (size_t i = 0; i < kSequenceElements; ++i) elements.emplace_back(random_tensor(port, shape, numbers));
  return ops::Value::make_sequence(std::move(elements));
}

std::map<std::string, ops::Shape> shapes_that_fit(const compiler::ModelSource& model,
                                                  const compiler::ImportOptions& import,
                                                  const std::vector<Port>& ports) {
  const bool open = std::any_of(ports.begin(), ports.end(), [](const Port& port) {
    return is_unranked(port) ||
           (is_open(port) && std::any_of(port.shape.begin() + 1, port.shape.end(), [](int64_t d) { return d < 0; }));
  });
  if (!open) return {};
  const auto misfit = [&](const std::map<std::string, ops::Shape>& shapes) -> std::optional<Error> {
    compiler::ImportOptions to = import;
    for (const auto& [name, shape] : shapes) to.shapes[name] = shape;
    try {
      compiler::Model::from_source(model, to);
    } catch (const Error& error) {
      return error;
    }
    return std::nullopt;
  };
  const auto with_ones = misfit(with_extents(ports, {}));
  if (!with_ones) return {};
  const auto others = candidates(ports, compiler::Model::from_source(model, import).constant_extents());
  const auto end = std::chrono::steady_clock::now() + kLooking;
  size_t tried = 0;
  for (; tried < others.size() && std::chrono::steady_clock::now() < end; ++tried)
    if (!misfit(others[tried])) return others[tried];
  std::string names;
  for (const Port& port : ports)
    if (is_open(port) || is_unranked(port)) names += (names.empty() ? "'" : ", '") + port.name + "'";
  throw Error(with_ones->code(), std::string(with_ones->what()) + "; so it is with 1 for the open dimensions of " +
                                     names + ", and " + std::to_string(tried) +
                                     " other sizes do not fit either; give --shape NAME=D0,D1,...");
}

}  // namespace tessera
