// SPDX-License-Identifier: Apache-2.0
// tessera-opt runs passes one by one, over files that `tessera compile --dump-dir` writes, over ONNX models and over
// text written by hand, and prints what they leave:
//
//   tessera-opt model.onnx --pass=nn-pipeline,partition,assign-layouts -o graphs.npu
//   tessera-opt graphs.npu --pass=fuse-stages --config npu64
//   tessera-opt graphs.npu --emit=tasks                              (or schedules, instructions)
//   tessera-opt graphs.npu --schedules changed.txt --emit=instructions
//   tessera-opt module.mlir --nn-fold-padding --split-input-file     (MLIR's own command line)
//
// The file's content decides what it is: a module of nn operations, graphs of the NPU (values or tensors), or ONNX.
// Without --pass a module goes to MLIR's driver, which has its own options for every pass of nn.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

#include "base/error.h"
#include "compiler/graph/pass.h"
#include "compiler/nn/module_text.h"
#include "compiler/nn/nn_dialect.h"
#include "compiler/nn/passes/passes.h"
#include "compiler/npu/graph/schedule_text.h"
#include "compiler/npu/lowering/chain.h"
#include "compiler/npu/tasks/task_text.h"
#include "compiler/onnx/import.h"
#include "compiler/partition/partition.h"
#include "compiler/pipeline/command_options.h"
#include "compiler/pipeline/model.h"
#include "compiler/pipeline/plugin.h"
#include "isa/assembler.h"

namespace {

using namespace tessera;

struct Arguments {
  std::string input, output, config = "npu256", emit, schedules;
  std::vector<std::string> passes, plugins, shapes;
  bool elide = false, list = false;
  compiler::CompileOptions options;
};

std::string read_all(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, "cannot open '" + path + "' for reading");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The first word of a text, comments aside.
std::string first_word(const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    if (std::isspace(static_cast<unsigned char>(text[at])) != 0) {
      ++at;
    } else if (text.compare(at, 2, "//") == 0) {
      at = std::min(text.find('\n', at), text.size());
    } else {
      break;
    }
  }
  size_t end = at;
  while (end < text.size() && std::isspace(static_cast<unsigned char>(text[end])) == 0) ++end;
  return text.substr(at, end - at);
}

bool holds_graphs(const std::string& text) {
  const std::string word = first_word(text);
  return word == "npu.graph" || word == "value.graph" || word == "constants";
}

/// A compilation that can be stopped between any two passes.
class Compilation {
 public:
  Compilation(const Arguments& arguments, const std::string& content)
      : machine_(isa::find_config(arguments.config)), options_(compiler::npu_options(arguments.options, machine_)) {
    context_.loadDialect<nn::NNDialect, mlir::func::FuncDialect>();
    if (holds_graphs(content)) {
      graphs_ = graph::graphs_from_text(content, arguments.input);
    } else if (arguments.input.ends_with(".onnx")) {
      onnx::ImportOptions import;
      for (const std::string& shape : arguments.shapes) onnx::parse_shape_option(shape, import);
      module_ = onnx::import_onnx_file(context_, arguments.input, import);
    } else {
      module_ = nn::module_from_text(context_, content, arguments.input);
    }
  }

  void run(const std::string& pass) {
    if (pass == partition::kPartitionPass) {
      if (!module_) throw Error(ErrorCode::kInvalidArgument, "pass 'partition' takes a module of nn operations");
      graphs_ = partition::value_graphs(*module_);
      module_ = nullptr;
    } else if (module_) {
      run_on_module(pass);
    } else {
      graph::run_pipeline({pass}, graphs_, {machine_, options_});
    }
  }

  /// What the generator makes of the graphs: tasks, schedules or instructions, one graph after the other.
  std::string emit(const std::string& what, const std::string& schedules) const {
    const std::string given = schedules.empty() ? "" : read_all(schedules);
    std::string text;
    for (const graph::AnyGraph& any : graphs_) {
      const auto* graph = std::get_if<npu::Graph>(&any);
      if (graph == nullptr)
        throw Error(ErrorCode::kInvalidArgument, "--emit takes graphs of tensors; the pass assign-layouts makes them");
      npu::Options options = options_;
      options.schedules = npu::schedules_from_text(given, *graph, schedules);
      const npu::Program program = npu::compile(*graph, machine_, options);
      if (what == "tasks") {
        text += npu::to_text(npu::tasks_of(*graph, program, machine_, options), *graph, true);
      } else if (what == "schedules") {
        text += npu::schedules_to_text(*graph, program);
      } else {
        std::vector<std::string> notes;
        for (const uint32_t layer : program.layer_of_instruction)
          notes.push_back(layer < program.layers.size() ? program.layers[layer].name : "");
        text += isa::listing(program.instructions, notes);
      }
    }
    return text;
  }

