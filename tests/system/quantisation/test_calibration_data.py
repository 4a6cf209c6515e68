# SPDX-License-Identifier: Apache-2.0
"""Data to calibrate with: from arrays, files, folders, functions, pictures and random values, and one clear error for
each that does not fit."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tessera
from tessera.quantization import data as sources
from tessera.quantization import quantise
from tessera.quantization.data import Data
from tests.system import float_models
from tests.system.quantisation.checks import HAVE_PILLOW, pixels, refused


def test_data_from_arrays_files_and_functions(tmp_path):
    """The same samples give the same model, wherever they come from."""
    model = float_models.relu6()
    feeds = float_models.feeds_of(model, 6)
    stacked = np.concatenate([feed["x"] for feed in feeds])
    np.savez(tmp_path / "named.npz", x=stacked)
    np.savez_compressed(tmp_path / "other.npz", images=stacked.transpose(0, 2, 3, 1), labels=np.arange(6))
    np.savez(tmp_path / "columns.npz", x=np.asfortranarray(stacked))
    for k, feed in enumerate(feeds):
        onnx.save_tensor(numpy_helper.from_array(feed["x"]), str(tmp_path / f"sample_{k}.pb"))
    (tmp_path / "sets").mkdir()
    for k, feed in enumerate(feeds):
        folder = tmp_path / "sets" / f"test_data_set_{k}"
        folder.mkdir()
        onnx.save_tensor(numpy_helper.from_array(feed["x"]), str(folder / "input_0.pb"))
        onnx.save_tensor(numpy_helper.from_array(feed["x"]), str(folder / "output_0.pb"))
    sources = [
        feeds,
        [feed["x"][0] for feed in feeds],
        {"x": stacked},
        lambda: iter(feeds),
        iter(feeds),
        tmp_path / "named.npz",
        str(tmp_path / "other.npz"),
        tmp_path / "columns.npz",
        tmp_path / "sets",
    ]
    scales = set()
    for source in sources:
        made = tessera.quantize(model, source, engine="onnxruntime")
        scales.add(
            tuple(
                float(numpy_helper.to_array(t))
                for t in made.model.graph.initializer
                if t.dims == [] and "scale" in t.name
            )
        )
        assert not made.synthetic
    assert len(scales) == 1


@pytest.mark.skipif(not HAVE_PILLOW, reason="Pillow is not installed (requirements-quantize.txt)")
def test_data_from_pictures(tmp_path):
    from PIL import Image

    for k, picture in enumerate(pixels(4)):
        Image.fromarray(picture).resize((40, 24)).save(tmp_path / f"{k}.png")
    made = tessera.quantize(float_models.relu6(), tmp_path, engine="onnxruntime", preprocess="imagenet")
    assert made.macs_npu_share == 1.0
    (tmp_path / "own.toml").write_text('resize = "short"\nscale = 0.5\nmean = [1, 2, 3]\nstd = 2\nchannels = "BGR"\n')
    made = tessera.quantize(float_models.nhwc(), tmp_path, engine="onnxruntime", preprocess=str(tmp_path / "own.toml"))
    assert made.macs_npu_share == 1.0


def test_preprocessing_is_what_it_says():
    from tessera.quantization.data import Preprocess

    values = Preprocess(scale=0.5, mean=(1, 2, 3), std=(2, 2, 4), channels="BGR").values(np.uint8([[[10, 20, 30]]]))
    assert np.array_equal(values, [[[(15 - 1) / 2, (10 - 2) / 2, (5 - 3) / 4]]])


def test_a_long_data_set_is_read_piece_by_piece():
    """No more than a few samples are alive at a time."""
    alive, most = set(), 0
    model = float_models.relu6()

    class Sample(np.ndarray):
        def __del__(self):
            alive.discard(id(self))

    def samples():
        nonlocal most
        for feed in float_models.feeds_of(model, 100):
            sample = feed["x"].view(Sample)
            alive.add(id(sample))
            most = max(most, len(alive))
            yield {"x": sample}
            del sample

    tessera.quantize(model, samples, engine="onnxruntime")
    assert most <= 16


def test_random_truths_are_drawn():
    """A mask that is always true would leave what it hides without a range."""
    port = sources.Port("mask", [1, 64], np.dtype(bool))
    drawn = np.concatenate([feed["mask"] for feed in sources.from_random([port], 0, 8)])
    assert drawn.dtype == bool and 0.3 < drawn.mean() < 0.7


def test_random_values_are_few_where_tensors_are_large(monkeypatch):
    """More of them would say nothing more, and a network of many places takes seconds for each."""
    taken = []
    monkeypatch.setattr(quantise, "MADE_UP_ELEMENTS", 1)
    real = quantise.take
    monkeypatch.setattr(quantise, "take", lambda data, count: taken.append(len(made := real(data, count))) or made)
    tessera.quantize(float_models.MODELS["relu6"](), "random", engine="onnxruntime", samples=20)
    assert max(taken) <= quantise.MADE_UP_SAMPLES


def test_samples_behind_others():
    data = Data(lambda: iter(range(10)), "ten numbers", limit=8)
    assert list(data.behind(5)) == [5, 6, 7] and list(data.behind(9)) == []
    assert list(Data(lambda: iter(range(10)), "ten numbers").behind(8)) == [8, 9]


def test_data_that_is_not_finite(recwarn):
    """Without one finite number there is nothing to calibrate with; else a line names the input."""
    model = float_models.relu6()
    samples = np.concatenate([feed["x"] for feed in float_models.feeds_of(model, 3)])
    for value in (np.nan, -np.inf):
        refused("no sample has a finite number for input 'x'", model, {"x": np.full_like(samples, value)})
    refused("no sample has a finite number for input 'x'", model, {"x": np.full(samples.shape, 1e300)})
    samples[0, 0, 0, 0], samples[1] = np.inf, np.nan
    made = tessera.quantize(model, {"x": samples}, engine="onnxruntime")
    assert made.macs_npu_share == 1.0
    told = [str(one.message) for one in recwarn]
    assert "samples hold NaN or infinite values for input 'x'" in told
    assert not any(issubclass(one.category, RuntimeWarning) for one in recwarn), told


def test_data_that_does_not_fit(tmp_path):
    model = float_models.relu6()
    assert refused("no calibration data", model, None) == "invalid_argument"
    assert refused("cannot open the calibration data", model, tmp_path / "missing.npz") == "io"
    (tmp_path / "empty").mkdir()
    refused("holds no pictures", model, tmp_path / "empty")
    (tmp_path / "broken.npz").write_text("no archive")
    assert refused("no .npz file", model, tmp_path / "broken.npz") == "io"
    np.savez(tmp_path / "shape.npz", x=np.zeros((4, 3, 8, 8), np.float32))
    refused(r"shape \[3, 8, 8\].*input 'x' takes \[1,3,16,16\]", model, tmp_path / "shape.npz")
    np.savez(tmp_path / "names.npz", a=np.zeros((4, 3, 16, 16)), b=np.zeros((4, 3, 16, 16)))
    refused("no array for input 'x'", model, tmp_path / "names.npz")
    refused("no array for input 'z'", float_models.two_inputs(), [{"x": np.zeros((1, 3, 16, 16))}])
    refused("give dicts", float_models.two_inputs(), [np.zeros((1, 3, 16, 16))])
    refused("holds no sample", model, [])
    (tmp_path / "text.txt").write_text("1")
    refused("no calibration data", model, tmp_path / "text.txt")
    (tmp_path / "tensors").mkdir()
    (tmp_path / "tensors" / "a.pb").write_bytes(b"\xff\xff\xff")
    refused("no ONNX tensor", model, tmp_path / "tensors")


@pytest.mark.skipif(not HAVE_PILLOW, reason="Pillow is not installed (requirements-quantize.txt)")
def test_pictures_that_cannot_be_read(tmp_path):
    (tmp_path / "a.png").write_text("no picture")
    refused("no picture that can be read", float_models.relu6(), tmp_path)
    refused("takes no pictures", float_models.gemm(), tmp_path)
    refused("serves one input", float_models.two_inputs(), tmp_path)
    refused("cannot open 'nothing'", float_models.relu6(), tmp_path, preprocess="nothing")
    refused("cannot open 'nothing'", float_models.relu6(), "random", preprocess="nothing")
    (tmp_path / "p.toml").write_text("size = 3\n")
    refused("unknown key 'size'", float_models.relu6(), tmp_path, preprocess=str(tmp_path / "p.toml"))


def test_samples_that_the_model_does_not_take_are_named():
    w = onnx.numpy_helper.from_array(np.ones((8, 4), np.float32), "w")
    shape = onnx.numpy_helper.from_array(np.array([-1, 8]), "s")
    nodes = [onnx.helper.make_node("Reshape", ["x", "s"], ["y"]), onnx.helper.make_node("MatMul", ["y", "w"], ["z"])]
    ports = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n", "m"]) for n in "xz"]
    graph = onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:], [shape, w])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    one = np.ones((1, 1), np.float32)
    assert refused(r"sample 0 of the calibration data \(x \[1, 1\]\).*--shape", model, one, engine="onnxruntime")
    options = {"engine": "onnxruntime", "shapes": {"x": [1, 1]}}
    assert refused(r"sample 0 of the .*--shape", model, "random", **options) == "invalid_argument"
    with pytest.warns(UserWarning, match=r"sizes of dynamic dimensions were chosen.*x=1,\d+; --shape"):
        made = tessera.quantize(model, "random", engine="onnxruntime")
    assert made.macs_npu_share == 1
