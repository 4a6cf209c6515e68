// SPDX-License-Identifier: Apache-2.0
// The `nn` dialect: ONNX-shaped graphs as SSA. One operation, nn.op, stands for every ONNX operator; what an operator accepts,
// infers and computes stands in the operator library (ops/operator.h), so that the dialect has no second list of operators.
// Quantisation parameters are operands, as in ONNX; bridge.h reads them when they are constant.
#ifndef TESSERA_NN_DIALECT_TD
#define TESSERA_NN_DIALECT_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/BuiltinTypes.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NN_Dialect : Dialect {
  let name = "nn";
  let cppNamespace = "::tessera::nn";
  let summary = "ONNX-shaped operations";
  let useDefaultTypePrinterParser = 1;
  let hasConstantMaterializer = 1;
}

class NN_Type<string type_name, string type_mnemonic, list<Trait> traits = []> : TypeDef<NN_Dialect, type_name, traits> {
  let mnemonic = type_mnemonic;
}

def NN_StringType : NN_Type<"String", "string"> {
  let summary = "element type of a string tensor";
}
def NN_Float4Type : NN_Type<"Float4E2M1", "f4E2M1"> {
  let summary = "element type of a float4e2m1 tensor, one byte an element";
}
def NN_Float6E2M3Type : NN_Type<"Float6E2M3", "f6E2M3"> {
  let summary = "element type of a float6e2m3 tensor, one byte an element";
}
def NN_Float6E3M2Type : NN_Type<"Float6E3M2", "f6E3M2"> {
  let summary = "element type of a float6e3m2 tensor, one byte an element";
}
def NN_Float8E8M0Type : NN_Type<"Float8E8M0", "f8E8M0"> {
  let summary = "element type of a float8e8m0 tensor";
}
def NN_SequenceType : NN_Type<"Sequence", "sequence"> {
  let summary = "a sequence of tensors of one element type";
  let parameters = (ins "::mlir::Type":$element);
  let assemblyFormat = "`<` $element `>`";
}
def NN_OptionalType : NN_Type<"Optional", "optional"> {
  let summary = "a tensor or a sequence that may be absent";
  let parameters = (ins "::mlir::Type":$element);
  let assemblyFormat = "`<` $element `>`";
}

class NN_Op<string mnemonic, list<Trait> traits = []> : Op<NN_Dialect, mnemonic, traits>;

def NN_NodeOp : NN_Op<"op", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "one ONNX operator application";
  let description = [{
    `version` is the opset of `domain` under which the node is to be understood ("" is ai.onnx). `onnx_attributes` holds the ONNX
    attributes: i64, f32, string, array<i64>, array<f32>, array of strings, elements. Subgraph attributes are the regions, named by
    `body_names`; they capture values of the enclosing regions and end in nn.return. An omitted optional operand is an nn.none.

    ```mlir
    %y = nn.op "Conv"(%x, %w, %b) opset 13 {pads = array<i64: 1, 1, 1, 1>} : (tensor<..>, tensor<..>, tensor<..>) -> tensor<..>
    %r = nn.op "If"(%c) opset 13 {} bodies ["then_branch", "else_branch"] { .. }, { .. } : (tensor<i1>) -> tensor<..>
    ```
  }];
  let arguments = (ins Variadic<AnyType>:$inputs, StrAttr:$op_type, DefaultValuedStrAttr<StrAttr, "">:$domain, I64Attr:$version,
                       DictionaryAttr:$onnx_attributes, DefaultValuedAttr<StrArrayAttr, "{}">:$body_names);
  let results = (outs Variadic<AnyType>:$outputs);
  let regions = (region VariadicRegion<SizedRegion<1>>:$bodies);
  let assemblyFormat = [{
    $op_type `(` $inputs `)` (`domain` $domain^)? `opset` $version $onnx_attributes (`bodies` $body_names^ $bodies)?
    attr-dict-with-keyword `:` functional-type($inputs, $outputs)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// True if the operator is `op_type` of `domain` ("" is ai.onnx).
    bool is(::llvm::StringRef op_type, ::llvm::StringRef domain = "") { return getOpType() == op_type && getDomain() == domain; }
    /// The region named `name`, or nullptr.
    ::mlir::Region* body(::llvm::StringRef name);
    /// False if this operator or one inside its bodies draws random numbers.
    bool is_deterministic();
  }];
}

def NN_ConstantOp : NN_Op<"constant", [Pure, ConstantLike]> {
  let summary = "a tensor known at compile time";
  let description = "Small tensors are dense and readable; large ones a dense_resource whose bytes are not hashed.";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "attr-dict $value `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_NoneOp : NN_Op<"none", [Pure]> {
  let summary = "an omitted optional operand";
  let results = (outs NoneType:$result);
  let assemblyFormat = "attr-dict";
}

def NN_ReturnOp : NN_Op<"return", [Pure, Terminator, HasParent<"NodeOp">]> {
  let summary = "the results of a subgraph";
  let arguments = (ins Variadic<AnyType>:$results);
  let assemblyFormat = "attr-dict ($results^ `:` type($results))?";
}

#endif  // TESSERA_NN_DIALECT_TD
