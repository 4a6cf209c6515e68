// SPDX-License-Identifier: Apache-2.0
// Keys hold the digest of the model with its external data, the import options, the machine, all options, and the
// digest of this compiler's sources. A program is a number and an artifact; an interface is JSON.
#include "tessera/kept_programs.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "compiler/pipeline/plugin.h"
#include "isa/config.h"
#include "tessera_source_digest.h"

namespace tessera {

using nlohmann::json;

namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;
constexpr const char* kVariable = "TESSERA_CACHE";

/// What a program depends on beside what a user gives: the sources of the compiler, and the libraries that it calls.
const std::string& build() {
  static const std::string found = std::string(TESSERA_SOURCE_DIGEST) + " " + compiler::surroundings();
  return found;
}

std::optional<cpu::FileCache> open(const compiler::CompileOptions& options) {
  const char* variable = std::getenv(kVariable);
  const std::string wanted = !options.cache.empty() ? options.cache : variable != nullptr ? variable : "";
  const bool watched = options.snapshots || options.search_log || options.times || options.blank_weights;
  if (wanted == "off" || watched || !options.graph.empty() || compiler::plugins_loaded()) return std::nullopt;
  std::filesystem::path folder = wanted;
  if (wanted.empty()) {
    folder = cpu::FileCache::default_folder();
    if (folder.empty()) return std::nullopt;
    folder /= "programs";
  }
  return cpu::FileCache(folder, ".program", kMostBytes);
}

/// Names of a model may be no UTF-8, which JSON as text refuses.
std::string binary(const json& value) {
  std::string bytes;
  json::to_msgpack(value, bytes);
  return bytes;
}

std::string text_of(const compiler::ImportOptions& import) {
  return binary({{"shapes", import.shapes},
                 {"dims", import.dims},
                 {"overrides", import.overrides},
                 {"litert_kernels", import.litert_kernels}});
}

json to_json(const std::vector<compiler::Port>& ports) {
  json rows = json::array();
  for (const compiler::Port& port : ports) {
    rows.push_back({port.name, static_cast<int>(port.kind), static_cast<int>(port.dtype), port.ranked, port.shape,
                    port.dim_names, port.rows});
  }
  return rows;
}

std::vector<compiler::Port> to_ports(const json& rows) {
  std::vector<compiler::Port> ports;
  for (const json& row : rows) {
    compiler::Port port;
    row.at(0).get_to(port.name);
    port.kind = static_cast<program::ValueKind>(row.at(1).get<int>());
    port.dtype = static_cast<ops::DType>(row.at(2).get<int>());
    row.at(3).get_to(port.ranked);
    row.at(4).get_to(port.shape);
    row.at(5).get_to(port.dim_names);
    row.at(6).get_to(port.rows);
    ports.push_back(std::move(port));
  }
  return ports;
}

std::string to_text(const Interface& interface) {
  json pasts = json::array();
  for (const program::Past& past : interface.pasts) pasts.push_back({past.input, past.output, past.axis});
  return binary({{"inputs", to_json(interface.inputs)},
                 {"outputs", to_json(interface.outputs)},
                 {"overridable", to_json(interface.overridable)},
                 {"pasts", pasts},
                 {"growing", interface.growing}});
}

Interface to_interface(const std::string& text) {
  const json found = json::from_msgpack(text);
  Interface interface;
  interface.inputs = to_ports(found.at("inputs"));
  interface.outputs = to_ports(found.at("outputs"));
  interface.overridable = to_ports(found.at("overridable"));
  for (const json& past : found.at("pasts"))
    interface.pasts.push_back({past.at(0).get<int64_t>(), past.at(1).get<int64_t>(), past.at(2).get<int64_t>()});
  found.at("growing").get_to(interface.growing);
  return interface;
}

/// Two numbers of 64 bits, the operators for close numerics and the bytes of the clause behind them; then the artifact.
std::string to_text(const KeptProgram& program) {
  const int64_t head[2] = {program.close_candidates, static_cast<int64_t>(program.unfit_scales.size())};
  std::string text(reinterpret_cast<const char*>(head), sizeof head);
  text += program.unfit_scales;
  const std::vector<uint8_t> artifact = program::serialize(program.artifact);
  text.append(artifact.begin(), artifact.end());
  return text;
}

/// Nothing for what is no such text. Errors: those of program::parse.
std::optional<KeptProgram> to_program(const std::string& text) {
  int64_t head[2];
  if (text.size() <= sizeof head) return std::nullopt;
  std::memcpy(head, text.data(), sizeof head);
  const size_t clause = static_cast<size_t>(head[1]), rest = text.size() - sizeof head;
  if (clause >= rest) return std::nullopt;
  const auto* artifact = reinterpret_cast<const uint8_t*>(text.data()) + sizeof head + clause;
  return KeptProgram{program::parse({artifact, rest - clause}), head[0], text.substr(sizeof head, clause)};
}

}  // namespace

