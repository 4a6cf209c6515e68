// SPDX-License-Identifier: Apache-2.0
// What every reader of an artifact may rely on. Enters: an artifact from a compiler or a file. Leaves: nothing, or the
// first broken promise. Sums of untrusted numbers are taken in 128 bits.
#include <algorithm>
#include <charconv>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "isa/program/artifact.h"
#include "isa/verify/verify.h"

namespace tessera::program {
namespace {

using Wide = __int128;

constexpr int64_t kLargestExtent = int64_t{1} << 40;
constexpr uint64_t kLargestBytes = uint64_t{1} << 48;
constexpr size_t kDeepestPlans = 100;  // a plan that runs another takes stack of the host

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::kInvalidArtifact, message); }

void require(bool condition, const std::string& where, const char* message) {
  if (!condition) fail(where + ": " + message);
}

std::string item(const char* kind, size_t k) { return std::string(kind) + " " + std::to_string(k); }

/// By the number of the DType. Bits of an element in memory, 0 where it has no fixed size; types of 2 and 6 bits take a
/// byte.
struct ElementType {
  std::string_view name;
  int bits;
};
constexpr ElementType kElementTypes[] = {
    {"undefined", 0},      {"float", 32},    {"uint8", 8},        {"int8", 8},           {"uint16", 16},
    {"int16", 16},         {"int32", 32},    {"int64", 64},       {"string", 0},         {"bool", 8},
    {"float16", 16},       {"double", 64},   {"uint32", 32},      {"uint64", 64},        {"complex64", 64},
    {"complex128", 128},   {"bfloat16", 16}, {"float8e4m3fn", 8}, {"float8e4m3fnuz", 8}, {"float8e5m2", 8},
    {"float8e5m2fnuz", 8}, {"uint4", 4},     {"int4", 4},         {"float4e2m1", 4},     {"float8e8m0", 8},
    {"uint2", 8},          {"int2", 8},      {"float6e2m3", 8},   {"float6e3m2", 8}};
static_assert(std::size(kElementTypes) == static_cast<size_t>(DType::kFloat6E3M2) + 1);

bool known(DType dtype) { return static_cast<int32_t>(dtype) >= 0 && dtype <= DType::kFloat6E3M2; }

bool in(int64_t index, size_t size) { return index >= 0 && static_cast<uint64_t>(index) < size; }

std::vector<isa::Instruction> decoded(const std::vector<uint8_t>& words) {
  constexpr size_t kBytes = isa::kInstructionBytes;
  if (words.size() % kBytes != 0) fail("its instructions are no whole number of words");
  std::vector<isa::Instruction> out;
  out.reserve(words.size() / kBytes);
  isa::Word word;
  for (size_t at = 0; at < words.size(); at += kBytes) {
    std::copy_n(words.begin() + static_cast<ptrdiff_t>(at), kBytes, word.begin());
    const isa::Decoded decoded = isa::decode(word);
    if (!decoded.instruction) {
      fail("instruction " + std::to_string(at / kBytes) + ": " + std::string(isa::to_string(decoded.fault)));
    }
    out.push_back(*decoded.instruction);
  }
  return out;
}

class Validator {
 public:
  explicit Validator(const Artifact& artifact) : a_(artifact), defined_(artifact.values.size(), false) {}

  void run() {
    try {
      isa::validate(a_.config);
    } catch (const Error& error) {
      fail(error.what());
    }
    for (size_t k = 0; k < a_.constants.size(); ++k) constant(a_.constants[k], item("constant", k));
    values();
    growth_limits();
    for (size_t k = 0; k < a_.npu_programs.size(); ++k) program(a_.npu_programs[k], item("npu program", k));
    require(!a_.plans.empty(), "program", "it has no plan");
    require(a_.plans[0].captured.empty(), "plan 0", "the main plan captures values");
    plan_order();
    for (size_t k = 0; k < a_.plans.size(); ++k) plan(a_.plans[k], item("plan", k));
    require(a_.output_names.empty() || a_.output_names.size() == a_.plans[0].outputs.size(), "program",
            "it names some of its outputs only");
    require(a_.output_keys.empty() || a_.output_keys.size() == a_.plans[0].outputs.size(), "program",
            "it has keys of some of its outputs only");
    for (size_t k = 0; k < a_.output_keys.size(); ++k) keys(k);
    pasts();
  }

