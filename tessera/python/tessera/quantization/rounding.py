# SPDX-License-Identifier: Apache-2.0
"""Rounds weights so that what a layer computes stays near, in place of each weight for itself. In: a quantised
candidate and calibration data. Out: the float model with weights that lie on the grid of int8 and biases that take up
the rest of the mean error, and the scales of that grid.

The columns of a layer's weights are rounded one after the other, and each takes up what the errors of those before it
have done to the sums, as far as the layer's inputs move together (their covariance): Frantar et al., GPTQ (2022), after
Hassibi and Stork, Optimal Brain Surgeon (1993), in the form of Chee et al., QuIP (2023), which factors the covariance
itself and inverts nothing. Inputs are those of the float model. The mean error has two parts: that of the weights, and
that of the operand, whose small channels are all rounded to one side. Means and covariances are sums over the data, so
memory does not grow with it; of a large tensor some places are drawn."""

import contextlib
import copy
import dataclasses
import math

import numpy as np
from onnx import numpy_helper

from . import four_bits, measure, tables
from .graph import as_matrices, attribute, channel_axis, drop_unread, is_onnx, names_of, unique

DRAWN = 512  # places of one tensor and sample, at most
ROWS = 8  # places of all samples together, for each column of the covariance
LEAST_ROWS = 2048
MOST_COLUMNS = 1536  # of a covariance; layers with more keep their rounding and have their bias corrected
MOST_VALUES = 1 << 27  # of all covariances held at a time
DAMPINGS = (0.01, 0.1, 1.0)  # of the mean variance, added to each; the first with which the covariance can be factored
BLOCK = 64  # columns between two products with those to come


@dataclasses.dataclass
class Layer:
    """A product with constant weights, as matrices: for each group [outputs, columns]."""

    unit: object
    source: str  # tensor of the operand
    groups: int
    columns: int
    middle: np.ndarray = None  # [groups, columns]: near the mean, so that sums of squares lose no digits
    sums: np.ndarray = None  # of the differences from it: [groups, columns]
    squares: np.ndarray = None  # [groups, columns, columns]
    count: int = 0
    drift: np.ndarray = None  # of the operand's channels by its own rounding: sums
    drifted: int = 0  # values of each channel in them

    @property
    def weights(self):
        """Values of its covariance; 0 where it has none."""
        return self.groups * self.columns**2 if self.columns <= MOST_COLUMNS else 0

    def add(self, found):
        """found: float32 [groups, places, columns]. Of sums that are not finite nothing is told here: whoever uses them
        looks."""
        with np.errstate(invalid="ignore", over="ignore"):
            self._add(found)

    def _add(self, found):
        if self.middle is None:
            self.middle = found.mean(1)
            self.sums = np.zeros((self.groups, self.columns))
            if self.weights:
                self.squares = np.zeros((self.groups, self.columns, self.columns), np.float32)
        found = found - self.middle[:, None, :]
        self.sums += found.sum(1, dtype=np.float64)
        self.count += found.shape[1]
        if self.squares is not None:
            self.squares += found.transpose(0, 2, 1) @ found


def layers_of(state):
    """Quantised products with constant weights whose operand is a quantised tensor."""
    graph = state.plan.graph
    for unit in state.plan.units:
        if unit.kind != "product" or not unit.quantised or unit.node.input[0] not in state.writer.pairs:
            continue
        array, node = graph.array(unit.node.input[1]), unit.node
        if array is None or not (is_onnx(node, "Conv") or array.ndim == 2) or attribute(node, "transA", 0):
            continue
        if is_onnx(node, "Conv"):
            groups = attribute(node, "group", 1)
            yield Layer(unit, node.input[0], groups, int(np.prod(array.shape[1:])))
        else:
            yield Layer(unit, node.input[0], 1, array.shape[1 - channel_axis(node, 2)])


# --- statistics


