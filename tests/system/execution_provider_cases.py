# SPDX-License-Identifier: Apache-2.0
"""Cases of test_execution_provider.py, run by any Python that has some version of onnxruntime and the package onnx:
`python -m tests.system.execution_provider_cases LIBRARY`. Each function whose name begins with `case_` is one; the last
line of the output is JSON from its name to "" or what went wrong. ONNX Runtime's own provider is the oracle."""

import ctypes
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from tests.system import builders, float_models

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DIGITS = ROOT / "examples" / "digits"
NAME = "TesseraExecutionProvider"
VERSION = tuple(int(part) for part in ort.__version__.split(".")[:2])
SPLITS_BODIES = (1, 24) <= VERSION < (1, 27)  # bodies that take values from outside are partitions of their own
SEEDS = int(os.environ.get("TESSERA_PROVIDER_SEEDS", "12"))
F = TensorProto.FLOAT
value = helper.make_tensor_value_info


class Tessera:
    """The registered provider, and sessions with it and without."""

    def __init__(self, library):
        self.library = library
        self.register()

    def register(self):
        ort.register_execution_provider_library("tessera", self.library)
        self.devices = [device for device in ort.get_ep_devices() if device.ep_name == NAME]

    def options(self, entries):
        options = ort.SessionOptions()
        options.log_severity_level = 3
        # Without it products of uint8 and int8 saturate on some processors (docs/numerics.md).
        options.add_session_config_entry("session.x64quantprecision", "1")
        for key, text in entries.items():
            options.add_session_config_entry(key, text)
        return options

    def session(self, model, provider=None, **entries):
        options = self.options({key.replace("__", "."): text for key, text in entries.items()})
        options.add_provider_for_devices(self.devices, provider or {})
        return ort.InferenceSession(self.given(model), options, enable_fallback=0)

    def oracle(self, model):
        return ort.InferenceSession(self.given(model), self.options({}), providers=["CPUExecutionProvider"])

    @staticmethod
    def given(model):
        return model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)

    def partitions(self, model, feeds, exact, provider=None, many=1):
        """Runs a model on both and compares; the statistics of each partition's run."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "statistics")
            session = self.session(model, {"statistics": str(path), **(provider or {})})
            for _ in range(many):
                results = session.run(None, feeds)
            same(results, self.oracle(model).run(None, feeds), exact)
            return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def refused(self, *arguments, **keywords):
        """The text of the error that opening or running a model ends with."""
        try:
            self.session(*arguments, **keywords)
        except Exception as error:
            text = str(error).split(f"{NAME}: ", 1)
            assert len(text) == 2, f"not one of ours: {text[0]}"
            assert "\n" not in text[1].strip(), text[1]
            return text[1].strip()
        raise AssertionError("nothing was refused")


def same(results, wanted, exact):
    assert len(results) == len(wanted)
    for result, expected in zip(results, wanted, strict=True):
        result, expected = np.asarray(result), np.asarray(expected)
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        if exact:
            np.testing.assert_array_equal(result, expected)
        else:
            near = 1e-5 if result.dtype == np.float32 else 8e-3
            np.testing.assert_allclose(result, expected, rtol=10 * near, atol=near)


def model_of(nodes, inputs, outputs, constants=(), domains=(), opset=17):
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(constants).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def weights(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def interrupted():
    """Two products with an operator between them that Tessera does not know, and a node beside them."""
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["a"], name="first"),
        helper.make_node("SampleOp", ["a"], ["b"], "odd", domain="com.microsoft"),
        helper.make_node("MatMul", ["b", "W"], ["y"], name="second"),
        helper.make_node("Relu", ["x"], ["z"], name="beside"),
    ]
    inputs = [value("x", F, [1, 6])]
    outputs = [value("y", F, [1, 6]), value("z", F, [1, 6])]
    return model_of(nodes, inputs, outputs, {"W": weights(6, 6)}, ["com.microsoft"])


INTERRUPTED = {"x": weights(1, 6, seed=1)}


def branches(then_nodes, inputs=(), domains=()):
    """An If with some nodes in one branch and a constant's product in the other, and an Add behind it."""
    then = helper.make_graph(then_nodes, "then", [], [value("t", F, None)])
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.float32([2, 3, 4, 5, 6, 7])))
    otherwise = helper.make_graph(
        [constant, helper.make_node("Mul", ["x", "c"], ["e"])], "e", [], [value("e", F, None)]
    )
    nodes = [
        helper.make_node("If", ["condition"], ["r"], then_branch=then, else_branch=otherwise),
        helper.make_node("Add", ["r", "x"], ["y"]),
    ]
    inputs = [value("condition", TensorProto.BOOL, []), value("x", F, [1, 6]), *inputs]
    return model_of(nodes, inputs, [value("y", F, [1, 6])], {"W": weights(6, 6)}, domains)


