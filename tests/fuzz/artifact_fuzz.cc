// SPDX-License-Identifier: Apache-2.0
// Artifacts. Enters: the bytes of a .tsr file. A mutation takes the metadata apart into its tables, changes one to
// three fields of any of them (an index, a size, a name, a table more or less, a field of an instruction), packs them
// again and frames them with right checksums; now and then it changes a blob. Properties: a program is refused with an
// error, or everything that reads it copes: its description, its listing, its schedules; and, when it carries no
// machine code, a run on the functional simulator ends in results or an error. Machine code is trusted or not run
// (docs/security.md); it is not changed here, and programs that hold some are not run.
#include <cstring>
#include <set>

#include "driver/registry.h"
#include "isa/assembler.h"
#include "isa/program/artifact.h"
#include "isa/program/container.h"
#include "isa/random_instruction.h"
#include "isa/verify/effects.h"
#include "runtime/executor.h"
#include "tessera/report/description.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/program_fuzz_generated.h"

namespace tessera::fuzz {
namespace {

constexpr uint64_t kHeapBytes = uint64_t{64} << 20;
constexpr int64_t kMostElements = 1 << 20;
constexpr int64_t kMostWork = 1 << 21;  // iterations and bytes

// ---- running

/// Loops run as long as they say, and no limit of ours would be the model's meaning.
bool loops(const program::Artifact& artifact) {
  for (const program::Plan& plan : artifact.plans) {
    for (const program::Step& step : plan.steps) {
      const auto* kernel = std::get_if<program::KernelStep>(&step);
      if (kernel != nullptr && kernel->op_type == "Loop") return true;
    }
  }
  return false;
}

/// Whether the programs end soon: their loops run as long as they say, too.
bool short_programs(const program::Artifact& artifact) {
  int64_t work = 0;
  for (const program::NpuProgram& npu : artifact.npu_programs) {
    for (const isa::Instruction& instruction : program::instructions_of(npu)) {
      const isa::Effects effects = isa::effects(instruction, artifact.config);
      work += effects.iterations + effects.dram_read_bytes + effects.dram_write_bytes + effects.fill_bytes;
      if (work > kMostWork) return false;
    }
  }
  return true;
}

/// An input of the declared type with small numbers; nothing when it is none that a user would have at hand.
bool make_input(const program::ValueInfo& info, ops::Value& value) {
  if (info.kind != program::ValueKind::kTensor) return false;
  ops::Shape shape = info.shape;
  int64_t count = 1;
  for (int64_t& extent : shape) {
    if (extent < 0) extent = 2;
    if (extent > kMostElements) return false;
    count *= std::max<int64_t>(extent, 1);
    if (count > kMostElements) return false;
  }
  const auto dtype = static_cast<ops::DType>(info.dtype);
  if (dtype == ops::DType::kUndefined) return false;
  ops::Tensor tensor(dtype, shape);
  if (dtype == ops::DType::kFloat) {
    for (float& v : tensor.as_mutable<float>()) v = static_cast<float>(&v - tensor.as_mutable<float>().data()) / 7.0f;
  } else if (dtype != ops::DType::kString) {
    std::byte* bytes = tensor.mutable_data();
    const int64_t width = ops::element_bytes(dtype);
    for (int64_t k = 0; k < tensor.size(); ++k) {
      bytes[k * width] = static_cast<std::byte>(dtype == ops::DType::kBool ? k % 2 : k % 5);
    }
  }
  value = std::move(tensor);
  return true;
}

void run(const program::Artifact& artifact) {
  if (!artifact.cpu.object.empty() || !artifact.cpu.bitcode.empty() || loops(artifact) || !short_programs(artifact))
    return;
  std::vector<ops::Value> inputs;
  for (const int64_t id : artifact.plans[0].inputs) {
    if (!make_input(artifact.values[static_cast<size_t>(id)], inputs.emplace_back())) return;
  }
  driver::DeviceOptions options;
  options.heap_bytes = kHeapBytes;
  std::shared_ptr<driver::Device> device = driver::open_device("fsim", artifact.config, options);
  runtime::Executor executor(std::make_shared<program::Artifact>(artifact), device);
  executor.run(inputs);
}

// ---- changing

using namespace tessera::fuzz_schema;  // NOLINT(google-build-using-namespace): every table of the schema

/// Visits every field of an artifact; the one whose number is drawn is changed.
class Mutation {
 public:
  Mutation(Random& random, ArtifactT& artifact, int64_t chosen) : random_(random), artifact_(artifact), left_(chosen) {}

