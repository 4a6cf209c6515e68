// SPDX-License-Identifier: Apache-2.0
// The input and the output of the NPU code generator. A Graph of quantised tensor operations with static shapes enters
// `compile`; a Program (instructions, constants, places of the tensors in DRAM) leaves it. The structs say what an
// operation computes and nothing about how: tiles, layouts on chip and waits are the generator's business. They are
// plain C++ so that the generator builds and is tested without MLIR.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/step_times.h"
#include "compiler/schedule/division.h"
#include "isa/config.h"
#include "isa/dram.h"
#include "isa/generated/instructions.h"

namespace tessera::npu {

/// Index into Graph::tensors; kNoTensor: absent.
using TensorId = int32_t;
inline constexpr TensorId kNoTensor = -1;

/// Pixels that stand around every image in DRAM, written by whoever writes the tensor (the runtime).
struct Border {
  int64_t top = 0, left = 0, bottom = 0, right = 0;
  int32_t value = 0;  // the byte, as the tensor's element type reads it: normally the zero point
  bool empty() const { return top == 0 && left == 0 && bottom == 0 && right == 0; }
  bool operator==(const Border&) const = default;
};

/// Where a tensor lives. open: the generator decides. chip: it goes from the operation that makes it to the next one
/// through the scratchpads, and has no place in DRAM; such neighbours form a chain.
enum class Scope : uint8_t { kOpen, kDram, kChip };

/// An activation in device DRAM, NHWC, c fastest. A matrix [rows, k] is n=1, h=1, w=rows, c=k. A vector per image is
/// h=w=1.
struct Tensor {
  std::string name;
  int64_t n = 1, h = 1, w = 1, c = 1;
  bool is_unsigned = false;    // uint8 instead of int8; ignored for 4-byte elements
  int32_t element_bytes = 1;   // 1, or 4: little-endian int32
  Border border;               // graph inputs only
  Scope scope = Scope::kOpen;  // of what is no view and no reshape
  /// Which part of the memory that stays from run to run holds it (Options::cache_offsets), or -1; of a graph input
  /// that is no view. Operations may write parts of it.
  int32_t cache = -1;
  /// Of a view into a cache that is only written: bytes by which its place moves down for each element that the past is
  /// shorter than Options::room. 0: it stays.
  int64_t slide = 0;

  // A tensor may be a part of another one (concatenation, slice, split): the box of its own shape that starts at
  // (view_n, view_h, view_w, view_c) of `view_of`. Same element type. Writing the view writes the parent.
  TensorId view_of = kNoTensor;
  int64_t view_n = 0, view_h = 0, view_w = 0, view_c = 0;
  // A strided view takes elements of `view_of` at regular distances instead: its (n,h,w,c) is the parent's element
  // number view_start + n*step_n + h*step_h + w*step_w + c in NHWC order. The parent has no border and is no view. A
  // step may be 0 in a view that is only read: the same elements again.
  bool strided = false;
  int64_t view_start = 0, step_n = 0, step_h = 0, step_w = 0;
  // Or the same bytes in another shape (equal element count): the parent has no border and is not itself a view into a
  // wider tensor. The NHWC order of the elements is kept.
  TensorId reshape_of = kNoTensor;