# --- what is registered -------------------------------------------------------------------------------------


def case_devices(tessera):
    (device,) = tessera.devices
    assert device.ep_vendor == "Tessera"
    assert tessera.session(interrupted()).get_providers()[0] == NAME


def case_unregistered_and_registered_again(tessera):
    ort.unregister_execution_provider_library("tessera")
    assert NAME not in {device.ep_name for device in ort.get_ep_devices()}
    tessera.register()
    assert tessera.partitions(interrupted(), INTERRUPTED, exact=False)


def case_indices_of_the_interface(tessera):
    """Entries of the table that can be told by what they do, through the indices of ort_api.h."""
    found = sorted(pathlib.Path(ort.__file__).parent.glob("capi/libonnxruntime.so*"))
    if not found:
        return
    text = (ROOT / "tessera" / "onnxruntime_ep" / "ort_api.h").read_text()
    indices = {name: int(index) for name, index in re.findall(r"(k\w+) =\s*kApi<(\d+),", text)}
    assert len(indices) > 60
    base = ctypes.CDLL(str(found[0])).OrtGetApiBase
    base.restype = ctypes.POINTER(ctypes.c_void_p * 2)
    base = base().contents
    version = ctypes.CFUNCTYPE(ctypes.c_char_p)(base[1])()
    assert version.decode() == ort.__version__
    table = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(base[0])(23)
    entries = (ctypes.c_void_p * (max(indices.values()) + 1)).from_address(table)
    assert all(entries[index] for index in indices.values())

    def call(name, result, *types):
        return ctypes.CFUNCTYPE(result, *types)(entries[indices[name]])

    p, s = ctypes.c_void_p, ctypes.c_char_p
    status = call("kCreateStatus", p, ctypes.c_int, s)(1, b"a message")
    assert call("kGetErrorMessage", s, p)(status) == b"a message"
    call("kReleaseStatus", None, p)(status)
    attribute, name, kind, length = p(), s(), ctypes.c_int(), ctypes.c_size_t()
    held = b"bytes\0and zeros\0"
    create = call("kCreateOpAttr", p, s, p, ctypes.c_int, ctypes.c_int, p)
    assert not create(b"label", held, len(held), 5, ctypes.byref(attribute))
    assert not call("kOpAttrGetName", p, p, p)(attribute, ctypes.byref(name))
    assert not call("kOpAttrGetType", p, p, p)(attribute, ctypes.byref(kind))
    buffer = ctypes.create_string_buffer(len(held))
    read = call("kReadOpAttr", p, p, ctypes.c_int, p, ctypes.c_size_t, p)
    assert not read(attribute, 5, buffer, len(held), ctypes.byref(length))
    assert (name.value, kind.value, buffer.raw[: length.value]) == (b"label", 5, held)
    call("kReleaseOpAttr", None, p)(attribute)
    assert call("kGetModelEditorApi", p)()
    assert call("kGetEpApi", p)()


def case_every_entry_is_used(tessera):
    """What no source uses no case could show to be right."""
    folder = ROOT / "tessera" / "onnxruntime_ep"
    declared = re.findall(r"\bk[A-Z]\w+(?= =\s*kApi<|\{\};)", (folder / "ort_api.h").read_text())
    sources = "".join(path.read_text() for path in folder.iterdir() if path.suffix in (".cc", ".h"))
    assert len(declared) > 70
    assert [name for name in declared if len(re.findall(rf"\b{name}\b", sources)) < 2] == []


