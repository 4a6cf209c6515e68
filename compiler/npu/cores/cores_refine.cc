// SPDX-License-Identifier: Apache-2.0
// Hill climbing: one choice is changed at a time, and kept if the prediction of all streams falls.
#include "compiler/npu/cores/cores_refine.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

namespace tessera::npu {

namespace {

/// Instructions of a core up to which their order is looked at, and the ways to choose among those that are next.
constexpr size_t kInterleaved = 30'000;
constexpr std::array<Choices, 9> kChoices = {
    {{4, 1, 1}, {16, 1, 1}, {4, 4, 1}, {16, 8, 1}, {16, 8, 4}, {16, 16, 16}, {4, 8, 8}, {4, 16, 1}, {16, 16, 4, 400}}};
constexpr size_t kAsItWas = kChoices.size();
constexpr size_t kBest = 3;  // ways of all cores that are tried for each one

/// Instructions of an engine that are cut, and into how many.
struct Pieces {
  bool loads = false, products = false, vectors = false, stores = false;
  int64_t count = 1;
};
constexpr std::array<Pieces, 8> kPieces = {{{true, true, false, false, 2},
                                            {true, true, false, false, 4},
                                            {true, false, false, false, 2},
                                            {false, true, true, false, 2},
                                            {false, true, true, true, 2},
                                            {false, false, true, true, 2},
                                            {true, true, true, true, 2},
                                            {true, true, true, true, 4}}};
constexpr int64_t kLeastBytes = 256;  // of a LOAD that is cut
constexpr size_t kUncut = kPieces.size();

/// Beginnings and lengths of so many parts of an extent.
std::vector<std::pair<int64_t, int64_t>> parts_of(int64_t extent, int64_t count) {
  std::vector<std::pair<int64_t, int64_t>> parts;
  count = std::min(extent, count);
  for (int64_t k = 0; k < count; ++k)
    parts.emplace_back(extent * k / count, extent * (k + 1) / count - extent * k / count);
  return parts;
}

using Cut = std::vector<isa::Instruction>;

/// The outermost loop whose iterations read or write other bytes.
template <size_t N, typename Extent, typename Stride>
size_t outermost(const std::array<Extent, N>& extent, const std::array<Stride, N>& stride, size_t loops) {
  for (size_t k = 0; k < loops; ++k)
    if (extent[k] > 1 && stride[k] != 0) return k;
  return N;
}

Cut cut(const isa::Gemm& gemm, int64_t count) {
  const size_t k = outermost(gemm.extent, gemm.inp_stride, gemm.extent.size() - gemm.reduce);
  if (gemm.mode != isa::GemmMode::kDense || k == gemm.extent.size() || gemm.acc_stride[k] == 0) return {};
  Cut made;
  for (const auto& [begin, length] : parts_of(gemm.extent[k], count)) {
    isa::Gemm one = gemm;
    one.extent[k] = static_cast<uint16_t>(length);
    one.inp_addr = static_cast<uint16_t>(one.inp_addr + begin * gemm.inp_stride[k]);
    one.wgt_addr = static_cast<uint16_t>(one.wgt_addr + begin * gemm.wgt_stride[k]);
    one.acc_addr = static_cast<uint16_t>(one.acc_addr + begin * gemm.acc_stride[k]);
    made.emplace_back(one);
  }
  return made;
}

Cut cut(const isa::Alu& alu, int64_t count) {
  const size_t k = outermost(alu.extent, alu.dst_stride, alu.extent.size() - alu.reduce);
  if (k == alu.extent.size() || alu.param_loop == k) return {};
  Cut made;
  for (const auto& [begin, length] : parts_of(alu.extent[k], count)) {
    isa::Alu one = alu;
    one.extent[k] = static_cast<uint16_t>(length);
    one.src_addr = static_cast<uint16_t>(one.src_addr + begin * alu.src_stride[k]);
    one.dst_addr = static_cast<uint16_t>(one.dst_addr + begin * alu.dst_stride[k]);
    if (alu.second_op != isa::SecondOp::kNone)
      one.second_addr = static_cast<uint16_t>(one.second_addr + begin * alu.second_stride[k]);
    made.emplace_back(one);
  }
  return made;
}

template <typename Transfer>
Cut cut_run(const Transfer& transfer, int64_t count, int64_t entry_bytes) {
  Cut made;
  if (transfer.length % (entry_bytes * count) != 0) return made;
  const int64_t length = transfer.length / count;
  for (int64_t k = 0; k < count; ++k) {
    Transfer one = transfer;
    one.length = static_cast<uint16_t>(length);
    one.dram_offset += static_cast<uint64_t>(k * length);
    one.sp_addr += static_cast<uint32_t>(k * length);
    made.emplace_back(one);
  }
  return made;
}

template <typename Transfer>
int64_t bytes_of(const Transfer& transfer) {
  return std::accumulate(transfer.extent.begin(), transfer.extent.end(), int64_t{transfer.length},
                         [](int64_t all, int64_t extent) { return all * extent; });
}

Cut cut(const isa::Load& load, int64_t count, int64_t entry_bytes) {
  if (load.space != isa::Space::kInp || load.fill || load.base == kConstantBase || bytes_of(load) < kLeastBytes)
    return {};
  const size_t k = outermost(load.extent, load.sp_stride, load.extent.size());
  if (k == load.extent.size()) return cut_run(load, count, entry_bytes);
  const int64_t before = k < 2 ? load.pad_before[k] : 0, after = k < 2 ? load.pad_after[k] : 0;
  const int64_t inside = load.extent[k] - before - after;
  if (inside < count) return {};
  Cut made;
  for (const auto& [begin, length] : parts_of(inside, count)) {
    isa::Load one = load;
    const bool first = begin == 0, last = begin + length == inside;
    one.extent[k] = static_cast<uint16_t>(length + (first ? before : 0) + (last ? after : 0));
    if (k < 2) {
      one.pad_before[k] = static_cast<uint16_t>(first ? before : 0);
      one.pad_after[k] = static_cast<uint16_t>(last ? after : 0);
    }
    one.dram_offset = static_cast<uint64_t>(static_cast<int64_t>(load.dram_offset) + begin * load.dram_stride[k]);
    one.sp_addr = static_cast<uint32_t>(int64_t{load.sp_addr} + (begin + (first ? 0 : before)) * load.sp_stride[k]);
    const bool pads = std::ranges::any_of(one.pad_before, [](int n) { return n > 0; }) ||
                      std::ranges::any_of(one.pad_after, [](int n) { return n > 0; });
    if (!pads) one.pad_value = 0;
    made.emplace_back(one);
  }
  return made;
}

Cut cut(const isa::Store& store, int64_t count, int64_t entry_bytes) {
  if (store.space != isa::Space::kOut) return {};
  const size_t k = outermost(store.extent, store.sp_stride, store.extent.size());
  if (k == store.extent.size()) return cut_run(store, count, entry_bytes);
  Cut made;
  for (const auto& [begin, length] : parts_of(store.extent[k], count)) {
    isa::Store one = store;
    one.extent[k] = static_cast<uint16_t>(length);
    one.dram_offset = static_cast<uint64_t>(static_cast<int64_t>(store.dram_offset) + begin * store.dram_stride[k]);
    one.sp_addr = static_cast<uint32_t>(int64_t{store.sp_addr} + begin * store.sp_stride[k]);
    made.emplace_back(one);
  }
  return made;
}

class Refining {
 public:
  Refining(std::vector<CoreCode>& codes, const isa::MachineConfig& config, const AwaitsOf& awaits,
           const Alone& alone, const Together& together)
      : codes_(codes), config_(config), awaits_(awaits), alone_(alone), together_(together), choices_(codes.size(), kAsItWas) {}

