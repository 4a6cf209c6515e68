// SPDX-License-Identifier: Apache-2.0
// MLIR prints and parses; what is added is the numbering of resources, whose names MLIR makes unique for a context's
// life and so differ between two runs that leave the same module.
#include "compiler/nn/module_text.h"

#include <cctype>
#include <map>
#include <vector>

#include "base/error.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"

namespace tessera::nn {
namespace {

constexpr std::string_view kUse = "dense_resource<";
constexpr std::string_view kSection = "\n{-#\n";

/// The resources of a printed module by name: `      name: "0x..."` lines.
std::map<std::string, std::string> resources_of(std::string_view section) {
  std::map<std::string, std::string> bytes;
  for (size_t at = 0; at < section.size();) {
    const size_t end = std::min(section.find('\n', at), section.size());
    const std::string_view line = section.substr(at, end - at);
    at = end + 1;
    const size_t colon = line.find(": \"0x");
    if (colon == std::string_view::npos) continue;
    const size_t name = line.find_first_not_of(' ');
    const size_t close = line.rfind('"');
    bytes.emplace(line.substr(name, colon - name), line.substr(colon + 2, close - colon - 1));
  }
  return bytes;
}

/// The text with resources renamed and listed in the order of their first use.
std::string numbered(const std::string& text) {
  const size_t section = text.rfind(kSection);
  if (section == std::string::npos) return text;
  const std::string_view body(text.data(), section);
  const auto bytes = resources_of(std::string_view(text).substr(section));
  std::map<std::string, std::string> names;
  std::vector<std::string> order;
  std::string out;
  size_t from = 0;
  for (size_t at = body.find(kUse); at != std::string_view::npos; at = body.find(kUse, from)) {
    const size_t begin = at + kUse.size(), end = body.find('>', begin);
    const std::string name(body.substr(begin, end - begin));
    const auto [entry, fresh] = names.emplace(name, "c" + std::to_string(names.size()));
    if (fresh) order.push_back(name);
    out.append(body.substr(from, begin - from)).append(entry->second);
    from = end;
  }
  out.append(body.substr(from)).append("\n{-#\n  dialect_resources: {\n    builtin: {\n");
  for (size_t i = 0; i < order.size(); ++i) {
    const auto found = bytes.find(order[i]);
    TESSERA_INVARIANT(found != bytes.end(), "MLIR prints every resource that it names");
    out += "      " + names.at(order[i]) + ": " + found->second + (i + 1 < order.size() ? ",\n" : "\n");
  }
  return out + "    }\n  }\n#-}\n";
}

}  // namespace

std::string module_to_text(mlir::ModuleOp module, bool elide) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  mlir::OpPrintingFlags flags;
  if (elide) {
    flags.elideLargeElementsAttrs(16).elideLargeResourceString(64);
  } else {
    flags.enableDebugInfo();
  }
  module->print(stream, flags);
  stream << "\n";
  return elide ? text : numbered(text);
}

mlir::OwningOpRef<mlir::ModuleOp> module_from_text(mlir::MLIRContext& context, std::string_view text,
                                                   const std::string& source) {
  std::string message;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic& diagnostic) {
    if (!message.empty()) return mlir::success();
    llvm::raw_string_ostream stream(message);
    if (auto at = llvm::dyn_cast<mlir::FileLineColLoc>(diagnostic.getLocation()))
      stream << at.getFilename().str() << ":" << at.getLine() << ":" << at.getColumn() << ": ";
    stream << diagnostic.str();
    return mlir::success();
  });
  auto module = mlir::parseSourceString<mlir::ModuleOp>(llvm::StringRef(text.data(), text.size()),
                                                        mlir::ParserConfig(&context), source);
  if (!module)
    throw Error(ErrorCode::kInvalidArgument, message.empty() ? source + ": is no module of nn operations" : message);
  return module;
}

}  // namespace tessera::nn
