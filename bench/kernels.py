# SPDX-License-Identifier: Apache-2.0
"""The kernels of examples/kernels on the timing model: cycles beside those of their products alone, the cycles of the
compiler's own operator of the same sizes where there is one, and the time of the NumPy reference on the host. Each
result is compared with the reference."""

import importlib.util
import pathlib
import sys
import time

import numpy as np
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCALE = 0.01


def pattern(rows, columns, share):
    """A mask of blocks."""
    return tuple(tuple(int(v) for v in row) for row in np.random.default_rng(3).random((rows, columns)) < share)


def boxes(count):
    rng = np.random.default_rng(4)
    low = rng.integers(0, 100, (count, 2))
    return np.concatenate([low, low + rng.integers(1, 28, (count, 2))], 1).astype(np.int8)


def rows_of(count, most):
    return tuple(int(v) for v in np.random.default_rng(5).integers(0, most, count))


# name: (file, kernel, shapes of int8 tensors or arrays, parameters, the compiler's operator)
KERNELS = {
    "convolution 28x28x60, 3x5, dilation 2x1, 5 groups": (
        "convolution",
        "convolution",
        [(28, 28, 60), (3, 5, 60, 12)],
        {"dilation": (2, 1), "pad": (2, 2), "groups": 5},
        "conv",
    ),
    "depthwise 28x28x96, 5x5": ("depthwise", "depthwise", [(28, 28, 96), (5, 5, 96)], {"pad": 2}, "depthwise"),
    "volume 8x16x16x16 to 32, 3x3x3": ("volume", "volume", [(8, 16, 16, 16), (3, 3, 3, 32, 16)], {}, "conv"),
    "sparse 64x512x256, 1/4 of the blocks": (
        "sparse",
        "sparse",
        [(64, 512), (256, 512)],
        {"mask": pattern(8, 16, 0.25)},
        "dense",
    ),
    "resize 28x28x32 to 45x61": ("resize", "resize", [(28, 28, 32)], {"size": (45, 61)}, "resize"),
    "take 128 of 512 rows of 64": ("gather", "take", [(512, 64)], {"rows": rows_of(128, 512)}, "gather"),
    "sample 64 positions in 256 rows of 64": (
        "gather",
        "sample",
        [(256, 64), np.random.default_rng(6).integers(0, 4000, 64).astype(np.int32)],
        {},
        None,
    ),
    "mel, 16,000 samples, 40 bands": ("mel", "mel", [(1, 16000)], {}, None),
    "scan 64 steps, 16 states, 64 channels": (
        "scan",
        "scan",
        [np.random.default_rng(7).integers(0, 256, (64, 16, 64)).astype(np.uint8), (64, 16, 64), (64, 16)],
        {},
        None,
    ),
    "overlap of 128 boxes": ("overlap", "overlap", [boxes(128)], {}, None),
    "nearest of 512 to 64, 64 channels": ("nearest", "nearest", [(64, 64), (512, 64)], {}, None),
}


def kernel_of(file, name):
    spec = importlib.util.spec_from_file_location(file, ROOT / "examples" / "kernels" / f"{file}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def model_of(kind, arrays, parameters):
    """(bytes of a model of one operator of these sizes, feeds): the compiler's side."""
    x, *more = arrays
    scales = {"s": np.float32(0.1), "z": np.int8(0), "t": np.float32(0.1 * 0.1 / SCALE)}
    layout = lambda array: np.moveaxis(array, -1, 0)[None] if kind != "dense" else array
    if kind in ("conv", "depthwise"):
        weights = np.moveaxis(more[0], (-2, -1), (0, 1)) if kind == "conv" else np.moveaxis(more[0], -1, 0)[:, None]
        axes = x.ndim - 1
        spread = lambda value: list(value) if isinstance(value, tuple) else [value] * axes
        pads = spread(parameters.get("pad", 1)) * 2
        groups = x.shape[-1] if kind == "depthwise" else parameters.get("groups", 1)
        more = {"pads": pads, "group": groups, "dilations": spread(parameters.get("dilation", 1))}
        scales["w"] = np.ascontiguousarray(weights)
        nodes = [helper.make_node("QLinearConv", ["x", "s", "z", "w", "s", "z", "t", "z"], ["y"], **more)]
    elif kind == "dense":
        block = 32
        dense = more[0].copy()
        for j, i in np.argwhere(np.array(parameters["mask"]) == 0):
            dense[j * block : (j + 1) * block, i * block : (i + 1) * block] = 0
        scales["w"] = np.ascontiguousarray(dense.T)
        nodes = [helper.make_node("QLinearMatMul", ["x", "s", "z", "w", "s", "z", "t", "z"], ["y"])]
    elif kind == "gather":
        scales["w"] = np.array(parameters["rows"], np.int64)
        nodes = [helper.make_node("Gather", ["x", "w"], ["y"], axis=0)]
        layout = lambda array: array
    else:
        scales["w"] = np.array([1, x.shape[-1], *parameters["size"]], np.int64)
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
            helper.make_node("Resize", ["a", "", "", "w"], ["b"], mode="linear"),
            helper.make_node("QuantizeLinear", ["b", "s", "z"], ["y"]),
        ]
    given = np.ascontiguousarray(layout(x))
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        kind,
        [helper.make_tensor_value_info("x", TensorProto.INT8, given.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT8, None)],
        [numpy_helper.from_array(value, name) for name, value in scales.items() if name in used],
    )
    opset = [helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString(), {"x": given}


def compiled(kind, arrays, parameters, config):
    """Cycles of the compiler's operator, or None where it stays on the CPU."""
    import tessera

    model, feeds = model_of(kind, arrays, parameters)
    session = tessera.Session(model, "sysc", config)
    session.run(None, feeds)
    stats = session.stats()
    return stats.cycles if stats.nodes_cpu == 0 else None


def bench(names, config):
    from tessera import tile

    config = config or "npu256"
    rng = np.random.default_rng(8)
    rows = []
    for name, (file, kernel_name, tensors, parameters, kind) in KERNELS.items():
        if names and file not in names:
            continue
        kernel = kernel_of(file, kernel_name)
        arrays = [rng.integers(-128, 128, t).astype(np.int8) if isinstance(t, tuple) else t for t in tensors]
        try:
            program = kernel.build(*arrays, config=config, **parameters)
        except tile.DoesNotFit as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        session, machine = program.session("sysc"), program.machine
        found = session.run(None, dict(zip(kernel.inputs, arrays, strict=True)))
        begin = time.process_time()
        wanted = kernel.meaning(*arrays, **parameters)
        seconds = time.process_time() - begin
        wanted = wanted if isinstance(wanted, list | tuple) else [wanted]
        stats = session.stats()
        peak = machine.batch * machine.block_in * machine.block_out
        rows.append(
            {
                "kernel": name,
                "cycles": stats.cycles,
                "products": stats.issued_macs // peak,
                "compiler_cycles": kind and compiled(kind, arrays, parameters, config),
                "numpy_milliseconds": round(1000 * seconds, 2),
                "dram_bytes": stats.dram_read_bytes + stats.dram_write_bytes,
                "instructions": stats.instructions,
                "equal": all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True)),
            }
        )
    return {"kernels": rows}
