// SPDX-License-Identifier: Apache-2.0
// The program container (.tsr): all that a runtime needs to run one compiled model. Enters: plain structs from a
// compiler, or the bytes of a file. Leaves: bytes, or structs whose every index, size and offset has been checked, so
// that a reader may use them without looking again. Compiler and runtime meet only here; nobody beyond this folder sees
// the encoding.
//
// Values are numbered once for the whole artifact (`values`), steps and plans name them by index. A value whose
// `constant` is set is bound to that constant everywhere; all others are defined exactly once: as an input of a plan or
// by a step. Dimensions of a value that are known only at run time are -1.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "isa/config.h"

namespace tessera::program {

/// Numbered like TensorProto.DataType of ONNX.
enum class DType : int32_t {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kBfloat16 = 16,
  kFloat8E4M3FN = 17,
  kFloat8E4M3FNUZ = 18,
  kFloat8E5M2 = 19,
  kFloat8E5M2FNUZ = 20,
  kUint4 = 21,
  kInt4 = 22,
  kFloat4E2M1 = 23,
  kFloat8E8M0 = 24,
  kUint2 = 25,
  kInt2 = 26,
  kFloat6E2M3 = 27,
  kFloat6E3M2 = 28,
};

/// Bits of one element, where types of 2 and 6 bits take a byte; 0 for kString and kUndefined, which have no fixed
/// size.
int dtype_bits(DType dtype);
/// The lower-case name ONNX tools print, e.g. "float16"; "?" for an unknown number.
std::string_view dtype_name(DType dtype);
/// Bytes of a dense tensor, 4-bit types packed two to a byte. Throws Error kInvalidArgument on a negative dimension,
/// kString, or more than 2^48 bytes.
uint64_t tensor_bytes(DType dtype, std::span<const int64_t> shape);

enum class ValueKind : uint8_t { kTensor = 0, kSequence = 1, kOptional = 2, kMap = 3 };

/// The keys of an output that is a sequence of maps (ZipMap): its value is a matrix, a row a map, a column a key.
/// Strings or integers, or neither where the output is no map.
struct MapKeys {
  std::vector<std::string> strings;
  std::vector<int64_t> ints;
  bool empty() const { return strings.empty() && ints.empty(); }
  bool operator==(const MapKeys&) const = default;
};

struct ValueInfo {
  std::string name;  // of the ONNX value; unique among named values, may be empty inside
  DType dtype = DType::kUndefined;
  bool ranked = false;
  std::vector<int64_t> shape;           // -1: known at run time; empty unless ranked
  std::vector<std::string> dim_names;   // empty, or one for each dimension ("" where it has no name)
  int64_t constant = -1;                // index in Artifact::constants
  ValueKind kind = ValueKind::kTensor;  // of sequences and optionals dtype and shape describe the element
  bool operator==(const ValueInfo&) const = default;
};

/// A dense row-major little-endian tensor in constant_blob. Strings stand in `strings` instead (bytes = 0).
struct ConstantInfo {
  DType dtype = DType::kUndefined;
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // multiple of 64
  uint64_t bytes = 0;
  std::vector<std::string> strings;
  bool operator==(const ConstantInfo&) const = default;
};

struct Attribute {
  enum Kind : uint8_t {
    kInt = 0,
    kFloat = 1,
    kString = 2,
    kInts = 3,
    kFloats = 4,
    kStrings = 5,
    kTensor = 6,
    kPlan = 7
  };
  std::string name;
  Kind kind = kInt;
  int64_t i = 0;
  float f = 0;
  std::string s;
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::vector<std::string> strings;
  int64_t tensor = -1;  // index in Artifact::constants
  int64_t plan = -1;    // index in Artifact::plans: the body of If, Loop, Scan
  bool operator==(const Attribute&) const = default;
};

/// One operator run by the library of typed kernels. Dynamic shapes are allowed.
struct KernelStep {
  std::string domain;  // "" is the ONNX domain
  std::string op_type;
  int32_t version = 0;  // opset version of the domain
  std::string node_name;
  std::vector<Attribute> attributes;
  std::vector<int64_t> inputs, outputs;  // values; -1: absent
  int64_t layer = -1;                    // index in Artifact::cpu_layers, -1: not listed
  bool operator==(const KernelStep&) const = default;
};

/// Compiled code in CpuModule: `void symbol(void** buffers)`, buffers = data of inputs, then outputs, then scratch
/// (absent when scratch_bytes is 0), each 64-byte aligned. Shapes are static, tensors dense row-major; inputs are not
/// written.
struct CodeStep {
  std::string symbol;
  std::string node_name;
  std::vector<int64_t> inputs, outputs;
  uint64_t scratch_bytes = 0;
  int64_t layer = -1;  // index in Artifact::cpu_layers, -1: not listed
  bool operator==(const CodeStep&) const = default;
};

/// Where a value lies in the arena of an NPU program: pixel (0, 0), channel 0 of image 0 at `offset`, elements at
/// offset + image * image_pitch + row * row_pitch + column * pixel_pitch + channel * element bytes.
///
/// axes[k] names the device axis of the value's axis k: 0 image, 1 row, 2 column, 3 channel. Several axes of the value
/// may name the same device axis: they are merged in their order, row-major. A device axis that none names has
/// extent 1. NCHW values have {0, 3, 1, 2}, a matrix [rows, columns] {2, 3} or {0, 3}.
///
/// For inputs the runtime also writes `border_value` to every byte of the border (rows -top .. h + bottom, columns
/// -left .. w + right, outside the image) and of channels c .. padded_c of all these pixels; no other byte is touched.
/// For outputs borders are 0 and padded_c is c.
struct DeviceTensor {
  int64_t value = -1;
  uint64_t offset = 0;  // bytes from the arena's start
  DType dtype = DType::kUndefined;
  int64_t n = 1, h = 1, w = 1, c = 1;
  int64_t image_pitch = 0, row_pitch = 0, pixel_pitch = 0;  // bytes
  std::vector<int64_t> axes;
  int32_t border_top = 0, border_left = 0, border_bottom = 0, border_right = 0;
  int64_t padded_c = 1;
  uint8_t border_value = 0;
  /// The base register that `offset` counts from: the arena, or what stays from run to run.
  int32_t base = 1;
  /// The value's axis that grows with the past (Growth), or -1. Its extent in n, h, w, c is the largest. At run time
  /// the value has the first of its elements alone; of inputs the runtime writes `fill` into the others.
  int64_t growing_axis = -1;
  uint8_t fill = 0;
  bool operator==(const DeviceTensor&) const = default;
};

/// A program that runs on the device. Base register 0 holds the address of the program's device constants, base
/// register 1 that of its arena; both 64-byte aligned. The arena's content is undefined before the step's inputs are
/// written.
struct NpuStep {
  int64_t program = 0;  // index in Artifact::npu_programs
  std::vector<DeviceTensor> inputs, outputs;
  bool operator==(const NpuStep&) const = default;
};

using Step = std::variant<KernelStep, CodeStep, NpuStep>;

/// Steps in an order in which they can run one by one. plans[0] is the model; others are bodies of control flow, whose
/// `captured` values come from the plan that runs them.
struct Plan {
  std::vector<int64_t> inputs, outputs;  // values
  std::vector<Step> steps;
  std::vector<int64_t> captured;  // values
  bool operator==(const Plan&) const = default;
};

/// One line of a report: a fused group of the model's nodes and where it runs.
struct Layer {
  std::string name;       // of the node that gives the group its name
  std::string op;         // e.g. "conv+relu"
  std::string placement;  // "npu" or "cpu"
  uint64_t macs = 0;      // of the model, not of padding
  std::string schedule_json;
  std::vector<std::string> nodes;  // names of the ONNX nodes it computes
  uint64_t predicted_cycles = 0;   // the compiler's cost model
  uint64_t bound_cycles = 0;       // roofline
  uint64_t dram_read_bytes = 0;    // planned
  uint64_t dram_write_bytes = 0;
  std::vector<uint64_t> stream_bytes;  // planned, by kStreamNames; empty where unknown
  bool operator==(const Layer&) const = default;
};

/// What a layer's DRAM traffic is for. "second" is the second operand of an element-wise stage, for example a residual.
inline constexpr std::array<std::string_view, 6> kStreamNames = {"input",  "weights", "params",
                                                                 "second", "output",  "instructions"};

/// The name under which schedules of a layer are kept: its own, or "name#2" for the second layer of that name and so
/// on. `seen` counts names and is carried from layer to layer, in the order of programs and layers.
std::string layer_key(const std::string& name, std::map<std::string, int64_t>& seen);

inline constexpr uint32_t kNoLayer = 0xffffffff;
inline constexpr int kConstantsBase = 0;  // base registers
inline constexpr int kArenaBase = 1;
inline constexpr int kStateBase = 2;       // what stays from run to run
inline constexpr int kFirstSlideBase = 3;  // and those behind it
/// Of programs that grow: the constants, moved by `kLengthTablePitch` for each element of the past, for LOAD alone.
/// isa::kRowLimitBase then has the past and what a run adds.
inline constexpr int kLengthTableBase = 14;
inline constexpr int64_t kLengthTablePitch = 1024;

/// A base register whose address follows the past: the state's minus (Growth::room - length of the past) * pitch. STORE
/// instructions alone use it. They name the place that is right for the longest past.
struct Slide {
  int64_t pitch = 0;  // bytes from one element of the past to the next
  bool operator==(const Slide&) const = default;
};

/// The instructions of one core among several.
struct CoreStream {
  std::vector<uint8_t> instructions;           // 64 bytes each; none: the core stays idle
  std::vector<uint32_t> layer_of_instruction;  // as NpuProgram's
  bool operator==(const CoreStream&) const = default;
};

/// What runs on the device. On a machine of several cores `instructions` are those of core 0.
struct NpuProgram {
  std::vector<uint8_t> instructions;  // 64 bytes each
  std::vector<uint32_t>
      layer_of_instruction;      // debug map: index in `layers` or kNoLayer; empty or one for each instruction
  uint64_t constant_offset = 0;  // in Artifact::device_constants, multiple of 64
  uint64_t constant_bytes = 0;
  uint64_t arena_bytes = 0;
  std::vector<Layer> layers;
  std::vector<Slide> slides;       // base registers from kFirstSlideBase on
  std::vector<CoreStream> others;  // of cores 1, 2, ...; those behind its end stay idle
  bool operator==(const NpuProgram&) const = default;
};

/// Code for the CPU: an object for one target and the LLVM bitcode to make another.
struct CpuModule {
  std::string triple, cpu, features;
  std::vector<uint8_t> object, bitcode;
  bool operator==(const CpuModule&) const = default;
};

/// Sums over the model that the rest of the artifact does not tell.
struct Totals {
  uint64_t nodes_npu = 0, nodes_cpu = 0;  // nodes of the ONNX graph by where they run
  uint64_t macs_npu = 0, macs_cpu = 0;    // multiply-accumulates of the model, not of padding
  uint64_t unshared_bytes = 0;            // the arenas if no two tensors shared memory
  bool operator==(const Totals&) const = default;
};

/// An input of the model that a run extends, and the output that it leaves: the first elements along `axis` are those
/// of the input.
struct Past {
  int64_t input = -1, output = -1;  // indices into plans[0].inputs and outputs
  int64_t axis = 0;                 // of both
  bool operator==(const Past&) const = default;
};

/// A program for any length of the past. Axes of values that grow with it are -1 in their shapes.
struct Growth {
  int64_t room = 0;  // the longest past; 0: nothing grows
  int64_t step = 0;  // elements that a run adds
  std::vector<Past> pasts;
  uint64_t state_bytes = 0;  // device memory that stays from run to run
  bool operator==(const Growth&) const = default;
};

struct Artifact {
  std::string producer;
  isa::MachineConfig config;
  std::vector<ValueInfo> values;
  std::vector<ConstantInfo> constants;
  std::vector<uint8_t> constant_blob;     // read by CPU steps
  std::vector<uint8_t> device_constants;  // copied to the device's memory
  std::vector<Plan> plans;
  std::vector<NpuProgram> npu_programs;
  CpuModule cpu;
  std::vector<Layer> cpu_layers;
  std::vector<std::string> output_names;  // of plans[0].outputs, which may share a value; empty: the values' names
  std::vector<MapKeys> output_keys;       // of plans[0].outputs; empty: no output is a map
  Totals totals;
  Growth growth;
  bool operator==(const Artifact&) const = default;
};

/// Checks what the comments above promise: indices, sizes, offsets, definition before use, instructions that decode and
/// obey isa::check_program, DRAM addresses inside constants and arena (constants are not written). Throws Error
/// kInvalidArtifact.
void validate(const Artifact& artifact);

/// The bytes of a .tsr file. Validates first. Throws Error kInvalidArtifact.
std::vector<uint8_t> serialize(const Artifact& artifact);

/// Reads and validates. Throws Error kInvalidArtifact for a file that is truncated, foreign, damaged or of another
/// version.
Artifact parse(std::span<const uint8_t> bytes);

/// Throw Error kIo, and what serialize and parse throw; the message names the file.
void save(const Artifact& artifact, const std::string& path);
Artifact load(const std::string& path);

/// The decoded instructions of a program (core 0's), or of another core. Throws Error kInvalidArtifact naming the
/// instruction.
std::vector<isa::Instruction> instructions_of(const NpuProgram& program);
std::vector<isa::Instruction> instructions_of(const CoreStream& stream);
/// Streams of a program: 1, or more on a machine of several cores.
inline size_t streams_of(const NpuProgram& program) { return 1 + program.others.size(); }
/// The decoded instructions of a core. Errors: as above.
std::vector<isa::Instruction> instructions_of(const NpuProgram& program, size_t core);
/// The debug map of a core; core 0's for a core without a stream.
const std::vector<uint32_t>& layers_of(const NpuProgram& program, size_t core);
/// All instruction words, of all cores, in bytes.
uint64_t code_bytes(const NpuProgram& program);
/// The reverse: words one after the other.
std::vector<uint8_t> instruction_bytes(std::span<const isa::Instruction> instructions);

}  // namespace tessera::program
