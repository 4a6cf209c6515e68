# SPDX-License-Identifier: Apache-2.0
"""The libraries that calibrate. In: a prepared float model and data. Out: the model with its weights and biases as the
library wants them, and a range for every float tensor. Scales and QDQ pairs are written by write.py in either case, so
that the same groups reach the NPU.

onnxruntime: extremes as ONNX Runtime gives them, or its calibrators (entropy, percentile); weights stay as they are.
nncf: NNCF's post-training quantisation: biases corrected for the mean error of the quantised weights, activations of
transformers smoothed into weights (SmoothQuant). The ranges are the same extremes. Whether its changes bring the
network's outputs nearer is measured, and they are left out where they do not (quantise.py)."""

import contextlib
import copy
import dataclasses
import importlib.util
import io
import itertools
import logging
import os
import sys
import tempfile
import warnings

import numpy as np
import onnx
from onnx import numpy_helper

from .errors import argument, error
from .graph import Graph, bodies, drop_unread, is_onnx, rename, shaped_like
from .measure import Statistics

ENGINES = ("nncf", "onnxruntime")
METHODS = ("minmax", "mse", "entropy", "percentile")
BIAS_SAMPLES = 64  # that NNCF corrects biases on; the ranges come from all
CHUNK = 8  # samples whose tensors are held at one time


@dataclasses.dataclass
class Calibrated:
    model: onnx.ModelProto
    ranges: dict  # tensor -> (low, high)
    samples: int
    version: str
    plain: onnx.ModelProto = None  # the model as it was before the engine changed weights and biases, if it did
    note: str = ""
    original: onnx.ModelProto = None  # whose constants layers get that stay float
    scales: dict = dataclasses.field(default_factory=dict)  # layer -> scales of weights that lie on a grid already


class _Reader:
    """A part of the data in the form that ONNX Runtime's calibrators take."""

    def __init__(self, feeds):
        self.feeds = iter(feeds)

    def get_next(self):
        return next(self.feeds, None)


def float_tensors(model):
    """Float tensors of the graph that are no constants."""
    graph = Graph(model)
    made = [name for node in graph.nodes for name in node.output if name]
    return [name for name in [*graph.inputs, *made] if graph.is_float(name)]


def measure_ranges(model, data, progress=None):
    """The least and the largest value of every float tensor, and how many samples there were."""
    found = Statistics(model, float_tensors(model), data, progress=progress)
    return found.ranges, found.samples


def calibrators_ranges(model, data, method):
    """Ranges of all float tensors by one of ONNX Runtime's calibrators, a few samples at a time."""
    from onnxruntime.quantization import CalibrationMethod
    from onnxruntime.quantization.calibrate import create_calibrator

    methods = {"entropy": CalibrationMethod.Entropy, "percentile": CalibrationMethod.Percentile}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        source, augmented = os.path.join(folder, "model.onnx"), os.path.join(folder, "augmented.onnx")
        onnx.save(model, source)
        calibrator = create_calibrator(source, [], augmented, calibrate_method=methods[method])
        for chunk in _chunks(data, CHUNK):
            calibrator.collect_data(_Reader(chunk))  # the histograms announce themselves
        found = calibrator.compute_data()
    return {
        name: tuple(float(np.min(v)) if k == 0 else float(np.max(v)) for k, v in enumerate(value.range_value))
        for name, value in found.items()
    }


def _chunks(data, size):
    feeds = iter(data)
    while chunk := list(itertools.islice(feeds, size)):
        yield chunk


def with_onnxruntime(model, data, options, ranges, count):
    import onnxruntime

    if options.method in ("entropy", "percentile"):
        try:
            ranges = {**ranges, **calibrators_ranges(model, data, options.method)}
        except (ValueError, ArithmeticError, IndexError) as e:  # as of a tensor that is constant
            cause = str(e).splitlines()[0] if str(e) else type(e).__name__
            warnings.warn(f"--method {options.method} failed ({cause}); the observed extremes are taken", stacklevel=2)
    return Calibrated(model, ranges, count, f"onnxruntime {onnxruntime.__version__}")


# --- NNCF
# ---------------------------------------------------------------------------------------------------------------


def import_nncf():
    # NNCF reports its use to its makers, and writes a number for that into the home folder, unless the package that
    # sends is missing. This project reports nothing.
    os.environ.setdefault("NNCF_CI", "1")
    if "nncf" not in sys.modules:
        sys.modules.setdefault("openvino_telemetry", None)
    try:
        import nncf
    except ImportError:
        raise error(
            "unsupported",
            "the engine nncf is not installed; `pip install -r requirements-quantize.txt` installs it, or use "
            "--engine onnxruntime",
        ) from None
    nncf.set_log_level(logging.ERROR)
    return nncf


