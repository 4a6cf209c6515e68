# SPDX-License-Identifier: Apache-2.0
"""tessera.torch: results of compiled modules beside those of the modules in PyTorch, and quantised ones beside ONNX
Runtime on the file that save() writes."""

import copy
import os
import pathlib
import re
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest

from tests.oracle import oracle
from tests.system.conftest import BUILD, ROOT

torch = pytest.importorskip("torch", reason="PyTorch is not installed (./dev setup --extras torch)")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (./dev setup --extras torch)")

import tessera  # noqa: E402
import tessera.torch  # noqa: E402

PAGE = ROOT / "docs" / "torch.md"
QUICK = {"engine": "onnxruntime"}


@pytest.fixture(autouse=True)
def _settled():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    torch._dynamo.reset()


class Network(torch.nn.Module):
    """A convolution with its normalisation, and a product; containers of every kind come out."""

    def __init__(self):
        super().__init__()
        self.convolution, self.normal = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)
        self.dropout, self.linear = torch.nn.Dropout(0.5), torch.nn.Linear(8, 4)

    def forward(self, image, scale=None, *, pair=True):
        found = torch.relu(self.normal(self.convolution(image)))
        scores = self.linear(self.dropout(found.mean((2, 3))))
        scores = scores if scale is None else scores * scale["by"]
        return {"scores": scores, "more": (found, None, 3)} if pair else scores


def close(ours, theirs, tolerance=1e-5):
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    assert torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def blocks(page):
    """The indented blocks of a page that import torch."""
    found = re.findall(r"(?:^    .*\n)+", page.read_text(encoding="utf-8"), re.M)
    return [re.sub(r"^    ", "", block, flags=re.M) for block in found if block.startswith("    import torch")]


# --- tessera.torch.compile --------------------------------------------------------------------------------------------


def test_the_page_says_what_works(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    five, by_backend = blocks(PAGE)
    assert len(five.splitlines()) == 5
    names = {}
    exec(five, names)
    assert names["compiled"].stats().macs_cpu == 0
    assert int(capsys.readouterr().out.split()[-1]) == names["compiled"].stats().cycles > 1000
    block = re.search(r"(?:^    compiled\..*\n)+", PAGE.read_text(), re.M).group()
    exec(re.sub("^    ", "", block, flags=re.M), names)
    assert (tmp_path / "report.html").stat().st_size > 10_000
    session = tessera.Session(str(tmp_path / "model.tsr"), "fsim")
    image = names["images"][:1]
    (loaded,) = session.run(None, {session.get_inputs()[0].name: image.numpy()})
    assert np.array_equal(loaded, names["compiled"](image).numpy())
    exec(by_backend, names)
    assert names["scores"].shape == (1, 4)


def test_arguments_and_results_have_the_module_s_containers():
    module = Network()
    image, scale = torch.randn(2, 3, 8, 8), {"by": torch.tensor(2.0)}
    compiled = tessera.torch.compile(module, (image, scale))
    assert module.training and not compiled.training
    module.eval()
    with torch.no_grad():
        theirs = module(image, scale)
        for ours in (compiled(image, scale), compiled(image=image, scale=scale), compiled(image, scale=scale)):
            close(ours["scores"], theirs["scores"])
            close(ours["more"][0], theirs["more"][0])
            assert ours["more"][1:] == (None, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.uint8, torch.bool])
def test_element_types(dtype):
    class Move(torch.nn.Module):
        def forward(self, x):
            return x.flip(0), torch.where(x > 0, x, x[:1])

    value = (torch.arange(12).reshape(3, 4) % 5).to(dtype)
    for ours, theirs in zip(tessera.torch.compile(Move(), value)(value), Move()(value), strict=True):
        assert ours.dtype == dtype and torch.equal(ours, theirs)


