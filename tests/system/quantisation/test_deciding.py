# SPDX-License-Identifier: Apache-2.0
"""What quantisation does where a few layers or a few samples decide what the outputs say: layers that stay float,
answers that no sample shows, and sizes that nobody has given."""

import math
import warnings

import numpy as np
import pytest

import tessera
from tessera.quantization import deciding, measure, tables
from tessera.quantization.data import ports_of
from tessera.quantization.forms import sizes
from tests.system.float_models import Builder

RATE = 1024


def decided(noises, least, share=lambda kept: 0.0):
    """What is kept of products that add these noises."""
    names = [f"p{k}" for k in range(len(noises))]
    noise = lambda kept: sum(n for name, n in zip(names, noises) if name not in kept)
    distance = lambda kept: -10 * math.log10(noise(kept))
    return deciding.Search(names, distance, share, least).find(distance(()))


def test_noise_may_have_no_bound():
    """The outputs of a random network can be so far from float's that their share of the signal overflows."""
    assert measure.decibels(1.0, math.inf) == -math.inf
    assert measure.decibels(1.0, 0.0) == math.inf
    assert measure.decibels(1.0, 0.01) == pytest.approx(20)


def test_the_layers_that_make_the_noise_are_found():
    noises = [0.001] * 16
    noises[3] = noises[4] = 0.5
    noises[11] = 0.3
    found = decided(noises, 18)
    assert found.names == ["p3", "p4", "p11"] and found.before < 0 and found.after > 18
    assert decided([0.01] * 16, 18, lambda kept: len(kept) / 16) is None  # all alike: it would be most of the network
    assert decided([0.9, 0.9], 18).names == ["p0", "p1"]  # outputs that say nothing are worth any work


def spectrum():
    """The power of a sound at 32 frequencies, its logarithm, and two convolutions that judge it."""
    b = Builder(seed=5)
    places = np.arange(64) / 64
    waves = [np.stack([wave(2 * np.pi * k * places) for k in range(32)])[:, None, None, :] for wave in (np.sin, np.cos)]
    powers = []
    for wave in waves:
        part = b.node("Conv", ["sound", b.constant(wave / 32)], strides=[1, 32])
        powers.append(b.node("Mul", [part, part]))
    power = b.node("Add", [b.node("Add", powers), b.constant(np.float32(1e-7))])
    x = b.node("Relu", [b.conv(b.node("Log", [power]), 32, 48)])
    for _ in range(2):
        x = b.node("Relu", [b.conv(x, 48, 48)])
    return b.model({"sound": [1, 1, 1, RATE]}, [b.conv(x, 48, 4)])


