# SPDX-License-Identifier: Apache-2.0
"""Seeds of the fuzzers, all made here by the project's own generators and its own command. Enters: a folder and the
path of `tessera`. Leaves: one folder of inputs for each target below it (onnx, litert, artifact, container, schedule,
assembler, board), and `models`, the networks that schedules are tried on. Every seed is small, because an input is
copied and run thousands of times."""

import pathlib
import subprocess

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.oracle import random_dense_graphs, random_image_graphs, random_operators
from tests.system import builders, graphs

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LARGEST = 40_000
FIRST_LINES = 60  # of a listing


def small(model):
    data = model.SerializeToString()
    return data if len(data) <= LARGEST else None


def with_control_flow():
    """If, Loop, Scan, a sequence, an optional and a model-local function."""

    def value(name, kind=TensorProto.FLOAT, shape=(2, 3)):
        return helper.make_tensor_value_info(name, kind, shape)

    def model(nodes, inputs, outputs, constants=(), **options):
        graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], constants)
        opsets = [helper.make_opsetid("", 17), *options.pop("opsets", [])]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8, **options)

    def body(node, inputs=(), outputs=("b",), extra=()):
        return helper.make_graph(
            [*extra, node], "body", list(inputs), [onnx.ValueInfoProto(name=name) for name in outputs]
        )

    yield model(
        [
            helper.make_node(
                "If",
                ["c"],
                ["y"],
                then_branch=body(helper.make_node("Relu", ["x"], ["b"])),
                else_branch=body(helper.make_node("Neg", ["x"], ["b"])),
            )
        ],
        [value("x"), value("c", TensorProto.BOOL, ())],
        ["y"],
    )
    step = body(
        helper.make_node("Add", ["carried", "carried"], ["next"]),
        [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value("carried")],
        ("same", "next"),
        [helper.make_node("Identity", ["go"], ["same"])],
    )
    count = numpy_helper.from_array(np.array(3, np.int64), "n")
    yield model([helper.make_node("Loop", ["n", "", "x"], ["y"], body=step)], [value("x")], ["y"], [count])
    scan = body(
        helper.make_node("Add", ["sum", "row"], ["next"]),
        [value("sum", shape=(3,)), value("row", shape=(3,))],
        ("next", "out"),
        [helper.make_node("Relu", ["row"], ["out"])],
    )
    yield model(
        [helper.make_node("Scan", ["s", "x"], ["total", "rows"], body=scan, num_scan_inputs=1)],
        [value("s", shape=(3,)), value("x")],
        ["total", "rows"],
    )
    at = numpy_helper.from_array(np.array(1, np.int64), "at")
    yield model(
        [
            helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
            helper.make_node("SequenceInsert", ["s", "x", "at"], ["t"]),
            helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0),
        ],
        [value("x")],
        ["y"],
        [at],
    )
    function = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    yield model(
        [helper.make_node("Twice", ["x"], ["y"], domain="own")],
        [value("x")],
        ["y"],
        opsets=[helper.make_opsetid("own", 1)],
        functions=[function],
    )


def digits():
    """The bundled network for one image."""
    model = onnx.load(ROOT / "examples" / "digits" / "digits.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return model


def quantised(seed):
    kinds = (
        random_operators.random_conv,
        random_operators.random_matmul,
        random_operators.random_gemm,
        random_operators.random_binary,
        random_operators.random_pool,
        random_operators.random_concat,
    )
    for kind in kinds:
        for form in ("qdq", "qop"):
            yield kind(seed, form=form).model
    yield random_image_graphs.random_graph(seed, steps=4, form="qdq" if seed % 2 else "qop").model
    yield random_dense_graphs.random_dense_graph(seed, steps=4).model


def models(count):
    yield digits()
    yield from with_control_flow()
    for seed in range(count):
        yield from quantised(seed)
        for make in (
            builders.random_convolution,
            builders.random_matmul,
            builders.random_pointwise,
            builders.random_pool,
        ):
            yield make(seed)[0]
        for k in range(3):
            yield graphs.random_network(3 * seed + k, blocks=1)[0]


def litert_files():
    """A file of each operator and some graphs, where the package ai-edge-litert is installed."""
    try:
        from tests.litert import cases, movement_cases, oracle, product_cases  # noqa: F401
        from tests.litert import graphs as litert_graphs
    except ImportError:
        return
    for seed in range(2):
        for name in sorted(cases.CASES):
            try:
                yield cases.draw_case(name, seed).data
            except oracle.Refused:
                continue
    for seed in range(20):
        yield litert_graphs.draw_graph(seed)[0].data


def schedule_models():
    yield "digits", digits()
    yield "image", random_image_graphs.random_graph(3, steps=5).model
    yield "dense", random_dense_graphs.random_dense_graph(1, steps=5).model


class Maker:
    def __init__(self, folder, tessera):
        self.folder, self.tessera = pathlib.Path(folder), tessera

    def put(self, target, name, data):
        path = self.folder / target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def run(self, *words):
        """Whether the command succeeds; a seed that does not compile is a seed of the importer alone."""
        done = subprocess.run(
            [str(self.tessera), *map(str, words)], capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode not in (0, 1):
            raise RuntimeError(f"tessera {' '.join(map(str, words))} ended with {done.returncode}: {done.stderr}")
        return done.returncode == 0

    def program(self, source, name, *options):
        """Compiles into seeds of the targets that read programs."""
        path = self.folder / "artifact" / f"{name}.tsr"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not self.run("compile", source, "-o", path, "--config", "npu64", "-q", "--no-cpu-cache", *options):
            return
        data = path.read_bytes()
        if len(data) > 4 * LARGEST:
            path.unlink()
            return
        self.put("container", path.name, data)
        listing = self.folder / "listing.asm"
        if self.run("disasm", path, "-o", listing):
            lines = listing.read_text().splitlines()[:FIRST_LINES]
            self.put("assembler", f"{name}.asm", "\n".join([*lines, "finish", ""]).encode())

    def make(self, count):
        for n, model in enumerate(models(count)):
            data = small(model)
            if data is None:
                continue
            source = self.put("onnx", f"{n:03}.onnx", data)
            if n % 3 == 0 or n < 8:
                self.program(source, f"{n:03}", "--no-cpu-codegen")
            if n % 12 == 0:
                self.program(source, f"{n:03}code")
        for n, data in enumerate(litert_files()):
            if len(data) <= LARGEST:
                self.put("litert", f"{n:03}.tflite", data)
        for name, model in schedule_models():
            source = self.put("models", f"{name}.onnx", model.SerializeToString())
            path = self.folder / "schedule" / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            if not self.run("schedule", source, "--config", "npu64", "-o", path):
                raise RuntimeError(f"the seed {name} does not compile")
        self.put("board", "empty", b"")


def make(folder, tessera, count=6):
    """Makes the seeds once; a folder that is complete is left as it is."""
    folder = pathlib.Path(folder)
    stamp, made = folder / "complete", f"{count}, LiteRT files too"
    if stamp.exists() and stamp.read_text() == made:
        return
    (folder / "litert").mkdir(parents=True, exist_ok=True)  # empty without the package that writes them
    Maker(folder, tessera).make(count)
    stamp.write_text(made)
