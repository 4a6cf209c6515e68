# SPDX-License-Identifier: Apache-2.0
"""NonMaxSuppression and RoiAlign beside ONNX Runtime."""

import numpy as np
import pytest
from ort_compare import check, check_rejected, infer, run_ort, run_tessera

RNG = np.random.default_rng(21)


def boxes_and_scores(batches, classes, count, centre=False):
    corner = RNG.uniform(0, 10, (batches, count, 2))
    size = RNG.uniform(0.5, 6, (batches, count, 2))
    boxes = np.concatenate([corner, size if centre else corner + size], -1).astype(np.float32)
    if not centre:  # any two opposite corners
        flip = RNG.integers(0, 2, (batches, count)).astype(bool)
        boxes[flip] = boxes[flip][:, [2, 1, 0, 3]]
    return boxes, np.round(RNG.uniform(0, 1, (batches, classes, count)), 1).astype(np.float32)  # many ties


@pytest.mark.parametrize("opset", [10, 11])
@pytest.mark.parametrize("centre", [0, 1])
def test_nms(opset, centre):
    for batches, classes, count in [(1, 1, 6), (2, 3, 25), (1, 2, 1)]:
        boxes, scores = boxes_and_scores(batches, classes, count, centre)
        for most in (0, 1, 3, 100):
            for iou in (None, 0.0, 0.3, 1.0):
                for least in (None, 0.0, 0.5, 2.0):
                    limits = [
                        np.array([most], np.int64),
                        None if iou is None else np.array(iou, np.float32),
                        None if least is None else np.array([least], np.float32),
                    ]
                    while limits[-1] is None:
                        limits.pop()
                    check(
                        "NonMaxSuppression",
                        [boxes, scores, *limits],
                        opset=opset,
                        attributes={"center_point_box": centre},
                        static=False,
                    )
    check("NonMaxSuppression", [boxes, scores], opset=opset, static=False)


def test_nms_edges():
    boxes = np.array([[[0, 0, 0, 5], [0, 0, 0, 5], [0, 0, 2, 2], [0, 0, 2, 2]]], np.float32)
    scores = np.array([[[0.9, 0.9, 0.5, 0.5]]], np.float32)
    check(
        "NonMaxSuppression",
        [boxes, scores, np.array([9], np.int64), np.array([0.5], np.float32)],
        opset=11,
        static=False,
    )
    check(
        "NonMaxSuppression",
        [boxes[:, :0], scores[..., :0], np.array([9], np.int64)],
        opset=11,
        expected=[np.zeros((0, 3), np.int64)],
        static=False,
    )
    check_rejected("NonMaxSuppression", [boxes[..., :3], scores], opset=11, match="four coordinates")
    check_rejected("NonMaxSuppression", [boxes, scores[..., :3]], opset=11, match="do not fit")
    check_rejected("NonMaxSuppression", [boxes, scores], opset=11, attributes={"center_point_box": 2}, match="0 or 1")
    with pytest.raises(Exception, match="iou_threshold"):
        run_tessera(
            "NonMaxSuppression", [boxes, scores, np.array([9], np.int64), np.array([1.5], np.float32)], opset=11
        )


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("opset", [10, 16, 22])
def test_roi_align(mode, opset):
    for dtype in (np.float32, np.float64):
        x = RNG.standard_normal((2, 3, 7, 9)).astype(dtype)
        low = RNG.uniform(-2, 12, (5, 2))
        rois = np.concatenate([low, low + RNG.uniform(-0.5, 12, (5, 2))], 1).astype(dtype)
        batch = np.array([0, 1, 1, 0, 1], np.int64)
        for height, width, ratio, scale in [(1, 1, 0, 1.0), (3, 2, 2, 0.5), (2, 4, 0, 0.75), (5, 5, 3, 1.0)]:
            attributes = {
                "mode": mode,
                "output_height": height,
                "output_width": width,
                "sampling_ratio": ratio,
                "spatial_scale": scale,
            }
            for transform in ("half_pixel", "output_half_pixel", None) if opset >= 16 else (None,):
                more = {"coordinate_transformation_mode": transform} if transform else {}
                want = run_ort(
                    "RoiAlign", [x, rois, batch], opset=min(opset, 16), attributes=attributes | more
                )  # 22 adds bfloat16 only
                check(
                    "RoiAlign",
                    [x, rois, batch],
                    opset=opset,
                    attributes=attributes | more,
                    expected=want,
                    rtol=2e-5,
                    atol=2e-6,
                )


def test_roi_align_edges():
    x, rois, batch = np.ones((1, 2, 3, 3), np.float32), np.array([[0, 0, 2, 2]], np.float32), np.array([0], np.int64)
    assert infer("RoiAlign", [("float32", [1, 2, -1, -1]), ("float32", [-1, 4]), ("int64", [7])], opset=16)[0][1] == [
        7,
        2,
        1,
        1,
    ]
    assert run_tessera("RoiAlign", [x, rois[:0], batch[:0]], opset=16)[0].shape == (0, 2, 1, 1)
    check_rejected("RoiAlign", [x, rois, np.array([0, 0], np.int64)], opset=16, match="differ in number")
    check_rejected("RoiAlign", [x, rois, batch], opset=16, attributes={"mode": "median"}, match="median")
    for bad in (np.array([[0, 0, np.inf, 2]], np.float32), np.array([[0, 0, 1e30, 2]], np.float32)):
        with pytest.raises(Exception, match="too large"):
            run_tessera("RoiAlign", [x, bad, batch], opset=16)
    with pytest.raises(Exception, match="outside X"):
        run_tessera("RoiAlign", [x, rois, np.array([1], np.int64)], opset=16)
