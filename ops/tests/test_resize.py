# SPDX-License-Identifier: Apache-2.0
"""Resize and Upsample beside ONNX Runtime: every version, mode, coordinate transformation, nearest mode, policy
and region.
"""

import numpy as np
import pytest
from either_oracle import values
from ort_compare import check, check_rejected, infer, run_ort, run_tessera

TRANSFORMS = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
SCALES = [(2.0, 2.0), (0.5, 0.5), (1.5, 0.6), (0.8, 3.3), (1.0, 2.5), (2.7, 1.0)]
TOLERANCE = dict(rtol=1e-4, atol=2e-4)  # inputs reach 100
NONE = np.zeros(0, np.float32)


def data(shape=(1, 2, 5, 7), dtype="float32"):
    return values(np.random.default_rng(1), shape, dtype, 0 if dtype == "uint8" else -50, 100)


def full(scales):
    return np.array((1.0, 1.0) + tuple(scales), np.float32)


@pytest.mark.parametrize("transform", TRANSFORMS + ["half_pixel_symmetric", "tf_half_pixel_for_nn"])
@pytest.mark.parametrize("nearest", NEAREST)
def test_nearest(transform, nearest):
    opsets = {"half_pixel_symmetric": [19], "tf_half_pixel_for_nn": [11]}.get(transform, [11, 13, 18, 19])
    for opset in opsets:
        for scales in SCALES:
            if transform == "half_pixel_symmetric" and nearest == "ceil" and 3.3 in scales:
                continue  # a position that is an integer but for rounding
            for dtype in ["float32", "uint8", "int8", "int32"]:
                check(
                    "Resize",
                    [data(dtype=dtype), NONE, full(scales)],
                    opset=opset,
                    attributes={
                        "mode": "nearest",
                        "coordinate_transformation_mode": transform,
                        "nearest_mode": nearest,
                    },
                )


