// SPDX-License-Identifier: Apache-2.0
// The interpreter is $TESSERA_PYTHON or the one that the build made the Python package for; the package is found in the
// build and in the sources, before what PYTHONPATH names.
#include "tessera/quantise.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace tessera {
namespace {

constexpr const char* kQuantiser = "tessera.quantization";

std::string interpreter() {
  const char* given = std::getenv("TESSERA_PYTHON");
  return given != nullptr && *given != '\0' ? given : TESSERA_PYTHON_EXECUTABLE;
}

void find_package() {
  const char* given = std::getenv("PYTHONPATH");
  const std::string own = TESSERA_PYTHON_PACKAGES;
  const std::string path = given != nullptr && *given != '\0' ? own + ":" + given : own;
  ::setenv("PYTHONPATH", path.c_str(), 1);
}

[[noreturn]] void refuse(const std::string& python, int error) {
  throw Error(ErrorCode::kUnsupported,
              "the quantiser needs Python, and '" + python + "' cannot be started: " + std::strerror(error) +
                  "; name an interpreter that has numpy, onnx and onnxruntime in TESSERA_PYTHON");
}

/// The command line as exec takes it; the strings stay with `words`.
std::vector<char*> arguments_of(std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  return arguments;
}

std::vector<std::string> line_of(const std::string& python, const std::string& module,
                                 const std::vector<std::string>& words) {
  std::vector<std::string> line = {python, "-m", module};
  line.insert(line.end(), words.begin(), words.end());
  return line;
}

}  // namespace

void become_python(const std::string& module, const std::vector<std::string>& words) {
  const std::string python = interpreter();
  find_package();
  std::vector<std::string> line = line_of(python, module, words);
  ::execvp(python.c_str(), arguments_of(line).data());
  refuse(python, errno);
}

QuantisedModel::QuantisedModel(const std::string& model, const std::vector<std::string>& words) {
  std::error_code error;
  std::string name = (std::filesystem::temp_directory_path(error) / "tessera_XXXXXX").string();
  if (error || ::mkdtemp(name.data()) == nullptr)
    throw Error(ErrorCode::kIo, "cannot make a temporary folder for the quantised model");
  folder_ = name;
  const std::string python = interpreter();
  find_package();
  std::vector<std::string> line = line_of(python, kQuantiser, {model, "-o", path()});
  line.insert(line.end(), words.begin(), words.end());
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, python.c_str(), nullptr, nullptr, arguments_of(line).data(), environ);
  if (failed != 0) {
    std::filesystem::remove_all(folder_, error);
    refuse(python, failed);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

QuantisedModel::~QuantisedModel() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace tessera
