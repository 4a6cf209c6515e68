# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch as NumPy's arrays and back. Memory is shared in both directions where the element type and the
order of elements allow it. Types that NumPy does not have (bfloat16, 8-bit floats) cross by their bits, through
ml_dtypes."""

import ml_dtypes
import numpy as np
import torch

from ..errors import argument

_BITS = {1: torch.uint8, 2: torch.int16}
_EXTENDED = {
    getattr(torch, name): np.dtype(getattr(ml_dtypes, name))
    for name in ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
}
_TORCH = {of: name for name, of in _EXTENDED.items()}


def to_array(tensor, name="tensor"):
    """The array of a dense tensor on the CPU; complex numbers have one axis more, as the ONNX exporter writes them.
    name: for errors. Errors: invalid_argument for other devices and layouts."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        where = tensor.device if tensor.device.type != "cpu" else tensor.layout
        raise argument(f"{name} is a tensor of {where}; give dense tensors on the CPU, by .cpu() or .to_dense()")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype in _EXTENDED:
        bits = tensor.contiguous().view(_BITS[tensor.element_size()])
        return bits.numpy().view(_EXTENDED[tensor.dtype])
    return tensor.numpy()


def to_tensor(array, dtype=None):
    """The tensor of an array, as `dtype` where that is given."""
    array = np.asarray(array)
    if array.dtype in _TORCH:
        tensor = torch.from_numpy(array.view(f"i{array.dtype.itemsize}")).view(_TORCH[array.dtype])
    else:
        tensor = torch.from_numpy(array)
    if dtype is None or dtype == tensor.dtype:
        return tensor
    return torch.view_as_complex(tensor.contiguous()).to(dtype) if dtype.is_complex else tensor.to(dtype)
