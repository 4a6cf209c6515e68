// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/lowering/kernel.h"

#include <array>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "compiler/npu/graph/plan.h"

namespace tessera::npu {

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "its kernel " + why + "; embed it again");
}

bool is_dense(const Tensor& t, const Placement& place) {
  const Placement dense = dense_placement(t, place.offset);
  return (t.w == 1 || place.pixel_pitch == dense.pixel_pitch) && (t.h == 1 || place.row_pitch == dense.row_pitch) &&
         (t.n == 1 || place.image_pitch == dense.image_pitch);
}

/// Moves what an instruction reads or writes in DRAM.
class Mover {
 public:
  Mover(const Graph& graph, const Kernel& kernel, const std::vector<Placement>& placements) : kernel_(kernel) {
    std::vector<TensorId> tensors = kernel.inputs();
    tensors.push_back(kernel.output);
    for (const TensorId id : tensors) {
      places_.push_back(placements[static_cast<size_t>(id)]);
      if (!is_dense(graph.tensors[static_cast<size_t>(id)], places_.back())) refuse("takes tensors without gaps");
    }
  }

  template <typename Transfer>
  void move(Transfer& transfer) const {
    if (transfer.base != kArenaBase) return;
    const auto offset = static_cast<int64_t>(transfer.dram_offset);
    for (size_t i = 0; i < places_.size(); ++i) {
      if (offset < kernel_.begins[i] || offset >= kernel_.ends[i]) continue;
      transfer.base = static_cast<uint8_t>(places_[i].base);
      transfer.dram_offset = static_cast<uint64_t>(offset - kernel_.begins[i] + places_[i].offset);
      return;
    }
    refuse("leaves its tensors");
  }

 private:
  const Kernel& kernel_;
  std::vector<Placement> places_;
};

isa::Instruction instruction_at(const std::vector<uint8_t>& words, size_t number) {
  isa::Word word{};
  static_assert(sizeof(word) == isa::kInstructionBytes);
  std::memcpy(&word, words.data() + number * isa::kInstructionBytes, sizeof(word));
  const isa::Decoded decoded = isa::decode(word);
  if (!decoded.instruction) refuse("holds a word that is no instruction");
  isa::Instruction instruction = *decoded.instruction;
  isa::header_of(instruction) = {};
  return instruction;
}

Stream stream_of(const isa::Instruction& instruction) {
  if (std::holds_alternative<isa::Store>(instruction)) return Stream::kOutput;
  const auto* load = std::get_if<isa::Load>(&instruction);
  if (load == nullptr) return Stream::kInstructions;
  constexpr std::array<Stream, isa::kSpaces> kOf = {Stream::kInput,  Stream::kWeights, Stream::kSecond,
                                                    Stream::kSecond, Stream::kParams,  Stream::kParams};
  return kOf.at(static_cast<size_t>(load->space));
}

size_t words_hash(const std::vector<uint8_t>& bytes) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

std::vector<TensorId> Kernel::inputs() const {
  std::vector<TensorId> all{input};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

size_t first_layer(const Graph& graph, size_t operation) {
  size_t layer = graph.operations.size();
  for (size_t i = 0; i < operation; ++i)
    if (const auto* kernel = std::get_if<Kernel>(&graph.operations[i].what)) layer += kernel->lines.size();
  return layer;
}

std::shared_ptr<const KernelCode> kernel_code(const Graph& graph, size_t operation,
                                              const std::vector<Placement>& placements) {
  const auto& kernel = std::get<Kernel>(graph.operations[operation].what);
  const Mover mover(graph, kernel, placements);
  const auto first = static_cast<uint32_t>(first_layer(graph, operation));
  auto code = std::make_shared<KernelCode>();
  for (size_t i = 0; i < kernel.line_of.size(); ++i) {
    isa::Instruction instruction = instruction_at(kernel.words, i);
    if (auto* load = std::get_if<isa::Load>(&instruction); load != nullptr && !load->fill) mover.move(*load);
    if (auto* store = std::get_if<isa::Store>(&instruction)) mover.move(*store);
    code->instructions.push_back(std::move(instruction));
    code->layers.push_back(first + static_cast<uint32_t>(kernel.line_of[i]));
  }
  code->constants = kernel.constants;
  code->key = "kernel " + std::to_string(words_hash(kernel.words)) + " " + std::to_string(words_hash(kernel.constants));
  return code;
}

void lower(const KernelCode& code, Emitter& emitter) {
  const auto bytes = static_cast<int64_t>(code.constants.size());
  int64_t constants = 0;
  if (bytes > 0)
    constants = emitter.weights == WeightBytes::kPlacesOnly ? emitter.constants.reserve(bytes)
                                                            : emitter.constants.add(code.constants);
  const uint32_t before = emitter.layer;
  for (size_t i = 0; i < code.instructions.size(); ++i) {
    if (i == 0 || code.layers[i] != code.layers[i - 1]) emitter.begin_step();
    emitter.layer = code.layers[i];
    isa::Instruction instruction = code.instructions[i];
    if (auto* load = std::get_if<isa::Load>(&instruction);
        load != nullptr && !load->fill && load->base == kConstantBase)
      load->dram_offset += static_cast<uint64_t>(constants);
    const Stream stream = stream_of(instruction);
    if (stream == Stream::kInstructions)
      emitter.push(instruction);
    else
      emitter.push(instruction, stream);
  }
  emitter.layer = before;
  emitter.forget();
  emitter.begin_step();
}

std::vector<LayerInfo> kernel_layers(const Graph& graph) {
  std::vector<LayerInfo> layers;
  for (const Operation& operation : graph.operations) {
    const auto* kernel = std::get_if<Kernel>(&operation.what);
    if (kernel == nullptr) continue;
    for (size_t line = 0; line < kernel->lines.size(); ++line) {
      LayerInfo& info = layers.emplace_back();
      const std::string& text = kernel->lines[line];
      const size_t space = text.find(' ');
      info.name = operation.name + " " + text.substr(0, space);
      info.kind = space == std::string::npos ? "" : text.substr(space + 1);
      info.macs = kernel->macs[line];
    }
  }
  return layers;
}

}  // namespace tessera::npu