 private:
  /// The value of an output that is a sequence of maps is a float matrix with a column for each key.
  void keys(size_t output) {
    const MapKeys& keys = a_.output_keys[output];
    if (keys.empty()) return;
    const std::string where = item("output", output);
    require(keys.strings.empty() || keys.ints.empty(), where, "keys are strings and integers");
    const ValueInfo& v = a_.values[static_cast<size_t>(a_.plans[0].outputs[output])];
    const auto count = static_cast<int64_t>(keys.strings.size() + keys.ints.size());
    require(v.kind == ValueKind::kTensor && v.dtype == DType::kFloat, where, "a map of what is no float tensor");
    require(!v.ranked || (v.shape.size() == 2 && (v.shape[1] < 0 || v.shape[1] == count)), where,
            "keys that are not one for each column");
  }

  void growth_limits() {
    const Growth& g = a_.growth;
    require(g.room >= 0 && g.room <= kLargestExtent && g.step >= 0 && g.step <= kLargestExtent &&
                g.state_bytes <= kLargestBytes,
            "growth", "impossible size");
    require(g.room > 0 || (g.pasts.empty() && g.state_bytes == 0), "growth", "there is none, and it has pasts");
  }

  void pasts() {
    for (const Past& past : a_.growth.pasts) {
      require(in(past.input, a_.plans[0].inputs.size()) && in(past.output, a_.plans[0].outputs.size()), "growth",
              "a past is no input or no output");
      for (const int64_t id : {a_.plans[0].inputs[static_cast<size_t>(past.input)],
                               a_.plans[0].outputs[static_cast<size_t>(past.output)]}) {
        const ValueInfo& value = a_.values[static_cast<size_t>(id)];
        require(value.kind == ValueKind::kTensor && in(past.axis, value.shape.size()) &&
                    value.shape[static_cast<size_t>(past.axis)] == -1,
                "growth", "a past does not grow");
      }
    }
  }

  void constant(const ConstantInfo& c, const std::string& where) {
    require(known(c.dtype) && c.dtype != DType::kUndefined, where, "unknown data type");
    if (c.dtype == DType::kString) {
      Wide count = 1;
      for (int64_t d : c.shape) {
        require(d >= 0 && d <= kLargestExtent, where, "impossible dimension");
        count *= d;
        require(count <= Wide{1} << 48, where, "impossible size");
      }
      require(count == static_cast<Wide>(c.strings.size()) && c.bytes == 0, where,
              "the number of strings is not that of its shape");
      return;
    }
    require(c.strings.empty(), where, "strings in a constant of numbers");
    uint64_t bytes = 0;
    try {
      bytes = tensor_bytes(c.dtype, c.shape);
    } catch (const Error& error) {
      fail(where + ": " + error.what());
    }
    require(bytes == c.bytes, where, "its bytes are not those of its shape");
    require(c.offset % 64 == 0, where, "its offset is no multiple of 64");
    require(Wide{c.offset} + c.bytes <= a_.constant_blob.size(), where, "it leaves the blob");
  }

  void values() {
    std::set<std::string_view> names;
    for (size_t k = 0; k < a_.values.size(); ++k) {
      const ValueInfo& v = a_.values[k];
      const std::string where = item("value", k) + " '" + v.name + "'";
      require(known(v.dtype), where, "unknown data type");
      require(v.kind <= ValueKind::kMap, where, "unknown kind");
      require(v.ranked || v.shape.empty(), where, "a shape without a rank");
      for (int64_t d : v.shape) require(d >= -1 && d <= kLargestExtent, where, "impossible dimension");
      require(v.dim_names.empty() || v.dim_names.size() == v.shape.size(), where,
              "names of dimensions do not match the shape");
      require(v.name.empty() || names.insert(v.name).second, where, "another value has this name");
      if (v.constant == -1) continue;
      require(in(v.constant, a_.constants.size()), where, "it names a constant that is not there");
      const ConstantInfo& c = a_.constants[static_cast<size_t>(v.constant)];
      require(v.kind == ValueKind::kTensor && v.ranked && v.shape == c.shape && v.dtype == c.dtype, where,
              "type or shape differ from its constant");
    }
  }