@contextlib.contextmanager
def quick_where_accurate_fails():
    """Inside of this NNCF's accurate bias correction gives way to the fast one where it fails, with the statistics of
    one calibration. Yields a list that names the failures.

    The accurate one cuts a part out of the graph for each layer, and feeds it at the layers that it met on the ways
    back from the part's outputs. Where ways meet, as in some residual networks, such a layer is outside of the part,
    and NNCF ended there with KeyError, behind much of the network. That is asked ahead."""
    from nncf.quantization.algorithms.bias_correction.algorithm import BiasCorrection
    from nncf.quantization.algorithms.fast_bias_correction.algorithm import FastBiasCorrection
    from nncf.quantization.algorithms.post_training import pipeline

    failures = []

    class Either(BiasCorrection):
        def get_statistic_points(self, model, graph):
            self.quick = FastBiasCorrection(BIAS_SAMPLES)
            container = super().get_statistic_points(model, graph)
            for points in self.quick.get_statistic_points(model, graph).values():
                for point in points:
                    container.add_statistic_point(point)
            return container

        def apply(self, model, graph, statistic_points=None, dataset=None):
            try:
                return super().apply(model, graph, statistic_points, dataset)
            except Exception as e:  # of NNCF and what it stands on, whose kinds are not documented
                failures.append((str(e).splitlines() or [type(e).__name__])[0])
                return self.quick.apply(model, graph, statistic_points, dataset)

        def _get_subgraph_data_for_node(self, node, nncf_graph):
            part = super()._get_subgraph_data_for_node(node, nncf_graph)
            if not holds_its_inputs(nncf_graph, part):
                raise KeyError(f"a part of the graph at '{node.node_name}' does not hold a layer that it is fed at")
            return part

    pipeline.BiasCorrection = Either
    try:
        yield failures
    finally:
        pipeline.BiasCorrection = BiasCorrection


def holds_its_inputs(graph, part):
    """Whether each layer that `part` of an NNCF graph is fed at stands between its inputs and its outputs."""

    def sources(name):
        return [
            (edge.input_port_id, (edge.from_node.node_name, edge.output_port_id))
            for edge in graph.get_input_edges(graph.get_node_by_name(name))
        ]

    fed = {source for name, port in part.input_ids for into, source in sources(name) if into == port}
    ways, seen = [output for output in part.output_ids if output not in fed], set()
    while ways:
        name, _ = ways.pop()
        if name not in seen:
            seen.add(name)
            ways += [source for _, source in sources(name) if source not in fed]
    return all(name in seen for name, _ in part.input_ids)


def with_nncf(model, data, options, ranges, count):
    """The model with biases, and in transformers also weights, as NNCF corrects them on `count` samples. Where NNCF
    does not take the model that is the model as it was, without a `plain` one beside it."""
    nncf = import_nncf()
    from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, OverflowFix
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    attention = any(is_onnx(n, "MatMul") and n.input[1] not in Graph(model).constants for n in model.graph.node)
    ignored = sorted(set(options.float_nodes) & {n.name for n in model.graph.node})

    # NNCF draws progress bars on standard output, where they would stand in the way of the table, and numpy warns of
    # numbers in it that are none.
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            warnings.catch_warnings(),
            quick_where_accurate_fails() as failed,
        ):
            warnings.simplefilter("ignore", RuntimeWarning)
            quantised = nncf.quantize(
                copy.deepcopy(model),
                nncf.Dataset(data.limited(count)),
                preset=nncf.QuantizationPreset.MIXED,
                target_device=nncf.TargetDevice.ANY,
                subset_size=count,
                fast_bias_correction=not options.accurate_bias,
                model_type=nncf.ModelType.TRANSFORMER if attention else None,
                ignored_scope=nncf.IgnoredScope(names=ignored, validate=False) if ignored else None,
                advanced_parameters=AdvancedQuantizationParameters(
                    overflow_fix=OverflowFix.DISABLE,
                    activations_range_estimator_params=RangeEstimatorParametersSet.MINMAX,
                ),
            )
    except Exception as e:  # of NNCF and what it stands on, whose kinds are not documented
        cause = (str(e).splitlines() or [type(e).__name__])[0]
        warnings.warn(f"NNCF does not take the model ({cause}); ONNX Runtime calibrates", stacklevel=2)
        return with_onnxruntime(model, data, options, ranges, count)
    note = "accurate bias correction" if options.accurate_bias else "fast bias correction"
    if failed:
        note = "fast bias correction, as the accurate one failed"
    adapted, own = strip(quantised)
    adapted = shaped_like(adapted, model)
    restore(adapted, model, set(options.float_nodes))
    known = {**ranges, **own}
    return Calibrated(
        adapted,
        completed(adapted, data, {**known, **ranges}),
        count,
        f"nncf {nncf.__version__}",
        plain=model,
        note=note,
    )