def case_too_old(tessera):
    """A version of ONNX Runtime before 1.23 gets a status, whose text says what is needed."""
    said = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    def create_status(code, message):
        said.append(message.decode())
        return 1

    table = (ctypes.c_void_p * 400)()
    table[0] = ctypes.cast(create_status, ctypes.c_void_p)
    get_api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(lambda version: ctypes.addressof(table))
    get_version = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.cast(b"1.22.1", ctypes.c_void_p).value)
    base = (ctypes.c_void_p * 2)(ctypes.cast(get_api, ctypes.c_void_p), ctypes.cast(get_version, ctypes.c_void_p))
    factories, count = (ctypes.c_void_p * 4)(), ctypes.c_size_t(7)
    create = ctypes.CDLL(tessera.library).CreateEpFactories
    create.restype = ctypes.c_void_p
    assert create(b"tessera", base, None, factories, ctypes.c_size_t(4), ctypes.byref(count)) == 1
    assert count.value == 0
    assert said == [f"{NAME}: ONNX Runtime 1.22.1 is too old; version 1.23 or newer is needed"]


def case_options(tessera):
    model = interrupted()
    assert tessera.refused(model, {"device": "card"}).startswith("unknown device 'card'; known: ")
    assert tessera.refused(model, {"config": "npu7"}).startswith("unknown configuration 'npu7'")
    assert "no option 'speed'" in tessera.refused(model, {"speed": "1"})
    assert "exact, close or model, not 'roughly'" in tessera.refused(model, {"numerics": "roughly"})
    assert "'speed'" in tessera.refused(model, {"device": "reference", "speed": "1"})
    same(tessera.session(model, {"device": "reference"}).run(None, INTERRUPTED),
         tessera.oracle(model).run(None, INTERRUPTED), exact=False)  # fmt: skip
    (first, *_) = tessera.partitions(DIGITS / "digits.onnx", digits(2), True, {"device": "sysc", "config": "npu64"})
    assert first["config"] == "npu64"
    assert first["cycles"] > 0


# --- networks -----------------------------------------------------------------------------------------------


def digits(count):
    return {"image": np.load(DIGITS / "digits_test.npz")["images"][:count]}


def case_quantised_network_of_any_batch(tessera):
    model = DIGITS / "digits.onnx"
    session, oracle = tessera.session(model), tessera.oracle(model)
    for count in (1, 3, 17):
        same(session.run(None, digits(count)), oracle.run(None, digits(count)), exact=True)
    (run,) = tessera.partitions(model, digits(2), exact=True)
    assert run["nodes_npu"] > 0


def case_float_network(tessera):
    assert tessera.partitions(DIGITS / "digits_float.onnx", digits(2), exact=False)
    for make in (float_models.residual, float_models.attention, float_models.half):
        model = make()
        feeds = float_models.feeds_of(model, 1)
        assert tessera.partitions(model, feeds[0] if isinstance(feeds, list) else feeds, exact=False), make.__name__


def case_quantised_operators(tessera):
    for make in (builders.random_convolution, builders.random_matmul, builders.random_pointwise, builders.random_pool):
        compared = 0
        for seed in (1, 2, 3):
            model, feeds = make(seed)[:2]
            try:
                tessera.oracle(model)
            except Exception:  # versions of ONNX Runtime lack a kernel for some mixtures of types
                continue
            assert tessera.partitions(model, feeds, exact=True), f"{make.__name__}({seed})"
            compared += 1
        assert compared, make.__name__


def case_machine_of_the_model(tessera):
    """What `tessera quantize` has written into the model holds for its partitions."""
    model = onnx.load(DIGITS / "digits.onnx")
    del model.metadata_props[:]
    model.metadata_props.add(key="tessera.quantization", value=json.dumps({"config": "npu1024", "numerics": "exact"}))
    (run,) = tessera.partitions(model, digits(1), exact=True)
    assert run["config"] == "npu1024"


# --- partitions ---------------------------------------------------------------------------------------------


def case_unknown_operator(tessera):
    """Two partitions around it: the node beside stands in one of them."""
    assert len(tessera.partitions(interrupted(), INTERRUPTED, exact=False)) == 2


