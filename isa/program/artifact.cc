// SPDX-License-Identifier: Apache-2.0
// Converts between the plain structs and the FlatBuffer of program.fbs, and reads and writes files. The FlatBuffer is
// verified before it is walked; a budget of the file's size bounds what its offsets, which may share targets, can
// expand to.
#include "isa/program/artifact.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

// Of our own in every library: a program may hold another version of FlatBuffers, as ExecuTorch's libexecutorch.so
// does, and the loader would take its functions for these.
#pragma GCC visibility push(hidden)
#include <flatbuffers/flatbuffers.h>
#pragma GCC visibility pop

#include "base/error.h"
#include "isa/program/container.h"
#include "isa/program/whole_file.h"

#pragma GCC visibility push(hidden)
#include "isa/program/program_generated.h"
#pragma GCC visibility pop

namespace tessera::program {
namespace {

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::kInvalidArtifact, message); }

// ---- writing
// -------------------------------------------------------------------------------------------------------------

using Builder = flatbuffers::FlatBufferBuilder;

template <typename T>
auto vector_of(Builder& b, const std::vector<T>& values) {
  return b.CreateVector(values);
}

auto strings_of(Builder& b, const std::vector<std::string>& values) { return b.CreateVectorOfStrings(values); }

/// A vector of tables, one for each element.
template <typename T, typename Write>
auto tables_of(Builder& b, const std::vector<T>& values, Write write) {
  std::vector<decltype(write(values.front()))> offsets;
  offsets.reserve(values.size());
  for (const T& value : values) offsets.push_back(write(value));
  return b.CreateVector(offsets);
}

class Writer {
 public:
  std::vector<uint8_t> metadata(const Artifact& a) {
    // Fields at their default are written too: -0.0 equals the default 0.0 and would be lost.
    b_.ForceDefaults(true);
    const auto producer = text(a.producer);
    const auto config = text(isa::to_toml(a.config));
    const auto values = tables_of(b_, a.values, [&](const ValueInfo& v) {
      return fb::CreateValue(b_, text(v.name), static_cast<int32_t>(v.dtype), v.ranked, vector_of(b_, v.shape),
                             strings_of(b_, v.dim_names), v.constant, static_cast<uint8_t>(v.kind));
    });
    const auto constants = tables_of(b_, a.constants, [&](const ConstantInfo& c) {
      return fb::CreateConstant(b_, static_cast<int32_t>(c.dtype), vector_of(b_, c.shape), c.offset, c.bytes,
                                strings_of(b_, c.strings));
    });
    const auto plans = tables_of(b_, a.plans, [&](const Plan& p) {
      const auto steps =
          tables_of(b_, p.steps, [&](const Step& s) { return std::visit([&](const auto& x) { return step(x); }, s); });
      return fb::CreatePlan(b_, vector_of(b_, p.inputs), vector_of(b_, p.outputs), steps, vector_of(b_, p.captured));
    });
    const auto programs = tables_of(b_, a.npu_programs, [&](const NpuProgram& p) {
      const auto instructions = vector_of(b_, p.instructions);
      const auto map = vector_of(b_, p.layer_of_instruction);
      std::vector<int64_t> pitches;
      for (const Slide& slide : p.slides) pitches.push_back(slide.pitch);
      const auto all_pitches = vector_of(b_, pitches);
      const auto all_layers = layers(p.layers);
      flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::CoreStream>>> others;
      if (!p.others.empty())
        others = tables_of(b_, p.others, [&](const CoreStream& stream) {
          const auto words = vector_of(b_, stream.instructions);
          return fb::CreateCoreStream(b_, words, vector_of(b_, stream.layer_of_instruction));
        });
      return fb::CreateNpuProgram(b_, instructions, map, p.constant_offset, p.constant_bytes, p.arena_bytes, all_layers,
                                  all_pitches, others);
    });
    const auto cpu = fb::CreateCpuModule(b_, text(a.cpu.triple), text(a.cpu.cpu), text(a.cpu.features),
                                         vector_of(b_, a.cpu.object), vector_of(b_, a.cpu.bitcode));
    const auto cpu_layers = layers(a.cpu_layers);
    std::vector<flatbuffers::Offset<flatbuffers::String>> names;
    for (const std::string& name : a.output_names) names.push_back(text(name));
    const auto output_names = b_.CreateVector(names);
    const auto output_keys = tables_of(b_, a.output_keys, [&](const MapKeys& keys) {
      const auto strings = strings_of(b_, keys.strings);
      return fb::CreateMapKeys(b_, strings, vector_of(b_, keys.ints));
    });
    const Totals& t = a.totals;
    const auto totals = fb::CreateTotals(b_, t.nodes_npu, t.nodes_cpu, t.macs_npu, t.macs_cpu, t.unshared_bytes);
    fb::FinishArtifactBuffer(b_, fb::CreateArtifact(b_, producer, config, values, constants, plans, programs, cpu,
                                                    cpu_layers, output_names, totals, output_keys, growth(a.growth)));
    return {b_.GetBufferPointer(), b_.GetBufferPointer() + b_.GetSize()};
  }

