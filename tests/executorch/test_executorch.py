# SPDX-License-Identifier: Apache-2.0
"""The back end of ExecuTorch: programs are lowered, loaded by the runtime of the wheel, in Python and by a program in
C++, and run. Results are those of the ONNX file that the delegate was made of, in every element, and near PyTorch's."""

import json
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (requirements-executorch.txt)")
pytest.importorskip("executorch.exir", reason="executorch is not installed (requirements-executorch.txt)")
pytest.importorskip("torchao", reason="torchao is not installed (requirements-executorch.txt)")

import onnxruntime  # noqa: E402
from executorch.exir import to_edge_transform_and_lower  # noqa: E402
from executorch.exir.backend.utils import get_delegates, get_non_lowered_nodes  # noqa: E402
from torch import nn  # noqa: E402

import tessera  # noqa: E402
from tessera.executorch import TesseraPartitioner, load_backend, set_option  # noqa: E402
from tessera.pt2e import TesseraQuantizer, to_onnx  # noqa: E402
from tests.executorch.conftest import BUILD  # noqa: E402
from tests.pt2e.networks import Residual, quantised  # noqa: E402

RUNNER = BUILD / "bin" / "tessera_executorch_runner"
pytestmark = [
    pytest.mark.skipif(
        not (BUILD / "lib" / "libtessera_executorch.so").exists(),
        reason="a build without the target tessera_executorch",
    ),
    pytest.mark.filterwarnings("ignore"),
]


def lowered(model, inputs, dynamic_shapes=None, **options):
    """The program in ExecuTorch's format, how many delegates it has, and the operators beside them."""
    with torch.no_grad():
        exported = torch.export.export(model, inputs, dynamic_shapes=dynamic_shapes)
        edge = to_edge_transform_and_lower(exported, partitioner=[TesseraPartitioner(**options)])
    graph = edge.exported_program().graph_module.graph
    rest = [str(node.target).split(":")[-1] for node in get_non_lowered_nodes(graph)]
    return edge.to_executorch().buffer, len(get_delegates(graph)), rest


def run(buffer, *inputs, method="forward"):
    from executorch.runtime import Runtime

    load_backend()
    return Runtime.get().load_program(bytes(buffer)).load_method(method).execute(list(inputs))


class Sum(nn.Module):
    def forward(self, a, b):
        return a + b


def test_sum():
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    buffer, delegates, rest = lowered(Sum(), (a, b))
    assert (delegates, rest) == (1, [])
    assert torch.equal(run(buffer, a, b)[0], a + b)


@pytest.fixture(scope="module")
def residual():
    converted, x = quantised(Residual, TesseraQuantizer())
    return converted, x, lowered(converted, (x,), config="npu64")


def test_quantised(residual, tmp_path):
    """One delegate, all products on the NPU, equal to ONNX Runtime in every element; statistics of its run."""
    converted, x, (buffer, delegates, rest) = residual
    assert (delegates, rest) == (1, [])
    set_option("statistics", tmp_path / "stats.jsonl")
    try:
        got = run(buffer, x)[0].numpy()
    finally:
        set_option("statistics", None)
    data = to_onnx(converted, (x,)).SerializeToString()
    session = onnxruntime.InferenceSession(data)
    assert np.array_equal(got, session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])
    stats = json.loads((tmp_path / "stats.jsonl").read_text())
    assert stats["macs"] > 0 and stats["macs_cpu"] == 0


def test_another_device(residual):
    """The process says where the program runs: the timing model, with the same bits."""
    _, x, (buffer, _, _) = residual
    expected = run(buffer, x)[0]
    set_option("device", "sysc")
    try:
        assert torch.equal(run(buffer, x)[0], expected)
    finally:
        set_option("device", None)


def test_a_device_that_is_not_there(residual, capfd):
    _, x, (buffer, _, _) = residual
    set_option("device", "abacus")
    try:
        with pytest.raises(RuntimeError):
            run(buffer, x)
    finally:
        set_option("device", None)
    assert "tessera: method 'forward': " in capfd.readouterr().err