  void run(bool orders, bool pieces) {
    const std::optional<int64_t> before = together_(codes_);
    if (!before) return;
    least_ = *before;
    best_ = codes_;
    if (orders) turn();
    if (pieces) cut_layers();
    codes_ = std::move(best_);
  }

 private:
  /// A core's stream with the layers cut, and its engines' turns.
  std::vector<CoreCode> made(const std::map<uint32_t, size_t>& pieces, const std::vector<size_t>& choices) const {
    std::vector<CoreCode> made;
    for (size_t core = 0; core < codes_.size(); ++core) {
      made.push_back(pieces.empty() ? codes_[core] : in_pieces(codes_[core], pieces));
      if (choices[core] == kAsItWas) continue;
      CoreCode& code = made.back();
      sort(code, interleaved(code.works, awaits_(code), std::span(&kChoices[choices[core]], 1)).front());
    }
    return made;
  }

  CoreCode in_pieces(const CoreCode& code, const std::map<uint32_t, size_t>& pieces) const {
    CoreCode made;
    made.pool.share(code.pool);
    for (size_t i = 0; i < code.instructions.size(); ++i) {
      const auto way = pieces.find(code.layers[i]);
      Cut parts;
      if (way != pieces.end()) parts = cut_by(code.instructions[i], kPieces[way->second]);
      const auto push = [&](const isa::Instruction& instruction, const emit::Work* work) {
        made.instructions.push_back(instruction);
        made.works.push_back(work);
        made.tags.push_back(code.tags[i]);
        made.layers.push_back(code.layers[i]);
      };
      if (parts.size() < 2) push(code.instructions[i], code.works[i]);
      if (parts.size() < 2) continue;
      for (const isa::Instruction& part : parts) push(part, made.pool.add(part, config_));
    }
    return made;
  }

