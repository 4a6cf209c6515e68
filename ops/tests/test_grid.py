# SPDX-License-Identifier: Apache-2.0
"""GridSample and AffineGrid beside ONNX Runtime."""

import numpy as np
import pytest
from either_oracle import check_either, values
from ort_compare import check, check_rejected, infer

TOLERANCE = dict(rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grid_sample(mode, align, padding):
    rng = np.random.default_rng(1)
    x = values(rng, (2, 3, 5, 6), "float32")
    for reach in [0.9, 1.5, 4.0]:
        grid = rng.uniform(-reach, reach, (2, 4, 7, 2)).astype(np.float32)
        for opset in [16, 20, 22]:
            name = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode) if opset < 20 else mode
            check(
                "GridSample",
                [x, grid],
                opset=opset,
                attributes={"mode": name, "align_corners": align, "padding_mode": padding},
                **TOLERANCE,
            )
    if mode != "cubic":
        volume, grid = (
            values(rng, (1, 2, 3, 4, 5), "float32"),
            rng.uniform(-1.4, 1.4, (1, 2, 3, 4, 3)).astype(np.float32),
        )
        check(
            "GridSample",
            [volume, grid],
            opset=20,
            attributes={"mode": mode, "align_corners": align, "padding_mode": padding},
            **TOLERANCE,
        )


def test_grid_sample_defaults_and_types():
    rng = np.random.default_rng(2)
    x, grid = values(rng, (1, 1, 4, 4), "float64"), rng.uniform(-1.2, 1.2, (1, 3, 3, 2))
    check_either("GridSample", [x, grid], opset=20, rtol=1e-9, atol=1e-9)
    check("GridSample", [x.astype(np.float32), grid.astype(np.float32)], opset=16, **TOLERANCE)
    check(
        "GridSample",
        [np.zeros((0, 1, 4, 4), np.float32), np.zeros((0, 2, 2, 2), np.float32)],
        opset=16,
        expected=[np.zeros((0, 1, 2, 2), np.float32)],
    )
    check_rejected("GridSample", [x, grid[..., :1]], opset=16, match="last dimension")
    check_rejected("GridSample", [x, grid], opset=16, attributes={"mode": "linear"}, match="linear")
    for shape in ([], [2], [2, 1]):  # refused beside an X of unknown rank too
        with pytest.raises(Exception, match="grid needs a spatial dimension"):
            infer("GridSample", [("float32", None), ("float32", shape)], opset=16)
    assert infer("GridSample", [("float32", [-1, 3, 4, 5]), ("float32", [2, 6, -1, 2])], opset=16)[0][1] == [
        2,
        3,
        6,
        -1,
    ]


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_affine_grid(align, dtype):
    rng = np.random.default_rng(3)
    for size in [(2, 3, 4, 5), (1, 1, 2, 7), (2, 3, 3, 4, 5)]:
        n = len(size) - 2
        theta = values(rng, (size[0], n, n + 1), dtype, -1, 1)
        check_either(
            "AffineGrid",
            [theta, np.array(size, np.int64)],
            opset=20,
            attributes={"align_corners": align},
            rtol=1e-5,
            atol=1e-6,
        )
    check_rejected("AffineGrid", [theta, np.array([2, 3, 4, 5], np.int64)], opset=20, match="theta")
    assert infer("AffineGrid", [("float32", [-1, 2, 3]), ("int64", [4])], opset=20)[0][1] == [-1, -1, -1, 2]