def test_without_python(residual, tmp_path):
    """A program in C++ that links libexecutorch.so."""
    _, x, (buffer, _, _) = residual
    (tmp_path / "model.pte").write_bytes(bytes(buffer))
    x.numpy().tofile(tmp_path / "x.bin")
    output = tmp_path / "y"
    command = [RUNNER, tmp_path / "model.pte", "--output", output, tmp_path / "x.bin"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "output 0: Float [2,10]\n"
    assert np.array_equal(np.fromfile(f"{output}0", np.float32).reshape(2, 10), run(buffer, x)[0].numpy())
    refused = subprocess.run(command[:-1], capture_output=True, text=True, timeout=120)
    assert refused.returncode == 1 and "takes 1 inputs, 0 are given" in refused.stderr


class Mixed(nn.Module):
    """An operator in the middle that ONNX does not have, a constant that is also a result, and whole numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)
        self.register_buffer("held", torch.arange(6.0))

    def forward(self, x):
        y = torch.relu(self.first(x))
        return self.second(y - torch.cdist(y, y)) + self.held.mean(), self.held, y.argmax(1)


def test_mixed(caplog):
    """Two delegates around an operator that ExecuTorch runs, and one line that says so."""
    model, x = Mixed().eval(), torch.randn(1, 3, 8, 8)
    buffer, delegates, rest = lowered(model, (x,))
    assert delegates == 2 and any("cdist" in name for name in rest)
    lines = [record.getMessage() for record in caplog.records if record.name == "tessera.executorch"]
    assert len(lines) == 1 and "1 of 8 operators stay with ExecuTorch" in lines[0] and "_cdist_forward" in lines[0]
    for got, expected in zip(run(buffer, x), model(x)):
        assert got.dtype == expected.dtype and torch.allclose(got, expected, atol=1e-5)


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        return torch.relu(self.linear(x)).reshape(x.shape[0] * 2, 2)


def test_dynamic_shapes():
    model = Rows()
    rows = torch.export.Dim("rows", max=16)
    buffer, delegates, rest = lowered(model, (torch.randn(3, 8),), ({0: rows},))
    assert (delegates, rest) == (1, [])
    for count in (1, 3, 16):
        x = torch.randn(count, 8)
        got = run(buffer, x)[0]
        assert got.shape == (2 * count, 2) and torch.allclose(got, model(x), atol=1e-6)


def test_several_methods_and_channels_last():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval().to(memory_format=torch.channels_last)
    inputs = {"one": torch.randn(1, 3, 6, 6), "many": torch.randn(4, 3, 6, 6)}
    inputs = {name: x.to(memory_format=torch.channels_last) for name, x in inputs.items()}
    with torch.no_grad():
        programs = {name: torch.export.export(model, (x,)) for name, x in inputs.items()}
        edge = to_edge_transform_and_lower(programs, partitioner=[TesseraPartitioner()])
        buffer = edge.to_executorch().buffer
        for name, x in inputs.items():
            assert torch.allclose(run(buffer, x, method=name)[0], model(x), atol=1e-5)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 2


def test_state():
    """A buffer that the program writes stays with ExecuTorch, from run to run."""
    from executorch.runtime import Runtime

    load_backend()
    buffer, delegates, _ = lowered(Counter(), (torch.ones(4),))
    assert delegates == 1
    method = Runtime.get().load_program(bytes(buffer)).load_method("forward")
    assert [method.execute([torch.ones(4)])[0].tolist() for _ in range(2)] == [[2.0] * 4, [4.0] * 4]


def test_refused_options():
    with pytest.raises(tessera.Error, match="nowhere"):
        TesseraPartitioner(config="nowhere")
    with pytest.raises(tessera.Error, match="unknown device 'nowhere'"):
        TesseraPartitioner(device="nowhere")
    for device in ("fsim", "sysc"):
        with pytest.raises(tessera.Error, match=f"device {device} has no option 'confg'"):
            TesseraPartitioner(device=device, confg="npu256")
    TesseraPartitioner(device="sysc", latency=200, statistics="stats.jsonl", numerics="close")
    TesseraPartitioner(device="xrt:0", timeout=5)