  /// The fields visited, all of them when none was chosen.
  int64_t visit() {
    visit(artifact_);
    return visited_;
  }

 private:
  bool here() { return visited_++ == left_; }

  template <typename T>
  void number(T& value) {
    if (!here()) return;
    if constexpr (std::is_same_v<T, bool>) {
      value = !value;
    } else if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>(random_.number(static_cast<double>(value)));
    } else {
      value = static_cast<T>(random_.chance(30) ? static_cast<int64_t>(random_.below(artifact_.values.size() + 2)) - 1
                                                : random_.integer(static_cast<int64_t>(value)));
    }
  }

  void text(std::string& value) {
    if (here()) value = random_.chance(30) ? some_text() : random_.text(value, 200);
  }

  /// A text that stands elsewhere in the artifact: another operator, attribute or name.
  std::string some_text() {
    std::vector<std::string> texts = {"", "Loop", "If", "Constant", "axis", "\xff"};
    for (const auto& plan : artifact_.plans) {
      for (const auto& step : plan->steps) {
        const KernelStepT* kernel = step->body.AsKernelStep();
        if (kernel == nullptr) continue;
        texts.insert(texts.end(), {kernel->op_type, kernel->domain, kernel->node_name});
        for (const auto& attribute : kernel->attributes) texts.push_back(attribute->name);
      }
    }
    for (const auto& value : artifact_.values) texts.push_back(value->name);
    return random_.of(texts);
  }

  template <typename T>
  void numbers(std::vector<T>& values) {
    if (here()) {
      const size_t at = random_.below(values.size() + 1);
      if (values.empty() || random_.chance(40)) {
        values.insert(values.begin() + static_cast<ptrdiff_t>(at), static_cast<T>(random_.integer(1)));
      } else if (random_.chance(50)) {
        values.erase(values.begin() + static_cast<ptrdiff_t>(random_.below(values.size())));
      } else {
        values.resize(random_.below(2 * values.size() + 1));
      }
    }
    if (values.size() > 64) {  // an element of many counts as one field
      if (here()) change(random_.of(values));
      return;
    }
    for (T& value : values) {
      if (here()) change(value);
    }
  }
  template <typename T>
  void change(T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>(random_.number(static_cast<double>(value)));
    } else {
      value = static_cast<T>(random_.chance(40) ? static_cast<int64_t>(random_.below(8)) - 1
                                                : random_.integer(static_cast<int64_t>(value)));
    }
  }

  void texts(std::vector<std::string>& values) {
    if (here()) {
      if (values.empty() || random_.chance(50)) {
        values.push_back(some_text());
      } else {
        values.pop_back();
      }
    }
    for (std::string& value : values) text(value);
  }

  template <typename T>
  void tables(std::vector<std::unique_ptr<T>>& values) {
    if (here() && !values.empty()) {
      const size_t at = random_.below(values.size());
      switch (random_.below(3)) {
        case 0: values.erase(values.begin() + static_cast<ptrdiff_t>(at)); break;
        case 1: values.push_back(std::make_unique<T>(*values[at])); break;
        default: std::swap(values[at], random_.of(values));
      }
    }
    for (auto& value : values) visit(*value);
  }

