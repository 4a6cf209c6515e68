# SPDX-License-Identifier: Apache-2.0
"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss beside ONNX Runtime, or the reference evaluator."""

import numpy as np
import pytest
from either_oracle import check_either
from ort_compare import check_rejected, infer, run_tessera

CASES = [("NegativeLogLikelihoodLoss", 1), ("SoftmaxCrossEntropyLoss", 1), ("SoftmaxCrossEntropyLoss", 2)]


@pytest.mark.parametrize("op,outputs", CASES)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("opset", [12, 13])
def test_losses(op, outputs, reduction, opset):
    random = np.random.default_rng(31)
    for inner in ((), (4,), (2, 3)):
        for dtype in (np.float32, np.float64):
            x = random.standard_normal((3, 5, *inner)).astype(dtype)
            labels = random.integers(0, 5, (3, *inner)).astype(np.int64)
            weights = random.uniform(0.1, 2, 5).astype(dtype)
            for operands in ([x, labels], [x, labels, weights]):
                for ignored in (None, 2, -7):
                    if ignored == -7:
                        operands = [x, np.where(labels == 1, -7, labels), *operands[2:]]
                    check_either(
                        op,
                        operands,
                        opset=opset,
                        attributes={"reduction": reduction, "ignore_index": ignored},
                        outputs=outputs,
                        rtol=1e-5,
                        atol=1e-6,
                    )


def test_types_and_errors():
    x, labels = np.zeros((2, 3), np.float32), np.zeros(2, np.int64)
    half = run_tessera("SoftmaxCrossEntropyLoss", [x.astype(np.float16), labels.astype(np.int32)], opset=13)[0]
    assert half.dtype == np.float16 and half == np.float16(np.log(3))
    assert infer(
        "SoftmaxCrossEntropyLoss",
        [("float32", [-1, 3, 4]), ("int64", [2, 4])],
        opset=13,
        attributes={"reduction": "none"},
    )[0][1] == [2, 4]
    check_rejected("SoftmaxCrossEntropyLoss", [x, labels], opset=13, attributes={"reduction": "most"}, match="most")
    check_rejected("SoftmaxCrossEntropyLoss", [x, labels[:1]], opset=13, match="do not fit")
    check_rejected("NegativeLogLikelihoodLoss", [x, labels, np.zeros(4, np.float32)], opset=13, match="one weight")
    with pytest.raises(Exception, match="label 3"):
        run_tessera("NegativeLogLikelihoodLoss", [x, labels + 3], opset=13)
