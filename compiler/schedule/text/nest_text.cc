// SPDX-License-Identifier: Apache-2.0
// The fields of nests, and the lines of schedules.
#include "compiler/schedule/text/nest_text.h"

#include <utility>

#include "base/error.h"
#include "compiler/text/fields.h"

namespace tessera::text {

template <>
struct Names<isa::Space> {
  static constexpr std::array<std::string_view, isa::kSpaces> value{"inp", "wgt", "acc", "out", "param", "table"};
};

}  // namespace tessera::text

namespace tessera::schedule {

namespace {

template <typename Array>
std::string known(const Array& names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

}  // namespace

template <typename IO>
void fields(IO& io, text::In<IO, Extents> extents) {
  for (size_t d = 0; d < kDimNames.size(); ++d) io.field(kDimNames[d], extents.value[d], 1);
}

template <typename IO>
void fields(IO& io, text::In<IO, ChannelMap> map) {
  io.field("total", map.total, 1);
  io.field("chunk", map.chunk, 1);
  io.field("lanes", map.lanes, 1);
}

template <typename IO>
void fields(IO& io, text::In<IO, Access> a) {
  io.field("base", a.base);
  io.field("offset", a.offset);
  io.pack("pitch", {0, 0, 0}, a.pitch_n, a.pitch_h, a.pitch_w);
  io.pack("segment", {0, 0}, a.segment_channels, a.segment_pitch);
  io.field("bytes", a.element_bytes, 1);
  io.field("unsigned", a.is_unsigned);
  io.pack("window", {0, 0, 0, 0}, a.row_begin, a.row_end, a.col_begin, a.col_end);
  io.field("broadcast_n", a.broadcast_n);
  io.field("broadcast_h", a.broadcast_h);
  io.field("broadcast_w", a.broadcast_w);
  io.field("broadcast_c", a.broadcast_c);
}

template <typename IO>
void fields(IO& io, text::In<IO, Factor> f) {
  io.field("base", f.base);
  io.field("offset", f.offset);
  io.pack("pitch", {0, 0, 0}, f.pitch_n, f.pitch_h, f.pitch_w);
  io.field("pitch_k", f.pitch_k, 1);
  io.field("pitch_column", f.pitch_column);
  io.field("unsigned", f.is_unsigned);
}

namespace {

/// All but the computation, the layout and the operands.
template <typename IO>
void nest_fields(IO& io, auto& n) {
  io.field("images", n.images, 1);
  io.field("extent", n.extent);
  io.field("in", n.in_channels);
  io.field("out", n.out_channels);
  io.pack("strides", {1, 1}, n.stride_h, n.stride_w);
  io.pack("dilations", {1, 1}, n.dilation_h, n.dilation_w);
  io.pack("pads", {0, 0}, n.pad_top, n.pad_left);
  io.field("pad_value", n.pad_value);
  io.field("scope", n.input_space, isa::Space::kInp);
  io.field("planes", n.planes, 1);
  io.field("packed", n.packed);
  io.pack("taps", {1, 1}, n.tap_h, n.tap_w);
  io.field("pairs", n.pairs);
  io.field("row_pairs", n.row_pairs);
  io.field("raw", n.raw);
  io.field("convert", n.convert);
  io.field("per_channel", n.per_channel);
  io.field("fixed_shift", n.fixed_shift);
  io.field("bias_preload", n.bias_preload);
  io.field("column_step", n.column_step);
  io.field("columns_inside", n.columns_inside);
}

template <typename T>
std::optional<T> present(const T& operand) {
  return operand.present ? std::optional(operand) : std::nullopt;
}

template <typename T>
void set_present(T& operand, const std::optional<T>& read) {
  if (!read) return;
  operand = *read;
  operand.present = true;
}

std::string tile_line(const Schedule& schedule) {
  text::Line line("tile");
  for (const Level& level : schedule.levels) {
    if (!level.outer()) line.field(kDimNames[static_cast<size_t>(level.dim)], level.factor);
  }
  return line.text();
}

Level read_outer(text::Reader& reader, LevelKind kind) {
  Level level;
  level.kind = kind;
  level.dim = reader.one_of<Dim>(kDimNames, "dimension");
  level.factor = reader.integer(1, INT32_MAX);
  if (kind == LevelKind::kTemporal) return level;
  const text::Token at = reader.token();
  const std::string threads = reader.word();
  text::Reader count(threads.substr(1), "threads");
  if (threads.size() < 2 || threads[0] != 'x' || !count.at(text::TokenKind::kNumber))
    reader.fail_at(at, "a vthread level says how many iterations run at once, as x2");
  level.threads = count.integer();
  if (level.threads < 2 || level.threads > level.factor)
    reader.fail_at(
        at, "a vthread level of factor " + std::to_string(level.factor) + " runs from 2 to as many iterations at once");
  return level;
}

OperandPlan read_plan(text::Reader& reader, Operand operand) {
  OperandPlan plan;
  plan.operand = operand;
  reader.fields([&](const std::string& key) {
    if (key == "scope")
      plan.scope = static_cast<isa::Space>(reader.one_of(isa::kSpaceNames, "scope"));
    else if (key == "attach")
      plan.attach = static_cast<int>(reader.integer(0, INT32_MAX));
    else if (key == "copies")
      plan.copies = static_cast<int>(reader.integer(1, INT32_MAX));
    else if (key == "halo")
      plan.halo = reader.one_of<Halo>(kHaloNames, "halo");
    else
      return false;
    return true;
  });
  return plan;
}

}  // namespace

std::string nest_obstacle(const Nest& nest) {
  for (int d = 0; d < kDims; ++d) {
    if (nest.extent.value[static_cast<size_t>(d)] < 1) return std::string(kDimNames[d]) + " has no iterations";
  }
  for (const ChannelMap* map : {&nest.in_channels, &nest.out_channels}) {
    if (map->total < 1 || map->chunk < 1 || map->lanes < 1) return "a channel map without channels";
  }
  if (!nest.input.present || !nest.output.present) return "a nest has an input and an output";
  if (nest.images < nest.extent[Dim::kN]) return "fewer images than groups of them";
  if (nest.stride_h < 1 || nest.stride_w < 1 || nest.dilation_h < 1 || nest.dilation_w < 1)
    return "strides and dilations are at least 1";
  if (nest.extent[Dim::kG] != nest.out_channels.chunks()) return "g is not the chunks of the output's channels";
  if (nest.extent[Dim::kOc] != nest.out_channels.blocks()) return "oc is not the blocks of a chunk of output channels";
  const bool dense = nest.computation == Computation::kDense;
  if (nest.extent[Dim::kIc] != (dense ? nest.in_channels.blocks() : 1))
    return dense ? "ic is not the blocks of a chunk of input channels" : "ic is of dense nests";
  if (nest.factor.present && !dense) return "a factor is of dense nests";
  if (nest.layout != InputLayout{} && !dense) return "a folded input is of dense nests";
  if (nest.planes < 1 || nest.planes > 3) return "there are one to three planes of weights";
  return "";
}

void print(const Nest& nest, text::Printer& printer) {
  text::Constants none;
  text::FieldWriter io(none);
  nest_fields(io, nest);
  io.field("layout", to_string(nest.layout), "nhwc");
  io.field("input", present(nest.input));
  io.field("factor", present(nest.factor));
  io.field("second", present(nest.second));
  io.field("output", present(nest.output));
  io.print(printer, "nest " + std::string(kComputationNames[static_cast<size_t>(nest.computation)]));
}

Nest read_nest(text::Reader& reader) {
  const text::Token at = reader.token();
  reader.expect("nest");
  Nest nest;
  nest.computation = reader.one_of<Computation>(kComputationNames, "computation");
  const text::Constants none;
  text::FieldReader io(reader, none);
  std::string layout;
  std::optional<Access> input, second, output;
  std::optional<Factor> factor;
  nest_fields(io, nest);
  io.field("layout", layout, "nhwc");
  io.field("input", input);
  io.field("factor", factor);
  io.field("second", second);
  io.field("output", output);
  io.run();
  set_present(nest.input, input);
  set_present(nest.factor, factor);
  set_present(nest.second, second);
  set_present(nest.output, output);
  const auto parsed = parse_input_layout(layout);
  if (!parsed) reader.fail_at(at, "unknown layout " + text::quote(layout));
  nest.layout = *parsed;
  if (const std::string why = nest_obstacle(nest); !why.empty()) reader.fail_at(at, why);
  return nest;
}

void print(const Schedule& schedule, text::Printer& printer) {
  text::Line head("schedule");
  head.word(schedule.intrinsic->name());
  if (schedule.input_layout != InputLayout{}) head.field("layout", text::quote(to_string(schedule.input_layout)));
  if (schedule.strips > 0) head.field("strips", schedule.strips);
  printer.open(head);
  for (const Level& level : schedule.levels) {
    if (!level.outer()) continue;
    text::Line line(kLevelKindNames[static_cast<size_t>(level.kind)]);
    line.word(kDimNames[static_cast<size_t>(level.dim)]).word(std::to_string(level.factor));
    if (level.kind == LevelKind::kVthread) line.word("x" + std::to_string(level.threads));
    printer.line(line);
  }
  printer.line(tile_line(schedule));
  for (const OperandPlan& plan : schedule.operands) {
    text::Line line(kOperandNames[static_cast<size_t>(plan.operand)]);
    if (plan.scope) line.field("scope", isa::kSpaceNames[static_cast<size_t>(*plan.scope)]);
    if (plan.attach != kDerived) line.field("attach", plan.attach);
    if (plan.copies != kDerived) line.field("copies", plan.copies);
    if (plan.halo != Halo::kReload) line.field("halo", kHaloNames[static_cast<size_t>(plan.halo)]);
    printer.line(line);
  }
  printer.close();
}

InputLayout read_layout(text::Reader& reader) {
  const text::Token at = reader.token();
  const auto layout = parse_input_layout(reader.string());
  if (!layout) reader.fail_at(at, "unknown layout");
  return *layout;
}

Schedule read_schedule(text::Reader& reader) {
  reader.expect("schedule");
  Schedule schedule;
  const text::Token named = reader.token();
  try {
    schedule.intrinsic = &find_intrinsic(reader.word());
  } catch (const Error& error) {
    reader.fail_at(named, error.what());
  }
  reader.fields([&](const std::string& key) {
    if (key == "strips") {
      schedule.strips = reader.integer(0, INT32_MAX);
      return true;
    }
    if (key != "layout") return false;
    schedule.input_layout = read_layout(reader);
    return true;
  });
  reader.list("{", "}", "", [&] {
    const text::Token at = reader.token();
    const std::string word = reader.word();
    const bool inside = !schedule.levels.empty() && !schedule.levels.back().outer();
    for (const LevelKind kind : {LevelKind::kTemporal, LevelKind::kVthread}) {
      if (word != kLevelKindNames[static_cast<size_t>(kind)]) continue;
      if (inside) reader.fail_at(at, "a level around the tile stands before it");
      schedule.levels.push_back(read_outer(reader, kind));
      return;
    }
    if (word == "tile") {
      reader.fields([&](const std::string& key) {
        const auto dim = std::find(kDimNames.begin(), kDimNames.end(), key);
        if (dim == kDimNames.end()) return false;
        schedule.levels.push_back(
            {static_cast<Dim>(dim - kDimNames.begin()), reader.integer(1, INT32_MAX), LevelKind::kHwloop});
        return true;
      });
      return;
    }
    const auto operand = std::find(kOperandNames.begin(), kOperandNames.end(), word);
    if (operand == kOperandNames.end())
      reader.fail_at(at, "unknown line '" + word + "'; known: temporal, vthread, tile, " + known(kOperandNames));
    const auto which = static_cast<Operand>(operand - kOperandNames.begin());
    if (schedule.plan(which) != nullptr) reader.fail_at(at, "operand " + word + " is given twice");
    schedule.operands.push_back(read_plan(reader, which));
  });
  return schedule;
}

void print(const ChainSchedule& chain, text::Printer& printer) {
  std::string names;
  for (const std::string& name : chain.links) names += (names.empty() ? "" : ", ") + text::quote(name);
  text::Line line("chain");
  line.word("[" + names + "]").field("oh", chain.tile.oh).field("ow", chain.tile.ow).field("blocks", chain.tile.blocks);
  if (chain.tile.whole_input) line.field("whole_input", 1);
  if (chain.tile.keeps_rows) line.field("keeps_rows", 1);
  if (chain.tile.strips > 0) line.field("strips", chain.tile.strips);
  if (chain.tile.copies != kWeightCopies) line.field("copies", chain.tile.copies);
  if (chain.input_layout) line.field("layout", text::quote(to_string(*chain.input_layout)));
  printer.line(line);
}

ChainSchedule read_chain(text::Reader& reader) {
  const text::Token at = reader.token();
  reader.expect("chain");
  ChainSchedule chain;
  reader.list("[", "]", ",", [&] { chain.links.push_back(reader.string()); });
  if (chain.links.size() < 2) reader.fail_at(at, "a chain has at least two links");
  reader.fields([&](const std::string& key) {
    if (key == "whole_input") {
      chain.tile.whole_input = reader.integer(0, 1) == 1;
      return true;
    }
    if (key == "keeps_rows") {
      chain.tile.keeps_rows = reader.integer(0, 1) == 1;
      return true;
    }
    if (key == "strips") {
      chain.tile.strips = reader.integer(0, INT32_MAX);
      return true;
    }
    if (key == "copies") {
      chain.tile.copies = reader.integer(kLeastWeightCopies, INT32_MAX);
      return true;
    }
    if (key == "layout") {
      chain.input_layout = read_layout(reader);
      return true;
    }
    int64_t* to = key == "oh"       ? &chain.tile.oh
                  : key == "ow"     ? &chain.tile.ow
                  : key == "blocks" ? &chain.tile.blocks
                                    : nullptr;
    if (to != nullptr) *to = reader.integer(1, INT32_MAX);
    return to != nullptr;
  });
  return chain;
}

void print(const LayerSchedule& schedule, text::Printer& printer) {
  if (const auto* chain = std::get_if<ChainSchedule>(&schedule)) {
    print(*chain, printer);
    return;
  }
  for (const Schedule& part : std::get<std::vector<Schedule>>(schedule)) print(part, printer);
}

LayerSchedule read_layer_schedule(text::Reader& reader) {
  if (reader.at("chain")) return read_chain(reader);
  std::vector<Schedule> parts;
  do parts.push_back(read_schedule(reader));
  while (reader.at("schedule"));
  return parts;
}

}  // namespace tessera::schedule