  /// Words of 64 bytes: fields change inside a word, words come and go.
  void instructions(std::vector<uint8_t>& bytes) {
    for (int weight = 0; weight < 20; ++weight) {
      if (here()) change_instructions(bytes);
    }
  }

  void change_instructions(std::vector<uint8_t>& bytes) {
    constexpr size_t kWord = isa::kInstructionBytes;
    const size_t words = bytes.size() / kWord;
    if (words == 0) return;
    const auto at = bytes.begin() + static_cast<ptrdiff_t>(random_.below(words) * kWord);
    if (random_.chance(10)) {
      bytes.erase(at, at + kWord);
      return;
    }
    isa::Word word;
    std::copy_n(at, kWord, word.begin());
    isa::Decoded decoded = isa::decode(word);
    if (!decoded.instruction || random_.chance(5)) {
      *(at + static_cast<ptrdiff_t>(random_.below(kWord))) ^= static_cast<uint8_t>(1u << random_.below(8));
      return;
    }
    std::mt19937_64 engine(random_.bits());
    std::visit(
        [&](auto& instruction) {
          size_t fields = 0;
          isa::visit_fields(instruction, [&](const isa::Field&, auto&) { ++fields; });
          size_t chosen = random_.below(fields);
          isa::visit_fields(instruction, [&](const isa::Field& field, auto& member) {
            if (chosen-- == 0) isa::randomise(engine, field, member);
          });
        },
        *decoded.instruction);
    word = isa::encode(*decoded.instruction);
    if (random_.chance(10)) {
      bytes.insert(at, word.begin(), word.end());
    } else {
      std::copy(word.begin(), word.end(), at);
    }
  }

  void visit(ValueT& v) {
    text(v.name), number(v.dtype), number(v.ranked), numbers(v.shape), texts(v.dim_names), number(v.constant),
        number(v.kind);
  }
  void visit(ConstantT& c) { number(c.dtype), numbers(c.shape), number(c.offset), number(c.bytes), texts(c.strings); }
  void visit(AttributeT& a) {
    text(a.name), number(a.kind), number(a.i), number(a.f), text(a.s), numbers(a.ints), numbers(a.floats),
        texts(a.strings), number(a.tensor), number(a.plan);
  }
  void visit(KernelStepT& s) {
    text(s.domain), text(s.op_type), number(s.version), text(s.node_name), tables(s.attributes), numbers(s.inputs),
        numbers(s.outputs), number(s.layer);
  }
  void visit(CodeStepT& s) {
    text(s.symbol), text(s.node_name), numbers(s.inputs), numbers(s.outputs), number(s.scratch_bytes), number(s.layer);
  }
  void visit(DeviceTensorT& t) {
    number(t.value), number(t.offset), number(t.dtype), number(t.n), number(t.h), number(t.w), number(t.c),
        number(t.image_pitch), number(t.row_pitch), number(t.pixel_pitch), numbers(t.axes), number(t.border_top),
        number(t.border_left), number(t.border_bottom), number(t.border_right), number(t.padded_c),
        number(t.border_value);
  }
  void visit(NpuStepT& s) { number(s.program), tables(s.inputs), tables(s.outputs); }
  void visit(StepT& s) {
    if (s.body.value == nullptr) s.body.Reset();  // of a kind, and not there: it cannot be packed
    if (auto* kernel = s.body.AsKernelStep()) visit(*kernel);
    if (auto* code = s.body.AsCodeStep()) visit(*code);
    if (auto* npu = s.body.AsNpuStep()) visit(*npu);
  }
  void visit(PlanT& p) { numbers(p.inputs), numbers(p.outputs), tables(p.steps), numbers(p.captured); }
  void visit(LayerT& l) {
    text(l.name), text(l.op), text(l.placement), number(l.macs), text(l.schedule_json), texts(l.nodes),
        number(l.predicted_cycles), number(l.bound_cycles), number(l.dram_read_bytes), number(l.dram_write_bytes),
        numbers(l.stream_bytes);
  }
  void visit(NpuProgramT& p) {
    instructions(p.instructions), numbers(p.layer_of_instruction), number(p.constant_offset), number(p.constant_bytes),
        number(p.arena_bytes), tables(p.layers);
  }
  void visit(TotalsT& t) {
    number(t.nodes_npu), number(t.nodes_cpu), number(t.macs_npu), number(t.macs_cpu), number(t.unshared_bytes);
  }
  void visit(ArtifactT& a) {
    text(a.producer), text(a.config), tables(a.values), tables(a.constants), tables(a.plans), tables(a.npu_programs),
        tables(a.cpu_layers), texts(a.output_names);
    if (a.totals) visit(*a.totals);
  }