def test_dynamic_shapes_as_the_exporter_gives_them():
    module, batch = Network().eval(), torch.export.Dim("batch", max=64)
    shapes = {
        "image": {0: batch, 2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},
        "scale": None,
        "pair": None,
    }
    compiled = tessera.torch.compile(
        module, {"image": torch.randn(2, 3, 8, 9), "scale": None, "pair": False}, dynamic_shapes=shapes
    )
    for size in ((1, 3, 6, 6), (5, 3, 7, 12)):
        image = torch.randn(size)
        with torch.no_grad():
            close(compiled(image, pair=False), module(image, pair=False))


def test_quantised_results_equal_onnx_runtime_s(tmp_path):
    module, images = Network().eval(), torch.rand(12, 3, 8, 8)
    compiled = tessera.torch.compile(
        module, {"image": images[:1], "pair": False}, calibrate=[{"image": images}], config="npu64", quantization=QUICK
    )
    ours = compiled(images[3:4], pair=False)
    assert compiled.quantised.macs_npu_share == 1 and compiled.stats().predicted_cycles > 0
    compiled.save(tmp_path / "int8.onnx")
    model = onnx.load(tmp_path / "int8.onnx")
    theirs = oracle.run(model, {"image": images[3:4].numpy()}, intermediates=False).outputs.values()
    assert np.array_equal(ours.numpy(), next(iter(theirs)))
    assert (ours - module(images[3:4], pair=False)).abs().max() < 0.1


def test_a_float_model_is_saved_with_its_weights(tmp_path):
    module, image = Network().eval(), torch.rand(1, 3, 8, 8)
    compiled = tessera.torch.compile(module, (image,))
    compiled.save(tmp_path / "float.onnx")
    outputs = oracle.run_plain(onnx.load(tmp_path / "float.onnx"), {"image": image.numpy()})
    close(torch.from_numpy(next(iter(outputs.values()))), module(image)["scores"].detach())


