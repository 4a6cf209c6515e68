# SPDX-License-Identifier: Apache-2.0
"""Operators of domain ai.onnx.ml, beside ONNX Runtime."""

import numpy as np
import pytest
from ort_compare import TesseraError, check, check_rejected, run_tessera

RNG = np.random.default_rng(31)
ML = "ai.onnx.ml"


def f(*shape):
    return np.asarray(RNG.standard_normal(shape), np.float32)


def same(op, inputs, attributes, version=1, **options):
    return check(op, inputs, opset=version, domain=ML, attributes=attributes, rtol=1e-6, atol=1e-6, **options)


X = f(4, 3)
WHOLE = RNG.integers(-3, 4, (4, 3))


def test_scaler():
    for x in (X, WHOLE, WHOLE.astype(np.int32)):
        same("Scaler", [x], {"offset": [0.5, -1.0, 2.0], "scale": [2.0, 0.25, -1.0]})
        same("Scaler", [x], {"offset": [0.5], "scale": [2.0]})


def test_binarizer():
    same("Binarizer", [X], {"threshold": 0.25})
    same("Binarizer", [X], {})


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm):
    x = np.abs(X) if norm == "MAX" else X.copy()
    x[1] = 0
    same("Normalizer", [x], {"norm": norm})
    same("Normalizer", [np.abs(WHOLE) + 1], {"norm": norm})
    check_rejected("Normalizer", [X], opset=1, domain=ML, attributes={"norm": "L3"}, match="none of MAX, L1, L2")


