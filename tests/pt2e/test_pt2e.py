# SPDX-License-Identifier: Apache-2.0
"""Models of torchao's PT2E flow: what `to_onnx` writes gives ONNX Runtime's results in every element, its products run
on the NPU, its weights are the integers of the converted model, and it means what PyTorch computes."""

import os

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

torch = pytest.importorskip("torch", reason="PyTorch is not installed (requirements-executorch.txt)")
pytest.importorskip("torchao", reason="torchao is not installed (requirements-executorch.txt)")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (requirements-executorch.txt)")
pytestmark = pytest.mark.filterwarnings("ignore")

import onnxruntime  # noqa: E402

import tessera  # noqa: E402
from tessera.pt2e import TesseraQuantizer, to_onnx  # noqa: E402
from tests.pt2e.networks import Attention, Residual, quantised  # noqa: E402


def run(model, x, config="npu256"):
    """Results of ONNX Runtime and of Tessera, and what the compiler says."""
    data = model.SerializeToString()
    feeds = {model.graph.input[0].name: x.numpy()}
    session = tessera.Session(data, config=config)
    return onnxruntime.InferenceSession(data).run(None, feeds)[0], session.run(None, feeds)[0], session.info()


def check(converted, x, steps, share=1.0, config="npu256"):
    model = to_onnx(converted, (x,))
    onnx.checker.check_model(model)
    expected, got, info = run(model, x, config)
    assert np.array_equal(got, expected)
    assert info.macs_npu_share == share
    trained = converted(x).detach().numpy()
    scale = np.abs(trained).max()
    assert np.abs(got - trained).max() <= steps * scale
    return model


LONG = bool(os.environ.get("TESSERA_LONG"))
CASES = [(Residual, False), (Attention, False), (Attention, True), *[(Residual, True)] * LONG]


@pytest.mark.parametrize(("kind", "qat"), CASES)
def test_equal_to_onnx_runtime(kind, qat):
    """Training with normalisation takes torchao half a minute to prepare: `--long`."""
    check(*quantised(kind, TesseraQuantizer(qat=qat), qat), steps=0.02)


def test_integers_as_trained():
    """The weights of the file are those of the converted module, in int8 and with its scales."""
    converted, x = quantised(Residual, TesseraQuantizer())
    model = to_onnx(converted, (x,))
    held = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    weights = [value.numpy() for name, value in converted.named_buffers() if name.startswith("_frozen_param")]
    assert len(weights) == 4
    for value in weights:
        assert any(np.array_equal(value, array) and array.dtype == np.int8 for array in held)


def test_fewer_bits():
    """Weights of four bits keep their values and become larger integers of a smaller scale beside a bias."""
    converted, x = quantised(Residual, TesseraQuantizer(weight_bits=4))
    check(converted, x, steps=0.02)


@pytest.mark.parametrize("kind", [Residual, Attention])
def test_sixteen_bits(kind):
    """Products of 16-bit activations are two integer products of bytes, on the NPU; the rest is float arithmetic of
    elements, which is equal too, but for averages, softmax and products of two activations."""
    converted, x = quantised(kind, TesseraQuantizer(activation_bits=16))
    model = to_onnx(converted, (x,))
    expected, got, info = run(model, x)
    assert np.allclose(got, expected, atol=1e-3 * np.abs(expected).max())
    assert info.macs_npu_share == 1.0 if kind is Residual else info.macs_npu_share > 0.7
    trained = converted(x).detach().numpy()
    assert np.abs(got - trained).max() <= 1e-3 * np.abs(trained).max()


def test_quantizer_of_xnnpack():
    """Parameters shared with sums put zero inside of the range: convolution and ReLU part without changing integers."""
    module = pytest.importorskip(
        "executorch.backends.xnnpack.quantizer.xnnpack_quantizer",
        reason="executorch is not installed (requirements-executorch.txt)",
    )
    config = module.get_symmetric_quantization_config(is_per_channel=True)
    check(*quantised(Residual, module.XNNPACKQuantizer().set_global(config)), steps=0.02)


def test_dynamic_quantisation():
    """Linear layers whose activations each run quantises: DynamicQuantizeLinear and MatMulInteger on the NPU."""
    module = pytest.importorskip(
        "executorch.backends.xnnpack.quantizer.xnnpack_quantizer",
        reason="executorch is not installed (requirements-executorch.txt)",
    )
    config = module.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    converted, x = quantised(Attention, module.XNNPACKQuantizer().set_global(config))
    model = to_onnx(converted, (x,))
    assert sum(node.op_type == "MatMulInteger" for node in model.graph.node) == 5
    expected, got, info = run(model, x)
    assert np.allclose(got, expected, atol=1e-3 * np.abs(expected).max())
    assert info.macs_npu_share > 0.7
    assert np.allclose(got, converted(x).detach().numpy(), atol=1e-3 * np.abs(expected).max())


def test_softmax_on_row_lanes():
    converted, x = quantised(Attention, TesseraQuantizer(rows=True))
    check(converted, x, steps=0.03, config="npu256t")


def test_layers_that_stay_float():
    converted, x = quantised(Residual, TesseraQuantizer(keep_float=("second",)))
    model = to_onnx(converted, (x,))
    expected, got, info = run(model, x)
    assert np.allclose(got, expected, atol=1e-4)
    assert 0.5 < info.macs_npu_share < 1


def test_operators_that_the_exporter_takes_for_others():
    class Network(torch.nn.Module):
        def forward(self, x, index, mask):
            pooled = torch.nn.functional.avg_pool2d(x, 2, divisor_override=3)
            spread = x[0, 0].scatter_reduce(0, index, x[0, 1], "mean")
            return pooled, spread, torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    x, index = torch.randn(1, 3, 4, 4), torch.tensor([[0, 1, 2, 0]])
    given = (x, index, torch.tensor([[True] * 4, [False] * 4, [True, False] * 2, [True] * 4]))
    model = to_onnx(Network(), given)
    feeds = {port.name: value.numpy() for port, value in zip(model.graph.input, given)}
    got = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for ours, theirs in zip(got, Network()(*given), strict=True):
        assert np.allclose(ours, theirs.numpy(), atol=1e-6)


def test_refusals():
    with pytest.raises(tessera.Error, match="activation_bits is 8 or 16, got 4"):
        TesseraQuantizer(activation_bits=4)
    with pytest.raises(tessera.Error, match="needs example_inputs"):
        to_onnx(torch.nn.ReLU())

    class Distance(torch.nn.Module):
        def forward(self, x):
            return torch.cdist(x, x)

    with pytest.raises(tessera.Error, match="'aten._cdist_forward' has no translation"):
        to_onnx(Distance(), (torch.randn(3, 4),))
