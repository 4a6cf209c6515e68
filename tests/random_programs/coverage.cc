// SPDX-License-Identifier: Apache-2.0
// The bins: everything allowed starts at zero, so that what was never hit shows.
#include "tests/random_programs/coverage.h"

#include <algorithm>
#include <sstream>

#include "isa/raster.h"

namespace tessera::proof {
namespace {

using Names = std::vector<std::string>;

Names numbers(int low, int high) {
  Names names;
  for (int n = low; n <= high; ++n) names.push_back(std::to_string(n));
  return names;
}

Names cross(const Names& a, const Names& b) {
  Names names;
  for (const std::string& x : a) {
    for (const std::string& y : b) {
      std::string name = x;
      name += ' ';
      name += y;
      names.push_back(std::move(name));
    }
  }
  return names;
}

template <typename Extents>
std::string depth_of(const Extents& extent) {
  return std::to_string(std::count_if(extent.begin(), extent.end(), [](auto e) { return e > 1; }));
}

template <typename Strides>
std::string sign_of(const Strides& stride) {
  const bool negative = std::any_of(stride.begin(), stride.end(), [](auto s) { return s < 0; });
  return negative ? "negative" : "positive";
}

std::string on(bool flag, const char* name) { return flag ? name : std::string("no ") + name; }

template <typename E>
std::string text(E value) {
  return std::string(isa::to_string(value));
}

/// How a depthwise nest goes through the line buffers: which of its ways hold several results.
std::string raster_bin(const isa::Gemm& gemm, int pairs) {
  const auto raster = isa::raster_of(gemm, pairs);
  if (!raster) return "no raster";
  if (raster->row_pairs) return "pairs of two rows";
  if (raster->pairs) return raster->stride_x == 2 ? "pairs, stride 2" : "pairs";
  if (raster->stride_x == 2 || raster->stride_y == 2) return "stride 2";
  const bool columns = raster->results_x > 1, rows = raster->results_y > 1;
  return columns && rows ? "rows and columns" : columns ? "columns" : "rows";
}

/// Whether runs of the innermost loop continue each other in DRAM alone, beat by beat.
bool requests_together(const isa::Load& i, int axi_bytes) {
  size_t k = i.extent.size() - 1;
  while (k > 0 && i.extent[k] == 1) --k;
  return !i.fill && i.extent[k] > 1 && i.dram_stride[k] == i.length && i.sp_stride[k] != i.length &&
         i.length % axi_bytes == 0 && i.sp_stride[k] % axi_bytes == 0 &&
         i.sp_addr % static_cast<uint32_t>(axi_bytes) == 0;
}

Names on_off(const char* name) { return {on(false, name), on(true, name)}; }

}  // namespace

Coverage::Coverage(const isa::MachineConfig& config)
    : axi_bytes_(config.axi_bytes), rows_(config.row_lanes > 0), pairs_(config.raster_pairs) {
  Names spaces, alu_spaces{"acc", "out"}, engines;
  for (int s = 0; s < isa::kSpaces; ++s) spaces.push_back(text(static_cast<isa::Space>(s)));
  for (int e = 0; e < isa::kEngines; ++e) engines.push_back(text(static_cast<isa::Engine>(e)));
  if (config.block_in == config.block_out) alu_spaces.emplace_back("inp");
  for (const isa::InstructionInfo& info : isa::kInstructions) {
    if (legal(info.name)) allow("opcode", {std::string(info.name)});
  }
  allow_fields();
  if (rows_) allow("row_map src", {"acc"});  // of sum_softmax
  allow("load space", cross(spaces, {"data", "fill", "padded"}));
  if (config.packed_weights != 0) allow("load space", {"wgt packed"});
  allow("load loops", numbers(0, 4));
  allow("load strides", {"positive", "negative"});
  allow("load requests", {"alone", "together"});
  allow("store space", {"acc", "out"});
  allow("store loops", numbers(0, 4));
  allow("store strides", {"positive", "negative"});
  allow("gemm mode", cross({"dense", "depthwise"}, on_off("accumulate")));
  allow("gemm dense reduce", numbers(0, 6));
  allow("gemm depthwise reduce", numbers(1, 6));
  allow("gemm loops", numbers(0, 4));
  allow("gemm types", cross(on_off("inp unsigned"), on_off("wgt unsigned")));
  allow("gemm zeros", cross(on_off("inp zero"), on_off("wgt zero")));
  allow("gemm raster", {"no raster", "rows", "columns", "rows and columns", "stride 2"});
  if (config.raster_pairs != 0) allow("gemm raster", {"pairs", "pairs, stride 2"});
  if (config.raster_pairs > 1) allow("gemm raster", {"pairs of two rows"});
  allow("alu spaces", cross(alu_spaces, alu_spaces));
  allow("alu reduce", cross({"sum", "max"}, numbers(1, 6)));
  allow("alu loops", numbers(0, 4));
  allow("alu convert", cross(on_off("convert"), {"none", "add", "mul", "max"}));
  allow("alu tables", cross(on_off("table"), on_off("second table")));
  allow("alu second", cross(on_off("swap"), on_off("unsigned")));
  allow("alu param loop", {"0", "1", "2", "3", "4", "5", "7"});
  allow("waits", numbers(0, 3));
  allow("signal", on_off("signal"));
  for (const std::string& a : engines) {
    for (const std::string& b : engines) {
      if (a != b) allow("wait of", cross({a + " for"}, {b}));
    }
  }
}

void Coverage::allow(const std::string& group, const std::vector<std::string>& bins) {
  for (const std::string& bin : bins) bins_[group][bin];
}

void Coverage::add(const std::vector<isa::Instruction>& program) {
  for (const isa::Instruction& instruction : program) {
    if (const auto engine = isa::engine_of(instruction)) add(isa::header_of(instruction), *engine);
    hit("opcode", std::string(isa::info_of(instruction).name));
    std::visit([&](const auto& i) { add_operands(i); }, instruction);
  }
}

template <size_t Index>
void Coverage::allow_fields() {
  if constexpr (Index < std::variant_size_v<isa::Instruction>) {
    using T = std::variant_alternative_t<Index, isa::Instruction>;
    if constexpr (!kHasOwnBins<T>) {
      const std::string_view instruction = isa::kInstructions[Index].name;
      for (const isa::Field& field : isa::kInstructions[Index].fields) {
        if (!legal(instruction)) break;
        const std::string group = std::string(instruction) + " " + std::string(field.name);
        if (field.kind == isa::FieldKind::kBool) allow(group, {"0", "1"});
        for (const std::string_view name : field.names) {
          if (name == "acc") continue;  // has no bytes: illegal in most of these
          if (!name.empty()) allow(group, {std::string(name)});
        }
      }
    }
    allow_fields<Index + 1>();
  }
}

template <typename T>
void Coverage::add_operands(const T& i) {
  const std::string instruction(isa::info_of(i).name);
  isa::visit_fields(i, [&](const isa::Field& field, const auto& member) {
    if constexpr (!requires { member.size(); }) {
      const std::string group = instruction + " " + std::string(field.name);
      if (field.kind == isa::FieldKind::kBool) hit(group, std::to_string(static_cast<int>(member)));
      if (field.kind == isa::FieldKind::kEnum) hit(group, std::string(field.names[static_cast<size_t>(member)]));
    }
  });
}

void Coverage::add(const isa::Header& header, isa::Engine engine) {
  int waits = 0;
  for (const isa::Wait& wait : header.waits) {
    if (!wait.enable) continue;
    ++waits;
    hit("wait of", text(engine) + " for " + text(wait.engine));
  }
  hit("waits", std::to_string(waits));
  hit("signal", on(header.signal, "signal"));
}

void Coverage::add_operands(const isa::Finish&) {}
void Coverage::add_operands(const isa::Fence&) {}

void Coverage::add_operands(const isa::Load& i) {
  const bool padded = i.pad_before[0] + i.pad_after[0] + i.pad_before[1] + i.pad_after[1] != 0;
  hit("load space", text(i.space) + (i.packed ? " packed" : i.fill ? " fill" : padded ? " padded" : " data"));
  hit("load loops", depth_of(i.extent));
  hit("load strides", sign_of(i.sp_stride));
  hit("load requests", requests_together(i, axi_bytes_) ? "together" : "alone");
}

void Coverage::add_operands(const isa::Store& i) {
  hit("store space", text(i.space));
  hit("store loops", depth_of(i.extent));
  hit("store strides", sign_of(i.dram_stride));
}

void Coverage::add_operands(const isa::Gemm& i) {
  const bool depthwise = i.mode == isa::GemmMode::kDepthwise;
  hit("gemm mode", std::string(depthwise ? "depthwise " : "dense ") + on(i.accumulate, "accumulate"));
  hit(depthwise ? "gemm depthwise reduce" : "gemm dense reduce", std::to_string(i.reduce));
  hit("gemm loops", depth_of(i.extent));
  hit("gemm types", on(i.inp_unsigned, "inp unsigned") + " " + on(i.wgt_unsigned, "wgt unsigned"));
  hit("gemm zeros", on(i.inp_zero != 0, "inp zero") + " " + on(i.wgt_zero != 0, "wgt zero"));
  if (depthwise) hit("gemm raster", raster_bin(i, pairs_));
}

void Coverage::add_operands(const isa::Alu& i) {
  hit("alu spaces", text(i.src) + " " + text(i.dst));
  if (i.reduce > 0) hit("alu reduce", text(i.reduce_op) + " " + std::to_string(i.reduce));
  hit("alu loops", depth_of(i.extent));
  if (i.dst != isa::AluSpace::kAcc || i.convert) {
    hit("alu convert", on(i.convert, "convert") + " " + text(i.second_op));
    hit("alu tables", on(i.table_enable, "table") + " " + on(i.second_table_enable, "second table"));
  }
  if (i.second_op != isa::SecondOp::kNone) {
    hit("alu second", on(i.second_swap, "swap") + " " + on(i.second_unsigned, "unsigned"));
  }
  if (i.convert) hit("alu param loop", std::to_string(i.param_loop));
}

std::vector<std::string> Coverage::missing() const {
  std::vector<std::string> names;
  for (const auto& [group, bins] : bins_) {
    for (const auto& [bin, count] : bins) {
      if (count == 0) names.push_back(cross({group + ":"}, {bin}).front());
    }
  }
  return names;
}

std::string Coverage::report() const {
  std::ostringstream text;
  for (const auto& [group, bins] : bins_) {
    const auto hits = std::count_if(bins.begin(), bins.end(), [](const auto& bin) { return bin.second > 0; });
    text << "  " << group << " " << hits << "/" << bins.size() << ":";
    const char* separator = " ";
    for (const auto& [bin, count] : bins) {
      text << separator << bin << " " << count;
      separator = ", ";
    }
    text << "\n";
  }
  return text.str();
}

}  // namespace tessera::proof
