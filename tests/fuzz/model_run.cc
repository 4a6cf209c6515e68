// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <set>

#include "compiler/pipeline/model.h"
#include "driver/registry.h"
#include "runtime/executor.h"
#include "tests/fuzz/model_run.h"

namespace tessera::fuzz {
namespace {

constexpr uint64_t kHeapBytes = uint64_t{64} << 20;
constexpr int64_t kMostElements = 1 << 14;  // of an input

/// Operators whose results depend on an order of sums, on a function of the host, or on chance: their models are
/// compared closely, not exactly, or not at all.
const std::set<std::string> kRandom = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike",
                                       "Bernoulli",    "Multinomial",   "Dropout"};
const std::set<std::string> kExact = {"QuantizeLinear",
                                      "DequantizeLinear",
                                      "QLinearConv",
                                      "QLinearMatMul",
                                      "MatMulInteger",
                                      "ConvInteger",
                                      "QLinearAdd",
                                      "QLinearMul",
                                      "QGemm",
                                      "Relu",
                                      "Identity",
                                      "Transpose",
                                      "Reshape",
                                      "Concat",
                                      "Slice",
                                      "Split",
                                      "Flatten",
                                      "Squeeze",
                                      "Unsqueeze",
                                      "MaxPool",
                                      "Gather",
                                      "Shape",
                                      "Constant",
                                      "ConstantOfShape",
                                      "Cast",
                                      "Expand",
                                      "Tile",
                                      "Pad",
                                      "DepthToSpace",
                                      "SpaceToDepth",
                                      "Min",
                                      "Max",
                                      "Abs",
                                      "Neg",
                                      "Where",
                                      "Equal",
                                      "Less",
                                      "Greater",
                                      "Not",
                                      "And",
                                      "Or"};

/// Every input with a shape and a content; nothing for what a model of this size would not be given.
bool make_inputs(const std::vector<compiler::Port>& ports, uint64_t seed, std::vector<ops::Value>& inputs) {
  Random random(seed);
  for (const compiler::Port& port : ports) {
    if (port.kind != program::ValueKind::kTensor || !port.ranked || port.dtype == ops::DType::kUndefined) return false;
    int64_t count = 1;
    for (const int64_t d : port.shape) {
      if (d < 0 || d > kMostElements) return false;
      count *= std::max<int64_t>(d, 1);
      if (count > kMostElements) return false;
    }
    ops::Tensor tensor(port.dtype, port.shape);
    if (port.dtype == ops::DType::kFloat) {
      for (float& v : tensor.as_mutable<float>()) v = static_cast<float>(random.below(2001)) / 500.0f - 2.0f;
    } else if (port.dtype == ops::DType::kInt8 || port.dtype == ops::DType::kUint8) {
      for (uint8_t& v : tensor.as_mutable<uint8_t>()) v = static_cast<uint8_t>(random.bits());
    } else if (port.dtype != ops::DType::kString) {
      std::byte* bytes = tensor.mutable_data();
      const int64_t width = ops::element_bytes(port.dtype);
      for (int64_t k = 0; k < tensor.size(); ++k) {
        bytes[k * width] = static_cast<std::byte>(random.below(port.dtype == ops::DType::kBool ? 2 : 5));
      }
    }
    inputs.emplace_back(std::move(tensor));
  }
  return true;
}

/// Dynamic dimensions become 2.
compiler::ImportOptions with_shapes(const std::vector<compiler::Port>& ports) {
  compiler::ImportOptions options;
  for (const compiler::Port& port : ports) {
    if (!port.ranked || std::ranges::all_of(port.shape, [](int64_t d) { return d >= 0; })) continue;
    ops::Shape shape = port.shape;
    for (int64_t& d : shape) d = d < 0 ? 2 : d;
    options.shapes[port.name] = shape;
  }
  return options;
}

bool finite(const ops::Tensor& tensor) {
  if (tensor.dtype() == ops::DType::kString) return true;
  const std::vector<double> values = tensor.to_doubles();
  return std::ranges::all_of(values, [](double v) { return std::isfinite(v) && std::fabs(v) < 1e12; });
}

bool is_float(ops::DType dtype) {
  return dtype == ops::DType::kFloat || dtype == ops::DType::kDouble || dtype == ops::DType::kFloat16 ||
         dtype == ops::DType::kBfloat16;
}

/// What differs between two results, "" if nothing does that should not.
std::string difference(const ops::Tensor& got, const ops::Tensor& want, bool exact) {
  if (got.dtype() != want.dtype()) return "another type";
  if (got.shape() != want.shape())
    return "shape " + ops::to_string(got.shape()) + " instead of " + ops::to_string(want.shape());
  if (want.dtype() == ops::DType::kString) return got.strings() == want.strings() ? "" : "other strings";
  if (want.dtype() >= ops::DType::kComplex64 && want.dtype() <= ops::DType::kComplex128) return "";
  const std::vector<double> a = got.to_doubles(), b = want.to_doubles();
  double most = 1e-3, error = 0;
  size_t differing = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    if (a[k] == b[k] || (std::isnan(a[k]) && std::isnan(b[k]))) continue;
    ++differing;
    most = std::max(most, std::fabs(b[k]));
    error = std::max(error, std::fabs(a[k] - b[k]));
  }
  for (const double v : b) most = std::max(most, std::fabs(v));
  if (differing == 0) return "";
  const std::string count = std::to_string(differing) + " of " + std::to_string(a.size()) + " elements differ, by " +
                            std::to_string(error) + " at most, of " + std::to_string(most);
  if (exact) return count;
  // An inexact operator in front of a quantisation, a comparison or a choice moves single elements.
  if (is_float(want.dtype()) && error <= 0.02 * most) return "";
  return differing * 10 <= a.size() + 9 ? "" : count;
}

