// SPDX-License-Identifier: Apache-2.0
// Enters: an ONNX model (opsets 1 to 28, any IR version), or a LiteRT model. Leaves: a module with one func.func @main
// of nn operations whose types are inferred. Method: the protobuf graph is sorted and turned into SSA, model-local
// functions are inlined, subgraphs become regions that capture outer values, then the operator library infers types,
// evaluating shape arithmetic on the way.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/onnx/external_data.h"
#include "compiler/onnx/model_source.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace tessera::onnx {

struct ImportOptions {
  /// Dimensions of inputs by name; they fix dynamic dimensions and must agree with fixed ones. kOpen leaves one as the
  /// model has it.
  static constexpr int64_t kOpen = INT64_MIN;
  std::map<std::string, std::vector<int64_t>> shapes;
  /// Values of symbolic dimensions ("batch", "height") by name.
  std::map<std::string, int64_t> dims;
  /// Initializers that become inputs, behind the others. Since IR version 4 those that are listed as inputs can.
  std::set<std::string> overrides;
  /// Whether kOverridableAttr is set.
  bool list_overridable = false;
  /// Where external data lies when a model is given as bytes; "" refuses external data.
  std::string directory;
  /// A LiteRT model means what its reference kernels give, instead of XNNPACK's.
  bool litert_reference = false;
  /// External data in memory; a location that is here is looked for in no folder. nullptr: none.
  std::shared_ptr<const ExternalData> external;
};

/// Attribute of @main: the initializers that ImportOptions::overrides may name and does not, each as a dictionary with
/// kOverridableType and the attributes of an argument (nn::kNameAttr, nn::kDimNamesAttr).
inline constexpr const char* kOverridableAttr = "onnx.overridable";
inline constexpr const char* kOverridableType = "type";

/// Errors (tessera::Error): kIo, kInvalidModel, kUnsupported, each naming the node or tensor and the cause;
/// kInvalidArgument for an override of an input, a dimension or an initializer that the model does not have.
mlir::OwningOpRef<mlir::ModuleOp> import_onnx(mlir::MLIRContext& context, const ModelSource& source,
                                              const ImportOptions& options = {});
mlir::OwningOpRef<mlir::ModuleOp> import_onnx_file(mlir::MLIRContext& context, const std::string& path,
                                                   const ImportOptions& options = {});
mlir::OwningOpRef<mlir::ModuleOp> import_onnx_bytes(mlir::MLIRContext& context, std::string_view bytes,
                                                    const ImportOptions& options = {});

/// Parses "name=1,3,224,224" into options.shapes and "name=4", where it is not a list, too; the importer decides
/// whether the name is an input or a symbolic dimension. Throws Error kInvalidArgument.
void parse_shape_option(std::string_view text, ImportOptions& options);

}  // namespace tessera::onnx
