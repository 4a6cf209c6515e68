# SPDX-License-Identifier: Apache-2.0
"""Operators that PyTorch's exporter refuses or takes for others, against PyTorch itself."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (./dev setup --extras torch)")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (./dev setup --extras torch)")

from torch.nn import functional  # noqa: E402

import tessera.torch  # noqa: E402


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *arguments):
        return self.function(*arguments)


def check(function, *arguments, tolerance=1e-5):
    """The compiled function gives PyTorch's results: types, shapes and values, with elements that are no numbers."""
    module = Function(function)
    leaves = torch.utils._pytree.tree_leaves
    with torch.no_grad():
        theirs = leaves(module(*arguments))
    for ours, wanted in zip(leaves(tessera.torch.compile(module, arguments)(*arguments)), theirs, strict=True):
        assert type(ours) is type(wanted)
        if isinstance(wanted, torch.Tensor):
            assert (ours.dtype, ours.shape) == (wanted.dtype, wanted.shape)
            assert torch.allclose(ours.double(), wanted.double(), tolerance, tolerance, equal_nan=True)
        else:
            assert ours == pytest.approx(wanted)


@pytest.fixture(autouse=True)
def _settled():
    torch.manual_seed(5)
    torch.set_num_threads(1)


def with_a_nan(*shape):
    x = torch.randn(shape)
    x.flatten()[9] = float("nan")
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_means_of_what_is_scattered(dtype):
    def means(x, index, src):
        given = (0, index, src, "mean")
        return (
            x.scatter_reduce(*given),
            x.scatter_reduce(*given, include_self=False),
            x.scatter_reduce(0, index, src, "sum"),
        )

    index = torch.tensor([[0, 1, 2, 0, 0], [2, 0, 0, 1, 2]])
    check(means, (torch.randn(3, 5) * 9).to(dtype), index, (torch.randn(2, 5) * 9).to(dtype))


def test_an_index_that_leaves_out_elements():
    def scattered(x, index, src):
        given = (0, index, src)
        kinds = [x.scatter_reduce(*given, name) for name in ("mean", "sum", "amax")]
        return x.scatter(*given), x.scatter_add(*given), kinds

    check(scattered, torch.randn(3, 5), torch.tensor([[0, 1, 2], [2, 0, 0]]), torch.randn(4, 4))


def test_index_reduce():
    def reduced(x, index, src):
        kinds = [(name, own) for name in ("mean", "amax", "amin", "prod") for own in (True, False)]
        return [x.index_reduce(1, index, src, name, include_self=own) for name, own in kinds]

    check(reduced, torch.randn(3, 5), torch.tensor([1, 1, 4]), torch.randn(3, 3))


def test_what_has_come_so_far():
    def so_far(x, broken, whole):
        return (
            (x.cummax(1), x.cummin(0), broken.cummax(1).values, whole.cummax(0), x[0, 0].cummin(0)),
            (x.cumprod(1), whole.cumprod(0)),
            (x.aminmax(), x.aminmax(dim=1, keepdim=True)),
        )

    check(so_far, torch.randn(3, 7), with_a_nan(3, 7), torch.randint(-4, 4, (3, 4)))


def test_averages_with_a_divisor():
    def pooled(x, volume):
        return (
            functional.avg_pool2d(x, 3, 2, 1, divisor_override=4),
            functional.avg_pool2d(x, (2, 3), ceil_mode=True, divisor_override=-5),
            functional.avg_pool2d(x, 2),
            functional.avg_pool3d(volume, 2, 3, 1, ceil_mode=True, divisor_override=3),
        )

    check(pooled, torch.randn(1, 2, 8, 9), torch.randn(1, 2, 5, 5, 6))


def test_adaptive_pooling_with_uneven_parts():
    def pooled(row, image, volume):
        return (
            functional.adaptive_max_pool1d(row, 3, return_indices=True),
            functional.adaptive_max_pool2d(image, (3, 4), return_indices=True),
            functional.adaptive_max_pool3d(volume, (2, 3, 1), return_indices=True),
            functional.adaptive_avg_pool3d(volume, (3, 2, 3)),
        )

    check(pooled, torch.randn(2, 3, 7), torch.randn(2, 7, 9), torch.randn(1, 2, 4, 6, 5))


def test_elements_by_their_order():
    def chosen(x, flags, one):
        return (
            x.kthvalue(2),
            x.kthvalue(3, 0, keepdim=True),
            torch.sort(x, dim=0, descending=True, stable=True),
            (flags.median(0), flags.median(1, keepdim=True), flags.median(), one.median(0), one.median()),
            x.masked_select(x[0] > 0),
        )

    check(chosen, torch.randn(4, 6), with_a_nan(3, 6), torch.tensor(2.0))


