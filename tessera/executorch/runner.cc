// SPDX-License-Identifier: Apache-2.0
// Runs a method of a .pte file without Python. Enter: the file, and for each input a file of raw row-major elements,
// with its shape where that differs from the method's. Leaves: the outputs as raw elements, and their types and shapes
// on standard output. ExecuTorch's kernels compute what no delegate has taken.
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/platform/runtime.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using executorch::extension::Module;
using executorch::runtime::Error;
using executorch::runtime::EValue;

constexpr const char* kUsage =
    "usage: tessera_executorch_runner MODEL.pte [--method NAME] [--output PREFIX] [INPUT[:SHAPE] ...]\n"
    "  INPUT   a file of raw row-major elements; SHAPE as 1,3,224,224 where it is not the method's own\n"
    "  PREFIX  outputs are written to PREFIX0, PREFIX1, ... as raw elements\n";

struct Arguments {
  std::string model, method = "forward", output;
  std::vector<std::string> inputs;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    if (text.starts_with("--")) {
      if (i + 1 == argc || (text != "--method" && text != "--output")) throw std::runtime_error(kUsage);
      (text == "--method" ? arguments.method : arguments.output) = argv[++i];
    } else if (arguments.model.empty()) {
      arguments.model = text;
    } else {
      arguments.inputs.push_back(text);
    }
  }
  if (arguments.model.empty()) throw std::runtime_error(kUsage);
  return arguments;
}

std::vector<char> content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open '" + path + "' for reading");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<executorch::aten::SizesType> shape_of(const std::string& text) {
  std::vector<executorch::aten::SizesType> shape;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) shape.push_back(std::stoi(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return shape;
}

/// What failed, with the number of ExecuTorch's error.
template <typename T>
T must(executorch::runtime::Result<T> result, const std::string& what) {
  if (!result.ok()) throw std::runtime_error(what + ": error " + std::to_string(static_cast<int>(result.error())));
  return std::move(result.get());
}

int run(const Arguments& arguments) {
  Module module(arguments.model);
  if (module.load_method(arguments.method) != Error::Ok)
    throw std::runtime_error("method '" + arguments.method + "' of '" + arguments.model + "' cannot be loaded");
  const auto meta = must(module.method_meta(arguments.method), "method_meta");
  if (meta.num_inputs() != arguments.inputs.size())
    throw std::runtime_error("method '" + arguments.method + "' takes " + std::to_string(meta.num_inputs()) +
                             " inputs, " + std::to_string(arguments.inputs.size()) + " are given");
  std::vector<std::vector<char>> contents;
  std::vector<executorch::extension::TensorPtr> tensors;
  std::vector<EValue> inputs;
  for (size_t i = 0; i < arguments.inputs.size(); ++i) {
    const std::string& text = arguments.inputs[i];
    const size_t colon = text.rfind(':');
    const auto info = must(meta.input_tensor_meta(i), "input " + std::to_string(i));
    std::vector<executorch::aten::SizesType> shape(info.sizes().begin(), info.sizes().end());
    if (colon != std::string::npos) shape = shape_of(text.substr(colon + 1));
    contents.push_back(content_of(text.substr(0, colon)));
    tensors.push_back(executorch::extension::make_tensor_ptr(shape, contents.back().data(), info.scalar_type()));
    if (static_cast<size_t>(tensors.back()->nbytes()) != contents.back().size())
      throw std::runtime_error("input '" + text + "' has " + std::to_string(contents.back().size()) + " bytes, " +
                               std::to_string(tensors.back()->nbytes()) + " are expected");
    inputs.emplace_back(tensors.back());
  }
  const std::vector<EValue> outputs = must(module.execute(arguments.method, inputs), "the run failed");
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].isTensor()) continue;
    const auto& tensor = outputs[i].toTensor();
    std::printf("output %zu: %s [", i, executorch::runtime::toString(tensor.scalar_type()));
    for (ssize_t d = 0; d < tensor.dim(); ++d) std::printf(d ? ",%d" : "%d", static_cast<int>(tensor.size(d)));
    std::printf("]\n");
    if (arguments.output.empty()) continue;
    std::ofstream file(arguments.output + std::to_string(i), std::ios::binary);
    if (!file.write(static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::streamsize>(tensor.nbytes())))
      throw std::runtime_error("cannot write '" + arguments.output + std::to_string(i) + "'");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  executorch::runtime::runtime_init();
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}