def columns_of(node, value, weights, rng, most=DRAWN):
    """Operands of the layer's sums at some places, at most `most`: [places, groups, columns]."""
    if not is_onnx(node, "Conv"):
        rows = value.reshape(-1, value.shape[-1])
        if len(rows) > most:
            rows = rows[rng.choice(len(rows), most, replace=False)]
        return rows[:, None, :]
    kernel, groups = weights.shape[2:], attribute(node, "group", 1)
    rank = len(kernel)
    strides = attribute(node, "strides", [1] * rank)
    dilations = attribute(node, "dilations", [1] * rank)
    pads = pads_of(node, value.shape[2:], kernel, strides, dilations)
    padded = np.pad(value, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:])])
    extents = [
        (size - dilation * (taps - 1) - 1) // stride + 1
        for size, taps, stride, dilation in zip(padded.shape[2:], kernel, strides, dilations)
    ]
    total = len(value) * int(np.prod(extents))
    drawn = rng.choice(total, most, replace=False) if total > most else np.arange(total)
    batch, *places = np.unravel_index(drawn, (len(value), *extents))
    taps = np.indices(kernel).reshape(rank, -1)
    where = tuple(
        place[:, None] * stride + tap[None] * dilation
        for place, stride, tap, dilation in zip(places, strides, taps, dilations)
    )
    found = padded[(batch[:, None], slice(None), *where)]  # [places, taps, channels]
    return found.transpose(0, 2, 1).reshape(len(drawn), groups, -1)