  /// ", layer 'NAME'" for a message of isa::check_program, which begins with "instruction N (".
  static std::string layer_of(const NpuProgram& p, const std::vector<uint32_t>& debug_map, const std::string& message) {
    constexpr std::string_view kStart = "instruction ";
    size_t n = 0;
    if (!message.starts_with(kStart)) return "";
    const char* digits = message.data() + kStart.size();
    const auto [rest, error] = std::from_chars(digits, message.data() + message.size(), n);
    if (error != std::errc{} || !std::string_view(rest).starts_with(" (")) return "";
    if (n >= debug_map.size() || debug_map[n] >= p.layers.size()) return "";
    return ", layer '" + p.layers[debug_map[n]].name + "'";
  }

  void program(const NpuProgram& p, const std::string& where) {
    require(p.constant_offset % 64 == 0, where, "the offset of its constants is no multiple of 64");
    require(Wide{p.constant_offset} + p.constant_bytes <= a_.device_constants.size(), where,
            "its constants leave the device constants");
    require(p.arena_bytes <= kLargestBytes, where, "impossible size of the arena");
    require(p.slides.size() <= kLengthTableBase - kFirstSlideBase, where, "too many base registers");
    for (const Slide& slide : p.slides)
      require(slide.pitch >= 0 && Wide{slide.pitch} * a_.growth.room <= Wide{a_.growth.state_bytes}, where,
              "impossible pitch");
    require(p.others.empty() || p.others.size() < static_cast<size_t>(a_.config.cores), where,
            "it has more streams than the machine has cores");
    std::vector<std::vector<isa::Instruction>> streams{stream(p, p.instructions, p.layer_of_instruction, where)};
    if (p.others.empty()) return;
    for (size_t core = 0; core < p.others.size(); ++core) {
      const CoreStream& other = p.others[core];
      streams.emplace_back();
      if (!other.instructions.empty())
        streams.back() =
            stream(p, other.instructions, other.layer_of_instruction, where + ", " + item("core", core + 1));
    }
    try {
      isa::check_programs(std::vector<std::span<const isa::Instruction>>(streams.begin(), streams.end()), a_.config);
    } catch (const Error& error) {
      fail(where + ": " + error.what());
    }
  }

  /// One core's instructions, checked.
  std::vector<isa::Instruction> stream(const NpuProgram& p, const std::vector<uint8_t>& words,
                                       const std::vector<uint32_t>& debug_map, const std::string& where) {
    std::vector<isa::Instruction> instructions;
    try {
      instructions = decoded(words);
      if (p.others.empty()) isa::check_program(instructions, a_.config);
    } catch (const Error& error) {
      fail(where + ": " + error.what() + layer_of(p, debug_map, error.what()));
    }
    for (size_t n = 0; n < instructions.size(); ++n) {
      const auto range = isa::dram_range(instructions[n]);
      if (!range) continue;
      const std::string at = where + ", " + item("instruction", n);
      if (range->base == kLengthTableBase && a_.growth.room > 0) {
        require(!range->write, at, "it writes to the constants");
        require(range->lowest >= 0 &&
                    Wide{range->highest} + Wide{kLengthTablePitch} * a_.growth.room < Wide{p.constant_bytes},
                at, "it leaves the constants");
        continue;
      }
      const int slide = range->base - kFirstSlideBase;
      require(range->base <= kArenaBase || (range->base == kStateBase && a_.growth.room > 0) ||
                  (slide >= 0 && in(slide, p.slides.size())),
              at, "it uses a base register that has no meaning");
      require(!(range->write && range->base == kConstantsBase), at, "it writes to the constants");
      require(range->write || slide < 0, at, "it reads where a run appends");
      const uint64_t limit = range->base == kConstantsBase ? p.constant_bytes
                             : range->base == kArenaBase   ? p.arena_bytes
                                                           : a_.growth.state_bytes;
      // What a shorter past moves down must stay inside, too.
      const Wide slack = slide < 0 ? Wide{0} : Wide{p.slides[static_cast<size_t>(slide)].pitch} * a_.growth.room;
      require(Wide{range->lowest} >= slack && Wide{range->highest} < Wide{limit}, at,
              range->base == kConstantsBase ? "it leaves the constants"
              : range->base == kArenaBase   ? "it leaves the arena"
                                            : "it leaves the state");
    }
    require(debug_map.empty() || debug_map.size() == instructions.size(), where,
            "the debug map does not have one entry for each instruction");
    for (uint32_t layer : debug_map) {
      require(layer == kNoLayer || layer < p.layers.size(), where, "the debug map names a layer that is not there");
    }
    return instructions;
  }