struct Reference {
  bool done = false;
  std::vector<ops::Value> results;
  bool plain = true;  // no infinity and no NaN came up, so that nothing depends on where they do
  std::string error;
};

Reference interpret(compiler::Model& model, const std::vector<ops::Value>& inputs) {
  Reference reference;
  const auto watch = [&](const std::string&, const std::string&, const std::vector<std::string>&,
                         const std::vector<ops::Value>& values) {
    for (const ops::Value& value : values) {
      if (value.kind == ops::Value::Kind::kTensor && is_float(value.tensor.dtype()))
        reference.plain = reference.plain && finite(value.tensor);
    }
  };
  try {
    reference.results = model.interpret(inputs, watch);
    reference.done = true;
  } catch (const Error& error) {
    judge(error);
    reference.error = error.what();
  }
  return reference;
}

void compare(const std::vector<ops::Value>& got, const Reference& reference, const Traits& traits) {
  check(got.size() == reference.results.size(), "another number of results");
  if (traits.random || !reference.plain) return;
  for (size_t k = 0; k < got.size(); ++k) {
    const ops::Value& want = reference.results[k];
    check(got[k].kind == want.kind, "a result of another kind");
    if (want.kind != ops::Value::Kind::kTensor) continue;
    const std::string what = difference(got[k].tensor, want.tensor, traits.exact);
    if (!what.empty()) finding("result " + std::to_string(k) + " is not the interpreter's: " + what);
  }
}

}  // namespace

void look(const onnx_proto::GraphProto& graph, Traits& traits) {
  for (const auto& node : graph.node()) {
    traits.exact = traits.exact && kExact.contains(node.op_type());
    traits.random = traits.random || kRandom.contains(node.op_type());
    traits.loops = traits.loops || node.op_type() == "Loop";
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) look(attribute.g(), traits);
    }
  }
}

void run_model(std::string_view bytes, const Traits& traits, uint64_t seed) {
  compiler::Model model = compiler::Model::from_bytes(bytes);
  const compiler::ImportOptions options = with_shapes(model.inputs());
  if (!options.shapes.empty()) model = compiler::Model::from_bytes(bytes, options);
  model.optimise();
  std::vector<ops::Value> inputs;
  const bool fed = make_inputs(model.inputs(), seed, inputs) && !traits.loops;
  Reference reference;
  if (fed) reference = interpret(model, inputs);
  compiler::CompileOptions compile;
  compile.cpu_codegen = seed % 8 == 0;  // machine code takes most of the time
  compile.cpu_cache = false;
  compile.threads = 1;
  const auto config = isa::find_config(seed % 3 == 0 ? "npu256" : "npu64");
  auto artifact = std::make_shared<program::Artifact>(model.compile(config, compile));
  if (!fed) return;
  driver::DeviceOptions device_options;
  device_options.heap_bytes = kHeapBytes;
  device_options.poison_allocations = seed;
  std::shared_ptr<driver::Device> device = driver::open_device("fsim", config, device_options);
  runtime::Executor executor(artifact, device);
  runtime::RunOptions run_options;
  run_options.check_races = true;
  run_options.poison = seed;
  run_options.threads = 1;
  const std::vector<ops::Value> results = executor.run(inputs, run_options);
  if (!reference.done) finding("the machine gives results where the interpreter says: " + reference.error);
  compare(results, reference, traits);
}

uint64_t seed_of(std::string_view bytes) {
  uint64_t seed = 14695981039346656037u;
  for (const char byte : bytes) seed = (seed ^ static_cast<uint8_t>(byte)) * 1099511628211u;
  return seed >> 8;
}

void limit_memory() { setenv("TESSERA_MEMORY_LIMIT", "4M", 1); }

}  // namespace tessera::fuzz
