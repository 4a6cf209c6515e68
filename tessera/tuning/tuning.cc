// SPDX-License-Identifier: Apache-2.0
#include "tessera/tuning/tuning.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
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
  if (config_.cores > 1)
    throw Error(ErrorCode::kUnsupported,
                "configuration '" + config_.name + "' has " + std::to_string(config_.cores) +
                    " cores, and a program with given schedules runs on one of them; tune for one core, --config " +
                    driver::part_of(config_, 1).name + ", and run that on each core (--cores)");
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
  for (npu::Graph& graph : read.npu_graphs(config_, options.compile)) {
    std::vector<std::string> layers, links;
    for (const npu::Operation& operation : graph.operations) {
      layers.push_back(program::layer_key(operation.name, named));
      links.push_back(operation.name);
    }
    const auto& bench = benches_.emplace_back(std::make_unique<npu::Workbench>(std::move(graph), config_, npu));
    begin_.push_back(pieces_.size());
    for (size_t i = 0; i < bench->pieces().size(); ++i) {
      const npu::Piece& from = bench->pieces()[i];
      Piece piece;
      piece.graph = benches_.size() - 1;
      piece.first = from.first;
      piece.count = from.count;
      piece.layers.assign(layers.begin() + static_cast<int64_t>(from.first),
                          layers.begin() + static_cast<int64_t>(from.first + from.count));
      piece.links.assign(links.begin() + static_cast<int64_t>(from.first),
                         links.begin() + static_cast<int64_t>(from.first + from.count));
      piece.kind = bench->graph().operations[from.first].kind;
      piece.key = digest(from.key);
      piece.size = decimal(bench->size(i));
      pieces_.push_back(std::move(piece));
    }
    all += bench->key() + "\n";
  }
  model_key_ = digest(all);
  machine_key_ = digest(isa::to_toml(config_) + " " + std::to_string(npu.dram_latency_cycles) + " " +
                        std::to_string(npu.dram_bandwidth_bytes) + npu.dram_cost.preset);
}

const Tuning::Piece& Tuning::at(size_t piece) const {
  if (piece >= pieces_.size())
    throw Error(ErrorCode::kInvalidArgument,
                "piece " + std::to_string(piece) + " of " + std::to_string(pieces_.size()) + ": there is none");
  return pieces_[piece];
}

schedule::CostModel& Tuning::judge(const std::string& name) {
  auto& known = judges_[name];
  if (!known) known = schedule::make_cost_model(name, benches_.at(0)->machine());
  return *known;
}

std::vector<Tuning::Placed> Tuning::chosen() const {
  std::vector<Placed> result;
  for (size_t g = 0; g < benches_.size(); ++g) {
    for (const npu::Placed& placed : benches_[g]->chosen()) {
      const auto* chain = std::get_if<schedule::ChainSchedule>(&placed.schedule);
      const size_t count = chain == nullptr ? 1 : chain->links.size();
      const auto& pieces = benches_[g]->pieces();
      const auto found = std::find_if(pieces.begin(), pieces.end(), [&](const npu::Piece& piece) {
        return piece.first == placed.first && piece.count == count;
      });
      TESSERA_INVARIANT(found != pieces.end(), "the generator chose a chain that is no piece");
      result.emplace_back(begin_[g] + static_cast<size_t>(found - pieces.begin()), to_json(placed.schedule));
    }
  }
  return result;
}

std::vector<std::string> Tuning::candidates(size_t piece, const std::string& searcher, size_t count) const {
  std::vector<std::string> result;
  for (const auto& schedule : benches_[at(piece).graph]->candidates(local(piece), searcher, count))
    result.push_back(to_json(schedule));
  return result;
}

std::optional<Tuning::Closing> Tuning::close(size_t piece, const std::string& judge, int64_t known, double share,
                                             double seconds) {
  const npu::Workbench& bench = *benches_[at(piece).graph];
  npu::Exhaustion* exhaustion = bench.exhaustion(local(piece), this->judge(judge));
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
  return to_json(benches_[at(piece).graph]->sample(local(piece), dice));
}

