# SPDX-License-Identifier: Apache-2.0
"""Ensembles of trees, linear classifiers and support vector machines of domain ai.onnx.ml, beside ONNX Runtime."""

import itertools

import numpy as np
import pytest
from ort_compare import TesseraError, check, check_rejected, run_tessera

RNG = np.random.default_rng(37)
ML = "ai.onnx.ml"
TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def f(*shape):
    return np.asarray(RNG.standard_normal(shape), np.float32)


def same(op, inputs, attributes, version=1, **options):
    loose = attributes.get("post_transform") == "PROBIT"  # its logarithm loses digits
    options = {"rtol": 1e-3 if loose else 1e-5, "atol": 1e-4 if loose else 1e-5} | options
    return check(op, inputs, opset=version, domain=ML, attributes=attributes, **options)


def trees(prefix, count, features, targets, modes, weights, missing=False):
    """Attributes of random trees: depth up to 3; leaves give weights of `weights()` to each of `targets`."""
    names = ["treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids"]
    lists = {name: [] for name in names}
    leaves = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(count):
        total = 0

        def grow(depth, tree=tree):
            nonlocal total
            own, total = total, total + 1
            leaf = depth == 3 or (depth > 0 and RNG.random() < 0.3)
            at = len(lists["nodeids"])
            mode = "LEAF" if leaf else str(RNG.choice(modes))
            row = [tree, own, int(RNG.integers(features)), mode, round(float(RNG.uniform(-1, 1)), 1), 0, 0]
            for name, value in zip(names, row):
                lists[name].append(value)
            if leaf:
                for target in targets:
                    for name, value in zip(leaves, (tree, own, target, weights())):
                        leaves[name].append(value)
            else:
                lists["truenodeids"][at] = grow(depth + 1)
                lists["falsenodeids"][at] = grow(depth + 1)
            return own

        grow(0)
    result = {f"nodes_{name}": value for name, value in lists.items()}
    result |= {f"{prefix}_{name}": value for name, value in leaves.items()}
    if missing:
        result["nodes_missing_value_tracks_true"] = [int(v) for v in RNG.integers(0, 2, len(lists["nodeids"]))]
    return result


def features(kind=np.float32):
    x = np.round(RNG.uniform(-1.2, 1.2, (12, 4)), 1)
    return (x * 2).astype(kind) if np.dtype(kind).kind == "i" else x.astype(kind)


def signed():
    return float(RNG.uniform(-1, 1))


def positive():
    return float(RNG.uniform(0, 0.3))


@pytest.mark.parametrize("mode", [*MODES, "mixed"])
def test_modes_of_regressors(mode):
    attributes = trees("target", 5, 4, [0], MODES if mode == "mixed" else [mode], signed)
    for kind in (np.float32, np.float64):
        same("TreeEnsembleRegressor", [features(kind)], {**attributes, "n_targets": 1})


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_aggregates(aggregate, targets):
    for transform in TRANSFORMS:
        attributes = trees("target", 4, 4, list(range(targets)), ["BRANCH_LEQ"], positive)
        attributes |= {"n_targets": targets, "aggregate_function": aggregate, "post_transform": transform}
        same("TreeEnsembleRegressor", [features()], attributes)
        base = [round(float(v), 2) for v in RNG.uniform(0, 0.2, targets)]
        same("TreeEnsembleRegressor", [features()], {**attributes, "base_values": base})


def test_missing_values():
    x = features()
    x[RNG.random(x.shape) < 0.4] = np.nan
    for mode in ("BRANCH_LEQ", "BRANCH_GT"):
        same("TreeEnsembleRegressor", [x], {**trees("target", 5, 4, [0], [mode], signed, missing=True), "n_targets": 1})
        same("TreeEnsembleRegressor", [x], {**trees("target", 5, 4, [0], [mode], signed), "n_targets": 1})