  /// Plans must not run each other in a circle, nor anything plan 0.
  void plan_order() {
    std::vector<std::vector<size_t>> runs(a_.plans.size());
    std::vector<size_t> pending(a_.plans.size(), 0);  // runners not yet ordered
    for (size_t k = 0; k < a_.plans.size(); ++k) {
      for (const Step& step : a_.plans[k].steps) {
        const auto* kernel = std::get_if<KernelStep>(&step);
        if (kernel == nullptr) continue;
        for (const Attribute& attribute : kernel->attributes) {
          if (attribute.kind != Attribute::kPlan) continue;
          require(in(attribute.plan, a_.plans.size()) && attribute.plan != 0, item("plan", k),
                  "an attribute names a plan that is not there");
          runs[k].push_back(static_cast<size_t>(attribute.plan));
          ++pending[static_cast<size_t>(attribute.plan)];
        }
      }
    }
    std::vector<size_t> ready, depth(a_.plans.size(), 1);
    for (size_t k = 0; k < pending.size(); ++k) {
      if (pending[k] == 0) ready.push_back(k);
    }
    size_t ordered = 0;
    while (!ready.empty()) {
      const size_t k = ready.back();
      ready.pop_back();
      ++ordered;
      require(depth[k] <= kDeepestPlans, "program", "its plans run each other too deeply");
      for (size_t next : runs[k]) {
        depth[next] = std::max(depth[next], depth[k] + 1);
        if (--pending[next] == 0) ready.push_back(next);
      }
    }
    require(ordered == a_.plans.size(), "program", "its plans run each other in a circle");
  }

  void plan(const Plan& p, const std::string& where) {
    available_.assign(a_.values.size(), false);
    for (size_t k = 0; k < a_.values.size(); ++k) available_[k] = a_.values[k].constant != -1;
    for (int64_t v : p.inputs) define(v, where);
    for (int64_t v : p.captured) {
      require(in(v, a_.values.size()), where, "it captures a value that is not there");
      available_[static_cast<size_t>(v)] = true;
    }
    for (size_t n = 0; n < p.steps.size(); ++n) {
      std::visit([&](const auto& step) { this->step(step, where + ", " + item("step", n)); }, p.steps[n]);
    }
    for (int64_t v : p.outputs) use(v, where);
  }

  void use(int64_t v, const std::string& where) {
    require(in(v, a_.values.size()), where, "it reads a value that is not there");
    require(available_[static_cast<size_t>(v)], where, "it reads a value before it is defined");
  }

  void define(int64_t v, const std::string& where) {
    require(in(v, a_.values.size()), where, "it defines a value that is not there");
    const auto k = static_cast<size_t>(v);
    require(a_.values[k].constant == -1, where, "it defines a constant");
    require(!defined_[k], where, "it defines a value that is defined already");
    defined_[k] = true;
    available_[k] = true;
  }

  void layer(int64_t l, const std::string& where) {
    require(l == -1 || in(l, a_.cpu_layers.size()), where, "it names a layer that is not there");
  }

  void step(const KernelStep& s, const std::string& where) {
    require(!s.op_type.empty(), where, "it has no operator");
    layer(s.layer, where);
    for (int64_t v : s.inputs) {
      if (v != -1) use(v, where);
    }
    std::set<std::string_view> names;
    for (const Attribute& attribute : s.attributes) {
      require(attribute.kind <= Attribute::kPlan, where, "an attribute has an unknown kind");
      require(names.insert(attribute.name).second, where, "an attribute is given twice");
      if (attribute.kind == Attribute::kTensor) {
        require(in(attribute.tensor, a_.constants.size()), where, "an attribute names a constant that is not there");
      }
      if (attribute.kind == Attribute::kPlan) {
        for (int64_t v : a_.plans[static_cast<size_t>(attribute.plan)].captured) use(v, where);
      }
    }
    for (int64_t v : s.outputs) {
      if (v != -1) define(v, where);
    }
  }

