// SPDX-License-Identifier: Apache-2.0
#include "tessera/tuning/tuning.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "compiler/npu/input/check.h"
#include "compiler/schedule/text/json.h"
#include "driver/shared_chip.h"
#include "isa/program/artifact.h"
#include "tessera/kept_programs.h"
#include "tessera/quantised_for.h"
#include "tessera/tuning/judges.h"

namespace tessera {

namespace {

using nlohmann::ordered_json;
using schedule::Dice;
using schedule::layer_schedule_from_json;
using schedule::to_json;

/// 128 bits of FNV-1a in two halves with different beginnings: names, not protection.
std::string digest(const std::string& text) {
  std::array<uint64_t, 2> hash = {1469598103934665603u, 0x6c62272e07bb0142u};
  for (const char c : text) {
    for (uint64_t& half : hash) half = (half ^ static_cast<uint8_t>(c)) * 1099511628211u;
    hash[1] ^= hash[1] >> 29;
  }
  std::array<char, 40> out;
  std::snprintf(out.data(), out.size(), "%016llx%016llx", static_cast<unsigned long long>(hash[0]),
                static_cast<unsigned long long>(hash[1]));
  return out.data();
}

std::string decimal(schedule::Index number) {
  std::string text;
  do {
    text.insert(text.begin(), static_cast<char>('0' + static_cast<int>(number % 10)));
    number /= 10;
  } while (number > 0);
  return text;
}

}  // namespace

std::string compiler_version() { return TESSERA_VERSION; }

Tuning::Tuning(const compiler::ModelSource& model, SessionOptions options) {
  register_device_judges();
  take_quantised_for(model.bytes(), options);
  config_ = isa::find_config(options.config);
  compiler::ImportOptions import = options.import;
  const auto imported = [&] { return compiler::Model::from_source(model, import); };
  compiler::Model read = imported();
  if (const auto batches = compiler::batches_of_one(read.inputs()); !batches.empty()) {
    import.shapes.insert(batches.begin(), batches.end());
    read = imported();
  }
  const npu::Options npu = compiler::npu_options(options.compile, config_);
  std::string all;
  std::map<std::string, int64_t> named;
  size_t number = 0;
  for (npu::Graph& graph : read.npu_graphs(config_, options.compile)) {
    std::vector<std::string> layers;
    for (const npu::Operation& operation : graph.operations)
      layers.push_back(program::layer_key(operation.name, named));
    npu::check_graph(graph);
    auto whole = std::make_unique<npu::Workbench>(graph, config_, npu);
    all += whole->key() + "\n";
    if (config_.cores > 1) {
      add_chip(std::move(graph), npu, number, layers, options.compile.schedules);
    } else {
      add(*whole, number, 0, layers);
      whole_.push_back(std::move(whole));
    }
    ++number;
  }
  for (const Piece& piece : pieces_)
    if (piece.count == 1 && config_.cores == 1) layers_.push_back(piece.layers[0]);
  for (const std::vector<std::string>& layers : chip_layers_)
    layers_.insert(layers_.end(), layers.begin(), layers.end());
  model_key_ = digest(all);
  machine_key_ = digest(isa::to_toml(config_) + " " + std::to_string(npu.dram_latency_cycles) + " " +
                        std::to_string(npu.dram_bandwidth_bytes) + npu.dram_cost.preset);
  if (config_.cores > 1) chip_judge_ = std::make_unique<ChipJudge>(config_, npu);
}

void Tuning::add(npu::Workbench& bench, size_t graph, size_t first, const std::vector<std::string>& layers) {
  const size_t number = benches_.size();
  benches_.push_back({&bench, graph, pieces_.size(), first});
  const std::vector<npu::Operation>& operations = bench.graph().operations;
  for (size_t i = 0; i < bench.pieces().size(); ++i) {
    const npu::Piece& from = bench.pieces()[i];
    Piece piece;
    piece.graph = graph;
    piece.first = first + from.first;
    piece.count = from.count;
    for (size_t k = from.first; k < from.first + from.count; ++k) {
      piece.layers.push_back(layers.at(k));
      piece.links.push_back(operations[k].name);
    }
    piece.kind = operations[from.first].kind;
    piece.key = digest(from.key);
    piece.size = decimal(bench.size(i));
    pieces_.push_back(std::move(piece));
    bench_of_.push_back(number);
  }
}

void Tuning::add_chip(npu::Graph graph, npu::Options npu, size_t number, const std::vector<std::string>& layers,
                      const std::map<std::string, std::string>& given) {
  for (const std::string& layer : layers) {
    const auto division = given.find(layer);
    npu.divided.push_back(division != given.end() && schedule::is_divided(division->second)
                              ? std::optional(schedule::divided_schedule_from_json(division->second))
                              : std::nullopt);
  }
  const auto& chip = chips_.emplace_back(std::make_unique<npu::ChipBench>(std::move(graph), config_, npu));
  const std::vector<schedule::Division> divisions = chip->divisions();
  chip_layers_.push_back(layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    divisions_[layers[i]] = to_json(schedule::DividedSchedule{divisions[i], {}});
    operations_[layers[i]] = {number, i};
  }
  size_t first = 0;
  for (const npu::ChipBench::Part& part : chip->parts()) {
    std::vector<std::string> own;
    for (const size_t operation : part.operations) own.push_back(layers[operation] + "@" + std::to_string(part.core));
    add(*part.bench, number, first, own);
    first += part.operations.size();
  }
}

const Tuning::Piece& Tuning::at(size_t piece) const {
  if (piece >= pieces_.size())
    throw Error(ErrorCode::kInvalidArgument,
                "piece " + std::to_string(piece) + " of " + std::to_string(pieces_.size()) + ": there is none");
  return pieces_[piece];
}

schedule::CostModel& Tuning::judge(const std::string& name) {
  auto& known = judges_[name];
  schedule::Machine machine = benches_.at(0).bench->machine();
  if (machine.config.cores > 1) machine.config = driver::part_of(machine.config, 1);
  if (!known) known = schedule::make_cost_model(name, machine);
  return *known;
}

std::vector<std::string> Tuning::ways(const std::string& layer) const {
  const auto found = operations_.find(layer);
  if (found == operations_.end())
    throw Error(ErrorCode::kInvalidArgument, "there is no layer '" + layer + "' that cores could share");
  std::vector<std::string> result;
  for (const schedule::Division& way : chips_[found->second.first]->ways(found->second.second))
    result.push_back(to_json(schedule::DividedSchedule{way, {}}));
  return result;
}

std::vector<Tuning::Placed> Tuning::chosen(const std::map<std::string, std::string>& kept) const {
  std::vector<Placed> result;
  std::vector<npu::ChipBench::Kept> by_graph(chips_.size());
  for (const auto& [part, schedule] : kept) {
    const size_t at = part.rfind('@');
    const auto& [graph, operation] = operations_.at(part.substr(0, at));
    by_graph[graph][{operation, std::stoul(part.substr(at + 1))}] = layer_schedule_from_json(schedule);
  }
  const auto take = [&](const Bench& of, const std::vector<npu::Placed>& placed) {
    for (const npu::Placed& unit : placed) {
      const auto* chain = std::get_if<schedule::ChainSchedule>(&unit.schedule);
      const size_t count = chain == nullptr ? 1 : chain->links.size();
      const auto& pieces = of.bench->pieces();
      const auto found = std::find_if(pieces.begin(), pieces.end(), [&](const npu::Piece& piece) {
        return piece.first == unit.first && piece.count == count;
      });
      TESSERA_INVARIANT(found != pieces.end(), "the generator chose a chain that is no piece");
      result.emplace_back(of.begin + static_cast<size_t>(found - pieces.begin()), to_json(unit.schedule));
    }
  };
  for (size_t b = 0; b < benches_.size();) {
    if (chips_.empty()) {
      take(benches_[b], benches_[b].bench->chosen());
      ++b;
      continue;
    }
    for (const std::vector<npu::Placed>& part : chips_[benches_[b].graph]->chosen(by_graph[benches_[b].graph]))
      take(benches_[b++], part);
  }
  return result;
}

std::vector<std::string> Tuning::candidates(size_t piece, const std::string& searcher, size_t count) const {
  std::vector<std::string> result;
  for (const auto& schedule : bench(piece).candidates(local(piece), searcher, count))
    result.push_back(to_json(schedule));
  return result;
}

std::optional<Tuning::Closing> Tuning::close(size_t piece, const std::string& judge, int64_t known, double share,
                                             double seconds) {
  npu::Exhaustion* exhaustion = bench(piece).exhaustion(local(piece), this->judge(judge));
  if (exhaustion == nullptr) return std::nullopt;
  Closing closing;
  closing.done = exhaustion->go_on(known, share, seconds);
  const npu::Exhaustion::Standing& standing = exhaustion->standing();
  closing.broken = standing.broken;
  closing.tiles = standing.closed;
  closing.schedules = standing.schedules;
  closing.programs = standing.programs;
  closing.cycles = standing.cycles;
  closing.cut = standing.cut == npu::Exhaustion::kNothing ? 0 : standing.cut;
  if (standing.best)
    closing.schedule = to_json(schedule::LayerSchedule(std::vector<schedule::Schedule>{*standing.best}));
  return closing;
}

std::string Tuning::sample(size_t piece, uint64_t seed) const {
  Dice dice(seed);
  return to_json(bench(piece).sample(local(piece), dice));
}

std::string Tuning::mutate(size_t piece, const std::string& schedule, uint64_t seed) const {
  Dice dice(seed);
  return to_json(bench(piece).mutate(local(piece), layer_schedule_from_json(schedule), dice));
}

std::string Tuning::cross(size_t piece, const std::string& a, const std::string& b, uint64_t seed) const {
  Dice dice(seed);
  return to_json(bench(piece).cross(local(piece), layer_schedule_from_json(a), layer_schedule_from_json(b), dice));
}

std::string Tuning::obstacle(size_t piece, const std::string& schedule) const {
  return bench(piece).obstacle(local(piece), layer_schedule_from_json(schedule));
}

std::string Tuning::named(size_t piece, const std::string& schedule) const {
  ordered_json form = ordered_json::parse(schedule, nullptr, false);
  if (!form.is_object() || !form.contains("chain")) return schedule;
  form["chain"] = at(piece).links;
  return form.dump();
}

namespace {

/// The schedules of a chip's layers, with those of their parts by names of their own. `layers`: their new names.
ordered_json parts_of(const ordered_json& given, const std::vector<std::string>& layers,
                      const std::vector<std::string>& operations) {
  std::map<std::string, std::string> names;  // of operations, as chains call them
  size_t next = 0;
  for (const auto& [name, schedule] : given.items()) names[name] = operations[next++];
  ordered_json result = ordered_json::object();
  next = 0;
  for (const auto& [name, schedule] : given.items()) {
    const std::string& layer = layers[next++];
    result[layer] = schedule;
    const ordered_json parts = schedule.is_object() ? schedule.value("cores", ordered_json::array()) : ordered_json();
    if (!parts.empty()) result[layer].erase("cores");
    for (size_t core = 0; core < parts.size(); ++core) {
      ordered_json part = parts[core];
      if (part.is_null()) continue;
      if (part.is_object() && part.contains("chain"))
        for (ordered_json& link : part["chain"])
          if (link.is_string() && names.contains(link.get<std::string>())) link = names[link.get<std::string>()];
      result[layer + "@" + std::to_string(core)] = std::move(part);
    }
  }
  return result;
}

}  // namespace

std::string Tuning::renamed(const std::string& schedules) const {
  const ordered_json given = ordered_json::parse(schedules, nullptr, false);
  if (!given.is_object() || given.size() != layers_.size()) return schedules;
  if (!chips_.empty()) {
    std::vector<std::string> operations;
    for (const auto& chip : chips_)
      for (const npu::Operation& operation : chip->graph().operations) operations.push_back(operation.name);
    return parts_of(given, layers_, operations).dump();
  }
  if (std::ranges::all_of(layers_, [&](const std::string& layer) { return given.contains(layer); })) return schedules;
  std::map<std::string, std::string> links;  // by layer: what chains call it
  for (const Piece& piece : pieces_) links[piece.layers[0]] = piece.links[0];
  ordered_json result = ordered_json::object();
  size_t next = 0, inside = 0;  // a layer, and how many links are left of what it stands in
  ordered_json form;
  for (const auto& [name, schedule] : given.items()) {
    if (inside == 0) {
      form = schedule;
      const bool chain = form.is_object() && form.contains("chain") && form["chain"].is_array();
      inside = chain ? std::max<size_t>(1, form["chain"].size()) : 1;
      if (inside > layers_.size() - next) return schedules;
      for (size_t link = 0; chain && link < form["chain"].size(); ++link)
        form["chain"][link] = links[layers_[next + link]];
    }
    result[layers_[next++]] = form;
    --inside;
  }
  return result.dump();
}

std::pair<int64_t, int64_t> Tuning::alone(size_t piece, const std::string& schedule, const std::string& name) {
  const schedule::Cost cost = bench(piece).alone(local(piece), layer_schedule_from_json(schedule), judge(name));
  return {cost.cycles, cost.bytes};
}

std::vector<Tuning::OnBench> Tuning::on_benches(const std::vector<Placed>& pieces) const {
  if (pieces.empty()) throw Error(ErrorCode::kInvalidArgument, "no pieces are given to be judged together");
  const size_t graph = at(pieces[0].first).graph;
  std::vector<OnBench> result;
  for (const auto& [piece, schedule] : pieces) {
    if (at(piece).graph != graph)
      throw Error(ErrorCode::kInvalidArgument, "pieces of different graphs are given to be judged together");
    if (result.empty() || result.back().bench != bench_of_[piece]) result.push_back({bench_of_[piece], {}});
    result.back().placed.push_back({bench(piece).pieces()[local(piece)].first, layer_schedule_from_json(schedule)});
  }
  return result;
}

std::pair<int64_t, int64_t> Tuning::together(const std::vector<Placed>& pieces, const std::string& name) {
  std::pair<int64_t, int64_t> all;
  for (const OnBench& part : on_benches(pieces)) {
    const schedule::Cost cost = benches_[part.bench].bench->together(part.placed, judge(name));
    all = {all.first + cost.cycles, all.second + cost.bytes};
  }
  return all;
}

std::pair<int64_t, int64_t> Tuning::whole(const std::vector<Placed>& pieces, const std::string& name) {
  std::vector<OnBench> parts = on_benches(pieces);
  const Bench& first = benches_[parts[0].bench];
  if (chips_.empty()) {
    const schedule::Cost cost = first.bench->whole(parts[0].placed, judge(name));
    return {cost.cycles, cost.bytes};
  }
  std::vector<std::vector<npu::Placed>> schedules;
  for (OnBench& part : parts) schedules.push_back(std::move(part.placed));
  const npu::Program program = chips_[first.graph]->program(schedules);
  int64_t bytes = 0;
  for (const npu::LayerInfo& layer : program.layers)
    for (const int64_t moved : layer.stream_bytes) bytes += moved;
  return {chip_judge_->cycles(program, name), bytes};
}

}  // namespace tessera