def case_convex_partitions(tessera):
    """A value goes both through an operator that Tessera does not know and around it, twice."""
    nodes = [helper.make_node("Relu", ["x"], ["a0"])]
    for i in range(2):
        odd = helper.make_node("SampleOp", [f"a{i}"], [f"b{i}"], domain="com.microsoft")
        nodes += [odd, helper.make_node("Add", [f"a{i}", f"b{i}"], [f"a{i + 1}"])]
    nodes.append(helper.make_node("Mul", ["a0", "a2"], ["y"]))
    inputs = [value("x", F, [1, 6])]
    model = model_of(nodes, inputs, [value("y", F, [1, 6])], domains=["com.microsoft"])
    assert len(tessera.partitions(model, INTERRUPTED, exact=False)) == 3


def random_graph(seed):
    """Products, activations, sums, branches and an operator that Tessera does not know, which is an identity here."""
    rng = np.random.default_rng(seed)
    nodes, names = [], ["x"]
    pick = lambda: names[int(rng.integers(len(names)))]
    for i in range(int(rng.integers(4, 16))):
        y, kind = f"v{i}", rng.choice(["odd", "odd", "product", "Relu", "Softmax", "Add", "Max", "If"])
        if kind == "odd":
            nodes.append(helper.make_node("SampleOp", [pick()], [y], domain="com.microsoft"))
        elif kind == "product":
            nodes.append(helper.make_node("MatMul", [pick(), "W"], [y]))
        elif kind == "If":
            bodies = [
                helper.make_graph([helper.make_node(op, [pick(), pick()], [f"{y}_{op}"])], op, [],
                                  [value(f"{y}_{op}", F, None)])
                for op in ("Sub", "Min")
            ]  # fmt: skip
            nodes.append(helper.make_node("If", ["condition"], [y], then_branch=bodies[0], else_branch=bodies[1]))
        else:
            nodes.append(helper.make_node(kind, [pick(), pick()] if kind in ("Add", "Max") else [pick()], [y]))
        names.append(y)
    used = {name for node in nodes for name in node.input}
    results = [value(name, F, [1, 6]) for name in names[1:] if name not in used or rng.random() < 0.2]
    inputs = [value("x", F, [1, 6]), value("condition", TensorProto.BOOL, [])]
    return model_of(nodes, inputs, results, {"W": 0.3 * weights(6, 6)}, ["com.microsoft"])


def case_random_graphs(tessera):
    for seed in range(SEEDS):
        try:
            feeds = {**INTERRUPTED, "condition": np.array(seed % 2 == 0)}
            same(tessera.session(random_graph(seed)).run(None, feeds),
                 tessera.oracle(random_graph(seed)).run(None, feeds), exact=False)  # fmt: skip
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def case_branches(tessera):
    model = branches([helper.make_node("MatMul", ["x", "W"], ["t"])])
    for condition in (True, False):
        feeds = {"condition": np.array(condition), "x": weights(1, 6)}
        assert len(tessera.partitions(model, feeds, exact=False)) == 1 or SPLITS_BODIES


def case_branches_with_an_unknown_operator(tessera):
    odd = helper.make_node("SampleOp", ["s"], ["t"], domain="com.microsoft")
    model = branches([helper.make_node("MatMul", ["x", "W"], ["s"]), odd], [],
                     ["com.microsoft"])  # fmt: skip
    for condition in (True, False):
        assert tessera.partitions(model, {"condition": np.array(condition), **INTERRUPTED}, exact=False)


def case_values_that_only_a_branch_takes(tessera):
    """The else branch alone takes `w`. Older versions of ONNX Runtime do not hand it on, and keep the node."""
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "then", [], [value("t", F, None)])
    otherwise = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["e"])], "else", [], [value("e", F, None)])
    nodes = [
        helper.make_node("If", ["condition"], ["r"], then_branch=then, else_branch=otherwise),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    inputs = [value("condition", TensorProto.BOOL, []), value("x", F, [1, 6]), value("w", F, [1, 6])]
    model = model_of(nodes, inputs, [value("y", F, [1, 6])])
    for condition in (True, False):
        feeds = {"condition": np.array(condition), "x": weights(1, 6), "w": weights(1, 6, seed=4)}
        assert tessera.partitions(model, feeds, exact=True)


def case_loop(tessera):
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["s", "W"], ["s1"]),
            helper.make_node("Identity", ["c"], ["c1"]),
            helper.make_node("Identity", ["s1"], ["each"]),
        ],
        "body",
        [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), value("s", F, [1, 6])],
        [value("c1", TensorProto.BOOL, []), value("s1", F, [1, 6]), value("each", F, [1, 6])],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["y", "all"], body=body)
    inputs = [value("n", TensorProto.INT64, []), value("x", F, [1, 6])]
    model = model_of([loop], inputs, [value("y", F, [1, 6]), value("all", F, None)], {"W": weights(6, 6)})
    assert len(tessera.partitions(model, {"n": np.array(3), "x": weights(1, 6)}, exact=False)) == 1 or SPLITS_BODIES


