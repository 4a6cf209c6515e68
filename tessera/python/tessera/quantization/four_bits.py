# SPDX-License-Identifier: Apache-2.0
"""Weights of 4 bits that are bytes. In: weights in float, and blocks of so many of them along the sum. Out: int8 values
w = m * q with q from -8 to 7 and one scale m from 1 to 16 for each block and output, beside the one float scale of each
output. So the model is an int8 model like others, for ONNX Runtime too; a machine with packed_weights stores q and m
and multiplies when it loads (isa/semantics.md). Scales in two steps: Dai et al., VS-Quant (2021); Lin et al., QServe
(2024)."""

import dataclasses
import tomllib
import warnings

import _tessera
import numpy as np

from . import place
from .data import take
from .errors import argument
from .graph import attribute, is_onnx

MOST = 16  # the largest scale
LOW, HIGH = -8, 7
SHARES = (8 / 7, 1.05, 0.96, 0.87)  # of the peak that the largest block reaches, tried for each output
ROWS = 1 << 20  # values that are tried at a time


@dataclasses.dataclass
class Grid:
    """block: weights along the sum that share a scale. eight: names of layers that keep 8 bits."""

    block: int
    eight: frozenset = frozenset()

    def takes(self, unit, array):
        """Whether the layer's weights can be packed: those of dense products are, as the machine has no room for a
        scale of each tap of a depthwise one."""
        node = unit.node
        if unit.name in self.eight:
            return False
        if is_onnx(node, "Conv"):
            return attribute(node, "group", 1) == 1 or array.shape[1] > 1
        return array.ndim == 2

    def fit(self, matrices, taps, least=None, power_of_two=False):
        """matrices: float [groups, outputs, columns], columns by channel and then by tap. Returns the scales [groups,
        outputs] in float32 and m for each weight, int32 of the matrices' shape. least: of the scales, that shape."""
        groups, outputs, columns = matrices.shape
        channels = columns // taps
        blocks = -(-channels // self.block)
        padded = np.zeros((groups * outputs, blocks * self.block, taps), np.float32)
        padded[:, :channels] = matrices.reshape(groups * outputs, channels, taps)
        rows = padded.reshape(groups * outputs, blocks, self.block, taps).swapaxes(2, 3)
        rows = np.ascontiguousarray(rows).reshape(groups * outputs, blocks * taps, self.block)
        scale, steps = np.empty(len(rows), np.float32), np.empty(rows.shape[:2], np.int32)
        floor = np.zeros(len(rows)) if least is None else np.broadcast_to(least, (groups, outputs)).reshape(-1)
        each = max(1, ROWS // max(1, rows.shape[1] * self.block))
        for start in range(0, len(rows), each):
            part = slice(start, start + each)
            scale[part], steps[part] = _fit(rows[part], floor[part], power_of_two)
        wide = np.repeat(steps.reshape(-1, blocks, 1, taps), self.block, 2).reshape(-1, blocks * self.block, taps)
        return scale.reshape(groups, outputs), wide[:, :channels].reshape(matrices.shape)


def _fit(rows, floor, power_of_two):
    """rows: [outputs, blocks, block]. The scale of each output and m of each block, of the least squared error."""
    peak = np.abs(rows).max((1, 2)).astype(np.float64)
    best_error, best_scale, best_steps = None, None, None
    for share in SHARES:
        scale = np.maximum(np.maximum(share * peak / (MOST * -LOW), floor), 2.0**-100)
        if power_of_two:
            scale = 2.0 ** np.ceil(np.log2(scale) - 1e-6)
        scale = scale.astype(np.float32)
        real = rows / scale[:, None, None]
        error, steps = np.full(rows.shape[:2], np.inf, np.float32), np.ones(rows.shape[:2], np.int32)
        for m in range(1, MOST + 1):
            found = np.square(real - np.clip(np.rint(real / m), LOW, HIGH) * m).sum(2)
            better = found < error
            error[better], steps[better] = found[better], m
        whole = error.sum(1) * np.square(scale)
        if best_error is None:
            best_error, best_scale, best_steps = whole, scale, steps
            continue
        better = whole < best_error
        best_error[better], best_scale[better], best_steps[better] = whole[better], scale[better], steps[better]
    return best_scale, best_steps


def rounded(real, steps):
    """Weights in steps of their output's scale, each rounded for itself: integers, of the same shape."""
    return np.clip(np.rint(real / steps), LOW, HIGH) * steps


def taps_of(node, array):
    """Weights of one channel of an output."""
    return int(np.prod(array.shape[2:])) if is_onnx(node, "Conv") else 1


def grid_of(weights, block, config, per_channel):
    """The grid that `--weights` and `--group` ask for; None for 8 bits. Errors: invalid_argument."""
    if weights == "int8":
        if block is not None:
            raise argument("--group is of weights of 4 bits: it needs --weights int4")
        return None
    if weights != "int4":
        raise argument(f"--weights takes int8 or int4, not '{weights}'")
    if not per_channel:
        raise argument("--weights int4 has scales of each output channel: it cannot be had with --per-tensor")
    machine = tomllib.loads(_tessera.shipped_configs().get(config) or place.text_of_machine(config))
    lanes = machine["block_in"]
    block = lanes if block is None else block
    if block < lanes or block % lanes:
        raise argument(
            f"--group {block}: the machine packs weights by {lanes} (its block_in); give it a multiple of that"
        )
    if not machine.get("packed_weights"):
        warnings.warn(
            f"the machine {machine['name']} has no packed_weights = 1: weights take 8 bits in its memory", stacklevel=6
        )
    return Grid(block)


def mix(work):
    """Gives 8 bits back to the layers whose outputs gain most by it for their size, as far as the share of the weights
    that the options name. What a layer gains is measured by itself, on the calibration data."""
    grid, state = work.options.grid, work.state
    sizes = {name: steps.size for name, steps in state.writer.steps.items()}
    budget = work.options.mixed * sum(sizes.values())
    names = [name for name, size in sizes.items() if size <= budget]
    if not names:
        return
    feeds = take(work.data, work.judges)
    work.meter.add("looking for layers that keep 8 bits", len(names) * len(feeds))
    before, gains = work.distance(state.model, feeds), {}
    left = {**state.left, **work.float_nodes}
    for number, name in enumerate(names):
        work.meter.at(number, len(names))
        work.options.grid = dataclasses.replace(grid, eight=frozenset({name}))
        gains[name] = work.distance(work.candidate(left).model, feeds) - before
    eight = set()
    for name in sorted(names, key=lambda name: -gains[name] / sizes[name]):
        if gains[name] > 0 and sizes[name] <= budget:
            eight.add(name)
            budget -= sizes[name]
    work.options.grid = dataclasses.replace(grid, eight=frozenset(eight))
    work.settle()
