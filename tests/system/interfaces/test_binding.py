# SPDX-License-Identifier: Apache-2.0
"""Tensors that stay on the device, and bindings of inputs and outputs."""

import gc

import numpy as np
import pytest

import tessera
from tests.system import builders
from tests.system.decoder import Decoder, empty_past
from tests.system.networks.test_decoders import feeds_at, names_of


@pytest.fixture
def network():
    """(model, feeds): a convolution of bytes whose output has the shape of its input."""
    g = builders.Graph()
    rng = np.random.default_rng(2)
    x = g.input(rng.integers(0, 256, (1, 8, 6, 6)).astype(np.uint8), "x")
    scale, zero = g.constant(np.float32(0.02)), g.constant(np.uint8(7))
    weights = [g.constant(rng.integers(-20, 21, (8, 8, 3, 3)).astype(np.int8)), g.constant(np.float32(0.05))]
    y = g.node("QLinearConv", [x, scale, zero, *weights, g.constant(np.int8(0)), scale, zero], "y", pads=[1, 1, 1, 1])
    return g.finish(y).SerializeToString(), g.feeds


@pytest.mark.parametrize("device", ["fsim", "sysc", "rtl"])
def test_results_are_inputs_again(network, device):
    data, feeds = network
    session = tessera.Session(data, device, "npu64")
    expected = feeds["x"]
    for _ in range(3):
        expected = session.run(None, {"x": expected})[0]
    binding = session.io_binding()
    binding.bind_input("x", feeds["x"])
    binding.bind_output_to_device("y")
    for _ in range(3):
        session.run_with_iobinding(binding)
        (y,) = binding.get_outputs()
        assert isinstance(y, tessera.DeviceTensor) and y.shape == (1, 8, 6, 6) and y.dtype == "uint8"
        binding.bind_input("x", y)
    assert np.array_equal(y.copy_to_host(), expected)
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], expected)
    binding.bind_output("y")
    binding.run()
    assert np.array_equal(binding.outputs()["y"], session.run(None, {"x": expected})[0])


def test_device_tensors_outlive_their_session(network):
    data, feeds = network
    session = tessera.Session(data, "fsim", "npu64")
    expected = session.run(None, feeds)[0]
    binding = session.io_binding()
    binding.bind_input("x", session.to_device(feeds["x"]))
    binding.bind_output_to_device("y")
    binding.run()
    y = binding.get_outputs()[0]
    del binding, session
    gc.collect()
    assert np.array_equal(y.copy_to_host(), expected)
    other = tessera.Session(data, "fsim", "npu64").io_binding()
    other.bind_input("x", y)
    other.bind_output("y")
    with pytest.raises(tessera.Error, match="input 'x' is bound to a tensor in the memory of another device"):
        other.run()


def test_what_does_not_fit_is_refused_when_it_is_bound(network):
    data, feeds = network
    session = tessera.Session(data, "fsim", "npu64")
    binding = session.io_binding()
    with pytest.raises(tessera.Error, match="the model has no input 'z'; it takes 'x'"):
        binding.bind_input("z", feeds["x"])
    with pytest.raises(tessera.Error, match="the model has no output 'z'; it gives 'y'"):
        binding.bind_output("z")
    with pytest.raises(
        tessera.Error, match=r"input 'x': the model takes uint8 \[1,8,6,6\], got a device tensor of float"
    ):
        binding.bind_input("x", session.to_device(feeds["x"].astype(np.float32)))
    with pytest.raises(tessera.Error, match="no output is bound"):
        binding.run()
    with pytest.raises(ValueError, match="'cpu' or 'device'"):
        binding.bind_output("y", "cuda")
    binding.bind_output("y")
    with pytest.raises(tessera.Error, match="input 'x' is missing"):
        binding.run()
    with pytest.raises(tessera.Error, match="the reference device is an interpreter"):
        tessera.Session(data, "reference").to_device(feeds["x"])


def decode(session, decoder, steps, pasts, first=0):
    """Logits of each step, and the pasts behind the last; pasts are arrays or stay on the device."""
    logits = []
    for step in range(first, first + steps):
        binding = session.io_binding()
        for name, value in feeds_at(decoder, step, 1, 1, pasts).items():
            binding.bind_input(name, value)
        binding.bind_output("logits")
        presents = names_of(decoder, "present")
        for name in presents:
            binding.bind_output_to_device(name)
        binding.run()
        results = binding.outputs()
        logits.append(results["logits"])
        pasts = {name.replace("present", "past_key_values"): results[name] for name in presents}
    return logits, pasts


def test_a_past_is_extended_where_it_is():
    decoder = Decoder(layers=2, heads=4, groups=2, size=8)
    session = tessera.Session(decoder.model(), "fsim", "npu64", max_length=12, check_races=True)
    logits, pasts = decode(session, decoder, 5, empty_past(decoder))
    early = pasts
    copies = {name: tensor.copy_to_host() for name, tensor in early.items()}
    more, pasts = decode(session, decoder, 3, early, 5)
    for name, tensor in pasts.items():
        assert tensor.shape == (1, 2, 8, 8) and early[name].shape == (1, 2, 5, 8)
        assert np.array_equal(tensor.copy_to_host()[:, :, :5], copies[name])
    # The same from arrays, and once more from the early past: the later one is gone.
    again, own = decode(session, decoder, 3, copies, 5)
    assert all(np.array_equal(a, b) for a, b in zip(more, again, strict=True))
    other, _ = decode(session, decoder, 1, early, 5)
    assert np.array_equal(other[0], more[0])
    with pytest.raises(tessera.Error, match="of length 8: a later run has written over what stands behind its first 5"):
        pasts["past_key_values.0.key"].copy_to_host()
    with pytest.raises(tessera.Error, match="start from a past of its own"):
        decode(session, decoder, 1, pasts, 8)
    assert own["past_key_values.1.value"].copy_to_host().shape == (1, 2, 8, 8)