std::string Tuning::mutate(size_t piece, const std::string& schedule, uint64_t seed) const {
  Dice dice(seed);
  return to_json(benches_[at(piece).graph]->mutate(local(piece), layer_schedule_from_json(schedule), dice));
}

std::string Tuning::cross(size_t piece, const std::string& a, const std::string& b, uint64_t seed) const {
  Dice dice(seed);
  return to_json(
      benches_[at(piece).graph]->cross(local(piece), layer_schedule_from_json(a), layer_schedule_from_json(b), dice));
}

std::string Tuning::obstacle(size_t piece, const std::string& schedule) const {
  return benches_[at(piece).graph]->obstacle(local(piece), layer_schedule_from_json(schedule));
}

std::string Tuning::named(size_t piece, const std::string& schedule) const {
  ordered_json form = ordered_json::parse(schedule, nullptr, false);
  if (!form.is_object() || !form.contains("chain")) return schedule;
  form["chain"] = at(piece).links;
  return form.dump();
}

std::string Tuning::renamed(const std::string& schedules) const {
  const ordered_json given = ordered_json::parse(schedules, nullptr, false);
  std::vector<const Piece*> layers;
  for (const Piece& piece : pieces_) {
    if (piece.count == 1) layers.push_back(&piece);
  }
  if (!given.is_object() || given.size() != layers.size()) return schedules;
  if (std::ranges::all_of(layers, [&](const Piece* layer) { return given.contains(layer->layers[0]); }))
    return schedules;
  ordered_json result = ordered_json::object();
  size_t next = 0, inside = 0;  // a layer, and how many links are left of what it stands in
  ordered_json form;
  for (const auto& [name, schedule] : given.items()) {
    if (inside == 0) {
      form = schedule;
      const bool chain = form.is_object() && form.contains("chain") && form["chain"].is_array();
      inside = chain ? std::max<size_t>(1, form["chain"].size()) : 1;
      if (inside > layers.size() - next) return schedules;
      for (size_t link = 0; chain && link < form["chain"].size(); ++link)
        form["chain"][link] = layers[next + link]->links[0];
    }
    result[layers[next++]->layers[0]] = form;
    --inside;
  }
  return result.dump();
}

std::pair<int64_t, int64_t> Tuning::alone(size_t piece, const std::string& schedule, const std::string& name) {
  const schedule::Cost cost =
      benches_[at(piece).graph]->alone(local(piece), layer_schedule_from_json(schedule), judge(name));
  return {cost.cycles, cost.bytes};
}

std::pair<const npu::Workbench*, std::vector<npu::Placed>> Tuning::on_bench(const std::vector<Placed>& pieces) const {
  if (pieces.empty()) throw Error(ErrorCode::kInvalidArgument, "no pieces are given to be judged together");
  const size_t graph = at(pieces[0].first).graph;
  std::vector<npu::Placed> placed;
  for (const auto& [piece, schedule] : pieces) {
    if (at(piece).graph != graph)
      throw Error(ErrorCode::kInvalidArgument, "pieces of different graphs are given to be judged together");
    placed.push_back({pieces_[piece].first, layer_schedule_from_json(schedule)});
  }
  return {benches_[graph].get(), std::move(placed)};
}

std::pair<int64_t, int64_t> Tuning::together(const std::vector<Placed>& pieces, const std::string& name) {
  const auto [bench, placed] = on_bench(pieces);
  const schedule::Cost cost = bench->together(placed, judge(name));
  return {cost.cycles, cost.bytes};
}

std::pair<int64_t, int64_t> Tuning::whole(const std::vector<Placed>& pieces, const std::string& name) {
  const auto [bench, placed] = on_bench(pieces);
  const schedule::Cost cost = bench->whole(placed, judge(name));
  return {cost.cycles, cost.bytes};
}

}  // namespace tessera
