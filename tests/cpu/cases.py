# SPDX-License-Identifier: Apache-2.0
"""Models of one operator or a few, compiled twice: into machine code and as library kernels. That the first really was
compiled is read from the size of the artifact's CPU code."""

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import tessera

MS = "com.microsoft"
# Floats at which conversions, rounding and functions part.
HARD = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.5,
        -2.5,
        1.5,
        np.inf,
        -np.inf,
        np.nan,
        1e-40,
        -1e-40,
        3e38,
        -3e38,
        88.8,
        -88.8,
        2147483648.0,
        -2147483648.0,
        4294967296.0,
        1e19,
        127.5,
        255.5,
        -0.49999997,
    ],
    np.float32,
)
SHAPES = [(7,), (2, 3, 35), (1,), (), (3, 64)]


class Model:
    """A list of nodes over named inputs and constants."""

    def __init__(self, opset=17):
        self.opset, self.nodes, self.inputs, self.constants = opset, [], {}, []

    def input(self, array):
        name = f"x{len(self.inputs)}"
        self.inputs[name] = np.asarray(array)
        return name

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op, operands, results=1, domain="", **attributes):
        names = [f"n{len(self.nodes)}_{i}" for i in range(results)]
        self.nodes.append(
            helper.make_node(
                op,
                [o if o is not None else "" for o in operands],
                names,
                name=f"{op}{len(self.nodes)}",
                domain=domain,
                **attributes,
            )
        )
        return names[0] if results == 1 else names

    def bytes(self, outputs):
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in self.inputs.items()
        ]
        graph = helper.make_graph(
            self.nodes, "g", inputs, [onnx.ValueInfoProto(name=n) for n in outputs], self.constants
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def same_bits(a, b):
    """Equal types, shapes and bits; any NaN equals any other."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind == "f":
        both = np.isnan(a) & np.isnan(b)
        return np.array_equal(np.where(both, 0, a).view(f"u{a.itemsize}"), np.where(both, 0, b).view(f"u{b.itemsize}"))
    return np.array_equal(a, b)


def check(model, outputs, oracle=True, compiled=True, rtol=1e-5, atol=1e-5):
    outputs = [outputs] if isinstance(outputs, str) else list(outputs)
    data = model.bytes(outputs)
    code = tessera.Session(data, use_npu=False, cpu_codegen=True)
    library = tessera.Session(data, use_npu=False, cpu_codegen=False)
    assert (code.info()["cpu_code_bytes"] > 0) == compiled
    assert library.info()["cpu_code_bytes"] == 0
    got, want = code.run(None, model.inputs), library.run(None, model.inputs)
    for name, g, w in zip(outputs, got, want):
        assert same_bits(g, w), (
            f"{name}: {np.count_nonzero(g != w)} of {g.size} elements differ from the library: {g.ravel()[:8]} "
            f"{w.ravel()[:8]}"
        )
    if oracle:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        for g, w in zip(
            got, onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, model.inputs)
        ):
            assert g.dtype == w.dtype and g.shape == w.shape
            np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)


def floats(*shape, seed=0, dtype=np.float32, scale=2.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def ints(*shape, seed=0, dtype=np.int32, low=-100, high=100):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(max(low, info.min), min(high, info.max + 1), shape).astype(dtype)


def one(
    op,
    arrays,
    opset=17,
    constants=(),
    domain="",
    oracle=True,
    compiled=True,
    results=1,
    rtol=1e-5,
    atol=1e-5,
    **attributes,
):
    """A model of one node; arrays at positions in `constants` are constants, None is an absent operand."""
    m = Model(opset)
    operands = [None if a is None else m.constant(a) if i in constants else m.input(a) for i, a in enumerate(arrays)]
    out = m.node(op, operands, results, domain, **attributes)
    check(m, out, oracle, compiled, rtol, atol)