def test_nodes_in_any_order():
    """Ids that do not count the nodes, and nodes of a tree in another order behind its root."""
    given = trees("target", 4, 4, [0, 1], ["BRANCH_LEQ"], signed)
    renamed = {k: [3 * i + 5 for i in v] if "nodeids" in k else v for k, v in given.items()}
    same("TreeEnsembleRegressor", [features()], {**renamed, "n_targets": 2})
    owners = given["nodes_treeids"]
    order = sorted(range(len(owners)), key=lambda i: (owners[i], given["nodes_nodeids"][i] != 0, RNG.random()))
    mixed = {k: [v[i] for i in order] if k.startswith("nodes_") else v for k, v in renamed.items()}
    same("TreeEnsembleRegressor", [features()], {**mixed, "n_targets": 2})
    twice = {k: [*v, v[-1]] if k.startswith("nodes_") else v for k, v in given.items()}
    attributes = {**twice, "n_targets": 2}
    with pytest.raises(TesseraError, match="is given twice"):
        run_tessera("TreeEnsembleRegressor", [features()], opset=1, domain=ML, attributes=attributes)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_leaves_with_several_weights(aggregate):
    """Of one target the first weight counts, of several targets all of them."""
    for targets in (1, 2):
        given = trees("target", 4, 4, [0, 0, targets - 1], ["BRANCH_LEQ"], signed)
        attributes = {**given, "n_targets": targets, "aggregate_function": aggregate}
        same("TreeEnsembleRegressor", [features()], attributes)


def test_values_in_double():
    attributes = trees("target", 5, 4, [0], ["BRANCH_LEQ"], signed) | {"n_targets": 1}
    for name in ("nodes_values", "target_weights"):
        attributes[name + "_as_tensor"] = np.array(attributes.pop(name), np.float64)
    same("TreeEnsembleRegressor", [features(np.float64)], attributes, 3)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("names", [False, True])
def test_tree_classifiers(transform, names):
    def labels(count):
        if names:
            return {"classlabels_strings": [f"class {i}" for i in range(count)]}
        return {"classlabels_int64s": [7 * i - 3 for i in range(count)]}

    cases = [(3, [0, 1, 2]), (2, [0, 1]), (2, [0]), (2, [1]), (3, [0, 2])]
    for (count, targets), weights in itertools.product(cases, (signed, positive)):
        if transform == "PROBIT" and len(targets) == 1:
            continue  # ONNX Runtime writes one of two scores
        attributes = trees("class", 4, 4, targets, ["BRANCH_LEQ"], weights)
        attributes |= labels(count) | {"post_transform": transform}
        if len(targets) == 2 == count and not names:
            attributes["classlabels_int64s"] = [0, 1]  # others come out as 0 and 1 too
        same("TreeEnsembleClassifier", [features()], attributes, outputs=2)
    same("TreeEnsembleClassifier", [features(np.float64)], attributes, outputs=2)
    same("TreeEnsembleClassifier", [features(np.int64)], attributes, outputs=2)
    attributes = trees("class", 4, 4, [0, 1, 2], ["BRANCH_LEQ"], signed) | labels(3)
    same("TreeEnsembleClassifier", [features()], {**attributes, "base_values": [0.1, 0.2, -0.3]}, outputs=2)
    attributes = trees("class", 4, 4, [0], ["BRANCH_LEQ"], signed) | labels(2)
    same("TreeEnsembleClassifier", [features()], {**attributes, "base_values": [0.25]}, outputs=2)


def test_tree_ensemble():
    nodes = {
        "tree_roots": [0, 3],
        "nodes_featureids": [0, 1, 2, 3],
        "nodes_splits": np.array([0.1, -0.2, 0.3, 0.0], np.float32),
        "nodes_modes": np.array([0, 3, 2, 1], np.uint8),
        "nodes_truenodeids": [1, 0, 2, 5],
        "nodes_trueleafs": [0, 1, 1, 1],
        "nodes_falsenodeids": [2, 1, 3, 4],
        "nodes_falseleafs": [0, 1, 1, 1],
        "leaf_targetids": [0, 1, 0, 1, 0, 1],
        "leaf_weights": np.array([0.5, -1, 2, 0.25, 1.5, 0.75], np.float32),
        "n_targets": 2,
    }
    for aggregate, transform in itertools.product((0, 1, 2, 3), (0, 1, 2)):
        extra = {"aggregate_function": aggregate, "post_transform": transform}
        same("TreeEnsemble", [features()], {**nodes, **extra}, 5)
    for kind in (np.float64,):
        cast = {
            k: v.astype(kind) if isinstance(v, np.ndarray) and v.dtype == np.float32 else v for k, v in nodes.items()
        }
        same("TreeEnsemble", [features(kind)], cast, 5)
    nodes["nodes_modes"] = np.array([6, 6, 2, 1], np.uint8)
    sets = np.array([1, 2, 3, np.nan, 1, 4, np.nan], np.float32)
    whole = RNG.integers(0, 6, (12, 4)).astype(np.float32)
    same("TreeEnsemble", [whole], {**nodes, "membership_values": sets}, 5)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("names", [False, True])