def case_sequences(tessera):
    split = helper.make_node("SplitToSequence", ["r"], ["q"], axis=1, keepdims=1)
    relu, join = helper.make_node("Relu", ["x"], ["r"]), helper.make_node("ConcatFromSequence", ["q"], ["y"], axis=0)
    inside = model_of([relu, split, join], [value("x", F, [1, 6])], [value("y", F, None)])
    assert len(tessera.partitions(inside, {"x": weights(1, 6)}, exact=True)) == 1
    outside = model_of([relu, split], [value("x", F, [1, 6])], [helper.make_tensor_sequence_value_info("q", F, None)])
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "statistics")
        (result,) = tessera.session(outside, {"statistics": str(path)}).run(None, {"x": weights(1, 6)})
        (expected,) = tessera.oracle(outside).run(None, {"x": weights(1, 6)})
        same(result, expected, exact=True)
        assert len(path.read_text().splitlines()) == 1  # the Relu


def case_every_kind_of_attribute(tessera):
    nodes = [
        helper.make_node("LabelEncoder", ["s"], ["n"], domain="ai.onnx.ml", keys_strings=["a", "", "long word"],
                         values_int64s=[4, -5, 6], default_int64=9),
        helper.make_node("LabelEncoder", ["n"], ["f"], domain="ai.onnx.ml", keys_int64s=[4, 9],
                         values_floats=[0.5, -1.5], default_float=3.25),
        helper.make_node("ConstantOfShape", ["shape"], ["k"], value=numpy_helper.from_array(np.float32([7]))),
        helper.make_node("Add", ["f", "k"], ["y"]),
        helper.make_node("Pad", ["y", "pads"], ["padded"], mode="edge"),
        helper.make_node("Concat", ["s", "s"], ["t"], axis=0),
    ]  # fmt: skip
    constants = {"shape": np.array([4]), "pads": np.array([1, 2])}
    outputs = [value("padded", F, None), value("t", TensorProto.STRING, None)]
    model = model_of(nodes, [value("s", TensorProto.STRING, [4])], outputs, constants)
    model.opset_import.add(domain="ai.onnx.ml", version=2)
    feeds = {"s": np.array(["a", "", "long word", "x\u00e9"], object)}
    assert len(tessera.partitions(model, feeds, exact=True)) == 1


def case_initializers_that_are_inputs(tessera):
    nodes = [helper.make_node("Clip", ["x", "", "high"], ["y"])]
    inputs = [value("x", F, [1, 6]), value("high", F, [])]
    model = model_of(nodes, inputs, [value("y", F, [1, 6])], {"high": np.float32(0.5)})
    assert tessera.partitions(model, {"x": weights(1, 6)}, exact=True)
    assert tessera.partitions(model, {"x": weights(1, 6), "high": np.array(0.25, np.float32)}, exact=True)


def case_external_data(tessera):
    model = model_of([helper.make_node("MatMul", ["x", "W"], ["y"])], [value("x", F, ["N", 8])],
                     [value("y", F, ["N", 40000])], {"W": weights(8, 40000)})  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.onnx")
        onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=16)
        assert tessera.partitions(path, {"x": weights(2, 8)}, exact=False)


def case_empty_results(tessera):
    model = model_of([helper.make_node("NonZero", ["x"], ["y"])], [value("x", F, [2, "N"])],
                     [value("y", TensorProto.INT64, None)])  # fmt: skip
    assert tessera.partitions(model, {"x": np.zeros((2, 3), np.float32)}, exact=True)
    assert tessera.partitions(model, {"x": np.zeros((2, 0), np.float32)}, exact=True)