@pytest.mark.parametrize("transform", TRANSFORMS + ["half_pixel_symmetric"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_linear_and_cubic(mode, transform):
    opsets = [19] if transform == "half_pixel_symmetric" else [11, 13, 18, 19]
    for opset in opsets:
        for scales in SCALES:
            check(
                "Resize",
                [data(), NONE, full(scales)],
                opset=opset,
                **TOLERANCE,
                attributes={"mode": mode, "coordinate_transformation_mode": transform},
            )
        sizes = np.array([1, 2, 9, 4], np.int64)
        inputs = [data(), NONE if opset == 11 else None, NONE if opset == 11 else None, sizes]
        check(
            "Resize",
            inputs,
            opset=opset,
            attributes={"mode": mode, "coordinate_transformation_mode": transform},
            **TOLERANCE,
        )


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_integers_truncate(dtype, transform):
    for scales in SCALES:
        check(
            "Resize",
            [data((1, 3, 6, 8), dtype), NONE, full(scales)],
            opset=13,
            attributes={"mode": "linear", "coordinate_transformation_mode": transform},
        )


@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("a", [-0.75, -0.5])
def test_cubic_options(exclude, a):
    for scales in SCALES:
        for transform in TRANSFORMS:
            check(
                "Resize",
                [data(), None, full(scales)],
                opset=13,
                **TOLERANCE,
                attributes={
                    "mode": "cubic",
                    "coordinate_transformation_mode": transform,
                    "exclude_outside": exclude,
                    "cubic_coeff_a": a,
                },
            )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("transform", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("exclude", [0, 1])
def test_antialias(mode, transform, exclude):
    for scales in [(0.5, 0.5), (0.6, 0.8), (0.37, 1.0), (0.5, 2.0), (2.0, 1.5)]:
        check(
            "Resize",
            [data((1, 2, 9, 11)), None, full(scales)],
            opset=18,
            **TOLERANCE,
            attributes={
                "mode": mode,
                "coordinate_transformation_mode": transform,
                "antialias": 1,
                "exclude_outside": exclude,
            },
        )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias_integers(mode):
    # ONNX Runtime cuts negative values to 0 even for int8, so that the comparison keeps to positive ones.
    for dtype in ["uint8", "int8", "int32"]:
        x = np.abs(data((1, 2, 9, 11), dtype))
        for scales in [(0.5, 0.5), (0.6, 0.8), (0.5, 1), (1, 0.5)]:
            keywords = dict(opset=18, attributes={"mode": mode, "antialias": 1})
            expected = run_ort("Resize", [x, None, full(scales)], **keywords)[0].astype(np.int32)
            actual = run_tessera("Resize", [x, None, full(scales)], **keywords)[0].astype(np.int32)
            # 8-bit filters run in fixed point and are equal; int32 ones run in floats, and a tie falls either way.
            assert np.abs(expected - actual).max() <= (1 if dtype == "int32" else 0), (dtype, scales)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crop_and_resize(mode):
    x = data((1, 1, 6, 8))
    for roi in [
        (0, 0, 0.2, 0.3, 1, 1, 0.8, 0.9),
        (0, 0, 0.4, 0.1, 1, 1, 1.3, 0.7),
        (0, 0, 0.9, 0.9, 1, 1, 0.1, 0.2),
        (0, 0, -0.2, 0, 1, 1, 1, 1.2),
    ]:
        roi = np.array(roi, np.float32)
        for sizes in [(1, 1, 3, 4), (1, 1, 9, 5), (1, 1, 1, 1)]:
            for opset in [11, 13]:
                check(
                    "Resize",
                    [x, roi, NONE if opset == 11 else None, np.array(sizes, np.int64)],
                    opset=opset,
                    **TOLERANCE,
                    attributes={
                        "mode": mode,
                        "coordinate_transformation_mode": "tf_crop_and_resize",
                        "extrapolation_value": 10.0,
                    },
                )
    roi = np.array((0, 0, 0.25, 0.125, 1, 1, 0.75, 0.875), np.float32)
    check(
        "Resize",
        [x, roi, np.array([1, 1, 2, 1.5], np.float32)],
        opset=13,
        **TOLERANCE,
        attributes={"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize"},
    )


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_policies(policy):
    for shape, sizes in [((1, 1, 5, 7), (10, 10)), ((1, 1, 8, 6), (3, 5)), ((1, 1, 4, 9), (7, 3))]:
        for mode in ["nearest", "linear", "cubic"]:
            check(
                "Resize",
                [data(shape), None, None, np.array(sizes, np.int64)],
                opset=18,
                **TOLERANCE,
                attributes={"mode": mode, "axes": [2, 3], "keep_aspect_ratio_policy": policy},
            )


def test_axes():
    x = data((1, 2, 5, 7))
    for axes, scales in [([2, 3], [2, 0.5]), ([3, 2], [2, 0.5]), ([3], [1.7]), ([2], [0.6])]:
        for mode in ["nearest", "linear"]:
            check(
                "Resize",
                [x, None, np.array(scales, np.float32)],
                opset=18,
                attributes={"mode": mode, "axes": axes},
                **TOLERANCE,
            )
    last = run_ort("Resize", [x, None, full((1, 1.7))], opset=18, attributes={"mode": "linear"})
    check(
        "Resize",
        [x, None, np.array([1.7], np.float32)],
        opset=18,
        attributes={"mode": "linear", "axes": [-1]},
        expected=last,
        **TOLERANCE,
    )
    roi = np.array([0.1, 0.2, 0.7, 0.9], np.float32)
    check(
        "Resize",
        [x, roi, None, np.array([3, 4], np.int64)],
        opset=18,
        **TOLERANCE,
        attributes={"mode": "linear", "axes": [2, 3], "coordinate_transformation_mode": "tf_crop_and_resize"},
    )


def test_ranks():
    check(
        "Resize",
        [data((5, 7)), None, np.array([2, 1.5], np.float32)],
        opset=13,
        attributes={"mode": "linear"},
        **TOLERANCE,
    )
    check(
        "Resize",
        [data((1, 2, 3, 4, 5)), None, np.array([1, 1, 2, 1.5, 0.5], np.float32)],
        opset=13,
        attributes={"mode": "linear"},
        **TOLERANCE,
    )
    check(
        "Resize",
        [data((2, 3, 4, 5, 2)), None, np.array([2, 1, 2, 1.5, 0.5], np.float32)],
        opset=13,
        attributes={"mode": "nearest"},
    )
    check("Resize", [data((4,)), None, np.array([2.5], np.float32)], opset=13, attributes={"mode": "nearest"})
    check(
        "Resize",
        [data((6,)), None, np.array([1.5], np.float32)],
        opset=13,
        attributes={"mode": "linear"},
        oracle="reference",
        **TOLERANCE,
    )
    check(
        "Resize",
        [data((1, 5, 7, 3)), None, np.array([1, 2, 1.5, 1], np.float32)],
        opset=13,
        attributes={"mode": "linear"},
        **TOLERANCE,
    )


def test_half_and_double():
    for dtype in ["float16", "float64"]:
        for mode in ["nearest", "linear", "cubic"]:
            check(
                "Resize",
                [data((1, 1, 4, 5), dtype), None, full((1.5, 2.0))],
                opset=19,
                attributes={"mode": mode},
                expected=[
                    run_ort(
                        "Resize",
                        [data((1, 1, 4, 5), dtype).astype(np.float32), None, full((1.5, 2.0))],
                        opset=19,
                        attributes={"mode": mode},
                    )[0].astype(dtype)
                ],
                rtol=2e-3,
                atol=2e-3,
            )


@pytest.mark.parametrize("op,opset", [("Resize", 10), ("Upsample", 9), ("Upsample", 7)])
def test_old(op, opset):
    for scales in [(2.0, 3.0), (1.5, 2.4), (1.0, 2.0)] + ([(0.5, 0.6), (0.7, 2.0)] if op == "Resize" else []):
        for mode in ["nearest", "linear"]:
            for dtype in ["float32", "uint8"]:
                inputs, attributes = [data(dtype=dtype)], {"mode": mode}
                if opset == 7:
                    attributes["scales"] = [1.0, 1.0] + list(scales)
                    if dtype != "float32":
                        continue
                else:
                    inputs.append(full(scales))
                check(
                    op,
                    inputs,
                    opset=opset,
                    attributes=attributes,
                    constants=(1,),
                    **(TOLERANCE if dtype == "float32" else {}),
                )


def test_inference_and_rejections():
    assert infer("Resize", [("float32", [1, 3, -1, 8]), None, full((2, 2))], opset=13, constants=True)[0][1] == [
        1,
        3,
        -1,
        16,
    ]
    assert infer("Resize", [("float32", [1, 3, -1, 8]), None, None, np.array([1, 3, 7, 9])], opset=13, constants=True)[
        0
    ][1] == [1, 3, 7, 9]
    assert infer("Resize", [("float32", [1, 3, 4, 8]), None, None, ("int64", [4])], opset=13)[0][1] == [-1] * 4
    assert infer(
        "Resize", [("float32", [1, 3, 4, 8]), None, None, ("int64", [2])], opset=18, attributes={"axes": [2, 3]}
    )[0][1] == [1, 3, -1, -1]
    assert infer("Resize", [("float32", None), None, full((2, 2))], opset=13, constants=True)[0][1] == [-1] * 4
    x = data()
    check_rejected("Resize", [x, None, full((2, 2)), np.array([1, 2, 3, 4])], opset=13, match="both")
    check_rejected("Resize", [x, None, None, None], opset=13, match="neither")
    check_rejected("Resize", [x, None, np.array([2.0], np.float32)], opset=13, match="entries")
    check_rejected("Resize", [x, None, full((0, 1))], opset=13, match="positive")
    check_rejected("Resize", [x, None, full((1, 1))], opset=13, attributes={"mode": "lanczos"}, match="lanczos")