  int64_t elements() const { return n * h * w * c; }
  bool operator==(const Tensor&) const = default;
};

/// The operation with a second tensor. x = value of the first stage, y = element of `tensor` (exchanged when `swap`):
///   add: g = fma(float(x), rx, fma(float(y), ry, f))
///   mul: p = float((x - zx) * (y - zy));  g = fused ? fma(p, rx, f) : p * rx + f
///   max: g = float(max(x, y)), or min when `minimum`
///   result = RNE(clamp(g, low, high)) + zero      (low, high before the zero point, -512..511)
/// `tensor` has the output's shape, or 1 in any of the dimensions (broadcast). 1-byte elements.
struct SecondOperation {
  enum class Kind { kAdd, kMul, kMax };
  Kind kind = Kind::kAdd;
  TensorId tensor = kNoTensor;
  float rx = 1.0f, ry = 1.0f, f = 0.0f;
  int32_t zx = 0, zy = 0;
  int32_t low = -128, high = 127, zero = 0;
  bool swap = false, fused = false, minimum = false;
  bool operator==(const SecondOperation&) const = default;
};

/// 256 bytes indexed by the low 8 bits of the value.
using Table = std::vector<uint8_t>;

/// What happens to a sum, a maximum or a source element on its way to the output:
///   raw:      v + bias as int32; the output has 4-byte elements; nothing else may be set
///   convert:  v = RNE(clamp(float(v + bias[c]) * multiplier[c], low, high)) + out_zero
///   neither:  v = clamp(v, low, high) + out_zero                  (bias and multiplier stay empty)
///   then the table if any, then the second operation if any, then the second table if any; the low 8 bits are stored.
/// low, high, out_zero: -512..511 (out_zero -256..255). bias and multiplier hold 1 element or one for each channel;
/// an empty bias is 0.
struct Stage {
  bool raw = false;
  bool convert = false;
  std::vector<int32_t> bias;
  std::vector<float> multiplier;
  int32_t low = -512, high = 511, out_zero = 0;
  std::optional<Table> table;
  bool table_unsigned = false;  // entries of `table` are uint8 (matters to `second` only)
  std::optional<SecondOperation> second;
  std::optional<Table> second_table;
  bool operator==(const Stage&) const = default;
};

struct Padding {
  int64_t top = 0, left = 0, bottom = 0, right = 0;
  bool operator==(const Padding&) const = default;
};

/// sum over (i, y, x) of (input[n, oh*stride_h - top + y*dilation_h, ..., i] - input_zero) * (w[o, i, y, x] -
/// w_zero[o]), then `stage`. Pixels outside the image count as input_zero (contribute nothing). A 1-D convolution has
/// kernel_h = 1 and h = 1. Any group count that divides both channel counts; depthwise included.
struct Convolution {
  TensorId input = kNoTensor, output = kNoTensor;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  Padding pads;
  int64_t groups = 1;
  int32_t input_zero = 0;            // -256..255
  std::vector<int16_t> weights;      // [oc][ic/groups][kernel_h][kernel_w]: raw 8-bit values (int8 or uint8)
  std::vector<int32_t> weight_zero;  // 1 or oc elements; empty: 0
  Stage stage;
  bool operator==(const Convolution&) const = default;
};

/// Maximum, or int32 sum of raw elements, over windows; then `stage`. For an average: sum, bias = -count*zero,
/// convert with the multiplier. Global: kernel = image. Pixels outside the image read as `pad_value`
/// (maximum: the lowest value of the type; sum with pixels counted: the zero point).
struct Pool {
  enum class Kind { kMax, kSum };
  Kind kind = Kind::kMax;
  TensorId input = kNoTensor, output = kNoTensor;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  Padding pads;
  int32_t pad_value = 0;
  Stage stage;
  bool operator==(const Pool&) const = default;
};

/// output = stage(input): tables, requantisation, copies, and with stage.second the binary operations. Each dimension
/// of the input (and of the second tensor) equals the output's or is 1. A 4-byte input (int32) is allowed with convert
/// or raw. repeat_h, repeat_w: nearest-neighbour enlargement of the input by whole factors (output.h = input.h *
/// repeat_h).
struct Elementwise {
  TensorId input = kNoTensor, output = kNoTensor;
  int64_t repeat_h = 1, repeat_w = 1;
  Stage stage;
  bool operator==(const Elementwise&) const = default;
};

/// A product of two activations, for each (n, h): output[w, c] = sum over k of (input[w, k] - input_zero) * (factor[k,
/// c] - factor_zero), then `stage`; w are rows. `transposed`: the factor's matrices stand as [c, k], which is the order
/// the machine wants. n and h of input and factor equal the output's or are 1.
struct Product {
  TensorId input = kNoTensor, factor = kNoTensor, output = kNoTensor;
  bool transposed = true;
  int32_t input_zero = 0, factor_zero = 0;
  Stage stage;
  bool operator==(const Product&) const = default;
};

/// output[n, h, w, c] = stage(input[n, h, c, w]): the matrices of (n, h) transposed, as products with a unit matrix.
/// 1-byte elements, not raw.
struct Transposition {
  TensorId input = kNoTensor, output = kNoTensor;
  Stage stage;
  bool operator==(const Transposition&) const = default;
};

/// What is made of a row, by the formulas of isa/semantics.md (ROW_REDUCE, ROW_MAP), x being its bytes:
///   softmax:   m = max, or the highest byte with `fixed_shift`; s = sum of sum_tables[m - x];
///              v = map_tables[m - x] / s, as a number of binary32, rounded
///   normalise: moments of x - zero about the mean (or about 0 where not `centre`); v = normalised by them, times
///              factor[c] plus addend[c]
/// then v = clamp(v, stage.low, stage.high) + stage.out_zero. Tables: the bytes of 256 numbers, plane by plane.
struct RowForm {
  enum class Kind { kSoftmax, kNormalise };
  Kind kind = Kind::kSoftmax;
  Table sum_tables, map_tables;
  bool fixed_shift = false;
  int32_t zero = 0;
  bool centre = true;
  int64_t shift = 0, offset = 0, epsilon = 0;
  std::vector<int32_t> factor, addend;  // 1 element or one for each channel
  /// A softmax whose length is known when it runs, from `shortest` to all channels; 0: it is all channels. What stands
  /// behind the row becomes the zero point. There are no tables then but those that follow from the two scales.
  int64_t shortest = 0;
  float input_scale = 0, output_scale = 0;
  bool operator==(const RowForm&) const = default;
};

/// output[n, h, w, :] of all of input[n, h, w, :]. 1-byte elements.
struct Rows {
  TensorId input = kNoTensor, output = kNoTensor;
  RowForm form;
  Stage stage;  // bounds and zero point alone; convert says that there are factors
  bool operator==(const Rows&) const = default;
};

/// Instructions that somebody has written (tessera.tile), for this machine. Places in its own arena are moved to those
/// of the tensors: bytes begins[i] to ends[i] are the input, those of `more`, and last the output, each as a dense
/// tensor.
struct Kernel {
  TensorId input = kNoTensor, output = kNoTensor;
  std::vector<TensorId> more;         // inputs behind the first one
  std::vector<uint8_t> words;         // instructions, right when run one at a time
  std::vector<uint8_t> constants;     // base register 0
  std::vector<int64_t> begins, ends;  // bytes of base register 1
  std::vector<std::string> lines;     // of the source, "file.py:7 load"
  std::vector<int64_t> macs;          // of each line
  std::vector<int32_t> line_of;       // by instruction
  Stage stage;                        // none
  bool operator==(const Kernel&) const = default;