def test_linear_classifiers(transform, names):
    for classes, labels in ((3, 3), (2, 2), (1, 2)):
        attributes = {"coefficients": f(classes * 4).tolist(), "intercepts": f(classes).tolist()}
        if names:
            attributes["classlabels_strings"] = [f"class {i}" for i in range(labels)]
        else:
            attributes["classlabels_ints"] = [5 * i - 2 for i in range(labels)]
        for kind in (np.float32, np.int64, np.float64):
            if transform == "PROBIT" and classes == 1:
                continue
            attributes["post_transform"] = transform
            same("LinearClassifier", [features(kind)], attributes, outputs=2)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_svm_regressors(kernel):
    attributes = {
        "kernel_type": kernel,
        "kernel_params": [0.5, 0.25, 2.0],
        "n_supports": 5,
        "support_vectors": f(20).tolist(),
        "coefficients": f(5).tolist(),
        "rho": [0.3],
    }
    same("SVMRegressor", [features()], attributes)
    same("SVMRegressor", [features()], {**attributes, "one_class": 1})
    for transform in TRANSFORMS:
        same("SVMRegressor", [features()], {**attributes, "post_transform": transform})
    linear = {"coefficients": f(4).tolist(), "rho": [0.3], "kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}
    same("SVMRegressor", [features()], linear)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_svm_classifiers(kernel, classes):
    counts = [2, 3, 1, 4][:classes]
    total, pairs = sum(counts), classes * (classes - 1) // 2
    attributes = {
        "kernel_type": kernel,
        "kernel_params": [0.5, 0.25, 2.0],
        "vectors_per_class": counts,
        "support_vectors": f(total * 4).tolist(),
        "coefficients": f((classes - 1) * total).tolist(),
        "rho": f(pairs).tolist(),
        "classlabels_ints": [10 * i + 5 for i in range(classes)],
    }
    probabilities = {"prob_a": (-np.abs(f(pairs))).tolist(), "prob_b": f(pairs).tolist()}
    names = {"classlabels_strings": [f"class {i}" for i in range(classes)], "classlabels_ints": None}
    for transform in TRANSFORMS:
        options = {"outputs": 2, "rtol": 1e-3, "atol": 1e-3}  # ONNX Runtime approximates tanh
        if transform != "PROBIT":  # of a decision, which is no probability
            same("SVMClassifier", [features()], {**attributes, "post_transform": transform}, **options)
        wanted = {**attributes, **probabilities, "post_transform": transform}
        same("SVMClassifier", [features()], wanted, **options)
        same("SVMClassifier", [features(np.float64)], {**wanted, **names}, **options)


def test_linear_svm_classifiers():
    for classes in (2, 3):
        attributes = {
            "kernel_type": "LINEAR",
            "kernel_params": [0.5, 0.25, 2.0],
            "coefficients": f(classes * 4).tolist(),
            "rho": [0.3],
            "classlabels_ints": [10 * i + 5 for i in range(classes)],
        }
        same("SVMClassifier", [features()], attributes, outputs=2)
        same("SVMClassifier", [features()], {**attributes, "post_transform": "LOGISTIC"}, outputs=2)


def test_bad_models():
    attributes = trees("target", 2, 4, [0], ["BRANCH_LEQ"], signed) | {"n_targets": 1}
    rejected = dict(opset=1, domain=ML)

    def run(match, **changes):
        with pytest.raises(TesseraError, match=match):
            run_tessera("TreeEnsembleRegressor", [features()], attributes={**attributes, **changes}, **rejected)

    run("has no node 99", nodes_truenodeids=[99] * len(attributes["nodes_truenodeids"]))
    run("is not known", nodes_modes=["BRANCH"] * len(attributes["nodes_modes"]))
    run("feature 8 of 4", nodes_featureids=[8] * len(attributes["nodes_featureids"]))
    run("elements where", nodes_values=[1.0])
    loop = {name: [0] for name in ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_truenodeids")}
    loop |= {"nodes_falsenodeids": [0], "nodes_modes": ["BRANCH_LEQ"], "nodes_values": [0.0], "target_treeids": [0]}
    run("circle", **loop, target_nodeids=[0], target_ids=[0], target_weights=[1.0])
    check_rejected("LinearClassifier", [f(2, 3, 4)], attributes={"intercepts": [0.0]}, match="rank 1 or 2", **rejected)
