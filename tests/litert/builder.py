# SPDX-License-Identifier: Apache-2.0
"""Writes .tflite files with the flatbuffer classes of ai-edge-litert's wheel.

model = Model()
graph = model.graph("main")
x = graph.input("x", (1, 8), "float32")
y = graph.op("RELU", [x], [graph.tensor("y", (1, 8), "float32")])
graph.outputs(y)
data = model.bytes()
"""

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

TYPES = {
    "float32": schema.TensorType.FLOAT32,
    "float16": schema.TensorType.FLOAT16,
    "float64": schema.TensorType.FLOAT64,
    "int4": schema.TensorType.INT4,
    "int8": schema.TensorType.INT8,
    "uint8": schema.TensorType.UINT8,
    "int16": schema.TensorType.INT16,
    "uint16": schema.TensorType.UINT16,
    "int32": schema.TensorType.INT32,
    "uint32": schema.TensorType.UINT32,
    "int64": schema.TensorType.INT64,
    "uint64": schema.TensorType.UINT64,
    "bool": schema.TensorType.BOOL,
    "complex64": schema.TensorType.COMPLEX64,
    "string": schema.TensorType.STRING,
    "resource": schema.TensorType.RESOURCE,
}
CODES = {name: code for name, code in vars(schema.BuiltinOperator).items() if name.isupper()}
# The newest version of an operator that the reference kernels have, where that is not 1: version, operators.
NEWEST = """
2: ARG_MAX ARG_MIN DIV EXP FAKE_QUANT FLOOR_MOD GELU GREATER L2_NORMALIZATION LEAKY_RELU LESS_EQUAL LOG LOG_SOFTMAX
2: REDUCE_PROD SELECT_V2 SIGN SPACE_TO_DEPTH SQRT SQUARED_DIFFERENCE SUM TILE WHERE
3: ABS AVERAGE_POOL_2D BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN FLOOR_DIV GREATER_EQUAL LESS LOGISTIC
3: MAX_POOL_2D MEAN MIRROR_PAD REDUCE_MAX REDUCE_MIN RELU RELU6 RNN RSQRT SOFTMAX SPARSE_TO_DENSE SPLIT_V TANH
3: TOPK_V2 UNIDIRECTIONAL_SEQUENCE_LSTM UNIDIRECTIONAL_SEQUENCE_RNN
4: BATCH_MATMUL BATCH_TO_SPACE_ND BROADCAST_TO LSTM MAXIMUM MINIMUM NOT_EQUAL RESIZE_BILINEAR
4: RESIZE_NEAREST_NEIGHBOR REVERSE_V2 SELECT SPACE_TO_BATCH_ND STRIDED_SLICE SVDF
5: ADD EMBEDDING_LOOKUP EQUAL FILL PACK SPLIT SUB TRANSPOSE_CONV
6: DEPTHWISE_CONV_2D DYNAMIC_UPDATE_SLICE GATHER_ND PAD PADV2 QUANTIZE UNPACK
7: CONCATENATION MUL
8: CONV_2D GATHER SLICE TRANSPOSE
9: CAST DEQUANTIZE
13: FULLY_CONNECTED
"""
VERSIONS = {name: int(line.split(":")[0]) for line in NEWEST.split("\n") if line for name in line.split(":")[1].split()}
# Options whose class is not the operator's name in camel case.
OPTIONS = {
    "ADD_N": "AddN",
    "ARG_MAX": "ArgMax",
    "ARG_MIN": "ArgMin",
    "ATAN2": "ATan2",
    "AVERAGE_POOL_2D": "Pool2D",
    "BATCH_MATMUL": "BatchMatMul",
    "BATCH_TO_SPACE_ND": "BatchToSpaceND",
    "CONV_2D": "Conv2D",
    "CONV_3D": "Conv3D",
    "CONV_3D_TRANSPOSE": "Conv3D",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2D",
    "L2_NORMALIZATION": "L2Norm",
    "L2_POOL_2D": "Pool2D",
    "LSTM": "LSTM",
    "MAXIMUM": "MaximumMinimum",
    "MAX_POOL_2D": "Pool2D",
    "MINIMUM": "MaximumMinimum",
    "PADV2": "PadV2",
    "RANDOM_STANDARD_NORMAL": "Random",
    "MULTINOMIAL": "Random",
    "RANDOM_UNIFORM": "Random",
    "RNN": "RNN",
    "STABLEHLO_COMPOSITE": "StableHLOComposite",
    "SPACE_TO_BATCH_ND": "SpaceToBatchND",
    "SVDF": "SVDF",
    "TOPK_V2": "TopKV2",
    "BIDIRECTIONAL_SEQUENCE_LSTM": "BidirectionalSequenceLSTM",
    "BIDIRECTIONAL_SEQUENCE_RNN": "BidirectionalSequenceRNN",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTM",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNN",
    **dict.fromkeys(["MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL"], "Reducer"),
}