  Cut cut_by(const isa::Instruction& instruction, const Pieces& pieces) const {
    if (const auto* load = std::get_if<isa::Load>(&instruction); load != nullptr && pieces.loads)
      return cut(*load, pieces.count, config_.entry_bytes(isa::Space::kInp));
    if (const auto* gemm = std::get_if<isa::Gemm>(&instruction); gemm != nullptr && pieces.products)
      return cut(*gemm, pieces.count);
    if (const auto* alu = std::get_if<isa::Alu>(&instruction); alu != nullptr && pieces.vectors)
      return cut(*alu, pieces.count);
    if (const auto* store = std::get_if<isa::Store>(&instruction); store != nullptr && pieces.stores)
      return cut(*store, pieces.count, config_.entry_bytes(isa::Space::kOut));
    return {};
  }

  static void sort(CoreCode& code, const std::vector<uint32_t>& places) {
    const auto sorted = [&](auto& values) {
      const auto before = values;
      for (size_t i = 0; i < places.size(); ++i) values[i] = before[places[i]];
    };
    sorted(code.instructions);
    sorted(code.tags);
    sorted(code.layers);
    sorted(code.works);
  }

  bool better(std::vector<CoreCode> other) {
    const std::optional<int64_t> cycles = together_(other);
    if (!cycles || *cycles >= least_) return false;
    least_ = *cycles;
    best_ = std::move(other);
    return true;
  }

  /// All cores alike, and then each with the best of these.
  void turn() {
    for (const CoreCode& code : codes_)
      if (code.instructions.size() > kInterleaved) return;
    std::vector<std::vector<CoreCode>> ways(kChoices.size());  // by way and core
    for (size_t core = 0; core < codes_.size(); ++core) {
      const auto orders = interleaved(codes_[core].works, awaits_(codes_[core]), kChoices);
      int64_t least = alone_(codes_[core]);
      for (size_t way = 0; way < kChoices.size(); ++way) {
        ways[way].push_back(codes_[core]);
        sort(ways[way].back(), orders[way]);
        const int64_t cycles = alone_(ways[way].back());
        if (cycles >= least) continue;
        least = cycles;
        choices_[core] = way;
      }
    }
    std::vector<CoreCode> own;
    for (size_t core = 0; core < codes_.size(); ++core)
      own.push_back(choices_[core] == kAsItWas ? codes_[core] : ways[choices_[core]][core]);
    better(std::move(own));
    if (std::getenv("TDBG")) fprintf(stderr, "own %ld: %zu %zu %zu %zu\n", long(least_), choices_[0], choices_[1], choices_[2], choices_[3]);
    for (size_t way = 0; way < kChoices.size(); ++way)
      if (better(ways[way])) choices_.assign(codes_.size(), way);
    const int sweeps = std::getenv("TSW") ? std::atoi(std::getenv("TSW")) : 1;
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      bool any = false;
      for (size_t core = 0; core < codes_.size(); ++core) {
        for (size_t way = 0; way <= kAsItWas; ++way) {
          if (choices_[core] == way) continue;
          std::vector<CoreCode> other = best_;
          other[core] = way == kAsItWas ? codes_[core] : ways[way][core];
          if (better(std::move(other))) { choices_[core] = way; any = true; }
        }
      }
      if (std::getenv("TDBG")) fprintf(stderr, "sweep %d: %ld, choices %zu %zu\n", sweep, long(least_), choices_[0], choices_.back());
      if (!any) break;
    }
  }

  void cut_layers() {
    std::set<uint32_t> layers;
    for (const CoreCode& code : codes_) layers.insert(code.layers.begin(), code.layers.end());
    std::map<uint32_t, size_t> pieces;
    for (const uint32_t layer : layers) {
      for (size_t way = 0; way < kUncut; ++way) {
        std::map<uint32_t, size_t> other = pieces;
        other[layer] = way;
        if (better(made(other, choices_))) pieces = std::move(other);
      }
    }
  }

  std::vector<CoreCode>& codes_;
  const isa::MachineConfig& config_;
  const AwaitsOf& awaits_;
  const Alone& alone_;
  const Together& together_;
  std::vector<size_t> choices_;  // by core
  std::vector<CoreCode> best_;
  int64_t least_ = 0;
};

}  // namespace

void refine(std::vector<CoreCode>& codes, const isa::MachineConfig& config, const AwaitsOf& awaits,
            const Alone& alone, const Together& together, bool orders, bool pieces) {
  Refining(codes, config, awaits, alone, together).run(orders, pieces);
}

}  // namespace tessera::npu
