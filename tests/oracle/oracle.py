# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime as an oracle. In: an ONNX model and its feeds. Out: every final and intermediate tensor of the graph
that the EXTENDED optimiser leaves, computed without further optimisation, and the list of operators that it fused.

Method: observing an intermediate tensor changes what the optimiser does, so the model is optimised and saved first,
outputs are then added to the saved model, and that is run with optimisation off. The session options make the integer
operators take int8 where the model says int8, on every x86 machine."""

from __future__ import annotations

import collections
import copy
import dataclasses
import os
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

PINNED = "1.32.0"  # of requirements.txt
CONFIG = {"session.x64quantprecision": "1", "session.qdqisint8allowed": "1", "session.disable_double_qdq_remover": "1"}


def pinned() -> bool:
    """Whether the installed wheel is the one that the statements of docs/numerics.md were confirmed with."""
    return ort.__version__ == PINNED


def cpu_flags() -> set[str]:
    """Flags of this CPU as Linux names them; empty elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("flags"):
                    return set(line.split(":", 1)[1].split())
    except OSError:
        pass
    return set()


def exact_cpu() -> bool:
    """Whether this CPU runs the kernels the formulas describe: AVX2 and FMA, and VNNI for u8 times s8 without int16
    saturation."""
    flags = cpu_flags()
    return {"avx2", "fma"} <= flags and bool({"avx512_vnni", "avx_vnni"} & flags)


def load(model) -> onnx.ModelProto:
    """A ModelProto from a ModelProto, bytes or a path."""
    if isinstance(model, onnx.ModelProto):
        return model
    if isinstance(model, bytes):
        return onnx.load_model_from_string(model)
    return onnx.load(os.fspath(model))


def session_options(level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL, *, oracle=True, optimized_path=None, threads=1):
    """Options with the oracle's settings (or the defaults with oracle=False) and a deterministic number of threads."""
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if oracle:
        for key, value in CONFIG.items():
            options.add_session_config_entry(key, value)
    if optimized_path is not None:
        options.optimized_model_filepath = os.fspath(optimized_path)
    return options


def make_session(model, options=None) -> ort.InferenceSession:
    model = load(model)
    return ort.InferenceSession(
        model.SerializeToString(), options or session_options(), providers=["CPUExecutionProvider"]
    )


def optimize(model) -> onnx.ModelProto:
    """The model as the EXTENDED optimiser leaves it under the oracle's options."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "optimized.onnx")
        make_session(model, session_options(ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED, optimized_path=path))
        return onnx.load(path)


def op_name(node) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain and node.domain != "ai.onnx" else node.op_type


def operator_counts(model) -> collections.Counter:
    """How many nodes of each operator the main graph has, as 'QLinearConv' or 'com.microsoft::QLinearAdd'."""
    return collections.Counter(op_name(node) for node in load(model).graph.node)


QUANTIZED_OPS = {
    "QLinearConv",
    "QLinearMatMul",
    "com.microsoft::QGemm",
    "com.microsoft::QLinearAdd",
    "com.microsoft::QLinearMul",
    "com.microsoft::QLinearConcat",
    "com.microsoft::QLinearAveragePool",
    "com.microsoft::QLinearGlobalAveragePool",
    "com.microsoft::QLinearLeakyRelu",
    "com.microsoft::QLinearSigmoid",
    "com.microsoft::QLinearSoftmax",
    "com.microsoft::QLinearWhere",
    "com.microsoft::QLinearReduceMean",
    "com.microsoft::MatMulIntegerToFloat",
    "com.microsoft::DynamicQuantizeMatMul",
    "ConvInteger",
    "MatMulInteger",
}


def add_outputs(model, names=None) -> onnx.ModelProto:
    """A copy of the model whose graph outputs also list the named values (all node outputs if None)."""
    model = copy.deepcopy(load(model))
    present = {value.name for value in model.graph.output}
    if names is None:
        names = [name for node in model.graph.node for name in node.output if name]
    for name in names:
        if name not in present:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
            present.add(name)
    return model


@dataclasses.dataclass
class Result:
    outputs: dict[str, np.ndarray]  # of the original model, by name
    values: dict[str, np.ndarray]  # every node output of the optimised model, by name
    optimized: onnx.ModelProto
    operators: collections.Counter  # of the optimised model
    feeds: dict[str, np.ndarray]

    @property
    def fused(self) -> dict[str, int]:
        """Integer operators in the optimised model."""
        return {name: count for name, count in sorted(self.operators.items()) if name in QUANTIZED_OPS}


def run_plain(model, feeds, level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL, *, oracle=True) -> dict[str, np.ndarray]:
    """Graph outputs of one run at the given level."""
    session = make_session(model, session_options(level, oracle=oracle))
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds)))


def run(model, feeds, *, intermediates=True) -> Result:
    """Optimises, observes and runs the model; see the module's text."""
    model = load(model)
    optimized = optimize(model)
    observed = add_outputs(optimized) if intermediates else optimized
    values = run_plain(observed, feeds)
    outputs = {output.name: values[output.name] for output in model.graph.output}
    return Result(outputs, values, optimized, operator_counts(optimized), dict(feeds))


def assert_fused(result: Result, expected: dict[str, int]) -> None:
    """Fails unless the optimised model holds exactly these integer operators."""
    assert result.fused == dict(sorted(expected.items())), (
        f"fused {result.fused}, expected {expected}; all: {dict(result.operators)}"
    )


def histogram(a: np.ndarray, b: np.ndarray) -> collections.Counter:
    """How often each difference a - b occurs, in integer steps for integers, else rounded to 3 significant digits."""
    if a.dtype.kind in "iub":
        difference = a.astype(np.int64).ravel() - b.astype(np.int64).ravel()
        values, counts = np.unique(difference, return_counts=True)
        return collections.Counter({int(v): int(c) for v, c in zip(values, counts)})
    difference = a.astype(np.float64).ravel() - b.astype(np.float64).ravel()
    return collections.Counter(float(f"{d:.2e}") for d in difference)


