// SPDX-License-Identifier: Apache-2.0
// What is Python (tessera/python/tessera: quantization, exploration), started from the command. Enters: a command line,
// or a float model and calibration data. Leaves: the exit status of what ran, or a quantised model in a file that goes
// with its owner.
#pragma once

#include <string>
#include <vector>

namespace tessera {

/// Becomes Python with a module of the package, for example "tessera.quantization", and these words behind its name;
/// returns only by an error. Errors: kUnsupported when Python cannot be started.
[[noreturn]] void become_python(const std::string& module, const std::vector<std::string>& words);

/// The interpreter that runs the quantiser: $TESSERA_PYTHON, or that of the build.
std::string quantiser_interpreter();

/// What a script prints in that interpreter, with the package in its path. Errors: kUnsupported when it cannot be
/// started or fails.
std::string output_of_python(const std::string& script);

/// A quantised model in a temporary folder, which the destructor removes.
class QuantisedModel {
 public:
  /// Runs the quantiser on `model` with these words. Errors: kUnsupported when Python cannot be started, kIo. When the
  /// quantiser fails it has said why on standard error, and `status` is not 0.
  QuantisedModel(const std::string& model, const std::vector<std::string>& words);
  ~QuantisedModel();
  QuantisedModel(const QuantisedModel&) = delete;
  QuantisedModel& operator=(const QuantisedModel&) = delete;

  std::string path() const { return folder_ + "/model.onnx"; }
  int status() const { return status_; }

 private:
  std::string folder_;
  int status_ = 0;
};

}  // namespace tessera