 private:
  flatbuffers::Offset<flatbuffers::String> text(const std::string& s) { return b_.CreateString(s); }

  flatbuffers::Offset<fb::Growth> growth(const Growth& g) {
    if (g.room == 0) return 0;
    const auto pasts =
        tables_of(b_, g.pasts, [&](const Past& p) { return fb::CreatePast(b_, p.input, p.output, p.axis); });
    return fb::CreateGrowth(b_, g.room, g.step, pasts, g.state_bytes);
  }

  flatbuffers::Offset<fb::Step> step(const KernelStep& s) {
    const auto attributes = tables_of(b_, s.attributes, [&](const Attribute& a) {
      return fb::CreateAttribute(b_, text(a.name), static_cast<uint8_t>(a.kind), a.i, a.f, text(a.s),
                                 vector_of(b_, a.ints), vector_of(b_, a.floats), strings_of(b_, a.strings), a.tensor,
                                 a.plan);
    });
    const auto body = fb::CreateKernelStep(b_, text(s.domain), text(s.op_type), s.version, text(s.node_name),
                                           attributes, vector_of(b_, s.inputs), vector_of(b_, s.outputs), s.layer);
    return fb::CreateStep(b_, fb::StepBody_KernelStep, body.Union());
  }

  flatbuffers::Offset<fb::Step> step(const CodeStep& s) {
    const auto body = fb::CreateCodeStep(b_, text(s.symbol), text(s.node_name), vector_of(b_, s.inputs),
                                         vector_of(b_, s.outputs), s.scratch_bytes, s.layer);
    return fb::CreateStep(b_, fb::StepBody_CodeStep, body.Union());
  }

  flatbuffers::Offset<fb::Step> step(const NpuStep& s) {
    const auto write = [&](const DeviceTensor& t) {
      return fb::CreateDeviceTensor(b_, t.value, t.offset, static_cast<int32_t>(t.dtype), t.n, t.h, t.w, t.c,
                                    t.image_pitch, t.row_pitch, t.pixel_pitch, vector_of(b_, t.axes), t.border_top,
                                    t.border_left, t.border_bottom, t.border_right, t.padded_c, t.border_value, t.base,
                                    t.growing_axis, t.fill);
    };
    const auto inputs = tables_of(b_, s.inputs, write);
    const auto outputs = tables_of(b_, s.outputs, write);
    const auto body = fb::CreateNpuStep(b_, s.program, inputs, outputs);
    return fb::CreateStep(b_, fb::StepBody_NpuStep, body.Union());
  }

  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::Layer>>> layers(const std::vector<Layer>& all) {
    return tables_of(b_, all, [&](const Layer& l) {
      return fb::CreateLayer(b_, text(l.name), text(l.op), text(l.placement), l.macs, text(l.schedule_json),
                             strings_of(b_, l.nodes), l.predicted_cycles, l.bound_cycles, l.dram_read_bytes,
                             l.dram_write_bytes, b_.CreateVector(l.stream_bytes));
    });
  }

  Builder b_{1 << 16};
};

// ---- reading
// -------------------------------------------------------------------------------------------------------------

class Reader {
 public:
  explicit Reader(uint64_t budget) : budget_(budget) {}

