# SPDX-License-Identifier: Apache-2.0
"""Networks that Brevitas itself exports, as QONNX and as QCDQ: their products run on the NPU, and the results are those
of the network as it was trained but for single sums near a tie."""

import numpy as np
import onnx
import onnxruntime
import pytest

import tessera
from tessera.pt2e import spell

torch = pytest.importorskip("torch", reason="PyTorch is not installed (requirements-executorch.txt)")
layers = pytest.importorskip("brevitas.nn", reason="Brevitas is not installed (requirements-executorch.txt)")
pytest.importorskip("onnxoptimizer", reason="onnxoptimizer is not installed (requirements-executorch.txt)")
pytestmark = pytest.mark.filterwarnings("ignore")


class Network(torch.nn.Module):
    def __init__(self, bits, weights, norm=True, bias=None):
        super().__init__()
        from brevitas import quant

        same = {"weight_bit_width": bits, "weight_quant": getattr(quant, weights)}
        if bias:
            same["bias_quant"] = getattr(quant, bias)
        quantised = {"bit_width": bits, "return_quant_tensor": True}
        self.first = layers.QuantIdentity(bit_width=8, return_quant_tensor=True)
        self.conv = layers.QuantConv2d(3, 8, 3, padding=1, bias=not norm, **same)
        self.norm = torch.nn.BatchNorm2d(8) if norm else torch.nn.Identity()
        self.relu = layers.QuantReLU(**quantised)
        self.depthwise = layers.QuantConv2d(8, 8, 3, padding=1, groups=8, bias=True, **same)
        self.identity = layers.QuantIdentity(**quantised)
        self.add = layers.QuantEltwiseAdd(
            output_quant=quant.Int8ActPerTensorFloat, output_bit_width=bits, return_quant_tensor=True
        )
        self.pool = torch.nn.MaxPool2d(2)
        self.second = layers.QuantConv2d(8, 16, 3, stride=2, bias=True, **same)
        self.relu2 = layers.QuantReLU(**quantised)
        self.last = layers.QuantLinear(16 * 9, 10, bias=True, **same)

    def forward(self, x):
        x = self.relu(self.norm(self.conv(self.first(x))))
        x = self.pool(self.add(self.identity(x), self.identity(self.depthwise(x))))
        return self.last(self.relu2(self.second(x)).flatten(1))


def exported(network, path, form):
    """The file, an input, and what the trained network answers."""
    from brevitas import export

    with torch.no_grad():
        for _ in range(3):
            network.train()(torch.randn(4, 3, 16, 16))
        x = torch.randn(1, 3, 16, 16)
        result = network.eval()(x)
        write = {"qonnx": export.export_qonnx, "qcdq": export.export_onnx_qcdq}[form]
        write(network, args=x, export_path=str(path), opset_version=13, dynamo=False)
    return onnx.load(path), x.numpy(), getattr(result, "value", result).numpy()


CASES = [(bits, "Int8WeightPerChannelFloat", True, None) for bits in (2, 4, 8)] + [
    (4, "Int8WeightPerTensorFloat", False, None),
    (8, "ShiftedUint8WeightPerTensorFloat", False, None),
    (8, "Int8WeightPerTensorFixedPoint", False, "Int16Bias"),
]


@pytest.mark.parametrize("form", ["qonnx", "qcdq"])
@pytest.mark.parametrize(("bits", "weights", "norm", "bias"), CASES)
def test_brevitas(bits, weights, norm, bias, form, tmp_path):
    torch.manual_seed(1)
    model, x, trained = exported(Network(bits, weights, norm, bias), tmp_path / "model.onnx", form)
    data = (spell(model) if form == "qcdq" else model).SerializeToString()
    feeds = {model.graph.input[0].name: x}
    session = tessera.Session(data)
    got = session.run(None, feeds)[0]
    if form == "qcdq":
        expected = onnxruntime.InferenceSession(data).run(None, feeds)[0]
    else:
        expected = tessera.Session(data, "reference").run(None, feeds)[0]
    assert np.array_equal(got, expected)
    assert session.info().macs_npu_share == 1.0
    # One step of two bits moves an output by much, so only finer widths say something of the whole.
    if bits > 2:
        assert np.abs(got - trained).max() < 0.05 * np.abs(trained).max()