def sounds(count):
    """Tones that are loud and soft by turns."""
    rng, time = np.random.default_rng(1), np.arange(RATE) / 64
    for _ in range(count):
        tones = sum(10 ** rng.uniform(-3, 0) * np.sin(2 * np.pi * rng.uniform(1, 30) * time) for _ in range(3))
        loud = np.repeat(10 ** rng.uniform(-3, 0, 4), RATE // 4)
        yield {"sound": (tones * loud).astype(np.float32).reshape(1, 1, 1, RATE)}


def test_a_spectrum_stays_out_of_8_bits_in_front_of_its_logarithm():
    feeds = list(sounds(12))
    with pytest.warns(UserWarning, match="are computed in 16 bits: in int8 the outputs would be .* dB from the float"):
        made = tessera.quantize(spectrum(), feeds, engine="onnxruntime", report=True)
    kept = [row for row in made.report["layers"] if row["kind"] == "product" and not row["int8"]]
    assert kept and all(row["bits"] == 16 for row in kept) and made.macs_npu_share == 1
    everything = tessera.quantize(spectrum(), feeds, engine="onnxruntime", report=True, least_snr=0, sixteen=0)
    assert everything.macs_npu_share == 1
    assert made.report["output_snr_db"] > everything.report["output_snr_db"] + 6


def test_without_16_bits_a_spectrum_stays_float():
    feeds = list(sounds(12))
    with pytest.warns(UserWarning, match="stay float: in int8 the outputs would be .* dB from the float ones"):
        made = tessera.quantize(spectrum(), feeds, engine="onnxruntime", report=True, sixteen=0)
    kept = [row for row in made.report["layers"] if row["kind"] == "product" and not row["int8"]]
    assert 1 <= len(kept) <= 2 and all(row["why_float"].startswith("kept float") for row in kept)
    assert 0.5 < made.macs_npu_share < 1


def test_random_data_keep_nothing_float():
    assert tessera.quantize(spectrum(), "random", engine="onnxruntime").macs_npu_share == 1


def test_outputs_that_are_no_numbers_keep_nothing_float():
    b = Builder(seed=3)
    x = b.node("Relu", [b.conv("image", 3, 8)])
    model = b.model({"image": [1, 3, 8, 8]}, [b.node("Log", [b.conv(x, 8, 4)])])
    feeds = [{"image": np.random.default_rng(k).standard_normal((1, 3, 8, 8)).astype(np.float32)} for k in range(4)]
    assert tessera.quantize(model, feeds, engine="onnxruntime").macs_npu_share == 1


def test_an_answer_that_no_sample_shows_is_not_cut_off():
    b = Builder(seed=2)
    x = b.node("Relu", [b.node("MatMul", ["x", b.constant(np.eye(16))])])
    logit = b.node("MatMul", [x, b.constant(np.full((16, 1), 1.0))])
    logit = b.node("Add", [logit, b.constant(np.full(1, -12.0))])
    model = b.model({"x": [1, 16]}, [b.node("Sigmoid", [logit])])
    rng = np.random.default_rng(0)
    never = [{"x": rng.uniform(0, 1, (1, 16)).astype(np.float32) * rng.uniform(0.2, 1)} for _ in range(16)]
    made = tessera.quantize(model, never, engine="onnxruntime")
    (((answer,),),) = measure.session(made.model).run(None, {"x": np.ones((1, 16), np.float32)})
    assert answer > 0.85  # it would be 0.5 at most


def test_distances_of_values_that_are_not_finite_print_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = measure.Distance()
        found.add(np.array([np.inf, 1], np.float32), np.array([np.inf, 2], np.float32))
    assert found.signal == np.inf and not np.isfinite(found.noise)


def test_values_are_counted_in_parts_of_a_range():
    values = np.random.default_rng(3).standard_normal(5000).astype(np.float32)
    values[:3] = np.inf, -np.inf, np.nan
    counts = tables._counted(values, -2.0, 3.0)
    expected = np.histogram(values[3:], tables.BINS, (-2, 3))[0]
    assert counts.sum() == expected.sum() and np.abs(np.cumsum(counts) - np.cumsum(expected)).max() <= 1


def test_a_length_that_is_called_n_is_no_batch():
    """`N` in front counts samples; behind it is a length, here of a sound of which a frame needs 400 values."""
    b = Builder(seed=1)
    x = b.node("Unsqueeze", ["sound", b.constant(np.array([1]))])
    frames = b.node("Conv", [x, b.constant(np.ones((8, 1, 400)))], strides=[160])
    model = b.model({"sound": ["batch_size", "N"]}, [b.node("Relu", [frames])])
    assert sizes.find(model, ports_of(model)) == {"sound": [1, 16000]}


def test_a_first_dimension_may_count_frames():
    """Windows of several frames; the bands of a frame have an offset each, or weights beside three channels."""
    b = Builder(seed=1)
    bands = b.node("Add", ["spectrum", b.constant(np.ones(144))])
    image = b.node("Unsqueeze", [bands, b.constant(np.array([0, 1]))])
    model = b.model({"spectrum": ["frames", "bands"]}, [b.node("Conv", [image, b.constant(np.ones((2, 1, 3, 3)))])])
    assert sizes.find(model, ports_of(model)) == {"spectrum": [64, 144]}
    b = Builder(seed=1)
    mixed = b.node("Transpose", [b.node("MatMul", ["spectrum", b.constant(np.ones((3, 4)))])], perm=[0, 2, 1])
    bands = b.node("Transpose", [b.node("MatMul", [mixed, b.constant(np.ones((80, 5)))])], perm=[1, 2, 0])
    model = b.model({"spectrum": ["t", "f", "c"]}, [b.node("Conv", [bands, b.constant(np.ones((2, 5, 7)))])])
    assert sizes.find(model, ports_of(model)) == {"spectrum": [64, 80, 3]}


def test_lengths_that_many_inputs_share_are_no_sounds():
    """A graph of atoms and edges: ten thousands of either would take minutes, and no sound has features."""
    b = Builder(seed=1)
    atoms = b.node(
        "Mul", ["charge", b.node("Unsqueeze", [b.node("Mul", ["mass", "radius"]), b.constant(np.array([1]))])]
    )
    pairs = b.node("Gather", [atoms, b.node("Cast", ["first"], to=7)])
    edges = b.node("Concat", [pairs, "distance"], axis=1)
    inputs = {"charge": ["atoms", 16], "mass": ["atoms"], "radius": ["atoms"], "first": ["edges"]}
    model = b.model({**inputs, "distance": ["edges", 3]}, [b.node("Relu", [edges])])
    found = sizes.find(model, ports_of(model))
    assert found["charge"] == [128, 16] and found["distance"] == [128, 3], found