  Artifact artifact(const fb::Artifact& a) {
    Artifact out;
    out.producer = text(a.producer());
    try {
      out.config = isa::parse_config(text(a.config()), "configuration of the program");
    } catch (const Error& error) {
      fail(error.what());
    }
    out.values = tables<ValueInfo>(a.values(), [&](const fb::Value& v) {
      ValueInfo i;
      i.name = text(v.name());
      i.dtype = static_cast<DType>(v.dtype());
      i.ranked = v.ranked();
      i.shape = vector(v.shape());
      i.dim_names = strings(v.dim_names());
      i.constant = v.constant();
      i.kind = static_cast<ValueKind>(v.kind());
      return i;
    });
    out.constants = tables<ConstantInfo>(a.constants(), [&](const fb::Constant& c) {
      return ConstantInfo{static_cast<DType>(c.dtype()), vector(c.shape()), c.offset(), c.bytes(),
                          strings(c.strings())};
    });
    out.plans = tables<Plan>(a.plans(), [&](const fb::Plan& p) {
      Plan plan;
      plan.inputs = vector(p.inputs());
      plan.outputs = vector(p.outputs());
      plan.steps = tables<Step>(p.steps(), [&](const fb::Step& s) { return step(s); });
      plan.captured = vector(p.captured());
      return plan;
    });
    out.npu_programs = tables<NpuProgram>(a.npu_programs(), [&](const fb::NpuProgram& p) {
      NpuProgram program{vector(p.instructions()),
                         vector(p.layer_of_instruction()),
                         p.constant_offset(),
                         p.constant_bytes(),
                         p.arena_bytes(),
                         layers(p.layers()),
                         {},
                         {}};
      for (const int64_t pitch : vector(p.slide_pitches())) program.slides.push_back({pitch});
      if (p.others() != nullptr)
        program.others = tables<CoreStream>(p.others(), [&](const fb::CoreStream& stream) {
          return CoreStream{vector(stream.instructions()), vector(stream.layer_of_instruction())};
        });
      return program;
    });
    if (const fb::CpuModule* cpu = a.cpu()) {
      out.cpu = {text(cpu->triple()), text(cpu->cpu()), text(cpu->features()), vector(cpu->object()),
                 vector(cpu->bitcode())};
    }
    out.cpu_layers = layers(a.cpu_layers());
    if (const auto* names = a.output_names()) {
      for (const flatbuffers::String* name : *names) {
        charge(8);
        out.output_names.push_back(text(name));
      }
    }
    out.output_keys = tables<MapKeys>(a.output_keys(), [&](const fb::MapKeys& keys) {
      return MapKeys{strings(keys.strings()), vector(keys.ints())};
    });
    if (const fb::Totals* t = a.totals())
      out.totals = {t->nodes_npu(), t->nodes_cpu(), t->macs_npu(), t->macs_cpu(), t->unshared_bytes()};
    if (const fb::Growth* g = a.growth()) {
      out.growth = {g->room(), g->step(), {}, g->state_bytes()};
      out.growth.pasts =
          tables<Past>(g->pasts(), [](const fb::Past& p) { return Past{p.input(), p.output(), p.axis()}; });
    }
    return out;
  }

 private:
  void charge(uint64_t bytes) {
    if (bytes > budget_) fail("the program is damaged: its metadata refers to the same bytes many times");
    budget_ -= bytes;
  }

  std::string text(const flatbuffers::String* s) {
    if (s == nullptr) return {};
    charge(s->size());
    return s->str();
  }

  template <typename T>
  std::vector<T> vector(const flatbuffers::Vector<T>* v) {
    if (v == nullptr) return {};
    charge(uint64_t{v->size()} * sizeof(T));
    std::vector<T> out(v->size());
    // The verifier checks that elements lie inside the buffer, not that they are aligned: copy, do not dereference.
    if (!out.empty()) std::memcpy(out.data(), v->Data(), out.size() * sizeof(T));
    for (T& element : out) element = flatbuffers::EndianScalar(element);
    return out;
  }

  std::vector<std::string> strings(const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>* v) {
    std::vector<std::string> out;
    if (v == nullptr) return out;
    for (const flatbuffers::String* s : *v) {
      charge(4);
      out.push_back(text(s));
    }
    return out;
  }

  template <typename T, typename Table, typename Read>
  std::vector<T> tables(const flatbuffers::Vector<flatbuffers::Offset<Table>>* v, Read read) {
    std::vector<T> out;
    if (v == nullptr) return out;
    for (const Table* table : *v) {
      charge(8);  // its offset and that to its vtable
      out.push_back(read(*table));
    }
    return out;
  }

  Step step(const fb::Step& s) {
    if (const auto* k = s.body_as_KernelStep()) {
      KernelStep out;
      out.domain = text(k->domain());
      out.op_type = text(k->op_type());
      out.version = k->version();
      out.node_name = text(k->node_name());
      out.attributes = tables<Attribute>(k->attributes(), [&](const fb::Attribute& a) {
        return Attribute{text(a.name()),
                         static_cast<Attribute::Kind>(a.kind()),
                         a.i(),
                         a.f(),
                         text(a.s()),
                         vector(a.ints()),
                         vector(a.floats()),
                         strings(a.strings()),
                         a.tensor(),
                         a.plan()};
      });
      out.inputs = vector(k->inputs());
      out.outputs = vector(k->outputs());
      out.layer = k->layer();
      return out;
    }
    if (const auto* c = s.body_as_CodeStep()) {
      return CodeStep{text(c->symbol()),    text(c->node_name()), vector(c->inputs()),
                      vector(c->outputs()), c->scratch_bytes(),   c->layer()};
    }
    if (const auto* n = s.body_as_NpuStep()) {
      const auto read = [&](const fb::DeviceTensor& t) {
        DeviceTensor out;
        out.value = t.value();
        out.offset = t.offset();
        out.dtype = static_cast<DType>(t.dtype());
        out.n = t.n();
        out.h = t.h();
        out.w = t.w();
        out.c = t.c();
        out.image_pitch = t.image_pitch();
        out.row_pitch = t.row_pitch();
        out.pixel_pitch = t.pixel_pitch();
        out.axes = vector(t.axes());
        out.border_top = t.border_top();
        out.border_left = t.border_left();
        out.border_bottom = t.border_bottom();
        out.border_right = t.border_right();
        out.padded_c = t.padded_c();
        out.border_value = t.border_value();
        out.base = t.base();
        out.growing_axis = t.growing_axis();
        out.fill = t.fill();
        return out;
      };
      NpuStep out;
      out.program = n->program();
      out.inputs = tables<DeviceTensor>(n->inputs(), read);
      out.outputs = tables<DeviceTensor>(n->outputs(), read);
      return out;
    }
    fail("the program has a step of an unknown kind");
  }