def default_histogram(model, feeds, outputs: dict[str, np.ndarray]) -> dict[str, collections.Counter]:
    """For each output the histogram of (given - default-option ONNX Runtime)."""
    default = run_plain(model, feeds, ort.GraphOptimizationLevel.ORT_ENABLE_ALL, oracle=False)
    return {name: histogram(value, default[name]) for name, value in outputs.items()}


def quantize(
    model,
    calibration,
    *,
    qdq=True,
    activation="u8",
    weight="s8",
    per_channel=False,
    operators=None,
    method="minmax",
    extra=None,
) -> onnx.ModelProto:
    """onnxruntime's static quantiser over a float model: shape inference first, then calibration.

    calibration: a list of feeds (dicts). activation, weight: 'u8' or 's8'. Returns the quantised model."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.position = 0

        def get_next(self):
            self.position += 1
            return calibration[self.position - 1] if self.position <= len(calibration) else None

        def rewind(self):
            self.position = 0

    types = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}
    methods = {
        "minmax": CalibrationMethod.MinMax,
        "entropy": CalibrationMethod.Entropy,
        "percentile": CalibrationMethod.Percentile,
    }
    model = with_opset(load(model), 13)
    with tempfile.TemporaryDirectory() as folder:
        source, prepared, target = (
            os.path.join(folder, name) for name in ("source.onnx", "prepared.onnx", "quantized.onnx")
        )
        onnx.save(model, source)
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            target,
            Reader(),
            quant_format=QuantFormat.QDQ if qdq else QuantFormat.QOperator,
            activation_type=types[activation],
            weight_type=types[weight],
            per_channel=per_channel,
            op_types_to_quantize=operators,
            calibrate_method=methods[method],
            extra_options=extra or {},
        )
        return onnx.load(target)


def with_opset(model, at_least) -> onnx.ModelProto:
    """The model converted to an opset of at least the given number (per-channel QDQ needs 13)."""
    current = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if current >= at_least:
        return model
    model = copy.deepcopy(model)
    if model.ir_version < 4:
        # The converter wants initialisers among the inputs of old files, the quantiser does not; later IR versions drop
        # them.
        model.ir_version = 4
    from onnx import version_converter

    converted = version_converter.convert_version(model, at_least)
    initializers = {tensor.name for tensor in converted.graph.initializer}
    inputs = [value for value in converted.graph.input if value.name not in initializers]
    del converted.graph.input[:]
    converted.graph.input.extend(inputs)
    converted.ir_version = max(converted.ir_version, 8)
    return converted


# --- single nodes
# ----------------------------------------------------------------------------------------------------------------

NUMPY_TO_ONNX = {
    np.dtype(name): code
    for name, code in (
        ("float32", TensorProto.FLOAT),
        ("uint8", TensorProto.UINT8),
        ("int8", TensorProto.INT8),
        ("uint16", TensorProto.UINT16),
        ("int16", TensorProto.INT16),
        ("int32", TensorProto.INT32),
        ("int64", TensorProto.INT64),
        ("bool", TensorProto.BOOL),
        ("float16", TensorProto.FLOAT16),
        ("float64", TensorProto.DOUBLE),
        ("uint32", TensorProto.UINT32),
        ("uint64", TensorProto.UINT64),
    )
}


def onnx_type(array: np.ndarray) -> int:
    return NUMPY_TO_ONNX.get(array.dtype) or helper.np_dtype_to_tensor_dtype(array.dtype)


def node_model(
    op_type, inputs, *, domain="", opset=13, attributes=None, output_count=1, constants=None, cast=None
) -> onnx.ModelProto:
    """A model of one node. `inputs`: arrays or None; indices in `constants` (all but 0 if None is given) become
    initialisers. `cast`: outputs are cast to this type, for element types that ONNX Runtime does not hand to Python."""
    constants = set(range(1, len(inputs))) if constants is None else set(constants)
    graph_inputs, initializers, names = [], [], []
    for i, array in enumerate(inputs):
        if array is None:
            names.append("")
            continue
        array = np.asarray(array)
        names.append(f"x{i}")
        if i in constants:
            initializers.append(numpy_helper.from_array(array, f"x{i}"))
        else:
            graph_inputs.append(helper.make_tensor_value_info(f"x{i}", onnx_type(array), array.shape))
    while names and not names[-1]:
        names.pop()
    outputs = [f"y{i}" for i in range(output_count)]
    nodes = [helper.make_node(op_type, names, outputs, domain=domain, **(attributes or {}))]
    if cast is not None:
        nodes += [helper.make_node("Cast", [name], [f"{name}_cast"], to=cast) for name in outputs]
        outputs = [f"{name}_cast" for name in outputs]
    graph = helper.make_graph(
        nodes, "node", graph_inputs, [onnx.ValueInfoProto(name=name) for name in outputs], initializers
    )
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run_node(
    op_type, inputs, *, domain="", opset=13, attributes=None, output_count=1, constants=None, cast=None
) -> list[np.ndarray]:
    """Results of one node in ONNX Runtime, optimisation off."""
    model = node_model(
        op_type,
        inputs,
        domain=domain,
        opset=opset,
        attributes=attributes,
        output_count=output_count,
        constants=constants,
        cast=cast,
    )
    present = set(range(1, len(inputs))) if constants is None else set(constants)
    feeds = {f"x{i}": np.asarray(array) for i, array in enumerate(inputs) if array is not None and i not in present}
    return make_session(model).run(None, feeds)