# --- runs ---------------------------------------------------------------------------------------------------


def case_threads(tessera):
    model = DIGITS / "digits.onnx"
    sessions = [tessera.session(model), tessera.session(model, {"config": "npu64"})]
    expected = {count: tessera.oracle(model).run(None, digits(count)) for count in (1, 2)}
    wrong = []

    def work(session, count):
        try:
            for _ in range(5):
                same(session.run(None, digits(count)), expected[count], exact=True)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(s, count)) for s in sessions for count in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def case_bindings(tessera):
    session = tessera.session(DIGITS / "digits.onnx")
    binding = session.io_binding()
    binding.bind_cpu_input("image", digits(2)["image"])
    binding.bind_output(session.get_outputs()[0].name)
    session.run_with_iobinding(binding)
    same(binding.copy_outputs_to_cpu(), tessera.oracle(DIGITS / "digits.onnx").run(None, digits(2)), exact=True)


def case_error_in_a_run(tessera):
    model = model_of([helper.make_node("Reshape", ["x", "s"], ["y"])],
                     [value("x", F, [6]), value("s", TensorProto.INT64, [2])], [value("y", F, None)])  # fmt: skip
    session = tessera.session(model)
    try:
        session.run(None, {"x": weights(6), "s": np.array([4, 4])})
    except Exception as error:
        assert NAME in str(error), error
    else:
        raise AssertionError("nothing was refused")
    same(session.run(None, {"x": weights(6), "s": np.array([2, 3])}), [weights(6).reshape(2, 3)], exact=True)


# --- compiled contexts --------------------------------------------------------------------------------------


def fixed_digits():
    model = onnx.load(DIGITS / "digits.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    return model


def contexts_of(path):
    nodes = [node for node in onnx.load(path).graph.node if node.op_type == "EPContext"]
    return [{a.name: helper.get_attribute_value(a) for a in node.attribute} for node in nodes]


def case_contexts(tessera):
    """Saved beside the model or inside of it, and loaded from another folder, by a session that names no machine."""
    branched = branches([helper.make_node("MatMul", ["x", "W"], ["t"])])
    models = {
        "fixed": (fixed_digits(), digits(2), True),
        "any": (onnx.load(DIGITS / "digits.onnx"), digits(3), True),
        "two": (interrupted(), INTERRUPTED, False),
        "branched": (branched, {"condition": np.array(True), "x": weights(1, 6)}, False),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, feeds, exact) in models.items():
            for embed in "01":
                made = pathlib.Path(folder, name + embed)
                made.mkdir()
                onnx.save(model, made / "model.onnx")
                path = str(made / "compiled.onnx")
                entries = {"ep__context_enable": "1", "ep__context_file_path": path, "ep__context_embed_mode": embed}
                session = tessera.session(made / "model.onnx", {"config": "npu64"}, **entries)
                expected = tessera.oracle(model).run(None, feeds)
                same(session.run(None, feeds), expected, exact)
                moved = shutil.move(made, pathlib.Path(folder, "moved", name + embed))
                contexts = contexts_of(moved / "compiled.onnx")
                assert len(contexts) == (2 if name == "two" else 1)
                for context in contexts:
                    assert context["source"].decode() == NAME
                    assert context["embed_mode"] == int(embed)
                    held = context["ep_cache_context"]
                    artifact = held if embed == "1" else (moved / held.decode()).read_bytes()
                    assert artifact.startswith(b"TSR\x9a") == (name in ("fixed", "two"))
                same(tessera.session(moved / "compiled.onnx").run(None, feeds), expected, exact)


def case_contexts_of_a_dimension_that_is_overridden(tessera):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "compiled.onnx")
        entries = {"ep.context_enable": "1", "ep.context_file_path": str(path), "ep.context_embed_mode": "1"}
        options = tessera.options(entries)
        (batch, *_) = onnx.load(DIGITS / "digits.onnx").graph.input[0].type.tensor_type.shape.dim
        options.add_free_dimension_override_by_name(batch.dim_param, 2)
        options.add_provider_for_devices(tessera.devices, {})
        ort.InferenceSession(str(DIGITS / "digits.onnx"), options, enable_fallback=0)
        (context,) = contexts_of(path)
        assert context["ep_cache_context"].startswith(b"TSR\x9a")
        same(
            tessera.session(path).run(None, digits(2)),
            tessera.oracle(DIGITS / "digits.onnx").run(None, digits(2)),
            True,
        )