  /// `growing`: an axis that may be open.
  void static_shape(int64_t v, const std::string& where, int64_t growing = -1) {
    const ValueInfo& value = a_.values[static_cast<size_t>(v)];
    require(value.kind == ValueKind::kTensor && value.ranked && dtype_bits(value.dtype) != 0, where,
            "a value has no fixed type");
    std::vector<int64_t> shape = value.shape;
    if (growing != -1) {
      require(in(growing, shape.size()) && shape[static_cast<size_t>(growing)] == -1 && a_.growth.room > 0, where,
              "the axis that grows is none of its value");
      shape[static_cast<size_t>(growing)] = 1;
    }
    require(std::all_of(shape.begin(), shape.end(), [](int64_t d) { return d >= 0; }), where,
            "a value's shape is known only at run time");
    try {
      tensor_bytes(value.dtype, shape);
    } catch (const Error& error) {
      fail(where + ": " + error.what());
    }
  }

  void step(const CodeStep& s, const std::string& where) {
    require(!s.symbol.empty(), where, "it has no symbol");
    require(!a_.cpu.object.empty(), where, "the program holds no CPU code");
    require(s.scratch_bytes <= kLargestBytes, where, "impossible size of the scratch memory");
    layer(s.layer, where);
    for (int64_t v : s.inputs) {
      use(v, where);
      static_shape(v, where);
    }
    for (int64_t v : s.outputs) {
      define(v, where);
      static_shape(v, where);
    }
  }

  void step(const NpuStep& s, const std::string& where) {
    require(in(s.program, a_.npu_programs.size()), where, "it names a program that is not there");
    const uint64_t arena = a_.npu_programs[static_cast<size_t>(s.program)].arena_bytes;
    for (size_t k = 0; k < s.inputs.size(); ++k) {
      const std::string at = where + ", " + item("input", k);
      use(s.inputs[k].value, at);
      device_tensor(s.inputs[k], arena, at);
    }
    for (size_t k = 0; k < s.outputs.size(); ++k) {
      const DeviceTensor& t = s.outputs[k];
      const std::string at = where + ", " + item("output", k);
      define(t.value, at);
      device_tensor(t, arena, at);
      require(
          t.border_top == 0 && t.border_left == 0 && t.border_bottom == 0 && t.border_right == 0 && t.padded_c == t.c,
          at, "an output has no border and no padding");
    }
  }

  void device_tensor(const DeviceTensor& t, uint64_t arena, const std::string& where) {
    static_shape(t.value, where, t.growing_axis);
    const ValueInfo& value = a_.values[static_cast<size_t>(t.value)];
    require(t.dtype == value.dtype, where, "its type is not that of its value");
    require(t.base == kArenaBase || (t.base == kStateBase && a_.growth.room > 0), where,
            "it uses a base register that has no meaning");
    if (t.base == kStateBase) arena = a_.growth.state_bytes;
    require(dtype_bits(t.dtype) % 8 == 0, where, "its elements are no whole bytes");
    require(t.axes.size() == value.shape.size(), where, "it does not place every axis of its value");
    device_extents(t, value, where);
    device_layout(t, where);
    device_place(t, arena, where);
  }

  /// Its n, h, w and c are the axes of its value, merged.
  void device_extents(const DeviceTensor& t, const ValueInfo& value, const std::string& where) {
    std::array<Wide, 4> extent = {1, 1, 1, 1};
    for (size_t k = 0; k < t.axes.size(); ++k) {
      require(t.axes[k] >= 0 && t.axes[k] < 4, where, "it places an axis beyond the fourth");
      Wide& e = extent[static_cast<size_t>(t.axes[k])];
      if (t.growing_axis != static_cast<int64_t>(k)) e *= value.shape[k];
      require(e <= kLargestExtent, where, "impossible size");
    }
    if (t.growing_axis >= 0) {
      const auto d = static_cast<size_t>(t.axes[static_cast<size_t>(t.growing_axis)]);
      const Wide whole = std::array<Wide, 4>{t.n, t.h, t.w, t.c}[d];
      require(extent[d] > 0 && whole % extent[d] == 0 && whole / extent[d] >= a_.growth.room, where,
              "its extents are not those of its value");
      require(t.border_top == 0 && t.border_left == 0 && t.border_bottom == 0 && t.border_right == 0, where,
              "what grows has no border");
      extent[d] = whole;
    }
    require(extent[0] == t.n && extent[1] == t.h && extent[2] == t.w && extent[3] == t.c, where,
            "its extents are not those of its value");
    require(t.n > 0 && t.h > 0 && t.w > 0 && t.c > 0, where, "it is empty");
  }

