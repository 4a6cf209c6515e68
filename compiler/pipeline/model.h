// SPDX-License-Identifier: Apache-2.0
// One imported model, from ONNX to what can run. Enters: an ONNX file or its bytes and the shapes of its inputs.
// Leaves: the interface (ports), results of the reference interpreter, or the program container. MLIR stays behind this
// header.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/nn/listing.h"
#include "compiler/npu/graph/graph.h"
#include "compiler/npu/planning/bound.h"
#include "compiler/onnx/external_data.h"
#include "compiler/onnx/model_source.h"
#include "compiler/pipeline/options.h"
#include "isa/config.h"
#include "isa/program/artifact.h"
#include "ops/operator.h"

namespace tessera::compiler {

using ExternalBytes = onnx::ExternalBytes;
using ExternalData = onnx::ExternalData;

/// An input or an output of a model; -1 in `shape` is a dynamic dimension, named in `dim_names` where the model names
/// it.
struct Port {
  std::string name;
  program::ValueKind kind = program::ValueKind::kTensor;
  ops::DType dtype = ops::DType::kUndefined;
  bool ranked = false;
  ops::Shape shape;
  std::vector<std::string> dim_names;
  int64_t rows = 0;       // of an input whose elements index rows: how many there are, 0 where that is not known
  program::MapKeys keys;  // of an output that is a sequence of maps: one for each column of its matrix
};

using onnx::ModelSource;

struct ImportOptions {
  std::map<std::string, ops::Shape> shapes;      // of inputs by name: fixes dynamic dimensions
  std::map<std::string, int64_t> dims;           // of symbolic dimensions by name
  static constexpr int64_t kOpen = INT64_MIN;    // in a shape: as the model has it
  std::set<std::string> overrides;               // initializers, of Model::overridable(), that become inputs
  std::string directory;                         // of external data when the model is given as bytes
  std::shared_ptr<const ExternalData> external;  // or that data itself, by location
  std::string litert_kernels = "xnnpack";        // as CompileOptions::litert_kernels
};

/// The bytes of an ONNX file with its external data inside, as from_bytes() takes them anywhere. Errors: as from_file;
/// kUnsupported beyond 2 GiB.
std::string self_contained(const ModelSource& source);

/// Where the model's external data lies, as its tensors name it. Nothing is read of it. Errors: those of from_bytes.
std::set<std::string> external_locations(const ModelSource& source);

/// An ONNX model in the place of a LiteRT one; any other content as it is. Errors: as from_bytes.
std::string as_onnx(std::string_view bytes);

/// What an entry of an ONNX model's metadata says; empty where there is none.
std::string metadata(std::string_view bytes, const std::string& key);

/// What a program depends on beside this compiler and its options: the version of LLVM, and the processor for which
/// machine code is made. One line of text.
std::string surroundings();

class Model {
 public:
  /// Errors: kIo, kInvalidModel, kUnsupported, kInvalidArgument (an override the model has no use for).
  static Model from_source(const ModelSource& source, const ImportOptions& options = {});
  static Model from_file(const std::string& path, const ImportOptions& options = {});
  static Model from_bytes(std::string_view bytes, const ImportOptions& options = {});
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  const std::vector<Port>& inputs() const;
  const std::vector<Port>& outputs() const;
  /// Initializers that the model lists as inputs too (since IR version 4): default values of inputs. ImportOptions
  /// turns them into inputs, which stand behind the others.
  const std::vector<Port>& overridable() const;
  /// Extents of the model's constants, those of most constants first: what an open dimension of an input may have to
  /// be.
  std::vector<int64_t> constant_extents() const;

  /// Runs the graph passes once; what follows uses the result. Errors: kInvalidModel, kUnsupported with the node's
  /// name.
  /// `snapshots`, if given, sees the import and the module after each pass. `close`: is_close() of the options.
  void optimise(const SnapshotObserver& snapshots = {}, bool close = false);
  /// Operators of an optimised model that `close` would compute in integers, and exact numerics leave as floats.
  int64_t close_candidates() const;
  /// Which node of the model has a scale that is no positive finite number, as a clause; empty where none has.
  const std::string& unfit_scales() const;
  /// The reference interpreter on the optimised graph. `observer`, if given, sees every node's name, operator and
  /// results.
  using Observer = std::function<void(const std::string& node, const std::string& op_type,
                                      const std::vector<std::string>& names, const std::vector<ops::Value>& results)>;
  std::vector<ops::Value> interpret(const std::vector<ops::Value>& inputs, const Observer& observer = {});
  /// Dimensions of inputs that grow with the past, by the input's name: of a decoder with past and present whose past
  /// is dynamic. Empty for others.
  std::map<std::string, std::vector<size_t>> growing_inputs() const;
  /// The pasts themselves.
  std::vector<program::Past> pasts() const;
  /// By how much a run extends the pasts, of a decoder whose dimensions are fixed but for growing_inputs(). Errors:
  /// kUnsupported when it is not known.
  int64_t added_to_pasts() const;
  /// With CompileOptions::max_length these may be dynamic. Errors: kUnsupported when an input has a dynamic dimension
  /// (the message says how to fix it), kDoesNotFit.
  program::Artifact compile(const isa::MachineConfig& config, const CompileOptions& options = {});
  /// The nodes as they stand: of the ONNX file before optimise() and compile(). Types are inferred. Errors: as
  /// optimise.
  nn::Listing listing();
  /// What the NPU computes, as graphs of tensors after all passes but the one that chooses chains. Errors: as compile.
  std::vector<npu::Graph> npu_graphs(const isa::MachineConfig& config, const CompileOptions& options = {});
  /// The least that a program for the machine takes on the NPU, in an instant: no schedule is looked for. Sums over
  /// the graphs. Errors: as compile.
  npu::GraphBound bound(const isa::MachineConfig& config, const CompileOptions& options = {});
  /// Which nodes would run on the NPU and which on the CPU, without looking for schedules.
  struct Placement {
    std::set<std::string> npu, cpu;
    int64_t macs_npu = 0, macs_cpu = 0;
  };
  /// Errors: as optimise; kUnsupported when an input has a dynamic dimension.
  Placement placement(const isa::MachineConfig& config, const CompileOptions& options = {});
  /// The graph as text.
  std::string print() const;

 private:
  struct State;
  /// Refuses dynamic dimensions but those that grow.
  void check_static(const std::map<std::string, std::vector<size_t>>& growing) const;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Shapes with 1 for the first dimension of inputs of which no other one is dynamic, by name: a batch that nobody has
/// given is 1.
std::map<std::string, ops::Shape> batches_of_one(const std::vector<Port>& inputs);

/// The options of the NPU's code generator, also for a graph that is compiled or transformed alone.
npu::Options npu_options(const CompileOptions& options, const isa::MachineConfig& config);

/// Names of ONNX operators by what the NPU does with them: "products", "elementwise", "movements"
/// (partition::OperatorNames).
std::map<std::string, std::vector<std::string>> operator_names();

/// Parses "name=1,3,224,224" or "dimension=4" into `options`. Errors: kInvalidArgument.
void parse_shape(std::string_view text, ImportOptions& options);

}  // namespace tessera::compiler