std::string file_content(const std::string& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) throw Error(ErrorCode::kIo, "'" + path + "' is a folder; give a file");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, "cannot open '" + path + "' for reading");
  std::ostringstream content;
  content << in.rdbuf();
  return std::move(content).str();
}

KeptPrograms::KeptPrograms(compiler::ModelSource model, const compiler::CompileOptions& options,
                           const onnx::ExternalData* external)
    : model_(std::move(model)), files_(open(options)) {
  if (!files_) return;
  const std::string& whole = model_.bytes();
  // Tensors that lie in other files say where: the key "location" of their entries.
  const bool outside = whole.find("location") != std::string::npos;
  try {
    if (external != nullptr) {
      content_ = cpu::FileCache::key({whole});
      for (const auto& [location, bytes] : *external) {
        const std::string_view content(reinterpret_cast<const char*>(bytes.data), bytes.size);
        content_ = cpu::FileCache::key({content_, location, content});
      }
    } else if (!outside) {
      content_ = cpu::FileCache::key({whole});
    } else if (!model_.path().empty()) {
      content_ = cpu::FileCache::key({compiler::self_contained(model_)});
    }
  } catch (const Error&) {  // the import says why
  }
  if (content_.empty()) files_.reset();
}

std::string KeptPrograms::key_of(const char* what, const compiler::ImportOptions& import,
                                 const std::string& more) const {
  return cpu::FileCache::key({what, build(), content_, text_of(import), import.directory, more});
}

std::unique_ptr<compiler::Model> KeptPrograms::imported(const compiler::ImportOptions& import) {
  if (last_ && last_import_ == text_of(import)) return std::move(last_);
  last_.reset();
  return std::make_unique<compiler::Model>(compiler::Model::from_source(model_, import));
}

Interface KeptPrograms::interface(const compiler::ImportOptions& import) {
  const std::string key = files_ ? key_of("interface", import, "") : "";
  if (files_) {
    if (const auto kept = files_->find(key)) try {
        return to_interface(*kept);
      } catch (const json::exception&) {  // of no use: made anew
      }
  }
  std::unique_ptr<compiler::Model> model = imported(import);
  Interface interface{model->inputs(), model->outputs(), model->overridable(), model->pasts(), model->growing_inputs()};
  last_ = std::move(model);
  last_import_ = text_of(import);
  bool maps = false;
  for (const compiler::Port& port : interface.outputs) maps = maps || !(port.keys == program::MapKeys());
  if (files_ && !maps) files_->keep(key, to_text(interface));
  return interface;
}

int64_t KeptPrograms::added_to_pasts(const compiler::ImportOptions& import) {
  const std::string key = files_ ? key_of("added to pasts", import, "") : "";
  if (const auto kept = files_ ? files_->find(key) : std::nullopt)
    if (const int64_t known = std::strtoll(kept->c_str(), nullptr, 10); known > 0) return known;
  std::unique_ptr<compiler::Model> model = imported(import);
  const int64_t added = model->added_to_pasts();
  last_ = std::move(model);
  last_import_ = text_of(import);
  if (files_) files_->keep(key, std::to_string(added));
  return added;
}

std::string KeptPrograms::program_key(const compiler::ImportOptions& import, const isa::MachineConfig& config,
                                      const compiler::CompileOptions& options) const {
  json given{{"schedules", options.schedules}, {"machine", isa::to_toml(config)}};
  for (const compiler::OptionInfo& info : compiler::option_table())
    given["options"][info.name] = compiler::get_option(options, info.name);
  given["options"].erase("length_steps");
  // A compilation knows these two alone.
  if (options.effort != compiler::kQuickEffort) given["options"]["effort"] = compiler::kBestEffort;
  return key_of("program", import, binary(given));
}

std::optional<KeptProgram> KeptPrograms::find(const compiler::ImportOptions& import, const isa::MachineConfig& config,
                                              const compiler::CompileOptions& options) const {
  if (!files_) return std::nullopt;
  const auto kept = files_->find(program_key(import, config, options));
  try {
    return kept ? to_program(*kept) : std::nullopt;
  } catch (const Error&) {  // of no use: made anew
    return std::nullopt;
  }
}

KeptProgram KeptPrograms::compile(const compiler::ImportOptions& import, const isa::MachineConfig& config,
                                  const compiler::CompileOptions& options) {
  if (auto kept = find(import, config, options)) return std::move(*kept);
  const std::unique_ptr<compiler::Model> model = imported(import);
  KeptProgram program{model->compile(config, options)};
  program.close_candidates = model->close_candidates();
  program.unfit_scales = model->unfit_scales();
  if (files_) files_->keep(program_key(import, config, options), to_text(program));
  return program;
}

}  // namespace tessera
