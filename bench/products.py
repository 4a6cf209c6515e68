# SPDX-License-Identifier: Apache-2.0
"""Products of few rows, which DRAM's bandwidth bounds: a step of decoding reads every weight, key and value once. Each
row is one batched QLinearMatMul [matrices, rows, k] x [matrices, k, columns] on npu256 and npu64; its second factor is
a constant, or an activation given as rows of k (`keys`) or of columns (`values`). `times_bound` is cycles over the
larger of products and bytes."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

# name: matrices, rows, k, columns, second factor
SHAPES = {
    "projection": (1, 1, 768, 768, "weights"),
    "MLP up": (1, 1, 768, 3072, "weights"),
    "MLP up, 8 rows": (1, 8, 288, 768, "weights"),
    "scores, 12 heads": (12, 1, 64, 256, "keys"),
    "scores, 6 heads of 48": (6, 1, 48, 256, "keys"),
    "context, 12 heads": (12, 1, 256, 64, "values"),
    "scores, 16 rows": (12, 16, 64, 256, "keys"),
}


def model(shape):
    """(bytes of the model, feeds)."""
    matrices, rows, k, columns, kind = shape
    rng = np.random.default_rng(5)
    factor = rng.integers(0, 256, (matrices, k, columns), dtype=np.uint8)
    x = rng.integers(0, 256, (matrices, rows, k), dtype=np.uint8)
    feeds, nodes = {"x": x}, []
    constants = {
        "x_scale": np.float32(0.02),
        "factor_scale": np.float32(0.002),
        "y_scale": np.float32(0.05),
        "zero": np.uint8(128),
    }
    inputs = [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)]
    if kind == "weights":
        constants["factor"] = factor[0]
    else:
        given = np.ascontiguousarray(factor.transpose(0, 2, 1)) if kind == "keys" else factor
        feeds["given"] = given
        inputs.append(helper.make_tensor_value_info("given", TensorProto.UINT8, given.shape))
        turned = [0, 2, 1] if kind == "keys" else [0, 1, 2]
        nodes.append(helper.make_node("Transpose", ["given"], ["factor"], perm=turned))
    names = ["x", "x_scale", "zero", "factor", "factor_scale", "zero", "y_scale", "zero"]
    nodes.append(helper.make_node("QLinearMatMul", names, ["y"], name="product"))
    output = helper.make_tensor_value_info("y", TensorProto.UINT8, [matrices, rows, columns])
    graph = helper.make_graph(
        nodes, "product", inputs, [output], [numpy_helper.from_array(v, n) for n, v in constants.items()]
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    ).SerializeToString(), feeds


def bench(names, config, device):
    import tessera
    from tests.oracle import oracle

    rows = []
    for machine in [config] if config else ["npu256", "npu64"]:
        for name in names or SHAPES:
            if name not in SHAPES:
                raise SystemExit(f"no product '{name}'; there are {', '.join(SHAPES)}")
            data, feeds = model(SHAPES[name])
            expected = next(iter(oracle.run(data, feeds, intermediates=False).outputs.values()))
            row = {"product": name, "config": machine}
            for one in ["sysc"] if device == "sysc" else ["rtl", "sysc"]:
                session = tessera.Session(data, one, machine, profile=False)
                equal = np.array_equal(session.run(None, feeds)[0], expected)
                stats = session.stats()
                row |= {
                    f"{one}_cycles": stats.cycles,
                    "equal_to_oracle": bool(equal) and row.get("equal_to_oracle", True),
                }
            measured = row.get("rtl_cycles") or row["sysc_cycles"]
            row |= {
                "predicted_cycles": stats.predicted_cycles,
                "bound_cycles": stats.roofline_cycles,
                "times_bound": round(measured / stats.roofline_cycles, 3),
            }
            rows.append(row)
    return {"products": rows}