  std::string text(bool elide) const {
    mlir::ModuleOp module = module_ ? *module_ : mlir::ModuleOp();
    return module ? nn::module_to_text(module, elide) : graph::to_text(graphs_, elide);
  }

 private:
  void run_on_module(const std::string& name) {
    std::string message;
    mlir::ScopedDiagnosticHandler handler(&context_, [&](mlir::Diagnostic& diagnostic) {
      if (message.empty()) message = diagnostic.str();
      return mlir::success();
    });
    llvm::raw_string_ostream errors(message);
    mlir::PassManager manager(&context_);
    const mlir::PassPipelineInfo* pipeline = mlir::PassPipelineInfo::lookup(name);
    mlir::OpPassManager& target =
        pipeline ? static_cast<mlir::OpPassManager&>(manager) : manager.nest<mlir::func::FuncOp>();
    if (mlir::failed(mlir::parsePassPipeline(name, target, errors))) {
      throw Error(ErrorCode::kInvalidArgument,
                  "there is no pass '" + name + "' for modules of nn operations; --list shows all passes");
    }
    if (mlir::failed(manager.run(*module_)))
      throw Error(ErrorCode::kInvalidModel, "pass '" + name + "': " + (message.empty() ? "failed" : message));
  }

  mlir::MLIRContext context_{mlir::MLIRContext::Threading::DISABLED};
  mlir::OwningOpRef<mlir::ModuleOp> module_;
  std::vector<graph::AnyGraph> graphs_;
  isa::MachineConfig machine_;
  npu::Options options_;
};

int list_passes() {
  std::printf("%-24s %s\n", partition::kPartitionPass,
              "What of a module of nn operations the NPU computes, as graphs.");
  for (const graph::Pass& pass : graph::PassRegistry::instance().passes())
    std::printf("%-24s %s\n", pass.name.c_str(), pass.summary.c_str());
  std::printf("Passes of nn and of MLIR: --help without other arguments.\n");
  return 0;
}

int run(const Arguments& arguments) {
  for (const std::string& plugin : arguments.plugins) compiler::load_plugin(plugin);
  if (arguments.list) return list_passes();
  const std::string content = arguments.input.ends_with(".onnx") ? "" : read_all(arguments.input);
  Compilation compilation(arguments, content);
  for (const std::string& pass : arguments.passes) compilation.run(pass);
  const std::string text = arguments.emit.empty() ? compilation.text(arguments.elide)
                                                  : compilation.emit(arguments.emit, arguments.schedules);
  if (arguments.output.empty() || arguments.output == "-") {
    std::cout << text;
    return 0;
  }
  std::ofstream out(arguments.output, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw Error(ErrorCode::kIo, "cannot write '" + arguments.output + "'");
  return 0;
}

/// True when the command line is MLIR's: a module without any of our own options.
bool for_mlir(int argc, char** argv) {
  bool ours = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    ours = ours || word.starts_with("--pass=") || word == "--pass" || word.starts_with("--load") || word == "--list" ||
           word.starts_with("--emit") || word.ends_with(".onnx") || word.ends_with(".npu");
  }
  return !ours;
}

}  // namespace

int main(int argc, char** argv) {
  mlir::registerTransformsPasses();
  nn::register_nn_passes();
  if (for_mlir(argc, argv)) {
    mlir::DialectRegistry registry;
    registry.insert<mlir::func::FuncDialect, nn::NNDialect>();
    return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "Tessera's pass driver\n", registry));
  }
  CLI::App app{"Runs passes of Tessera's compiler one by one", "tessera-opt"};
  Arguments a;
  app.add_option("input", a.input, "ONNX model, module of nn operations, or graphs of the NPU; - is standard input");
  app.add_option("--pass", a.passes, "passes to run, in order")->delimiter(',');
  app.add_option("--load", a.plugins, "shared objects that register passes and matchers");
  app.add_option("--config", a.config, "configuration: npu64, npu256, npu256w, npu256t, npu1024, or a .toml file");
  app.add_option("--shape", a.shapes, "NAME=D0,D1,...: shape of an input")->allow_extra_args(false);
  app.add_option("-o,--output", a.output, "file to write instead of standard output");
  app.add_option("--emit", a.emit, "what the generator makes of the graphs instead of the graphs")
      ->check(CLI::IsMember({"tasks", "schedules", "instructions"}));
  app.add_option("--schedules", a.schedules, "schedules for --emit, as --emit=schedules writes them");
  app.add_flag("--elide", a.elide, "leave out large constants; the text cannot be read back");
  app.add_flag("--list", a.list, "list the passes");
  compiler::add_options(app, a.options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    if (a.input.empty() && !a.list) throw Error(ErrorCode::kInvalidArgument, "no input; --help says what it may be");
    return run(a);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera-opt: error: %s\n", error.what());
  }
  return 1;
}