  std::vector<Layer> layers(const flatbuffers::Vector<flatbuffers::Offset<fb::Layer>>* v) {
    return tables<Layer>(v, [&](const fb::Layer& l) {
      Layer out;
      out.name = text(l.name());
      out.op = text(l.op());
      out.placement = text(l.placement());
      out.macs = l.macs();
      out.schedule_json = text(l.schedule_json());
      out.nodes = strings(l.nodes());
      out.predicted_cycles = l.predicted_cycles();
      out.bound_cycles = l.bound_cycles();
      out.dram_read_bytes = l.dram_read_bytes();
      out.dram_write_bytes = l.dram_write_bytes();
      out.stream_bytes = vector(l.stream_bytes());
      return out;
    });
  }

  uint64_t budget_;
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

[[noreturn]] void fail_to_read(const std::string& path) {
  throw Error(ErrorCode::kIo, "cannot read " + path + ": " + std::strerror(errno));
}

}  // namespace

std::string layer_key(const std::string& name, std::map<std::string, int64_t>& seen) {
  const int64_t count = ++seen[name];
  return count == 1 ? name : name + "#" + std::to_string(count);
}

std::vector<uint8_t> serialize(const Artifact& artifact) {
  validate(artifact);
  // A FlatBuffer addresses 2 GB; the blobs stand outside of it, code and instructions inside.
  uint64_t large = artifact.cpu.object.size() + artifact.cpu.bitcode.size();
  for (const NpuProgram& program : artifact.npu_programs) large += code_bytes(program);
  if (large > uint64_t{1} << 30) fail("the program's code exceeds 1 GB");
  const std::vector<uint8_t> metadata = Writer().metadata(artifact);
  return frame({metadata, artifact.constant_blob, artifact.device_constants});
}

Artifact parse(std::span<const uint8_t> bytes) {
  const Sections sections = unframe(bytes);
  // The FlatBuffer's scalars are read in place, so it must be aligned as it was when written.
  std::vector<uint64_t> aligned((sections.metadata.size() + 7) / 8);
  if (!sections.metadata.empty()) std::memcpy(aligned.data(), sections.metadata.data(), sections.metadata.size());
  const auto* data = reinterpret_cast<const uint8_t*>(aligned.data());
  flatbuffers::Verifier verifier(data, sections.metadata.size(), 64,
                                 static_cast<flatbuffers::uoffset_t>(sections.metadata.size()));
  if (sections.metadata.size() < 12 || !fb::ArtifactBufferHasIdentifier(data) || !fb::VerifyArtifactBuffer(verifier)) {
    fail("the program is damaged: its metadata is not well formed");
  }
  Artifact artifact = Reader(sections.metadata.size()).artifact(*fb::GetArtifact(data));
  artifact.constant_blob.assign(sections.constant_blob.begin(), sections.constant_blob.end());
  artifact.device_constants.assign(sections.device_constants.begin(), sections.device_constants.end());
  validate(artifact);
  return artifact;
}

void save(const Artifact& artifact, const std::string& path) {
  const std::vector<uint8_t> bytes = serialize(artifact);
  write_whole(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Artifact load(const std::string& path) {
  File file(std::fopen(path.c_str(), "rb"));
  if (!file) fail_to_read(path);
  std::vector<uint8_t> bytes;
  std::array<uint8_t, 1 << 16> block;
  while (std::feof(file.get()) == 0 && std::ferror(file.get()) == 0) {
    const size_t got = std::fread(block.data(), 1, block.size(), file.get());
    bytes.insert(bytes.end(), block.begin(), block.begin() + static_cast<ptrdiff_t>(got));
  }
  if (std::ferror(file.get()) != 0) fail_to_read(path);
  try {
    return parse(bytes);
  } catch (const Error& error) {
    throw Error(error.code(), path + ": " + error.what());
  }
}

}  // namespace tessera::program
