// SPDX-License-Identifier: Apache-2.0
// Large tables are columns: one array for each key, so that names do not repeat.
#include "tessera/report/run_report.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "compiler/pipeline/model.h"
#include "tessera/report/occupancy.h"
#include "tessera/report/timeline.h"

namespace tessera {

using nlohmann::json;

namespace {

/// Where figures of a device come from.
std::string source_of(const std::string& device) {
  if (device == "fsim" || device == "reference") return "functional";
  if (device == "sysc") return "systemc";
  if (device.starts_with("rtl")) return "rtl";
  if (device.starts_with("xrt")) return std::getenv("TESSERA_BOARD") != nullptr ? "simulated_board" : "board";
  return device;
}

json provenance_of(const RunFacts& facts, const json& statistics) {
  const std::string source = source_of(facts.device);
  const bool timed = statistics.contains("cycles") && statistics["cycles"].is_number();
  const bool profiled = timed && statistics.contains("cycles_compute");
  json out;
  out["results"] = source;
  out["instructions"] = out["dram_bytes"] = out["issued_macs"] = source;
  out["cycles"] = timed ? json(source) : json(nullptr);
  out["cycles_by_cause"] = out["layers.cycles"] = profiled ? json(source) : json(nullptr);
  out["timeline"] = out["memory"] = source;
  out["bytes_by_stream"] = out["predicted_cycles"] = out["bound_cycles"] = out["arena_bytes"] = "predicted";
  out["seconds"] = "host";
  return out;
}

json machine_of(const isa::MachineConfig& config) {
  json out;
  out["name"] = config.name;
  for (const isa::ConfigKey& key : isa::config_keys()) out[std::string(key.name)] = key.get(config);
  out["peak_macs"] = config.peak_macs();
  return out;
}

/// Operators whose floating-point results need not be ONNX Runtime's to the last bit: the class `tolerance` of
/// docs/numerics.md.
bool is_tolerant(const std::string& op) {
  static const std::set<std::string_view> kOperators = {"Acos",
                                                        "Acosh",
                                                        "Asin",
                                                        "Asinh",
                                                        "Atan",
                                                        "Atanh",
                                                        "Attention",
                                                        "AveragePool",
                                                        "BatchNormalization",
                                                        "BiasGelu",
                                                        "Celu",
                                                        "Conv",
                                                        "ConvTranspose",
                                                        "Cos",
                                                        "Cosh",
                                                        "DeformConv",
                                                        "DFT",
                                                        "Einsum",
                                                        "Elu",
                                                        "EmbedLayerNormalization",
                                                        "Erf",
                                                        "Exp",
                                                        "FastGelu",
                                                        "FusedConv",
                                                        "FusedGemm",
                                                        "FusedMatMul",
                                                        "Gelu",
                                                        "Gemm",
                                                        "GlobalAveragePool",
                                                        "GlobalLpPool",
                                                        "GridSample",
                                                        "GroupNormalization",
                                                        "GRU",
                                                        "HardSwish",
                                                        "InstanceNormalization",
                                                        "LayerNormalization",
                                                        "Log",
                                                        "LogSoftmax",
                                                        "LpNormalization",
                                                        "LpPool",
                                                        "LRN",
                                                        "LSTM",
                                                        "MatMul",
                                                        "MeanVarianceNormalization",
                                                        "Mish",
                                                        "MultiHeadAttention",
                                                        "Pow",
                                                        "QuickGelu",
                                                        "ReduceL1",
                                                        "ReduceL2",
                                                        "ReduceLogSum",
                                                        "ReduceLogSumExp",
                                                        "ReduceMean",
                                                        "ReduceProd",
                                                        "ReduceSum",
                                                        "ReduceSumSquare",
                                                        "Resize",
                                                        "RMSNormalization",
                                                        "RNN",
                                                        "Selu",
                                                        "Sigmoid",
                                                        "SimplifiedLayerNormalization",
                                                        "Sin",
                                                        "Sinh",
                                                        "SkipLayerNormalization",
                                                        "SkipSimplifiedLayerNormalization",
                                                        "Softmax",
                                                        "Softplus",
                                                        "STFT",
                                                        "Sum",
                                                        "Swish",
                                                        "Tan",
                                                        "Tanh"};
  return kOperators.contains(op);
}

/// The operators of a layer's name, as in "QLinearConv+QLinearAdd".
std::vector<std::string> parts_of(const std::string& op) {
  std::vector<std::string> parts(1);
  for (const char c : op) {
    if (c == '+' || c == ' ' || c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

/// On the NPU: operators that the compiler evaluates for every value that can come, or whose sums it proves to be
/// exact.
bool is_proven(const std::string& op) {
  static const std::map<std::string, std::vector<std::string>> kNames = compiler::operator_names();
  const std::vector<std::string>& elementwise = kNames.at("elementwise");
  return op.ends_with("Integer") || std::find(elementwise.begin(), elementwise.end(), op) != elementwise.end();
}

/// The class of a layer's results, by docs/numerics.md.
std::string layer_class(const json& row) {
  const std::vector<std::string> parts = parts_of(row.value("op", ""));
  const auto any = [&](auto&& holds) { return std::any_of(parts.begin(), parts.end(), holds); };
  if (any([](const std::string& part) { return part == "NormaliseRows" || part == "FixedShiftSoftmax"; }))
    return "close";
  if (row.value("placement", "") == "npu") return any(is_proven) ? "exact by proof" : "exact";
  return any(is_tolerant) ? "tolerance" : "exact";
}

/// The graph of the model; `rows`: the statistics' layers.
json graph_json(const nn::Listing& graph, const json& rows) {
  std::map<std::string, size_t> row_of;
  for (size_t r = 0; r < rows.size(); ++r)
    for (const json& node : rows[r].value("nodes", json::array())) row_of.emplace(node.get<std::string>(), r);
  json values = {{"name", json::array()}, {"type", json::array()}, {"constant", json::array()}};
  for (const nn::ListedValue& value : graph.values) {
    values["name"].push_back(value.name);
    values["type"].push_back(value.type);
    values["constant"].push_back(value.constant ? 1 : 0);
  }
  json nodes;
  for (const char* key :
       {"name", "op", "domain", "inputs", "outputs", "attributes", "layer", "placement", "exactness", "parent"})
    nodes[key] = json::array();
  for (const nn::ListedNode& node : graph.nodes) {
    json attributes = json::object();
    for (const auto& [name, text] : node.attributes) attributes[name] = text;
    const auto row = row_of.find(node.name);
    bool floating = false;
    for (const int64_t value : node.outputs)
      floating = floating || (value >= 0 && graph.values[static_cast<size_t>(value)].floating);
    nodes["name"].push_back(node.name);
    nodes["op"].push_back(node.op_type);
    nodes["domain"].push_back(node.domain);
    nodes["inputs"].push_back(node.inputs);
    nodes["outputs"].push_back(node.outputs);
    nodes["attributes"].push_back(std::move(attributes));
    nodes["parent"].push_back(node.parent);
    if (row != row_of.end()) {
      nodes["layer"].push_back(row->second);
      nodes["placement"].push_back(rows[row->second].value("placement", ""));
      nodes["exactness"].push_back(layer_class(rows[row->second]));
    } else {
      nodes["layer"].push_back(kNoRow);
      nodes["placement"].push_back("compiler");
      nodes["exactness"].push_back(floating && is_tolerant(node.op_type) ? "tolerance" : "exact");
    }
  }
  return {
      {"values", std::move(values)}, {"nodes", std::move(nodes)}, {"inputs", graph.inputs}, {"outputs", graph.outputs}};
}

std::string text_of(const json& value) {
  // Names come from the model, whose bytes need not be UTF-8.
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// A line for each key: tables are long, and people look at the rest.
std::string lines_of(const json& report) {
  std::string text;
  for (const auto& [key, value] : report.items())
    text += (text.empty() ? "{\n " : ",\n ") + text_of(key) + ": " + text_of(value);
  return text + "\n}\n";
}

json parsed_report(const std::string& text, const std::string& from) {
  json report = json::parse(text, nullptr, false);
  if (!report.is_object() || report.value("schema", "") != "tessera-report")
    throw Error(ErrorCode::kInvalidArgument, from + " is no report; `tessera report MODEL --json` writes one");
  if (report.value("schema_version", 0) != kReportVersion)
    throw Error(ErrorCode::kInvalidArgument, from + " is a report of version " + report["schema_version"].dump() +
                                                 ", and this is for version " + std::to_string(kReportVersion) +
                                                 "; write it again with `tessera report MODEL --json`");
  return report;
}

}  // namespace

void check_report(const std::string& report, const std::string& from) { parsed_report(report, from); }

std::string model_explorer_json(const std::string& text, const std::string& from) {
  const json report = parsed_report(text, from);
  if (!report.contains("graph"))
    throw Error(ErrorCode::kInvalidArgument,
                from + " was made from an artifact, which has no ONNX graph; give the model");
  // A layer's cost stands at the node that gives it its name, so that sums over groups of nodes are right.
  json results = json::object();
  const bool timed = report["cycles"].is_number();
  for (const json& row : report["layers"]) {
    const json value = row.value(timed ? "cycles" : "predicted_cycles", json());
    const std::vector<std::string> nodes = row.value("nodes", std::vector<std::string>());
    if (!value.is_number() || nodes.empty()) continue;
    const std::string name = row.value("name", "");
    const bool named = std::find(nodes.begin(), nodes.end(), name) != nodes.end();
    results[named ? name : nodes[0]] = {{"value", value}};
  }
  json out;
  out["name"] = (timed ? "cycles on " : "predicted cycles on ") + report.value("config", "");
  out["results"] = std::move(results);
  out["gradient"] = {{{"stop", 0}, {"bgColor", "#eef6fc"}}, {{"stop", 1}, {"bgColor", "#56b4e9"}}};
  return lines_of(out);
}

std::string run_report_json(const RunFacts& facts) {
  json out = json::parse(facts.statistics);
  const json rows = out.value("layers", json::array());
  out["layers"] = rows;
  out["schema"] = "tessera-report";
  out["schema_version"] = kReportVersion;
  out["model"] = {{"name", facts.model}, {"kind", facts.graph ? "onnx" : "artifact"}};
  out["provenance"] = provenance_of(facts, out);
  for (json& row : out["layers"]) row["exactness"] = layer_class(row);
  if (facts.graph) out["graph"] = graph_json(*facts.graph, rows);
  if (facts.artifact == nullptr) return lines_of(out);
  out["machine"] = machine_of(facts.artifact->config);
  out["compiler"] = facts.artifact->producer;
  out["dram"] = {{"latency_cycles", facts.dram_latency}, {"bandwidth_bytes", facts.dram_bandwidth}};
  if (!facts.dram.empty()) out["dram"]["preset"] = facts.dram;
  const Timeline timeline = timeline_of(*facts.artifact, *facts.run);
  if (!timeline.instructions.empty()) {
    out["timeline"] = timeline_json(timeline, *facts.run);
    out["memory"] = memory_json(*facts.artifact, timeline);
  }
  return lines_of(out);
}

}  // namespace tessera