def pads_of(node, sizes, kernel, strides, dilations):
    """Explicit pads: first of all axes the fronts, then the ends."""
    mode = attribute(node, "auto_pad", b"NOTSET").decode()
    if mode in ("NOTSET", ""):
        return attribute(node, "pads", [0] * 2 * len(kernel))
    fronts, ends = [], []
    for size, taps, stride, dilation in zip(sizes, kernel, strides, dilations):
        reach = (-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1
        total = max(0, reach - size) if mode != "VALID" else 0
        less = total // 2
        fronts.append(total - less if mode == "SAME_LOWER" else less)
        ends.append(less if mode == "SAME_LOWER" else total - less)
    return fronts + ends


class Rounded:
    """Tensors of the float model as the quantised one would have them, were all before them exact: a product's result
    in its steps, and what a chain of elementwise operators makes of those, in its own."""

    def __init__(self, state, names):
        self.parameters, self.tables = state.parameters, {}
        for name in names:
            unit = state.plan.unit_of.get(name)
            if unit is None or unit.kind != "elementwise" or not unit.quantised or unit.output != name:
                continue
            given = self.parameters.get(unit.inputs[0])
            if given is not None and unit.inputs[0] in state.plan.unit_of:
                results = tables.function_of(state.plan, unit)((np.arange(256) - given.zero) * np.float64(given.scale))
                self.tables[name] = unit.inputs[0], given, self._steps(name, results)

    def _steps(self, name, value):
        given = self.parameters[name]
        steps = np.clip(np.rint(value / np.float32(given.scale)), -given.zero, 255 - given.zero)
        return (steps * np.float32(given.scale)).astype(np.float32)

    def of(self, name, value, values):
        if name in self.tables and self.tables[name][0] in values:
            source, given, table = self.tables[name]
            steps = np.rint(values[source] / np.float32(given.scale)) + given.zero
            return table[np.clip(np.nan_to_num(steps), 0, 255).astype(np.uint8)].reshape(value.shape)
        return self._steps(name, value)


def collect(state, layers, feeds, count, seed=0):
    """Adds what the feeds say of the layers' operands. count: of the samples that there will be in all."""
    rng = np.random.default_rng(seed)
    graph, readers = state.plan.graph, {}
    for layer in layers:
        readers.setdefault(layer.source, []).append(layer)
    weights = {layer.unit.name: graph.array(layer.unit.node.input[1]) for layer in layers}
    rounded = Rounded(state, readers)
    names = [n for name in readers for n in [*(rounded.tables[name][:1] if name in rounded.tables else ()), name]]
    for _, values in measure.observed_runs(graph.model, list(dict.fromkeys(names)), feeds):
        for name, value in values.items():
            if name not in readers or not value.size:
                continue
            error = rounded.of(name, value, values) - value
            for layer in readers[name]:
                axis = 1 if is_onnx(layer.unit.node, "Conv") else value.ndim - 1
                drift = error.sum(tuple(a for a in range(value.ndim) if a != axis), dtype=np.float64)
                if layer.drift is None:
                    layer.drift = np.zeros(len(drift))
                layer.drift += drift
                layer.drifted += value.size // len(drift)
                most = min(DRAWN, math.ceil(max(LEAST_ROWS, ROWS * layer.columns) / max(1, count)))
                found = columns_of(layer.unit.node, value, weights[layer.unit.name], rng, most)
                if len(found):
                    layer.add(np.ascontiguousarray(found.transpose(1, 0, 2)))


# --- rounding


def factored(covariance):
    """Upper triangles U with U U^T = the covariances [groups, columns, columns] (float64) and a little on their
    diagonals; None where that cannot be had, as of values that are not finite."""
    if not np.all(np.isfinite(covariance)):
        return None
    eye = np.eye(covariance.shape[1])
    each = np.diagonal(covariance, axis1=1, axis2=2).mean(1)
    for damping in DAMPINGS:
        try:
            lower = np.linalg.cholesky((covariance + (damping * each + 1e-12)[:, None, None] * eye)[:, ::-1, ::-1])
            return lower[:, ::-1, ::-1]
        except np.linalg.LinAlgError:
            continue
    return None


def nearest(real, steps):
    """Weights in steps of their scale, each rounded for itself."""
    return np.clip(np.rint(real), -127, 127) if steps is None else four_bits.rounded(real, steps)


def round_columns(weights, scales, covariance, steps=None):
    """weights [groups, outputs, columns] in steps of scales [groups, outputs]; covariance [groups, columns, columns].
    Returns integers from -127 to 127, of the same shape; None where the covariance allows no such rounding. steps: of
    weights of 4 bits, whose integers are multiples of them."""
    real = (weights / scales[..., None]).astype(np.float32)
    each = np.diagonal(covariance, axis1=1, axis2=2)
    order = np.argsort(-each, axis=1, kind="stable")
    index = np.arange(len(order))[:, None]
    ordered = covariance.astype(np.float64)[index[:, :, None], order[:, :, None], order[:, None, :]]
    upper = factored(ordered)
    if upper is None or not np.all(np.isfinite(real)):
        return None
    # What an error of one in a column makes up for in a later one.
    spread = (upper / np.diagonal(upper, axis1=1, axis2=2)[:, None, :]).astype(np.float32)
    real = np.take_along_axis(real, order[:, None, :], 2)
    if steps is not None:
        steps = np.take_along_axis(steps, order[:, None, :], 2)
    wanted, result, columns = real.copy(), np.empty_like(real), real.shape[2]
    for start in range(0, columns, BLOCK):
        end = min(start + BLOCK, columns)
        for k in range(start, end):
            result[..., k] = nearest(wanted[..., k], None if steps is None else steps[..., k])
            error = real[..., k] - result[..., k]
            wanted[..., k + 1 : end] += error[..., None] * spread[:, None, k, k + 1 : end]
        errors = real[..., start:end] - result[..., start:end]
        wanted[..., end:] += errors @ spread[:, start:end, end:]
    back = np.argsort(order, axis=1)
    return np.take_along_axis(result, back[:, None, :], 2)


def round_layer(layer, array, scale, centred, steps=None):
    """New weights on the grid, the change of the bias that keeps the mean ([outputs]), and why the weights were rounded
    one by one ("" if they were not)."""
    node, why = layer.unit.node, ""
    weights, back = as_matrices(node, array, layer.groups)
    scales = np.broadcast_to(np.asarray(scale, np.float64), (weights.shape[0] * weights.shape[1],))
    scales = scales.reshape(weights.shape[:2])
    rounded, mean = None, np.zeros((layer.groups, layer.columns))
    if not layer.count:
        why = "no value of its operand was seen"
    else:
        offset = layer.sums / layer.count
        mean = np.nan_to_num(layer.middle + offset, nan=0.0, posinf=0.0, neginf=0.0)
        if layer.squares is not None:
            covariance = layer.squares / layer.count - offset[:, :, None] * offset[:, None, :]
            if not centred:
                covariance = covariance + mean[:, :, None] * mean[:, None, :]
            rounded = round_columns(weights, scales, covariance, steps)
            why = "" if rounded is not None else "the covariance of its operand has no factors"
    if rounded is None:
        rounded = nearest(weights / scales[..., None], steps)
    made = rounded * scales[..., None]
    shift = np.einsum("gok,gk->go", weights - made, mean)
    if layer.drifted and np.all(np.isfinite(layer.drift)):
        drift = (layer.drift / layer.drifted).reshape(layer.groups, -1)
        each = made.reshape(*made.shape[:2], drift.shape[1], -1).sum(3)  # over the taps of a channel
        shift -= np.einsum("goc,gc->go", each, drift)
    shift = shift.reshape(-1)
    return back(made).astype(np.float32), shift.astype(np.float32), why


def bias_operand(unit, graph):
    """(node, operand index) of the layer's constant bias, or where a convolution's can be added; None if there is no
    such place."""
    if len(unit.nodes) > 1 and is_onnx(unit.nodes[1], "Add"):
        node = unit.nodes[1]
        return node, next(k for k, name in enumerate(node.input) if name in graph.constants)
    node = unit.node
    if len(node.input) > 2 and node.input[2]:
        plain = attribute(node, "beta", 1.0) == 1 and attribute(node, "alpha", 1.0) == 1
        return (node, 2) if plain and node.input[2] in graph.constants else None
    return (node, 2) if is_onnx(node, "Conv") else None


def batches(layers):
    """Layers whose covariances fit into memory together."""
    batch, held = [], 0
    for layer in layers:
        if batch and held + layer.weights > MOST_VALUES:
            yield batch
            batch, held = [], 0
        batch.append(layer)
        held += layer.weights
    if batch:
        yield batch


def one_thread():
    """Inside of this numpy's linear algebra has one thread, where threadpoolctl is there, as beside NNCF. OpenBLAS's
    threads spin while they wait for each other: on processors that others use too, a factor of 1152 columns takes
    0.04 s of one thread and 0.3 to 1.2 s of two."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return contextlib.nullcontext()
    return threadpool_limits(1, "blas")


class Rounding:
    """Weights of a candidate, rounded for samples. With more samples they may be rounded once more, and those that have
    been seen are not run again, as far as all covariances fit into memory."""

    def __init__(self, state):
        self.state, self.seen = state, 0
        self.batches = list(batches(list(layers_of(state))))
        self.left = {}  # layer -> why its weights were rounded one by one

    def round(self, data, count, progress=None):
        """The candidate's float model with weights rounded for the first `count` samples of the data, and for each
        layer's name the scales of them."""
        with one_thread():
            return self._round(data, count, progress)

    def _round(self, data, count, progress):
        model = copy.deepcopy(self.state.plan.graph.model)
        nodes, self.taken = {node.name: node for node in model.graph.node}, names_of(model)
        scales, total = {}, sum(map(len, self.batches))
        self.left = {}
        for batch in self.batches:
            alone = len(self.batches) == 1
            if not alone:
                for layer in batch:
                    layer.middle = layer.sums = layer.squares = layer.drift = None
                    layer.count = layer.drifted = 0
            fresh = data.limited(count)
            collect(self.state, batch, fresh.behind(self.seen) if alone and self.seen else fresh, count, self.seen)
            for layer in batch:
                scales[layer.unit.name] = self._replace(model, layer, nodes)
                if not alone:
                    layer.squares = None
                if progress:
                    progress(len(scales), total)
        self.seen = count
        drop_unread(model)
        return model, scales

    def _replace(self, model, layer, nodes):
        """Writes a layer's new weights and bias into the model; its scales."""
        unit, graph = layer.unit, self.state.plan.graph
        array = graph.array(unit.node.input[1])
        scale = self.state.writer.weights[unit.name]
        biased = bias_operand(unit, graph)
        steps = self.state.writer.steps.get(unit.name)
        made, shift, why = round_layer(layer, array, scale, biased is not None, steps)
        if why:
            self.left[unit.name] = why
        nodes[unit.name].input[1] = self._store(model, f"{unit.name}/rounded", made)
        if biased is not None:
            node, index = nodes[biased[0].name], biased[1]
            old = graph.array(node.input[index]) if len(node.input) > index and node.input[index] else None
            name = self._store(model, f"{unit.name}/shifted", shift if old is None else old.reshape(-1) + shift)
            if len(node.input) > index:
                node.input[index] = name
            else:
                node.input.append(name)
        return scale

    def _store(self, model, name, array):
        name = unique(name, self.taken)
        model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name
