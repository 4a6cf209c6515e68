# SPDX-License-Identifier: Apache-2.0
"""Operators of PyTorch that its ONNX exporter refuses, or translates to something else, and the same in terms of
operators that it translates. They are replaced in the captured graph, and only where a graph has them."""

import itertools
import math

import torch
from onnxscript import opset18
from torch.nn import functional

aten = torch.ops.aten


# --- losses and pooling -----------------------------------------------------------------------------------------------


def _cross_entropy(scores, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0):
    """The exporter counts labels that are ignored where labels are smoothed, and has no targets of probabilities."""
    axis = 1 if scores.ndim > 1 else 0
    classes, logs = scores.shape[axis], torch.log_softmax(scores, axis)
    each = torch.ones_like(logs) if weight is None else weight.reshape([-1] + [1] * (scores.ndim - 1 - axis))
    if target.dtype.is_floating_point:
        target = target * (1 - label_smoothing) + label_smoothing / classes
        loss = -(logs * target * each).sum(axis)
        shares = max(loss.numel(), 1)
    else:
        ignored = target == ignore_index
        chosen = torch.where(ignored, 0, target).unsqueeze(axis)
        weights = each.expand_as(logs)
        shares = torch.where(ignored, 0, weights.gather(axis, chosen).squeeze(axis))
        loss = -logs.gather(axis, chosen).squeeze(axis) * shares * (1 - label_smoothing)
        loss = loss - torch.where(ignored, 0, (logs * weights).sum(axis)) * (label_smoothing / classes)
        shares = shares.sum()
    return loss if reduction == 0 else loss.sum() if reduction == 2 else loss.sum() / shares