def options_name(operator):
    if operator.startswith("STABLEHLO_") and operator not in OPTIONS:
        return "Stablehlo" + "".join(word.capitalize() for word in operator.split("_")[1:]) + "Options"
    return OPTIONS.get(operator, "".join(word.capitalize() for word in operator.split("_"))) + "Options"


class Graph:
    """One subgraph; tensors are numbers."""

    def __init__(self, model, name):
        self.model, self.table = model, schema.SubGraphT()
        self.table.name, self.table.tensors, self.table.operators = name, [], []
        self.table.inputs, self.table.outputs = [], []

    def tensor(self, name, shape, dtype, data=None, scale=None, zero=0, axis=0, variable=False):
        """`scale` and `zero` are numbers, or lists along `axis`. A `shape` of None is filled in by Model.fix_shapes."""
        t = schema.TensorT()
        t.name, t.type, t.isVariable = name, TYPES[dtype], variable
        t.shape = None if shape is None else np.array(shape, np.int32)
        t.buffer = 0 if data is None else self.model.buffer(data)
        t.quantization = schema.QuantizationParametersT()
        if scale is not None:
            t.quantization.scale = np.atleast_1d(np.asarray(scale, np.float32))
            t.quantization.zeroPoint = np.broadcast_to(np.asarray(zero, np.int64), t.quantization.scale.shape).copy()
            t.quantization.quantizedDimension = axis
        self.table.tensors.append(t)
        return len(self.table.tensors) - 1

    def input(self, name, shape, dtype, **quantisation):
        index = self.tensor(name, shape, dtype, **quantisation)
        self.table.inputs.append(index)
        return index

    def constant(self, array, **quantisation):
        array = np.asarray(array)
        name = f"constant{len(self.table.tensors)}"
        return self.tensor(name, array.shape, array.dtype.name, data=array, **quantisation)

    def outputs(self, *tensors):
        self.table.outputs.extend(tensors)

    def op(self, operator, inputs, outputs, version=None, custom=None, **options):
        """Adds a builtin operator, or the custom operator `operator` with the bytes `custom`; returns `outputs`, or the
        one output alone. An input of -1 is left out."""
        t = schema.OperatorT()
        t.opcodeIndex = self.model.code(operator, version or VERSIONS.get(operator, 1), custom is not None)
        t.inputs, t.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
        if custom is not None:
            t.customOptions = np.frombuffer(custom, np.uint8)
        else:
            self._options(t, operator, options)
        self.table.operators.append(t)
        return outputs[0] if len(outputs) == 1 else outputs

    def _options(self, t, operator, options):
        name = options_name(operator)
        table = getattr(schema, name + "T", None)
        if table is None:
            assert not options, f"{operator} has no options"
            return
        value = table()
        for key, given in options.items():
            assert hasattr(value, key), f"{operator} has no option {key}"
            setattr(value, key, given)
        if hasattr(schema.BuiltinOptions, name):
            t.builtinOptionsType, t.builtinOptions = getattr(schema.BuiltinOptions, name), value
        else:
            t.builtinOptions2Type, t.builtinOptions2 = getattr(schema.BuiltinOptions2, name), value


class Model:
    def __init__(self):
        self.table, self.codes = schema.ModelT(), {}
        self.table.version, self.table.description = 3, "drawn"
        self.table.buffers, self.table.subgraphs, self.table.operatorCodes = [schema.BufferT()], [], []
        self.graphs = []

    def graph(self, name):
        graph = Graph(self, name)
        self.graphs.append(graph)
        self.table.subgraphs.append(graph.table)
        return graph

    def buffer(self, data):
        t = schema.BufferT()
        t.data = np.frombuffer(data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes(), np.uint8)
        self.table.buffers.append(t)
        return len(self.table.buffers) - 1

    def code(self, operator, version, custom):
        key = (operator, version, custom)
        if key not in self.codes:
            t = schema.OperatorCodeT()
            t.builtinCode = CODES["CUSTOM" if custom else operator]
            t.deprecatedBuiltinCode = min(t.builtinCode, 127)
            t.version, t.customCode = version, operator if custom else None
            self.table.operatorCodes.append(t)
            self.codes[key] = len(self.codes)
        return self.codes[key]

    def signature(self, key, inputs, outputs, graph=0):
        """`inputs` and `outputs`: names of the signature to tensors."""
        t = schema.SignatureDefT()
        t.signatureKey, t.subgraphIndex = key, graph
        t.inputs, t.outputs = [], []
        for names, maps in ((inputs, t.inputs), (outputs, t.outputs)):
            for name, tensor in names.items():
                entry = schema.TensorMapT()
                entry.name, entry.tensorIndex = name, tensor
                maps.append(entry)
        self.table.signatureDefs = [*(self.table.signatureDefs or []), t]

    def bytes(self):
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.table.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())