def completed(model, data, ranges):
    """`ranges` with those of tensors that are not among them."""
    missing = [name for name in float_tensors(model) if name not in ranges]
    return {**Statistics(model, missing, data).ranges, **ranges} if missing else ranges


def strip(quantised):
    """A QDQ model without its quantisation: activations as they were, weights as their dequantised values; and the
    range of each activation that was quantised."""
    model = copy.deepcopy(quantised)
    graph = Graph(model)
    renamed, ranges, constants = {}, {}, {}
    kept = []
    for node in model.graph.node:
        if is_onnx(node, "QuantizeLinear"):
            scale, zero = graph.array(node.input[1]), graph.array(node.input[2])
            renamed[node.output[0]] = node.input[0]
            if scale.size == 1:
                info = np.iinfo(zero.dtype)
                step, z = float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0])
                ranges.setdefault(node.input[0], ((info.min - z) * step, (info.max - z) * step))
        elif is_onnx(node, "DequantizeLinear"):
            source = renamed.get(node.input[0], node.input[0])
            if source in graph.constants:
                constants[node.output[0]] = _dequantised(graph, node)
            else:
                renamed[node.output[0]] = source
        else:
            kept.append(node)

    def final(name):
        while name in renamed:
            name = renamed[name]
        return name

    for node in kept:
        for index, name in enumerate(node.input):
            node.input[index] = final(name)
        for body in bodies(node):
            rename(body, {name: final(name) for name in renamed})
    for name, array in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    outputs = {value.name: final(value.name) for value in model.graph.output}
    for name, source in outputs.items():
        if source != name:  # the output was a dequantised value
            for node in kept:
                for index, result in enumerate(node.output):
                    if result == source:
                        node.output[index] = name
                for index, operand in enumerate(node.input):
                    if operand == source:
                        node.input[index] = name
            if source in ranges:
                ranges[name] = ranges[source]
    del model.graph.node[:], model.graph.value_info[:]
    model.graph.node.extend(kept)
    drop_unread(model)
    return model, ranges


def _dequantised(graph, node):
    values, scale = graph.array(node.input[0]).astype(np.float32), graph.array(node.input[1])
    zero = graph.array(node.input[2]).astype(np.float32) if len(node.input) > 2 else np.float32(0)
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    if scale.size > 1:
        shape = [1] * values.ndim
        shape[axis] = -1
        scale, zero = scale.reshape(shape), np.reshape(zero, shape)
    else:
        scale, zero = scale.reshape(()), np.reshape(zero, ())
    return (values - zero) * scale


def restore(adapted, model, float_nodes):
    """Nodes that stay float keep the constants of the float model, and get no bias that they had not."""
    original = Graph(model)
    own = {node.name: node for node in model.graph.node}
    present = {tensor.name for tensor in adapted.graph.initializer}
    for node in adapted.graph.node:
        if node.name not in float_nodes or node.name not in own:
            continue
        del node.input[len(own[node.name].input) :]
        for index, name in enumerate(own[node.name].input):
            if name in original.constants and index < len(node.input):
                if name not in present:
                    adapted.graph.initializer.append(original.constants[name])
                    present.add(name)
                node.input[index] = name


def check(engine, method):
    """Errors: tessera.Error (invalid_argument) for an engine or a method that there is not."""
    if engine not in ENGINES:
        raise argument(f"--engine takes {' or '.join(ENGINES)}, not '{engine}'")
    if engine == "nncf" and importlib.util.find_spec("nncf") is None:
        import_nncf()  # its error, before anything is done
    if method not in METHODS:
        raise argument(f"--method takes {', '.join(METHODS)}, not '{method}'")
    if engine == "nncf" and method in ("entropy", "percentile"):
        raise argument(f"--method {method} is one of the engine onnxruntime; add --engine onnxruntime")