class Branches(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x - 1


def test_branches_on_values_are_exported_as_the_examples_take_them_and_told():
    with pytest.warns(UserWarning, match=r"branches on values \(.*\); the branches that the examples take"):
        compiled = tessera.torch.compile(Branches(), torch.ones(3))
    assert torch.equal(compiled(torch.full((3,), 2.0)), torch.full((3,), 4.0))


def test_a_number_minus_a_tensor_of_integers():
    class Mask(torch.nn.Module):
        def forward(self, mask):
            return (1.0 - mask) * -10, 3 - mask, torch.rsub(mask, 2.5, alpha=2)

    mask = torch.tensor([[0, 1, 1]], dtype=torch.uint8)
    for ours, theirs in zip(tessera.torch.compile(Mask(), mask)(mask), Mask()(mask), strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def test_an_exported_program_and_the_weights_of_its_module():
    module, image = torch.nn.Conv2d(3, 64, 3).eval(), torch.rand(1, 3, 8, 8)
    compiled = tessera.torch.compile(torch.export.export(module, (image,)), None, device="reference")
    _, arrays = compiled._program.exported.model()
    assert any(np.shares_memory(array, module.weight.detach().numpy()) for array in arrays.values())
    close(compiled(image), module(image).detach())


def test_weights_in_another_order_of_elements():
    module, image = torch.nn.Conv2d(16, 32, 3).eval().to(memory_format=torch.channels_last), torch.rand(1, 16, 8, 8)
    linear = torch.nn.Linear(32, 32)
    linear.weight = torch.nn.Parameter(torch.rand(32, 32).t())
    module = torch.nn.Sequential(module, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), linear)
    image = image.to(memory_format=torch.channels_last)
    close(tessera.torch.compile(module, (image,))(image), module(image).detach())


class Remembers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen.add_(x.sum())
        return x + self.seen


class InPlace(torch.nn.Module):
    def forward(self, x):
        x.mul_(2)
        return x + 1


class Decomposes(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.svd(x * 2)[1]


REFUSED = {
    "another shape": (
        lambda compiled, x: compiled(torch.rand(2, 3, 8, 8)),
        r"'image' .* shape \[2, 3, 8, 8\].*dynamic",
    ),
    "another type": (lambda compiled, x: compiled(x.double()), "'image' .* is given a tensor of float64"),
    "a number": (lambda compiled, x: compiled(1), "'image' .* is a tensor; the call gives int"),
    "another constant": (lambda compiled, x: compiled(x, pair=True), "constant False .* gives True"),
    "another argument": (lambda compiled, x: compiled(x, x), "other arguments than the examples"),
    "too many": (lambda compiled, x: compiled(x, x, x), "does not fit the module's forward"),
    "a file of another kind": (lambda compiled, x: compiled.save("x.bin"), r"ends in \.onnx .* or \.tsr"),
    "training": (lambda compiled, x: compiled.train(), "is not trained"),
    "a gradient": (lambda compiled, x: compiled(x.requires_grad_(), pair=False).sum().backward(), "no gradients"),
}


@pytest.fixture(scope="module")
def plain():
    return tessera.torch.compile(Network(), {"image": torch.rand(1, 3, 8, 8), "pair": False})


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_compiled_module_refuses(plain, what):
    call, pattern = REFUSED[what]
    with pytest.raises(tessera.Error, match=pattern) as raised:
        call(plain, torch.rand(1, 3, 8, 8))
    assert "\n" not in str(raised.value)


def compile_with(module, x, **options):
    return lambda: tessera.torch.compile(module, (x,), **options)


UNFIT = {
    "a buffer that changes": (compile_with(Remembers(), torch.rand(3)), "buffer 'seen'"),
    "an argument that changes": (compile_with(InPlace(), torch.rand(3)), "argument 'x' in place"),
    "an operator that ONNX lacks": (compile_with(Decomposes(), torch.rand(3, 3)), "svd.*No ONNX function.*backend="),
    "no module": (compile_with(print, torch.rand(3)), "takes a torch.nn.Module"),
    "labels": (
        compile_with(torch.nn.Linear(3, 3), torch.rand(1, 3), calibrate=[(torch.rand(1, 3), 7)]),
        "sample 0 .*image for image, label",
    ),
    "another option": (
        compile_with(torch.nn.Linear(3, 3), torch.rand(1, 3), calibrate="random", quantization={"bogus": 1}),
        "no option 'bogus'; its options are engine",
    ),
    "an input of another size": (compile_with(torch.nn.Linear(3, 3), torch.rand(1, 4)), "same reduction dim"),
    "a copy": (lambda: copy.deepcopy(tessera.torch.compile(torch.nn.Linear(3, 3), torch.rand(1, 3))), r"save\('model"),
    "a tensor to calibrate": (
        compile_with(torch.nn.Linear(3, 3), torch.rand(1, 3), calibrate=torch.rand(4, 3)), "an iterable of example"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", UNFIT)
def test_what_cannot_be_compiled_is_one_line(what):
    call, pattern = UNFIT[what]
    with pytest.raises(tessera.Error, match=pattern) as raised:
        call()
    assert "\n" not in str(raised.value)


# --- torch.compile ----------------------------------------------------------------------------------------------------


def alike(module, *calls, **options):
    """Calls a compiled module and a copy of it in PyTorch with the same arguments; both may change them."""
    twin = copy.deepcopy(module)
    compiled = torch.compile(module, backend="tessera", **options)
    with torch.no_grad():
        for arguments in calls:
            given = copy.deepcopy(arguments)
            ours, theirs = compiled(*arguments), twin(*given)
            for a, b in zip(
                *(torch.utils._pytree.tree_leaves((v, w)) for v, w in ((ours, arguments), (theirs, given)))
            ):
                close(a, b) if isinstance(a, torch.Tensor) else exec("assert a == b", {"a": a, "b": b})
    for a, b in zip(module.buffers(), twin.buffers(), strict=True):
        close(a, b)


def test_the_back_end_is_known():
    assert "tessera" in torch._dynamo.list_backends()
    import tomllib

    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points["torch_dynamo_backends"] == {"tessera": "tessera.torch:backend"}


def test_pieces_around_what_pytorch_does_not_follow(capsys):
    class Broken(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x, factor):
            found = torch.relu(self.first(x))
            print("seen")
            self.calls.add_(1)
            x.mul_(2)
            return {"result": self.second(found) * factor + self.calls, "factor": factor}

    alike(Broken().eval(), *((torch.randn(3, 4), 2), (torch.randn(3, 4), 2), (torch.randn(5, 4), 2)))
    assert capsys.readouterr().err == ""


def test_sizes_that_change(capsys):
    class Sizes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.dropout = torch.nn.Linear(4, 4), torch.nn.Dropout(0.1)

        def forward(self, x, y):
            return self.dropout(self.linear(x)).reshape(x.shape[0] * x.shape[1], -1) + y.shape[0], x.shape[0] * 2

    calls = [(torch.randn(n, n + 1, 4), torch.randn(n + 2)) for n in (3, 5, 7)]
    alike(Sizes().eval(), *calls, dynamic=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("module, pattern", [(Decomposes(), "svd.*No ONNX function"), (torch.nn.Dropout(), "random")])
def test_what_cannot_be_exported_runs_in_pytorch_and_says_so(module, pattern, capsys):
    x = torch.rand(3, 3)
    compiled = torch.compile(module, backend="tessera")
    for _ in range(2):
        torch.manual_seed(1)
        ours = compiled(x)
        torch.manual_seed(1)
        assert torch.equal(ours, module(x))
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(f"tessera: the graph of .* runs in PyTorch: node '.*{pattern}", line)


def test_changed_weights_are_taken():
    module, x = torch.nn.Linear(64, 64).eval(), torch.rand(1, 64)
    compiled = torch.compile(module, backend="tessera")
    with torch.no_grad():
        close(compiled(x), module(x))
        module.weight.mul_(3)
        close(compiled(x), module(x))
    result = compiled(x)
    assert result.requires_grad
    with pytest.raises(tessera.Error, match="computes no gradients"):
        result.sum().backward()


def test_normalisation_that_learns(capsys):
    class Learns(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution, self.normal = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("spread", torch.ones(4))

        def forward(self, x):
            found = self.normal(self.convolution(x))
            return torch.nn.functional.batch_norm(found * 2, self.mean, self.spread, training=True)

    alike(Learns().train(), *((torch.randn(2, 3, 6, 6),) for _ in range(2)))
    assert capsys.readouterr().err == ""
    with pytest.raises(tessera.Error, match="changes its buffer"):
        tessera.torch.compile(Learns(), torch.randn(2, 3, 6, 6))


def test_calls_of_many_threads():
    module, wrong = torch.nn.Linear(4, 5).eval(), []
    fixed = tessera.torch.compile(module, torch.randn(3, 4))
    compiled = torch.compile(module, backend="tessera", dynamic=True)
    with torch.no_grad():
        close(compiled(torch.ones(3, 4)), module(torch.ones(3, 4)))

    def work(number):
        try:
            for size in range(1, 6):
                x = torch.randn((number + size) % 4 + 2, 4)
                with torch.no_grad():
                    close(compiled(x), module(x))
                    close(fixed(x[:1].expand(3, 4)), module(x[:1].expand(3, 4)))
        except Exception as e:
            wrong.append(e)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for step in (threading.Thread.start, threading.Thread.join):
        for thread in threads:
            step(thread)
    assert not wrong


def test_the_first_calls_calibrate():
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3)).eval()
    options = {"calibrate": 2, "config": "npu64", "quantization": QUICK}
    compiled, image = torch.compile(module, backend="tessera", options=options), torch.rand(1, 3, 10, 10)
    with torch.no_grad():
        results, theirs = [compiled(image) for _ in range(4)], module(image)
    assert torch.equal(results[0], theirs) and torch.equal(results[1], theirs)
    assert torch.equal(results[2], results[3]) and 0 < (results[2] - theirs).abs().max() < 0.05


def test_without_pytorch_the_way_out_is_told():
    program = "import sys; sys.modules['torch'] = None; import tessera; import tessera.torch"
    paths = os.pathsep.join(str(path) for path in (ROOT / "tessera" / "python", pathlib.Path(BUILD) / "lib"))
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.returncode == 1 and "./dev setup --extras torch" in done.stderr.splitlines()[-1]