  Random& random_;
  ArtifactT& artifact_;
  int64_t left_, visited_ = 0;
};

std::vector<uint8_t> mutated(Random& random, std::span<const uint8_t> bytes) {
  program::Sections sections = program::unframe(bytes);
  std::vector<uint64_t> aligned((sections.metadata.size() + 7) / 8);
  std::memcpy(aligned.data(), sections.metadata.data(), sections.metadata.size());
  const auto* metadata = reinterpret_cast<const uint8_t*>(aligned.data());
  flatbuffers::Verifier verifier(metadata, sections.metadata.size());
  if (!VerifyArtifactBuffer(verifier)) throw Error(ErrorCode::kInvalidArtifact, "no metadata to change");
  const std::unique_ptr<ArtifactT> artifact = UnPackArtifact(metadata);
  for (size_t k = 1 + random.below(3); k > 0; --k) {
    const int64_t fields = Mutation(random, *artifact, -1).visit();
    Mutation(random, *artifact, static_cast<int64_t>(random.below(static_cast<size_t>(fields)))).visit();
  }
  flatbuffers::FlatBufferBuilder builder;
  builder.ForceDefaults(true);
  FinishArtifactBuffer(builder, CreateArtifact(builder, artifact.get()));
  std::vector<uint8_t> constants(sections.constant_blob.begin(), sections.constant_blob.end());
  if (!constants.empty() && random.chance(20)) random.of(constants) = static_cast<uint8_t>(random.integer(0));
  return program::frame({{builder.GetBufferPointer(), builder.GetSize()}, constants, sections.device_constants});
}

/// Bytes of the metadata, whatever they mean, under right checksums.
std::vector<uint8_t> damaged(Random& random, std::span<const uint8_t> bytes) {
  const program::Sections sections = program::unframe(bytes);
  std::vector<uint8_t> metadata(sections.metadata.begin(), sections.metadata.end());
  const size_t size = metadata.size();
  metadata.resize(size + 64);
  metadata.resize(LLVMFuzzerMutate(metadata.data(), size, size + 64));
  return program::frame({metadata, sections.constant_blob, sections.device_constants});
}

}  // namespace
}  // namespace tessera::fuzz

using namespace tessera;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  // Small tensors: what asks for more is refused by the limit, and not computed for minutes.
  setenv("TESSERA_MEMORY_LIMIT", "64M", 1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] {
    const program::Artifact artifact = program::parse({data, size});
    description_json(artifact);
    schedules_json(artifact);
    for (const program::NpuProgram& npu : artifact.npu_programs) isa::listing(program::instructions_of(npu));
    const std::vector<uint8_t> written = program::serialize(artifact);
    fuzz::check(program::serialize(program::parse(written)) == written, "a program changes when it is written");
    fuzz::run(artifact);
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t limit, unsigned seed) {
  fuzz::Random random(seed);
  std::vector<uint8_t> made(data, data + size);
  try {
    made = random.chance(92) ? fuzz::mutated(random, {data, size}) : fuzz::damaged(random, {data, size});
  } catch (const Error&) {
    made.resize(limit);
    made.resize(LLVMFuzzerMutate(made.data(), size, limit));
  }
  return fuzz::give_back(data, size, limit, made.data(), made.size());
}