  std::vector<TensorId> inputs() const;
};

/// The longest row that a machine takes; 0: none.
int64_t longest_row(const isa::MachineConfig& config, RowForm::Kind kind);

inline constexpr int64_t kNoMacs = -1;

struct Operation {
  std::string name;  // of the ONNX node, for errors and reports
  std::string kind;  // of the ONNX node, e.g. "QLinearConv"
  int64_t macs = 0;  // of the model; 0: computed by the generator; kNoMacs: none, it only moves elements
  std::variant<Convolution, Pool, Elementwise, Product, Transposition, Rows, Kernel> what;
  std::vector<std::string> nodes;  // of the model that it stands for; one counts with the first of its operations
  /// Whether the result may stay on chip because the next operation alone reads it: a candidate for a chain. The pass
  /// mark-chains says so; false forbids it. Whether it does is its tensor's scope.
  std::optional<bool> feeds_next;
  bool operator==(const Operation&) const = default;
};

/// How a value of the host lies in a tensor: the device axis (0 image, 1 row, 2 column, 3 channel) of each of its axes.
struct Binding {
  int32_t value = -1;  // its number at the host
  TensorId tensor = kNoTensor;
  std::vector<int64_t> axes;
  bool operator==(const Binding&) const = default;
};

/// Operations in topological order: every tensor is a graph input or written before it is read.
struct Graph {
  std::string name;
  std::vector<Tensor> tensors;
  std::vector<Operation> operations;
  std::vector<TensorId> inputs, outputs;
  std::vector<Binding> host_inputs, host_outputs;  // of a program among others; the generator does not read them
  std::vector<std::string> free_nodes;             // of the model, that became strides: no operation stands for them
  bool operator==(const Graph&) const = default;