def test_imputer():
    x = X.copy()
    x[0, 1] = x[2, 2] = np.nan
    same("Imputer", [x], {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")})
    x[0, 1] = x[2, 2] = 7
    same("Imputer", [x], {"imputed_value_floats": [5.0], "replaced_value_float": 7.0})
    same("Imputer", [WHOLE], {"imputed_value_int64s": [9, 8, 7], "replaced_value_int64": 2})


def test_linear_regressor():
    attributes = {"coefficients": [0.5, -1.0, 2.0, 1.5, 0.0, -0.5], "intercepts": [0.1, -0.2], "targets": 2}
    same("LinearRegressor", [X], attributes)
    same("LinearRegressor", [X], {"coefficients": [0.5, -1.0, 2.0]})
    rejected = dict(opset=1, domain=ML, match="do not make 4 targets")
    check_rejected("LinearRegressor", [X], attributes={"coefficients": [1.0, 2.0, 3.0], "targets": 4}, **rejected)


@pytest.mark.parametrize("transform", ["LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
def test_transforms_of_a_linear_regressor(transform):
    x = np.abs(X) / 4
    near = dict(rtol=2e-4, atol=1e-5) if transform == "PROBIT" else dict(rtol=1e-6, atol=1e-6)
    for targets in (1, 2, 3):
        coefficients = [0.1, 0.2, 0.15, 0.3, 0.1, 0.05, 0.2, 0.2, 0.1][: 3 * targets]
        attributes = {"coefficients": coefficients, "targets": targets}
        for intercepts in ([], [0.1, 0.2, 0.05][:targets]):
            given = {**attributes, "post_transform": transform, **({"intercepts": intercepts} if intercepts else {})}
            check("LinearRegressor", [x], opset=1, domain=ML, attributes=given, **near)


def test_array_feature_extractor():
    same("ArrayFeatureExtractor", [X, np.array([2, 0])], {})
    same("ArrayFeatureExtractor", [f(5), np.array([4, 1, 1])], {})
    same("ArrayFeatureExtractor", [np.array([["a", "b"], ["c", "d"]], object), np.array([1])], {})


def test_one_hot_encoder():
    for x in (WHOLE, WHOLE.astype(np.float32)):
        same("OneHotEncoder", [x], {"cats_int64s": [-1, 0, 2], "zeros": 1})
    same("OneHotEncoder", [np.array(["a", "c", "z"], object)], {"cats_strings": ["c", "a"], "zeros": 1})
    for x in (WHOLE, WHOLE.astype(np.float64)):
        same("OneHotEncoder", [x], {"cats_int64s": list(range(-3, 4)), "zeros": 0})
    same("OneHotEncoder", [np.array([["a", "c"]], object)], {"cats_strings": ["c", "a"], "zeros": 0})
    unknown = {"cats_strings": ["c", "a"], "zeros": 0}
    with pytest.raises(TesseraError, match="element 1 of the operand, 'd', is none of the categories"):
        run_tessera("OneHotEncoder", [np.array(["a", "d"], object)], opset=1, domain=ML, attributes=unknown)
    none = dict(opset=1, domain=ML, match="no cats_strings for an operand of string")
    check_rejected("OneHotEncoder", [np.array(["a"], object)], attributes={"cats_int64s": [1]}, **none)


def test_category_mapper():
    both = {"cats_strings": ["b", "a", "c"], "cats_int64s": [4, 5, 6]}
    names = np.array([["a", "z"], ["c", "b"]], object)
    same("CategoryMapper", [names], {**both, "default_int64": 42})
    same("CategoryMapper", [np.array([[5, 9], [4, 6]])], {**both, "default_string": "none"})
    same("CategoryMapper", [names], both)


def test_feature_vectorizer():
    same("FeatureVectorizer", [X, f(4, 1), f(4, 2)], {"inputdimensions": [3, 1, 2]})
    same("FeatureVectorizer", [X], {"inputdimensions": [3]})
    same("FeatureVectorizer", [WHOLE, WHOLE[:, :2].copy()], {"inputdimensions": [3, 2]})
    same("FeatureVectorizer", [WHOLE.astype(np.int32)], {"inputdimensions": [3]})
    same("FeatureVectorizer", [X.astype(np.float64)], {"inputdimensions": [3]})
    same("FeatureVectorizer", [X, f(4, 2)], {"inputdimensions": [2, 4]})
    wrong = dict(opset=1, domain=ML, attributes={"inputdimensions": [3, 1]})
    check_rejected("FeatureVectorizer", [X], match="2 inputdimensions for 1 inputs", **wrong)


def test_label_encoder():
    names = np.array([["a", "b"], ["z", "c"]], object)
    pairs = {"keys_strings": ["a", "b", "c"], "values_int64s": [4, 5, 6]}
    same("LabelEncoder", [names], {**pairs, "default_int64": 42}, 2)
    same("LabelEncoder", [names], pairs, 2)
    same("LabelEncoder", [np.array([4, 5, 9])], {"keys_int64s": [4, 5], "values_strings": ["x", "y"]}, 2)
    numbers = np.array([1.5, np.nan, -0.0, 3.0], np.float32)
    attributes = {"keys_floats": [1.5, float("nan"), 0.0], "values_floats": [7.0, 8.0, 9.0], "default_float": 0.5}
    same("LabelEncoder", [numbers], attributes, 2)
    doubles = {"keys_tensor": np.array([1.5, np.nan, 0.0]), "values_tensor": np.array([7.0, 8.0, 9.0])}
    same("LabelEncoder", [numbers.astype(np.float64)], {**doubles, "default_tensor": np.array([0.5])}, 4)
    same("LabelEncoder", [names], {"classes_strings": ["b", "a"], "default_int64": -7}, 1)
    same("LabelEncoder", [np.array([1, 0, 5])], {"classes_strings": ["b", "a"], "default_string": "none"}, 1)
    tensors = {
        "keys_tensor": np.array([3, 1], np.int64),
        "values_tensor": np.array([30, 10], np.int16),
        "default_tensor": np.array([-1], np.int16),
    }
    same("LabelEncoder", [np.array([1, 2, 3])], tensors, 4, expected=[np.array([10, -1, 30], np.int16)])
    wrong = {"keys_int64s": [1, 2], "values_int64s": [1]}
    check_rejected("LabelEncoder", [np.array([1])], opset=2, domain=ML, attributes=wrong, match="2 keys for 1 values")
    check_rejected(
        "LabelEncoder", [names], opset=2, domain=ML, attributes={**wrong, "values_int64s": [1, 2]}, match="keys are"
    )
