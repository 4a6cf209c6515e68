// SPDX-License-Identifier: Apache-2.0
// Files stand beside the model, and their names are relative to it.
#include "tessera/onnxruntime_ep/context.h"

#include <filesystem>

#include "isa/program/whole_file.h"
#include "tessera/kept_programs.h"

namespace tessera::ort {
namespace fs = std::filesystem;

namespace {

/// Where the model of contexts is, or will be.
fs::path context_path(const GraphReader& graph, const Settings& settings) {
  if (!settings.context_path.empty()) return settings.context_path;
  const fs::path model = graph.path();
  if (model.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "a model in memory has no folder for the files of its compiled contexts: give ep.context_file_path, or "
                "1 for ep.context_embed_mode");
  return model.parent_path() / (model.stem().string() + "_ctx.onnx");
}

std::vector<std::string> names_of(const Api& api, const std::vector<const ValueInfo*>& values) {
  std::vector<std::string> names;
  for (const ValueInfo* value : values) names.emplace_back(value ? api.get<const char*>(kGetValueInfoName, value) : "");
  return names;
}

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> all;
  for (const std::string& text : texts) all.push_back(text.c_str());
  return all;
}

/// Attributes that are released unless a node takes them.
class Attributes {
 public:
  explicit Attributes(const Api& api) : api_(api) {}
  ~Attributes() {
    for (OpAttr* attribute : all_)
      if (attribute) api_.raw(kReleaseOpAttr, attribute);
  }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  void add(const char* name, const std::string& value) {
    add(name, value.data(), static_cast<int>(value.size()), AttrType::kString);
  }
  void add(const char* name, int64_t value) { add(name, &value, 1, AttrType::kInt); }
  std::vector<OpAttr*>& all() { return all_; }

 private:
  void add(const char* name, const void* data, int length, AttrType type) {
    OpAttr* attribute = nullptr;
    api_.call(kCreateOpAttr, name, data, length, type, &attribute);
    all_.push_back(attribute);
  }

  const Api& api_;
  std::vector<OpAttr*> all_;
};

}  // namespace

bool is_own_context(const GraphReader& graph, const NodeFacts& node) {
  if (node.op_type != "EPContext" || node.domain != "com.microsoft") return false;
  const auto words = graph.strings_of(node.node);
  const auto source = words.find("source");
  return source != words.end() && source->second == kProviderName;
}

std::string load_context(const GraphReader& graph, const NodeFacts& node, const Settings& settings) {
  auto words = graph.strings_of(node.node);
  std::string content = std::move(words["ep_cache_context"]);
  if (graph.int_of(node.node, "embed_mode", 1) == 1) return content;
  const fs::path name = content;
  const fs::path folder =
      graph.path().empty() ? fs::path(settings.context_path).parent_path() : fs::path(graph.path()).parent_path();
  const fs::path inside = name.lexically_normal();
  if (name.empty() || name.is_absolute() || *inside.begin() == "..")
    throw Error(ErrorCode::kInvalidModel, describe(node) + ": the file '" + content +
                                              "' of a compiled context must lie in the folder of its model");
  return file_content((folder / name).string());
}

Node* save_context(const Api& api, const GraphReader& graph, const Node* fused, const std::string& content,
                   const Settings& settings, size_t number) {
  const std::string name = api.get<const char*>(kNodeGetName, fused);
  if (settings.context_embed && content.size() > static_cast<size_t>(INT32_MAX))
    throw Error(ErrorCode::kUnsupported,
                "partition '" + name + "' exceeds 2 GiB, the limit of protobuf: give 0 for ep.context_embed_mode");
  Attributes attributes(api);
  attributes.add("main_context", 1);
  attributes.add("embed_mode", settings.context_embed ? 1 : 0);
  if (settings.context_embed) {
    attributes.add("ep_cache_context", content);
  } else {
    const fs::path model = context_path(graph, settings);
    const std::string file = model.stem().string() + "_tessera_" + std::to_string(number) + ".tsr";
    program::write_whole((model.parent_path() / file).string(), content);
    attributes.add("ep_cache_context", file);
  }
  attributes.add("source", kProviderName);
  attributes.add("partition_name", name);
  attributes.add("ep_sdk_version", TESSERA_VERSION);
  const auto inputs = names_of(api, api.list<ValueInfo>(kNodeGetNumInputs, kNodeGetInputs, fused));
  const auto outputs = names_of(api, api.list<ValueInfo>(kNodeGetNumOutputs, kNodeGetOutputs, fused));
  const std::vector<const char*> in = pointers(inputs), out = pointers(outputs);
  Node* node = nullptr;
  api.call(kCreateNode, "EPContext", "com.microsoft", name.c_str(), in.data(), in.size(), out.data(), out.size(),
           attributes.all().data(), attributes.all().size(), &node);
  attributes.all().clear();  // the node has taken them
  return node;
}

}  // namespace tessera::ort
