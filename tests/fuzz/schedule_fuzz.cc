// SPDX-License-Identifier: Apache-2.0
// Schedules (docs/schedules.md). Enters: the text of a file for --schedule. A mutation changes the tree of its JSON: a
// factor, a name, a level more or less, two schedules exchanged. Property: a file is refused with an error, or the
// models of TESSERA_FUZZ_MODELS (ONNX files) that have the layers it names compile with it and give the results that
// they give without, free of races.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "compiler/pipeline/model.h"
#include "driver/registry.h"
#include "runtime/executor.h"
#include "tessera/report/description.h"
#include "tests/fuzz/fuzz.h"

namespace tessera::fuzz {
namespace {

using nlohmann::json;

constexpr int kKeptCompilations = 100;  // of one Model, whose context keeps what it has seen

/// One network with what it should give.
struct Network {
  std::string bytes;
  std::optional<compiler::Model> model;
  int compilations = 0;
  std::vector<std::string> layers;
  std::vector<ops::Value> inputs, expected;
};

std::vector<ops::Value> run(const program::Artifact& artifact, const std::vector<ops::Value>& inputs) {
  driver::DeviceOptions options;
  options.heap_bytes = uint64_t{64} << 20;
  std::shared_ptr<driver::Device> device = driver::open_device("fsim", artifact.config, options);
  runtime::Executor executor(std::make_shared<program::Artifact>(artifact), device);
  runtime::RunOptions run_options;
  run_options.check_races = true;
  run_options.poison = 5;
  return executor.run(inputs, run_options);
}

program::Artifact compile(Network& network, const std::map<std::string, std::string>& schedules) {
  if (!network.model || ++network.compilations > kKeptCompilations) {
    network.model = compiler::Model::from_bytes(network.bytes);
    network.compilations = 0;
  }
  compiler::CompileOptions options;
  options.cpu_codegen = false;
  options.schedules = schedules;
  return network.model->compile(isa::find_config("npu64"), options);
}

Network load(const std::filesystem::path& path) {
  Network network;
  std::ifstream in(path, std::ios::binary);
  network.bytes.assign(std::istreambuf_iterator<char>(in), {});
  const program::Artifact artifact = compile(network, {});
  const json schedules = json::parse(schedules_json(artifact));
  for (const auto& item : schedules.items()) network.layers.push_back(item.key());
  for (const compiler::Port& port : network.model->inputs()) {
    ops::Tensor tensor(port.dtype, port.shape);
    std::byte* bytes = tensor.mutable_data();
    if (port.dtype == ops::DType::kFloat) {
      for (int64_t k = 0; k < tensor.size(); ++k)
        tensor.as_mutable<float>()[static_cast<size_t>(k)] = static_cast<float>(k * 37 % 101) / 50.0f - 1.0f;
    } else {
      for (int64_t k = 0; k < tensor.bytes(); ++k) bytes[k] = static_cast<std::byte>(k * 37 % 251);
    }
    network.inputs.emplace_back(std::move(tensor));
  }
  network.expected = network.model->interpret(network.inputs);
  return network;
}

std::vector<Network>& networks() {
  static std::vector<Network> all = [] {
    const char* folder = std::getenv("TESSERA_FUZZ_MODELS");
    check(folder != nullptr, "TESSERA_FUZZ_MODELS names no folder with models");
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::vector<Network> loaded;
    for (const auto& file : files) loaded.push_back(load(file));
    check(!loaded.empty(), "TESSERA_FUZZ_MODELS has no models");
    return loaded;
  }();
  return all;
}

/// The network that has most of the layers.
Network& network_of(const std::map<std::string, std::string>& schedules) {
  Network* best = &networks().front();
  size_t most = 0;
  for (Network& network : networks()) {
    size_t named = 0;
    for (const std::string& layer : network.layers) named += schedules.contains(layer) ? 1 : 0;
    if (named > most) most = named, best = &network;
  }
  return *best;
}

void compare(const std::vector<ops::Value>& got, const std::vector<ops::Value>& want) {
  check(got.size() == want.size(), "a schedule changes the number of results");
  for (size_t k = 0; k < got.size(); ++k) {
    const ops::Tensor &a = got[k].tensor, &b = want[k].tensor;
    check(a.dtype() == b.dtype() && a.shape() == b.shape() &&
              std::memcmp(a.data(), b.data(), static_cast<size_t>(b.bytes())) == 0,
          "a schedule changes results");
  }
}

// ---- changing

constexpr const char* kWords[] = {"n",          "g",        "oc",      "ic",     "oh",        "ow",       "kh",
                                  "kw",         "temporal", "vthread", "hwloop", "input",     "weights",  "sums",
                                  "second",     "output",   "params",  "dense",  "depthwise", "reduce",   "map",
                                  "inp",        "out",      "reload",  "keep",   "nhwc",      "fold(kw)", "fold(kh,kw)",
                                  "fold(kw)*2", "",         "\xc3\xa4"};
constexpr const char* kKeys[] = {"dim",          "factor", "kind", "threads", "operand",  "scope",
                                 "attach",       "copies", "halo", "levels",  "operands", "intrinsic",
                                 "input_layout", "chain",  "tile", "oh",      "ow",       "blocks"};

/// All values of the tree.
void collect(json& value, std::vector<json*>& all) {
  all.push_back(&value);
  if (!value.is_structured()) return;
  for (json& inner : value) collect(inner, all);
}

void change_list(Random& random, json& list) {
  if (list.empty()) {
    list.push_back(1);
    return;
  }
  const size_t at = random.below(list.size()), other = random.below(list.size());
  switch (random.below(3)) {
    case 0: list.erase(at); break;
    case 1: list.push_back(json(list[at])); break;
    default: std::swap(list[at], list[other]);
  }
}

void change_object(Random& random, json& object) {
  if (!object.empty() && random.chance(40)) {
    auto item = object.begin();
    std::advance(item, static_cast<ptrdiff_t>(random.below(object.size())));
    object.erase(item);
    return;
  }
  json value = static_cast<int64_t>(random.below(5));
  if (random.chance(50)) value = random.of(kWords);
  object[random.of(kKeys)] = value;
}

void mutate(Random& random, json& root) {
  std::vector<json*> all;
  collect(root, all);
  json& chosen = *random.of(all);
  if (random.chance(4)) {
    chosen = *random.of(all) == chosen ? json(nullptr) : json(*random.of(all));
  } else if (chosen.is_number_integer()) {
    const int64_t value = std::clamp<int64_t>(chosen.get<int64_t>(), -1, INT32_MAX);
    chosen = random.chance(80) ? std::max<int64_t>(0, value + static_cast<int64_t>(random.below(7)) - 3)
                               : random.integer(value);
  } else if (chosen.is_string()) {
    chosen = random.of(kWords);
  } else if (chosen.is_array()) {
    change_list(random, chosen);
  } else if (chosen.is_object()) {
    change_object(random, chosen);
  } else {
    chosen = 1;
  }
}

/// Only some layers keep a given schedule, so that the others are searched for beside it.
void thin(Random& random, json& root) {
  if (!root.is_object() || !random.chance(10)) return;
  for (auto item = root.begin(); item != root.end();) item = random.chance(50) ? root.erase(item) : std::next(item);
}

}  // namespace
}  // namespace tessera::fuzz

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::networks();
  program::Artifact artifact;
  fuzz::Network* network = nullptr;
  const bool legal = fuzz::accepts([&] {
    const auto schedules = schedules_from(text);
    network = &fuzz::network_of(schedules);
    artifact = fuzz::compile(*network, schedules);
  });
  if (!legal) return 0;
  std::vector<ops::Value> results;
  fuzz::check(fuzz::accepts([&] { results = fuzz::run(artifact, network->inputs); }),
              "a schedule that is accepted gives a program that faults");
  fuzz::compare(results, network->expected);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t limit, unsigned seed) {
  fuzz::Random random(seed);
  nlohmann::json root = nlohmann::json::parse(data, data + size, nullptr, false);
  if (root.is_discarded() || random.chance(3)) return LLVMFuzzerMutate(data, size, limit);
  fuzz::thin(random, root);
  for (size_t k = 1 + random.below(2); k > 0; --k) fuzz::mutate(random, root);
  const std::string made = root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return fuzz::give_back(data, size, limit, made.data(), made.size());
}