def _pooled(mean, axes):
    """An average whose divisor is given: the exporter leaves the divisor out. mean: the average of full windows."""

    def divided(x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        if divisor_override is None:
            return NotImplemented  # another one of the graph
        each = lambda value: [value] * axes if isinstance(value, int) else list(value) * (axes // len(value))
        kernel, padding = each(kernel), each(padding)
        stride, ends = each(stride) if stride else kernel, []
        # Padded by hand, so that a window at the end divides by no other number.
        for size, k, s, pad in zip(x.shape[-axes:], kernel, stride, padding):
            windows = (size + 2 * pad - k + (s - 1 if ceil_mode else 0)) // s + 1
            windows -= bool(ceil_mode and (windows - 1) * s >= size + pad)
            ends.append((pad, max((windows - 1) * s + k - size - pad, 0)))
        x = functional.pad(x, [edge for pair in reversed(ends) for edge in pair])
        return mean(x, kernel, stride) * (math.prod(kernel) / divisor_override)

    return divided


def _spans(size, parts):
    """(first, behind the last) of each part of an axis, as adaptive pooling cuts it."""
    return [(k * size // parts, -(-(k + 1) * size // parts)) for k in range(parts)]


def _means_of_parts(x, output_size):
    """Adaptive pooling by averages, one axis after the other: all windows of a row have one number of elements."""
    for axis, parts in zip(range(-len(output_size), 0), output_size):
        means = [x.narrow(axis, first, end - first).mean(axis) for first, end in _spans(x.shape[axis], parts)]
        x = torch.stack(means, axis)
    return x


def _largest_of_parts(x, output_size):
    """Adaptive pooling by maxima, with the places in the image that the operator gives as its second result."""
    axes = len(output_size)
    image, values, found = x.shape[-axes:], [], []
    places = torch.arange(math.prod(image), device=x.device).reshape(image)
    for spans in itertools.product(*(_spans(size, parts) for size, parts in zip(image, output_size))):
        part, within = x, places
        for axis, (first, end) in zip(range(-axes, 0), spans):
            part, within = part.narrow(axis, first, end - first), within.narrow(axis, first, end - first)
        most, at = part.flatten(-axes).max(-1)
        values.append(most)
        found.append(within.flatten()[at])
    shape = (*x.shape[:-axes], *output_size)
    return torch.stack(values, -1).reshape(shape), torch.stack(found, -1).reshape(shape)


def _normalized(x, weight, bias, running_mean, running_var, training, momentum, eps):
    """Training. The exporter keeps other statistics, and normalises with those that it keeps."""
    if not training:
        return NotImplemented  # another one of the graph
    axes, shape = [0, *range(2, x.ndim)], [1, -1] + [1] * (x.ndim - 2)
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    mean = wide.mean(axes)
    apart = wide - mean.reshape(shape)
    spread, count = (apart * apart).mean(axes), wide.numel() / wide.shape[1]
    inverse = torch.rsqrt(spread + eps)
    result = apart * inverse.reshape(shape)
    result = result if weight is None else result * weight.reshape(shape)
    result = result if bias is None else result + bias.reshape(shape)
    unbiased = spread * (count / (count - 1))
    kept = lambda old, new: (old * (1 - momentum) + new * momentum).to(old.dtype)
    return result.to(x.dtype), mean, inverse, kept(running_mean, mean), kept(running_var, unbiased)


# --- choosing elements ------------------------------------------------------------------------------------------------


def _first_of(src, index):
    """The elements of a source that an index has places for; ONNX wants no others."""
    return src[tuple(slice(0, size) for size in index.shape)]


def _scattered(scatter):
    def scattered(x, dim, index, src):
        return NotImplemented if src.shape == index.shape else scatter(x, dim, index, _first_of(src, index))

    return scattered


def _mean_of_scattered(x, dim, index, src, reduce, *, include_self=True):
    """The exporter adds where a mean is asked for."""
    if reduce != "mean":
        same, given = src.shape == index.shape, (x, dim, index, _first_of(src, index), reduce)
        return NotImplemented if same else torch.scatter_reduce(*given, include_self=include_self)
    src = _first_of(src, index)
    total = x.scatter_reduce(dim, index, src, "sum", include_self=include_self)
    count = torch.ones_like(x) if include_self else torch.zeros_like(x)
    count = count.scatter_add(dim, index, torch.ones_like(src)).clamp(min=1)
    return total / count if x.dtype.is_floating_point else torch.div(total, count, rounding_mode="floor")


def _masked_select(x, mask):
    x, mask = torch.broadcast_tensors(x, mask)
    return x[mask]


def _of_rows(x, dim, choose, lowest):
    """(the largest so far, its last place) along an axis, or the smallest."""
    if x.ndim == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    x = x.movedim(dim, -1)
    count = x.shape[-1]
    seen = torch.ones((count, count), dtype=torch.bool, device=x.device).tril()
    pairs = x.unsqueeze(-2)
    best = choose(torch.where(seen, pairs, x.new_full((), lowest(x.dtype))), -1)
    same = pairs == best.unsqueeze(-1)
    if x.dtype.is_floating_point:
        same = same | (pairs.isnan() & best.isnan().unsqueeze(-1))
    places = torch.where(same & seen, torch.arange(count, device=x.device), -1).amax(-1)
    return best.movedim(-1, dim), places.movedim(-1, dim)


def _bound(floating, whole):
    return lambda dtype: floating if dtype.is_floating_point else getattr(torch.iinfo(dtype), whole)


def _cummax(x, dim):
    return _of_rows(x, dim, torch.amax, _bound(-math.inf, "min"))


def _cummin(x, dim):
    return _of_rows(x, dim, torch.amin, _bound(math.inf, "max"))


def _cumprod(x, dim, *, dtype=None):
    x = x.to(dtype or (x.dtype if x.dtype.is_floating_point else torch.int64))
    if x.ndim == 0:
        return x.clone()
    rows = x.movedim(dim, -1)
    count = rows.shape[-1]
    seen = torch.ones((count, count), dtype=torch.bool, device=x.device).tril()
    return torch.where(seen, rows.unsqueeze(-2), 1).prod(-1).movedim(-1, dim)


def _aminmax(x, *, dim=None, keepdim=False):
    axes = list(range(x.ndim)) if dim is None else [dim]
    return x.amin(axes, keepdim), x.amax(axes, keepdim)


def _index_reduce(x, dim, index, source, reduce, *, include_self=True):
    if x.ndim == 0:
        return _index_reduce(x[None], 0, index, source.reshape(1), reduce, include_self=include_self)[0]
    shape = [1] * x.ndim
    shape[dim] = -1
    spread = index.reshape(shape).expand_as(source)
    if reduce == "mean":
        return _mean_of_scattered(x, dim, spread, source, reduce, include_self=include_self)
    return x.scatter_reduce(dim, spread, source, reduce, include_self=include_self)


def _sorted(x, *, stable=None, dim=-1, descending=False):
    """ONNX's TopK leaves equal elements in their order."""
    return torch.sort(x, dim, descending)


def _kth(x, k, dim=-1, keepdim=False):
    values, places = torch.sort(x, dim=dim)
    values, places = values.select(dim, k - 1), places.select(dim, k - 1)
    return (values.unsqueeze(dim), places.unsqueeze(dim)) if keepdim else (values, places)


def _median(x, dim, keepdim=False):
    """The lower one of two in the middle; a value that is no number comes before all others."""
    if x.ndim == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, places = _kth(x, (x.shape[dim] - 1) // 2 + 1, dim, True)
    if x.dtype.is_floating_point:
        none = x.isnan()
        first = none.to(torch.int32).argmax(dim, keepdim=True)
        broken = none.any(dim, keepdim=True)
        values = torch.where(broken, x.gather(dim, first), values)
        places = torch.where(broken, first, places)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def _median_of_all(x):
    return _median(x.flatten(), 0)[0]


def _searched(sequence, values, *, out_int32=False, right=False, side=None, sorter=None):
    """The number of elements of a sorted sequence that are smaller than a value, or not larger."""
    if sorter is not None:
        sequence = sequence.gather(-1, sorter)
    right = right if side is None else side == "right"
    rows = sequence if sequence.ndim > 1 else sequence.reshape(*[1] * max(values.ndim - 1, 0), -1)
    pairs = (rows.unsqueeze(-2), values.unsqueeze(-1))
    before = pairs[0] <= pairs[1] if right else pairs[0] < pairs[1]
    return before.sum(-1, dtype=torch.int32 if out_int32 else torch.int64).reshape(values.shape)


def _searched_in(values, boundaries, *, out_int32=False, right=False):
    return _searched(boundaries, values, out_int32=out_int32, right=right)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _numbers_first(choose):
    """The larger or smaller of two, where one that is no number loses."""
    return lambda a, b: torch.where(torch.isnan(a), b, torch.where(torch.isnan(b), a, choose(a, b)))


def _hypot(a, b):
    a, b = a.abs(), b.abs()
    most, least = torch.maximum(a, b), torch.minimum(a, b)
    share = torch.where((most > 0) & ~most.isinf(), least / most, 0)
    return most * torch.sqrt(1 + share * share)


def _shifted(shift):
    def shifted(x, count):
        return shift(x, count if isinstance(count, torch.Tensor) else x.new_full((), count))

    return shifted


def _sum_of_flags(a, b, *, alpha=1):
    """ONNX's Add takes no flags."""
    flags = isinstance(b, torch.Tensor) and a.dtype == b.dtype == torch.bool and alpha == 1
    return torch.logical_or(a, b) if flags else NotImplemented


def _rrelu(x, lower=1 / 8, upper=1 / 3, training=False, generator=None):
    return functional.leaky_relu(x, (lower + upper) / 2)


# --- attention --------------------------------------------------------------------------------------------------------


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    """The exporter knows attention with four axes alone. A row whose mask leaves nothing gives zeros."""
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    scores = (query * (scale or 1 / math.sqrt(query.shape[-1]))) @ key.transpose(-2, -1)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is None:
        return torch.softmax(scores, -1) @ value
    if attn_mask.dtype != torch.bool:
        return torch.softmax(scores + attn_mask, -1) @ value
    shares = torch.softmax(scores.masked_fill(attn_mask.logical_not(), float("-inf")), -1)
    return torch.where(attn_mask.any(-1, keepdim=True), shares, 0) @ value


# --- the captured graph ----------------------------------------------------------------------------------------------


def _asked(place, name, wanted=lambda value: value is not None):
    """Whether an argument of a node is given and is `wanted`."""

    def asked(node):
        return wanted(node.args[place] if len(node.args) > place else node.kwargs.get(name))

    return asked


def _uneven(node):
    """Whether the parts of an image have sizes of their own; the exporter knows the other case. Sizes are known."""
    sizes, parts = node.args[0].meta["val"].shape, node.args[1]
    sizes = sizes[len(sizes) - len(parts) :]
    return all(isinstance(n, int) for n in sizes) and any(n % part for n, part in zip(sizes, parts))


def _partly(node):
    """Whether an index leaves out elements of what is scattered."""
    return node.args[2].meta["val"].shape != node.args[3].meta["val"].shape


def _flags(node):
    return all(isinstance(a, torch.fx.Node) and a.meta["val"].dtype == torch.bool for a in node.args[:2])


def _other_ranks(node):
    """Whether attention has other than four axes, and draws nothing."""
    drawn = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
    return not drawn and any(argument.meta["val"].ndim != 4 for argument in node.args[:3])


def _always(node):
    return True


EQUIVALENTS = {
    aten.cross_entropy_loss.default: (_always, _cross_entropy),
    aten._native_batch_norm_legit_functional.default: (_asked(5, "training", bool), _normalized),
    aten.scaled_dot_product_attention.default: (_other_ranks, _attention),
    aten.avg_pool2d.default: (_asked(6, "divisor_override"), _pooled(functional.avg_pool2d, 2)),
    aten.avg_pool3d.default: (_asked(6, "divisor_override"), _pooled(functional.avg_pool3d, 3)),
    aten._adaptive_avg_pool3d.default: (_uneven, _means_of_parts),
    aten.adaptive_avg_pool3d.default: (_uneven, _means_of_parts),
    aten.adaptive_max_pool1d.default: (_uneven, _largest_of_parts),
    aten.adaptive_max_pool2d.default: (_uneven, _largest_of_parts),
    aten.adaptive_max_pool3d.default: (_always, _largest_of_parts),
    aten.scatter_reduce.two: (lambda node: node.args[4] == "mean" or _partly(node), _mean_of_scattered),
    aten.scatter_add.default: (_partly, _scattered(torch.scatter_add)),
    aten.scatter.src: (_partly, _scattered(torch.scatter)),
    aten.masked_select.default: (_always, _masked_select),
    aten.sort.stable: (_always, _sorted),
    aten.kthvalue.default: (_always, _kth),
    aten.median.dim: (_always, _median),
    aten.median.default: (_always, _median_of_all),
    aten.searchsorted.Tensor: (_always, _searched),
    aten.bucketize.Tensor: (_always, _searched_in),
    aten.cummax.default: (_always, _cummax),
    aten.cummin.default: (_always, _cummin),
    aten.cumprod.default: (_always, _cumprod),
    aten.aminmax.default: (_always, _aminmax),
    aten.index_reduce.default: (_always, _index_reduce),
    aten.hypot.default: (_always, _hypot),
    aten.fmax.default: (_always, _numbers_first(torch.maximum)),
    aten.fmin.default: (_always, _numbers_first(torch.minimum)),
    aten.__rshift__.Tensor: (_always, _shifted(torch.bitwise_right_shift)),
    aten.__rshift__.Scalar: (_always, _shifted(torch.bitwise_right_shift)),
    aten.__lshift__.Tensor: (_always, _shifted(torch.bitwise_left_shift)),
    aten.__lshift__.Scalar: (_always, _shifted(torch.bitwise_left_shift)),
    aten.add.Tensor: (_flags, _sum_of_flags),
    aten.rrelu.default: (_asked(3, "training", lambda value: not value), _rrelu),
}


def _product_of_integers(a, b):
    return opset18.MatMulInteger(a, b)


# What the exporter lacks and one operator of ONNX is: quantisers of torchao multiply int8 by int8.
TRANSLATIONS = {aten._int_mm.default: _product_of_integers}


def with_equivalents(captured):
    """An ExportedProgram in which the equivalents stand for the operators above: the same one where it has none."""
    graphs = (part.graph for part in captured.graph_module.modules() if isinstance(part, torch.fx.GraphModule))
    nodes = (node for graph in graphs for node in graph.nodes if node.target in EQUIVALENTS)
    wanted = {node.target: EQUIVALENTS[node.target][1] for node in nodes if EQUIVALENTS[node.target][0](node)}
    return captured.run_decompositions(wanted) if wanted else captured
