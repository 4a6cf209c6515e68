# SPDX-License-Identifier: Apache-2.0
"""Random generators: moments and frequencies within six standard deviations of the wanted ones, equal numbers for equal
seeds, ranges."""

import numpy as np
import pytest
from onnx import TensorProto
from ort_compare import check_rejected, infer, run_tessera

COUNT = 40000


def numbers(op, inputs=(), opset=17, **attributes):
    return run_tessera(op, list(inputs), opset=opset, attributes=attributes)[0]


@pytest.mark.parametrize("opset", [7, 22])
def test_distributions(opset):
    like = np.zeros(COUNT, np.float32)
    for given, op in (((), "RandomNormal"), ((like,), "RandomNormalLike")):
        more = {} if given else {"shape": [COUNT]}
        x = numbers(op, given, opset, seed=3.0, mean=2.0, scale=3.0, **more)
        assert x.dtype == np.float32 and x.shape == (COUNT,)
        assert abs(x.mean() - 2) < 6 * 3 / COUNT**0.5 and abs(x.std() - 3) < 6 * 3 / (2 * COUNT) ** 0.5
        assert abs(np.mean(np.abs(x - 2) < 3) - 0.682689) < 6 * 0.47 / COUNT**0.5
        assert abs(np.corrcoef(x[0::2], x[1::2])[0, 1]) < 6 / (COUNT / 2) ** 0.5
    for given, op in (((), "RandomUniform"), ((like,), "RandomUniformLike")):
        more = {} if given else {"shape": [COUNT]}
        x = numbers(op, given, opset, seed=3.0, low=-1.0, high=3.0, **more)
        assert x.min() >= -1 and x.max() <= 3
        counts = np.histogram(x, 10, (-1, 3))[0]
        assert np.all(np.abs(counts - COUNT / 10) < 6 * (COUNT * 0.09) ** 0.5)


@pytest.mark.parametrize("opset", [15, 22])
def test_bernoulli(opset):
    p = np.repeat(np.array([0, 0.2, 0.9, 1], np.float32), COUNT)
    for kind, dtype in (
        (None, np.float32),
        (TensorProto.BOOL, np.bool_),
        (TensorProto.INT64, np.int64),
        (TensorProto.FLOAT16, np.float16),
    ):
        x = numbers("Bernoulli", [p], opset, seed=5.0, **({"dtype": kind} if kind else {}))
        assert x.dtype == dtype
        rates = x.astype(np.float64).reshape(4, COUNT).mean(1)
        assert rates[0] == 0 and rates[3] == 1 and np.all(np.abs(rates - p[::COUNT]) < 6 * 0.4 / COUNT**0.5)
        assert set(np.unique(x.astype(np.float64))) == {0.0, 1.0}


@pytest.mark.parametrize("opset", [7, 22])
def test_multinomial(opset):
    want = np.array([[0.1, 0.6, 0.3], [0.5, 0.5, 0.0]])
    with np.errstate(divide="ignore"):
        logs = np.log(want * 7).astype(np.float32)
    for kind, dtype in ((TensorProto.INT32, np.int32), (TensorProto.INT64, np.int64)):
        x = numbers("Multinomial", [logs], opset, seed=6.0, sample_size=COUNT, dtype=kind)
        assert x.dtype == dtype and x.shape == (2, COUNT)
        rates = np.stack([(x == k).mean(1) for k in range(3)], 1)
        assert np.all(np.abs(rates - want) < 6 * 0.5 / COUNT**0.5) and rates[1, 2] == 0


def test_seeds():
    same = dict(shape=[50], seed=1.5)
    np.testing.assert_array_equal(numbers("RandomNormal", **same), numbers("RandomNormal", **same))
    assert np.all(numbers("RandomNormal", **same) != numbers("RandomNormal", shape=[50], seed=1.25))
    assert np.any(numbers("RandomUniform", shape=[50]) != numbers("RandomUniform", shape=[50]))
    first = numbers("RandomUniform", shape=[2], seed=0.0, dtype=TensorProto.DOUBLE)  # the twister's numbers for seed 0
    assert first.dtype == np.float64 and first.tolist() == [
        (2947667278772165694 >> 11) / 2**53,
        (18301848765998365067 >> 11) / 2**53,
    ]


def test_types_and_errors():
    assert infer("RandomNormalLike", [("int32", [2, -1])], attributes={"dtype": TensorProto.DOUBLE})[0][:2] == (
        "float64",
        [2, -1],
    )
    assert infer("RandomUniform", [], attributes={"shape": [2, 3]}, fold=True)[0][2] is None  # never folded
    check_rejected("RandomNormalLike", [np.zeros(2, np.int32)], match="element type")
    check_rejected("RandomNormal", [], attributes={"shape": [2], "dtype": TensorProto.INT64}, match="dtype")
    check_rejected("RandomNormal", [], match="shape")
    check_rejected("RandomUniform", [], attributes={"shape": [-2]}, match="negative")
    check_rejected("Multinomial", [np.zeros(3, np.float32)], match="rank")
    with pytest.raises(Exception, match="no classes"):
        run_tessera("Multinomial", [np.zeros((1, 0), np.float32)])