  TensorId add(Tensor tensor) {
    tensors.push_back(std::move(tensor));
    return static_cast<TensorId>(tensors.size()) - 1;
  }
};

/// The convolution that computes input [rows, k] (n=1, h=1, w=rows, c=k) times constant weights [k, n] row-major.
Convolution make_matmul(TensorId input, TensorId output, int32_t input_zero, int64_t k, int64_t n,
                        const std::vector<int16_t>& weights, std::vector<int32_t> weight_zero, Stage stage);

/// Base registers of a program.
inline constexpr uint32_t kConstantBase = 0;
inline constexpr uint32_t kArenaBase = 1;
inline constexpr uint32_t kCacheBase = 2;
inline constexpr uint32_t kFirstSlideBase = 3;    // and those behind it: one for each slide
inline constexpr uint32_t kLengthTableBase = 14;  // the constants, moved to the tables of the row length of this run

/// Where a tensor stands: bytes from base register `base`. Element (n,h,w,c) is at
/// offset + n*image_pitch + h*row_pitch + w*pixel_pitch + c*element_bytes; border pixels have negative h, w or h >= H,
/// w >= W.
struct Placement {
  uint32_t base = kArenaBase;
  int64_t offset = 0;
  int64_t image_pitch = 0, row_pitch = 0, pixel_pitch = 0;
  int64_t region_offset = 0, region_bytes = 0;  // the allocation that holds it, border included
};

/// What DRAM traffic is for. weights: the factor of a product too; params: bias, scale, constants and tables; second:
/// the second operand of a stage (a residual). In the order of program::kStreamNames.
enum class Stream : uint8_t { kInput, kWeights, kParams, kSecond, kOutput, kInstructions };
inline constexpr int kStreams = 6;

/// What became of one operation.
struct LayerInfo {
  std::string name, kind;
  int64_t macs = 0;         // of the model
  int64_t padded_macs = 0;  // that the machine spends, padding of lanes and edges included
  int64_t tiles = 0;
  int64_t dram_read_bytes = 0, dram_write_bytes = 0;  // of LOAD and STORE
  std::array<int64_t, kStreams> stream_bytes{};       // by Stream: the same traffic and the fetch of instructions
  int64_t estimated_cycles = 0;
  schedule::LayerSchedule schedule;                  // of the first core that has a part of it
  std::optional<schedule::DividedSchedule> divided;  // where several cores share the graph
};

/// The stream of a core.
struct CoreProgram {
  std::vector<isa::Instruction> instructions;
  std::vector<uint32_t> layer_of_instruction;
};

struct Program {
  std::vector<isa::Instruction> instructions;
  std::vector<uint32_t> layer_of_instruction;  // index into layers; FINISH and barriers belong to the layer before
  std::vector<uint8_t> constants;              // base register 0
  uint64_t arena_bytes = 0;                    // base register 1
  uint64_t unshared_bytes = 0;                 // the arena if no two tensors shared memory
  std::vector<Placement> placements;           // one for each tensor
  std::vector<int64_t> slides;                 // base registers from kFirstSlideBase on, by Tensor::slide
  std::vector<LayerInfo> layers;               // one for each operation, then those of the lines of kernels
  std::vector<CoreProgram> others;             // of cores 1 and up; empty where core 0 runs all
};

/// Whether what is fetched again while it still stands on the chip stays there (npu/forward.h): where the predictor
/// says that it takes fewer cycles. Without copies: LOADs stay that the vector unit would have to copy for.
enum class Forward : uint8_t { kNever, kIfFaster, kAlways, kWithoutCopies };

/// Of tensors and constants in DRAM, bytes.
inline constexpr int64_t kAlignment = 64;

struct SearchLog;
class ReplayMemo;
class SearchMemo;

struct Options {
  bool fold = true;              // pack small-channel windows into one pixel where the input's border allows it
  bool collapse_pixels = true;   // pointwise operations work on one long row of pixels
  bool chain = true;             // tensors that only the next operation reads may stay on chip
  bool products_between = true;  // a chain may have products that are neither its first nor its last operation
  bool prefetch_weights = true;  // fetched while earlier tiles compute
  Forward forward = Forward::kIfFaster;
  bool reuse_memory = true;     // tensors whose lives do not overlap share DRAM
  bool blank_weights = false;   // zeros in place of the weights' bytes: the program only tells its cycles
  bool virtual_threads = true;  // false: one copy of each operand of a nest, so that its engines take turns
  double traffic_weight = 0.2;  // what a cycle of the bus counts beside a cycle of time when schedules are chosen
  // By operation index; nothing or missing: the generator's choice. A chain stands at its first operation.
  std::vector<std::optional<schedule::LayerSchedule>> schedules;
  // The same for a chip of several cores. What has a schedule of the whole operation runs on core 0.
  std::vector<std::optional<schedule::DividedSchedule>> divided;
  std::string search = "exhaustive";       // who looks for schedules (schedule/searcher.h)
  std::string cost_model = "closed-form";  // by what it ranks them (schedule/cost_model.h)
  std::string judge = "replay";            // the cost model that decides among the best of them
  int64_t dram_latency_cycles = 100;       // of the memory that the program will run with: from a request to its data
  int64_t dram_bandwidth_bytes = 0;        // a cycle, reads and writes together; 0: the width of the bus
  isa::DramCost dram_cost;                 // of a real DRAM
  std::vector<int64_t> cache_offsets;      // of Tensor::cache, bytes
  int64_t room = 0;                        // the longest past
  SearchLog* search_log = nullptr;         // receives every candidate and why the winner won (search_log.h)
  std::shared_ptr<SearchMemo> memo;        // what earlier searches found (search_memo.h); nothing: each for itself
  std::shared_ptr<ReplayMemo> replays;     // what replays have cost on this and on other machines (replay_memo.h)
  std::shared_ptr<const std::atomic<bool>> stop;  // when it becomes true compile() throws Stopped
  std::shared_ptr<StepTimes> times;               // receives the seconds of the generator's steps
};

/// Thrown by a compilation that somebody has ended (Options::stop).
struct Stopped : std::exception {
  const char* what() const noexcept override { return "the compilation was ended"; }
};
inline void heed_stop(const Options& options) {
  if (options.stop != nullptr && *options.stop) throw Stopped();
}

/// Compiles a graph for a machine, for one core or (npu/cores.h) for all that it has. The program is legal
/// (isa::check_program), free of races and ends with FINISH. Errors: kInvalidArgument (shapes, ranges; names the
/// operation), kDoesNotFit (a minimal tile exceeds a scratchpad).
Program compile(const Graph& graph, const isa::MachineConfig& config, const Options& options = {});

/// Writes down where tensors live best: the scope of each that has none, so that the chains of the graph are those
/// that a compilation under the same options would choose. Given schedules count.
void place_chains(Graph& graph, const isa::MachineConfig& config, const Options& options);

/// The border that lets a convolution's input be folded (first layers with few channels), if folding pays on this
/// machine; empty otherwise. The caller puts it on the input tensor (value = input_zero) when it is a graph input.
Border folding_border(const Tensor& input, const Convolution& convolution, int64_t output_channels,
                      const isa::MachineConfig& config, const Options& options = {});

/// Whether a product whose factor stands as [k, c] is faster with the factor transposed first than with one fetched
/// byte by byte.
bool pays_to_transpose(const Tensor& input, const Tensor& factor, const Tensor& output,
                       const isa::MachineConfig& config, const Options& options = {});

/// The options for a question about a few operations: without what belongs to the whole graph.
Options alone(Options options);

}  // namespace tessera::npu
