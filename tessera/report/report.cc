// SPDX-License-Identifier: Apache-2.0
// Columns are as wide as their widest cell; numbers stand right, texts left. What a device does not know is "-".
#include "tessera/report/report.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "isa/config.h"
#include "tessera/message.h"

namespace tessera {

using nlohmann::json;

namespace {

constexpr size_t kLongestName = 36;

std::string number(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// The value of a key as text; "-" where it is missing or null.
std::string cell(const json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || found->is_null()) return "-";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

double value_of(const json& row, const char* key) {
  const auto found = row.find(key);
  return found == row.end() || !found->is_number() ? 0 : found->get<double>();
}

bool has(const json& row, const char* key) { return row.contains(key) && row[key].is_number(); }

std::string percent(double part, double whole) { return whole == 0 ? "-" : number(100 * part / whole, 0); }

std::string shortened(const std::string& name) {
  return name.size() <= kLongestName ? name : "..." + name.substr(name.size() - kLongestName + 3);
}

struct Column {
  std::string title;
  bool left = false;
  std::vector<std::string> cells;
};

std::string table(std::vector<Column>& columns) {
  std::string text;
  const size_t rows = columns.empty() ? 0 : columns[0].cells.size();
  std::vector<size_t> widths;
  for (const Column& column : columns) {
    size_t width = column.title.size();
    for (const std::string& one : column.cells) width = std::max(width, one.size());
    widths.push_back(width);
  }
  for (size_t r = 0; r <= rows; ++r) {
    std::string line;
    for (size_t c = 0; c < columns.size(); ++c) {
      const std::string& one = r == 0 ? columns[c].title : columns[c].cells[r - 1];
      const std::string padding(widths[c] - one.size(), ' ');
      line += (c ? "  " : "") + (columns[c].left ? one + padding : padding + one);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

/// A schedule in one line: iterations outermost first | the tile | copies that do not follow from them, as "oh:14x2
/// oc:2 | oh4 ow56 oc2 ic4 kh3 kw3 | input3 weights4"; x2: two virtual threads.
std::string schedule_in_short(const json& schedule) {
  if (schedule.is_array()) {
    std::string text;
    for (const json& part : schedule) text += (text.empty() ? "" : " ; ") + schedule_in_short(part);
    return text;
  }
  if (!schedule.is_object()) return "";
  if (schedule.contains("cores")) {  // the parts are much alike: the first one stands for them
    const std::string by =
        schedule.contains("core") ? "core " + schedule["core"].dump() : schedule.value("divided", "");
    const json& parts = schedule["cores"];
    const auto first = std::find_if(parts.begin(), parts.end(), [](const json& part) { return !part.is_null(); });
    return by + " | " + (first == parts.end() ? "" : schedule_in_short(*first));
  }
  if (schedule.contains("chain")) {
    std::string text = "chain of " + std::to_string(schedule["chain"].size()) + " |";
    const json tile = schedule.value("tile", json::object());
    for (const auto& [dim, extent] : tile.items())
      text += " " + (extent.is_string() ? extent.get<std::string>() + " " + dim : dim + extent.dump());
    return text;
  }
  std::string outer, tile, copies;
  for (const json& level : schedule.value("levels", json::array())) {
    const std::string kind = level.value("kind", ""), dim = level.value("dim", "");
    const std::string factor = std::to_string(level.value("factor", int64_t{0}));
    if (kind == "hwloop") tile += (tile.empty() ? "" : " ") + dim + factor;
    if (kind == "temporal" || kind == "vthread")
      outer += (outer.empty() ? "" : " ") + dim + ":" + factor +
               (kind == "vthread" ? "x" + std::to_string(level.value("threads", int64_t{0})) : "");
  }
  for (const json& operand : schedule.value("operands", json::array())) {
    const bool keeps = operand.value("halo", "") == "keep";
    if (!operand.contains("copies") && !keeps) continue;
    copies += (copies.empty() ? "" : " ") + operand.value("operand", "") +
              (operand.contains("copies") ? operand["copies"].dump() : "") + (keeps ? "k" : "");
  }
  const std::string layout = schedule.value("input_layout", "nhwc");
  return outer + " | " + tile + " | " + copies + (layout == "nhwc" ? "" : " | " + layout);
}

json parsed(const std::string& text, const std::string& from) {
  try {
    return json::parse(text);
  } catch (const json::exception& e) {
    throw Error(ErrorCode::kInvalidArgument, from + " is not JSON: " + e.what());
  }
}

constexpr const char* kCauses[] = {"compute", "alu", "load", "store", "sync"};
constexpr const char* kStreams[] = {"input", "weights", "params", "second", "output", "instructions"};

double cycles_of(const json& row, const char* cause) { return value_of(row, (std::string("cycles_") + cause).c_str()); }

/// What to do about Model::unfit_scales(); empty where there are none.
std::string scales_to_mend(const std::string& unfit_scales) {
  if (unfit_scales.empty()) return "";
  return unfit_scales +
         "; products of other scales than finite ones above 0 are computed on the CPU; correct the scales, or quantise "
         "the float model again";
}

/// What a model computes in float on the CPU although the NPU has operators for it.
struct FloatWork {
  double npu = 0, cpu = 0;    // multiply-accumulates of products
  size_t attentions = 0;      // operators
  std::string product, kind;  // the largest product's node; the first attention's operator

  explicit FloatWork(const json& stats)
      : npu(value_of(stats, has(stats, "macs") ? "macs" : "macs_npu")), cpu(value_of(stats, "macs_cpu")) {
    double most = 0;
    for (const json& row : stats.value("layers", json::array())) {
      if (row.value("placement", "") != "cpu") continue;
      const std::string op = row.value("op", "");
      if (op.ends_with("Attention") && attentions++ == 0) kind = op;
      if (value_of(row, "macs") > most) most = value_of(row, "macs"), product = row.value("name", "");
    }
  }

  /// Products beside others on the NPU, or an attention.
  bool some() const { return attentions > 0 || (npu > 0 && 100 * cpu >= npu + cpu); }

  /// `way_out`: what to do, where it is not to quantise.
  std::string sentence(const std::string& way_out) const {
    std::string what;
    if (cpu > 0)
      what = percent(cpu, npu + cpu) + " % of the multiply-accumulates" +
             (product.empty() ? "" : " (most in node '" + product + "')");
    if (attentions > 0) what += (what.empty() ? "" : " and ") + std::to_string(attentions) + " " + kind;
    return what + " are computed in float on the CPU; " +
           (way_out.empty() ? "`tessera quantize` of the float model makes int8 products of the NPU" : way_out);
  }
};

/// The lines before the tables.
std::string sums_text(const json& stats) {
  std::string text = cell(stats, "config") + " on " + cell(stats, "device") + ": ";
  const bool timed = has(stats, "cycles");
  const double cycles = value_of(stats, "cycles");
  if (timed)
    text += cell(stats, "cycles") + " cycles, utilisation " + number(100 * value_of(stats, "utilization"), 1) + " %, ";
  text += "roofline " + cell(stats, "roofline_cycles") + ", predicted " + cell(stats, "predicted_cycles");
  if (timed && cycles > 0) text += " (" + number(100 * (value_of(stats, "predicted_cycles") / cycles - 1), 1) + " %)";
  text += ", " + cell(stats, "instructions") + " instructions\n";
  std::string separator = " ";
  if (timed && has(stats, "cycles_compute")) {
    text += "cycles by cause:";
    for (const char* cause : kCauses) {
      text += separator + cause + " " + percent(cycles_of(stats, cause), cycles) + " %";
      separator = ", ";
    }
    text += "\n";
  }
  if (stats.contains("bytes")) {
    text += "DRAM bytes:";
    separator = " ";
    for (const char* stream : kStreams) {
      text += separator + stream + " " + cell(stats["bytes"], stream);
      separator = ", ";
    }
    text += "; read " + cell(stats, "dram_read_bytes") + ", written " + cell(stats, "dram_write_bytes") + "\n";
  }
  if (has(stats, "arena_bytes"))
    text += "activations: " + cell(stats, "arena_bytes") + " bytes at most, " +
            cell(stats, "arena_bytes_without_reuse") + " without reuse of memory\n";
  if (has(stats, "close_candidates"))
    text +=
        "float on the CPU: " + cell(stats, "close_candidates") +
        " products, normalisations and means that --numerics close computes in integers, on the NPU as far as it has "
        "row lanes for rows\n";
  if (const FloatWork work(stats); work.some())
    text += work.sentence(scales_to_mend(stats.value("unfit_scales", ""))) + "\n";
  return text;
}

std::vector<std::string> cpu_cells(const json& row) {
  return {shortened(cell(row, "name")), shortened(cell(row, "op")), number(1000 * value_of(row, "seconds"), 3),
          cell(row, "macs")};
}

/// `cycles`: of the whole run.
std::vector<std::string> npu_cells(const json& row, double cycles, bool with_schedule) {
  const bool known = has(row, "cycles");
  const double own = value_of(row, "cycles"), predicted = value_of(row, "predicted_cycles");
  std::vector<std::string> cells = {shortened(cell(row, "name")),
                                    shortened(cell(row, "op")),
                                    cell(row, "cycles"),
                                    known ? number(cycles == 0 ? 0 : 100 * own / cycles, 1) : "-",
                                    known ? number(100 * value_of(row, "utilization"), 1) : "-",
                                    cell(row, "bound"),
                                    cell(row, "predicted_cycles"),
                                    known && own > 0 ? number(100 * (predicted / own - 1), 1) : "-"};
  for (const char* cause : kCauses) cells.push_back(known ? percent(cycles_of(row, cause), own) : "-");
  const json bytes = row.value("bytes", json::object());
  for (const char* stream : kStreams) cells.push_back(cell(bytes, stream));
  if (with_schedule) cells.push_back(schedule_in_short(row.value("schedule", json())));
  return cells;
}

void add_row(std::vector<Column>& columns, std::vector<std::string> cells) {
  for (size_t c = 0; c < columns.size(); ++c) columns[c].cells.push_back(std::move(cells[c]));
}

/// A row for each core of a chip; nothing of other machines.
std::string cores_text(const json& stats) {
  const json cores = stats.value("cores", json::array());
  if (cores.empty()) return "";
  std::vector<Column> columns = {{"core", false, {}},          {"cycles", false, {}}, {"% of run", false, {}},
                                 {"comp %", false, {}},        {"alu %", false, {}},  {"load %", false, {}},
                                 {"store %", false, {}},       {"sync %", false, {}}, {"waits for cores", false, {}},
                                 {"waits for bus", false, {}}, {"read B", false, {}}, {"written B", false, {}}};
  for (const json& row : cores) {
    const double own = value_of(row, "cycles");
    std::vector<std::string> cells = {cell(row, "core"), cell(row, "cycles"), percent(own, value_of(stats, "cycles"))};
    for (const char* cause : kCauses)
      cells.push_back(has(row, "cycles_compute") ? percent(cycles_of(row, cause), own) : "-");
    for (const char* key : {"core_wait_cycles", "bus_wait_cycles", "dram_read_bytes", "dram_write_bytes"})
      cells.push_back(cell(row, key));
    add_row(columns, std::move(cells));
  }
  std::string text = "\n" + table(columns);
  if (has(stats, "bus_busy_cycles"))
    text += "the shared bus moved data in " + cell(stats, "bus_busy_cycles") + " cycles (" +
            percent(value_of(stats, "bus_busy_cycles"), value_of(stats, "cycles")) + " %)\n";
  return text;
}

}  // namespace

std::string report_text(const std::string& text, bool with_schedules, const std::string& from) {
  const json stats = parsed(text, from);
  if (!stats.is_object() || !stats.contains("layers") || !stats["layers"].is_array())
    throw Error(
        ErrorCode::kInvalidArgument,
        "these are no statistics of a run on a machine: 'layers' is missing; `tessera run --stats` writes them");
  std::vector<Column> npu = {
      {"layer", true, {}},     {"op", true, {}},        {"cycles", false, {}},    {"% of run", false, {}},
      {"util %", false, {}},   {"bound", true, {}},     {"predicted", false, {}}, {"error %", false, {}},
      {"comp %", false, {}},   {"alu %", false, {}},    {"load %", false, {}},    {"store %", false, {}},
      {"sync %", false, {}},   {"input B", false, {}},  {"weights B", false, {}}, {"params B", false, {}},
      {"second B", false, {}}, {"output B", false, {}}, {"instr B", false, {}}};
  if (with_schedules) npu.push_back({"schedule: iterations | tile | copies", true, {}});
  std::vector<Column> cpu = {{"on the CPU", true, {}}, {"op", true, {}}, {"ms", false, {}}, {"MACs", false, {}}};
  for (const json& row : stats["layers"]) {
    if (!row.is_object())
      throw Error(ErrorCode::kInvalidArgument, "these statistics are damaged: a layer is no object");
    if (row.value("placement", "") == "cpu")
      add_row(cpu, cpu_cells(row));
    else
      add_row(npu, npu_cells(row, value_of(stats, "cycles"), with_schedules));
  }
  std::string report = sums_text(stats);
  const std::string note = float_note(text, "MODEL");
  if (!note.empty()) report += "note: " + one_line(note) + "\n";
  report += cores_text(stats);
  if (!npu[0].cells.empty()) report += "\n" + table(npu);
  if (!cpu[0].cells.empty()) report += "\n" + table(cpu);
  return report;
}

std::string float_note(const std::string& text, const std::string& model, const std::string& unfit_scales) {
  const json stats = json::parse(text, nullptr, false);
  if (!stats.is_object()) return "";
  const FloatWork work(stats);
  const std::string scales = scales_to_mend(stats.value("unfit_scales", unfit_scales));
  if (work.some()) return work.sentence(scales);
  if (work.npu > 0 || work.cpu == 0) return "";
  const std::string none = "none of the " + cell(stats, "macs_cpu") + " multiply-accumulates ran on the NPU";
  if (!scales.empty()) return none + "; " + scales;
  return none + ", which computes quantised models; `tessera quantize " + model +
         " --calibrate DATA` makes one, and `tessera run --calibrate DATA` does both";
}

std::string option_note(const std::string& text, int64_t close_candidates) {
  const json stats = json::parse(text, nullptr, false);
  if (!stats.is_object()) return "";
  std::string note;
  if (close_candidates > 0)
    note =
        std::to_string(close_candidates) +
        " products, normalisations and means between bytes are computed in float on the CPU; --numerics close computes "
        "them in integers, on the NPU as far as it has row lanes for rows";
  int64_t rows = 0;
  for (const json& row : stats.value("layers", json::array())) {
    const std::string op = row.value("op", "");
    if (row.value("placement", "") == "cpu" &&
        (op == "QLinearSoftmax" || op == "FixedShiftSoftmax" || op == "NormaliseRows"))
      ++rows;
  }
  const auto shipped = isa::shipped_configs();
  const auto lanes = [](const isa::ShippedConfig& config) {
    return isa::parse_config(config.toml, std::string(config.name)).row_lanes > 0;
  };
  const auto own = std::find_if(shipped.begin(), shipped.end(),
                                [&](const isa::ShippedConfig& config) { return config.name == cell(stats, "config"); });
  const auto other = std::find_if(shipped.begin(), shipped.end(), lanes);
  if (rows > 0 && own != shipped.end() && !lanes(*own) && other != shipped.end())
    note += (note.empty() ? "" : "; ") + std::to_string(rows) +
            " softmaxes and normalisations run on the CPU, because this machine has no row lanes; --config " +
            std::string(other->name) + " has them";
  return note;
}

std::string run_text(const std::string& text) {
  const json stats = json::parse(text);
  if (!stats.contains("instructions")) return "";
  return cell(stats, "device") + " on " + cell(stats, "config") + ": " + cell(stats, "instructions") +
         " instructions, " + cell(stats, "macs") + " MACs, " + cell(stats, "dram_read_bytes") + " bytes read, " +
         cell(stats, "dram_write_bytes") + " written" +
         (stats["cycles"].is_null() ? "" : ", " + cell(stats, "cycles") + " cycles");
}

std::string description_in_short(const std::string& text) {
  const json info = json::parse(text);
  const int64_t on_npu = info["nodes_npu"], on_cpu = info["nodes_cpu"];
  return cell(info, "config") + ", " + cell(info, "instructions") + " instructions, " + std::to_string(on_npu) +
         " of " + std::to_string(on_npu + on_cpu) + " nodes on the NPU";
}

std::string description_text(const std::string& text) {
  const json info = json::parse(text);
  const auto share = [&](const char* key) { return number(100 * value_of(info, key), 1) + "%"; };
  const auto padded = [](std::string cell, size_t width) {
    cell.resize(std::max(width, cell.size()), ' ');
    return cell + " ";
  };
  std::string lines = "configuration   " + cell(info, "config") + "\n";
  for (const char* side : {"inputs", "outputs"})
    for (const json& port : info.value(side, json::array()))
      lines += padded(side, 15) + cell(port, "name") + ": " + cell(port, "type") + "\n";
  lines += "nodes           " + cell(info, "nodes_npu") + " on the NPU, " + cell(info, "nodes_cpu") + " on the CPU (" +
           share("nodes_npu_share") + " NPU)\n";
  lines += "MACs            " + cell(info, "macs_npu") + " on the NPU, " + cell(info, "macs_cpu") + " on the CPU (" +
           share("macs_npu_share") + " NPU); " + cell(info, "issued_macs") + " issued with padding\n";
  lines += "instructions    " + cell(info, "instructions") + " in " + cell(info, "programs") + " programs\n";
  lines += "device memory   " + cell(info, "device_constant_bytes") + " bytes of constants, " +
           cell(info, "arena_bytes") + " of activations (" + cell(info, "arena_bytes_without_reuse") +
           " without reuse)\n";
  lines += "CPU             " + cell(info, "constant_bytes") + " bytes of constants, " + cell(info, "cpu_code_bytes") +
           " of code " + cell(info, "cpu_triple") + "\n";
  lines += "trust           ";
  lines += info.value("machine_code", false)
               ? "carries machine code, which runs with the rights of the process that loads it: load it only\n"
                 "                when you trust who made it (docs/security.md)\n"
               : "carries no machine code for the CPU; its instructions reach its own buffers alone\n";
  if (info.contains("signer"))
    lines += "signature       " + (info["signer"].is_null() ? "none" : "by the key " + cell(info, "signer")) + "\n";
  for (const json& layer : info.value("layers", json::array()))
    lines += "  " + padded(cell(layer, "placement"), 4) + padded(cell(layer, "macs"), 12) +
             padded(cell(layer, "op"), 40) + cell(layer, "name") + "\n";
  return lines;
}

std::string schedules_text(const std::string& given) {
  const auto schedules = nlohmann::ordered_json::parse(given);
  const auto list = [](const nlohmann::ordered_json& values, const std::string& indent) {
    std::string text = "[";
    for (const auto& value : values) text += (text.size() > 1 ? ",\n" : "\n") + indent + "  " + value.dump();
    return text + "\n" + indent + "]";
  };
  const auto one = [&](const nlohmann::ordered_json& schedule, const std::string& indent) {
    std::string text = "{";
    for (const auto& [key, value] : schedule.items())
      text += (text.size() > 1 ? ",\n" : "\n") + indent + "  " + json(key).dump() + ": " +
              (value.is_array() ? list(value, indent + "  ") : value.dump());
    return text + "\n" + indent + "}";
  };
  std::string text = "{";
  for (const auto& [key, schedule] : schedules.items()) {
    text += (text.size() > 1 ? ",\n  " : "\n  ") + json(key).dump() + ": ";
    if (!schedule.is_array()) {
      text += one(schedule, "  ");
      continue;
    }
    std::string parts;
    for (const auto& part : schedule) parts += (parts.empty() ? "\n    " : ",\n    ") + one(part, "    ");
    text += "[" + parts + "\n  ]";
  }
  return text + "\n}\n";
}

}  // namespace tessera
