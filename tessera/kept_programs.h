// SPDX-License-Identifier: Apache-2.0
// A model whose programs are kept on disk by what they were made from, so that each is compiled once on a machine.
// Enters: a model, shapes, a machine, options. Leaves: what its inputs and outputs are, and programs. The model itself
// is imported when something is not known yet.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/cpu/code/file_cache.h"
#include "compiler/pipeline/model.h"
#include "isa/program/artifact.h"

namespace tessera {

/// The bytes of a file. Errors: kIo.
std::string file_content(const std::string& path);

/// What a model looks like from outside.
struct Interface {
  std::vector<compiler::Port> inputs, outputs, overridable;
  std::vector<program::Past> pasts;
  std::map<std::string, std::vector<size_t>> growing;  // Model::growing_inputs()
};

struct KeptProgram {
  program::Artifact artifact;
  int64_t close_candidates = 0;  // Model::close_candidates()
  std::string unfit_scales;      // Model::unfit_scales()
};

class KeptPrograms {
 public:
  /// `options.cache` names the folder; nothing is kept for options under
  /// which somebody looks on, with a graph of one's own, or in a process that has loaded plugins.
  /// `external`: external data in memory of a model that is given as bytes, or nullptr.
  KeptPrograms(compiler::ModelSource model, const compiler::CompileOptions& options,
               const onnx::ExternalData* external = nullptr);

  /// Whether programs are kept.
  bool keeps() const { return files_.has_value(); }
  /// Errors: those of Model::from_source.
  Interface interface(const compiler::ImportOptions& import);
  /// Model::added_to_pasts(). Errors: its own and those of Model::from_source.
  int64_t added_to_pasts(const compiler::ImportOptions& import);
  /// Errors: those of Model::from_source and Model::compile. `options` are those of the constructor, or the same with
  /// further schedules or another effort.
  KeptProgram compile(const compiler::ImportOptions& import, const isa::MachineConfig& config,
                      const compiler::CompileOptions& options);
  /// What compile() would find without compiling; nothing where it would have to.
  std::optional<KeptProgram> find(const compiler::ImportOptions& import, const isa::MachineConfig& config,
                                  const compiler::CompileOptions& options) const;

 private:
  std::string program_key(const compiler::ImportOptions& import, const isa::MachineConfig& config,
                          const compiler::CompileOptions& options) const;
  std::string key_of(const char* what, const compiler::ImportOptions& import, const std::string& more) const;
  std::unique_ptr<compiler::Model> imported(const compiler::ImportOptions& import);

  compiler::ModelSource model_;
  std::optional<cpu::FileCache> files_;
  std::string content_;  // digest of the model, its external data included
  std::unique_ptr<compiler::Model> last_;
  std::string last_import_;
};

}  // namespace tessera