def case_contexts_by_the_compiler_interface(tessera):
    if not hasattr(ort, "ModelCompiler"):
        return
    options = tessera.options({})
    options.add_provider_for_devices(tessera.devices, {"config": "npu64"})
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(fixed_digits(), pathlib.Path(folder, "model.onnx"))
        path = pathlib.Path(folder, "compiled.onnx")
        compiler = ort.ModelCompiler(options, f"{folder}/model.onnx", embed_compiled_data_into_model=True)
        compiler.compile_to_file(str(path))
        assert contexts_of(path)
        expected = tessera.oracle(fixed_digits()).run(None, digits(2))
        same(tessera.session(path).run(None, digits(2)), expected, exact=True)


def case_contexts_that_are_wrong(tessera):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "compiled.onnx")
        onnx.save(fixed_digits(), pathlib.Path(folder, "model.onnx"))
        entries = {"ep__context_enable": "1", "ep__context_file_path": str(path), "ep__context_embed_mode": "0"}
        tessera.session(f"{folder}/model.onnx", **entries)
        good = onnx.load(path)

        def refused_with(text, embed=0):
            changed = onnx.ModelProto.FromString(good.SerializeToString())
            for attribute in changed.graph.node[0].attribute:
                if attribute.name == "ep_cache_context":
                    attribute.s = text
                if attribute.name == "embed_mode":
                    attribute.i = embed
            onnx.save(changed, path)
            return tessera.refused(path)

        for outside in (b"../model.onnx", b"/etc/hostname", b"", b"a/../../b"):
            assert "must lie in the folder of its model" in refused_with(outside)
        assert "cannot open" in refused_with(b"none.tsr")
        assert "truncated" in refused_with((path.parent / contexts_of_name(good)).read_bytes()[:1000], embed=1)
        assert "(EPContext)" in refused_with(b"no artifact", embed=1)
        assert "reference" in tessera.refused(f"{folder}/model.onnx", {"device": "reference"}, **entries)
        assert tessera.refused(f"{folder}/model.onnx", ep__context_enable="1", ep__context_embed_mode="0",
                               ep__context_file_path=f"{folder}/none/c.onnx").startswith("cannot write")  # fmt: skip


def case_contexts_that_are_signed(tessera):
    command = pathlib.Path(tessera.library).parent.parent / "bin" / "tessera"
    if not command.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(fixed_digits(), f"{folder}/model.onnx")
        tessera.session(f"{folder}/model.onnx", ep__context_enable="1", ep__context_embed_mode="0")
        subprocess.run([command, "keygen", f"{folder}/key"], check=True, capture_output=True)
        trusted = {"trusted_keys": f"{folder}/key.pub"}
        assert "is not signed" in tessera.refused(f"{folder}/model_ctx.onnx", trusted)
        artifact = f"{folder}/model_ctx_tessera_0.tsr"
        subprocess.run([command, "sign", artifact, "--key", f"{folder}/key.key"], check=True, capture_output=True)
        results = tessera.session(f"{folder}/model_ctx.onnx", trusted).run(None, digits(2))
        same(results, tessera.oracle(fixed_digits()).run(None, digits(2)), exact=True)


def contexts_of_name(model):
    (name,) = [a.s.decode() for a in model.graph.node[0].attribute if a.name == "ep_cache_context"]
    return name


def main(library):
    tessera = Tessera(library)
    cases = {name: f for name, f in globals().items() if name.startswith("case_") and inspect.isfunction(f)}
    results = {}
    for name, case in cases.items():
        try:
            case(tessera)
            results[name] = ""
        except BaseException:
            results[name] = traceback.format_exc()
    sys.stdout.flush()
    print(json.dumps(results))
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ.setdefault("TESSERA_CACHE", "off")
    main(sys.argv[1])