def test_places_in_a_sorted_sequence():
    def places(rows, values):
        return (
            torch.searchsorted(rows, values),
            torch.searchsorted(rows, values, right=True, out_int32=True),
            torch.searchsorted(rows[0], values[0], side="right"),
            torch.bucketize(values, rows[1], right=True),
            torch.searchsorted(rows.flip(1), values, sorter=torch.arange(5, -1, -1).repeat(2, 1)),
        )

    rows = torch.randn(2, 6).sort().values
    check(places, rows, torch.cat([rows[:, 2:4], torch.randn(2, 2)], 1))


def test_arithmetic():
    def computed(x, y, whole, count, flag, other):
        return (
            (
                torch.fmax(x, y),
                torch.fmin(x, y),
                functional.rrelu(x),
                torch.hypot(x, 1e30 * y),
                torch.hypot(x * 0, x * 0),
            ),
            (whole >> count, whole << count, whole >> 1, whole << 2, 1 << count),
            (flag + other, flag * other, flag.int() + other),
        )

    whole, count = torch.tensor([-9, 100, 7]), torch.tensor([1, 2, 3])
    flag, other = torch.tensor([True, False, False]), torch.tensor([True, True, False])
    check(computed, with_a_nan(3, 7), torch.randn(3, 7), whole, count, flag, other)


def test_losses():
    def losses(x, classes, weight):
        loss, shares, images = functional.cross_entropy, functional.softmax(x, 1), x.reshape(2, 5, 2)
        return (
            loss(x, classes, label_smoothing=0.1, ignore_index=4),
            loss(x, classes, weight, label_smoothing=0.2),
            loss(x, classes, reduction="none", ignore_index=0),
            loss(x, shares, weight, label_smoothing=0.2),
            (loss(images, images.sigmoid()), loss(images, classes.reshape(2, 2), weight)),
            (loss(x[0], classes[0]), loss(x[0], shares[0]), loss(x, shares, reduction="sum")),
        )

    check(losses, torch.randn(4, 5), torch.tensor([1, 0, 4, 2]), torch.arange(1.0, 6.0))


@pytest.mark.parametrize("axes", [2, 3, 4, 5])
def test_attention_whose_mask_leaves_nothing_to_a_row(axes):
    def attended(query, key, mask):
        attention = functional.scaled_dot_product_attention
        return (
            attention(query, key, key, attn_mask=mask),
            attention(query, key, key, is_causal=True),
            attention(query, key, key, attn_mask=mask.float(), scale=0.3),
        )

    mask = torch.tensor([[True, False, False, True], [False] * 4, [True] * 4])
    shape = [2] * (axes - 2)
    check(attended, torch.randn(*shape, 3, 8), torch.randn(*shape, 4, 8), mask)


def test_attention_of_shared_heads():
    attention = functional.scaled_dot_product_attention
    query, key = torch.randn(1, 1, 4, 3, 8), torch.randn(1, 1, 2, 5, 8)
    check(lambda query, key: attention(query, key, key, enable_gqa=True), query, key)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_results_of_16_bits_that_are_computed_in_more(dtype, tolerance):
    check(lambda x: (x.sum(), x.mean(0), x.exp(), x), torch.randn(3, 4).to(dtype), tolerance=tolerance)


def test_results_that_are_numbers():
    check(lambda x: (x.sum().item(), x.argmax().item(), x.shape[0], (x.sum() > 100).item(), x + 1), torch.randn(3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_normalisation_in_front_of_which_weights_have_16_bits(dtype):
    convolution, linear = torch.nn.Conv2d(3, 4, 3, bias=False), torch.nn.Linear(3, 4)
    layers = (convolution, torch.nn.BatchNorm2d(4)), (linear, torch.nn.BatchNorm1d(4))
    for layer, shape in zip(layers, ((1, 3, 5, 5), (2, 3))):
        module, x = torch.nn.Sequential(*layer).eval().to(dtype), torch.randn(shape).to(dtype)
        ours, theirs = tessera.torch.compile(module, x)(x), module(x).detach()
        assert ours.dtype == dtype and torch.allclose(ours.float(), theirs.float(), rtol=3e-2, atol=3e-2)


def test_products_of_bytes_as_quantisers_write_them():
    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((20, 64), (64, 24)))
    module = Function(lambda a, b: torch._int_mm(a, b))
    compiled = tessera.torch.compile(module, (a, b), config="npu64")
    assert torch.equal(compiled(a, b), torch._int_mm(a, b)) and compiled.stats().macs_cpu == 0