  /// Padding, borders and pitches, each for itself.
  static void device_layout(const DeviceTensor& t, const std::string& where) {
    require(t.padded_c >= t.c && t.padded_c <= kLargestExtent, where, "impossible number of padded channels");
    require(t.border_top >= 0 && t.border_left >= 0 && t.border_bottom >= 0 && t.border_right >= 0, where,
            "negative border");
    constexpr int64_t kLargestPitch = int64_t{1} << 48;
    for (int64_t pitch : {t.image_pitch, t.row_pitch, t.pixel_pitch}) {
      require(pitch >= 0 && pitch <= kLargestPitch, where, "impossible pitch");
    }
  }

  /// All its bytes lie in a memory of `arena` bytes.
  static void device_place(const DeviceTensor& t, uint64_t arena, const std::string& where) {
    // Tensors that lay over themselves would take longer to write than the arena is large.
    const Wide pixels =
        Wide{t.n} * (Wide{t.h} + t.border_top + t.border_bottom) * (Wide{t.w} + t.border_left + t.border_right);
    require(pixels <= Wide{arena} && pixels * t.padded_c * (dtype_bits(t.dtype) / 8) <= Wide{arena}, where,
            "it does not fit in the arena");
    const Wide first = Wide{t.offset} - Wide{t.border_top} * t.row_pitch - Wide{t.border_left} * t.pixel_pitch;
    const Wide end = Wide{t.offset} + Wide{t.n - 1} * t.image_pitch + (Wide{t.h - 1} + t.border_bottom) * t.row_pitch +
                     (Wide{t.w - 1} + t.border_right) * t.pixel_pitch + Wide{t.padded_c} * (dtype_bits(t.dtype) / 8);
    require(first >= 0 && end <= Wide{arena}, where, "it leaves the arena");
  }

  const Artifact& a_;
  std::vector<bool> defined_;    // by any plan
  std::vector<bool> available_;  // to the next step of the plan at hand
};

}  // namespace

int dtype_bits(DType dtype) { return known(dtype) ? kElementTypes[static_cast<size_t>(dtype)].bits : 0; }

std::string_view dtype_name(DType dtype) {
  return known(dtype) ? kElementTypes[static_cast<size_t>(dtype)].name : std::string_view("?");
}

uint64_t tensor_bytes(DType dtype, std::span<const int64_t> shape) {
  const int bits = dtype_bits(dtype);
  if (bits == 0)
    throw Error(ErrorCode::kInvalidArgument, std::string(dtype_name(dtype)) + " elements have no fixed size");
  for (int64_t d : shape) {
    if (d < 0) throw Error(ErrorCode::kInvalidArgument, "a shape with dimension " + std::to_string(d) + " has no size");
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  Wide total = bits;
  for (int64_t d : shape) {
    total *= d;
    if (total > Wide{kLargestBytes} * 8) throw Error(ErrorCode::kInvalidArgument, "a tensor of more than 2^48 bytes");
  }
  return static_cast<uint64_t>((total + 7) / 8);
}

std::vector<isa::Instruction> instructions_of(const NpuProgram& program) { return decoded(program.instructions); }
std::vector<isa::Instruction> instructions_of(const CoreStream& stream) { return decoded(stream.instructions); }

std::vector<isa::Instruction> instructions_of(const NpuProgram& program, size_t core) {
  return core == 0 ? instructions_of(program) : instructions_of(program.others.at(core - 1));
}

const std::vector<uint32_t>& layers_of(const NpuProgram& program, size_t core) {
  return core == 0 || core > program.others.size() ? program.layer_of_instruction
                                                   : program.others[core - 1].layer_of_instruction;
}

uint64_t code_bytes(const NpuProgram& program) {
  uint64_t bytes = program.instructions.size();
  for (const CoreStream& stream : program.others) bytes += stream.instructions.size();
  return bytes;
}

std::vector<uint8_t> instruction_bytes(std::span<const isa::Instruction> instructions) {
  std::vector<uint8_t> out;
  out.reserve(instructions.size() * isa::kInstructionBytes);
  for (const isa::Instruction& instruction : instructions) {
    const isa::Word word = isa::encode(instruction);
    out.insert(out.end(), word.begin(), word.end());
  }
  return out;
}

void validate(const Artifact& artifact) { Validator(artifact).run(); }

}  // namespace tessera::program
