# SPDX-License-Identifier: Apache-2.0
"""Tensors of the Open Inference Protocol: datatypes, the binary form, the form in JSON and the typed fields of gRPC.
Arrays of BYTES hold Python bytes. What a client sends is checked here; errors are refusals that name the tensor."""

import math
import struct

import numpy as np

from .refusals import Refusal, invalid

# The datatype of the protocol for each element type of ONNX that it knows, by the name that a session gives.
OF_ELEMENT = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
    "string": "BYTES",
}
_ELEMENT = {datatype: element for element, datatype in OF_ELEMENT.items()}
# Where gRPC has a typed field for a datatype. FP16 and BF16 have none.
_FIELDS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def dtype_of(datatype):
    """The numpy type of a datatype that is not BYTES."""
    if datatype == "BF16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(_ELEMENT[datatype])


def element_count(name, shape):
    """The number of elements of a shape that a client wrote. Errors: a refusal for what is not a shape."""
    if not all(type(dim) is int and 0 <= dim < 2**31 for dim in shape):
        raise invalid(f"tensor '{name}' has the shape {list(shape)}; dimensions are integers from 0 to 2147483647")
    return math.prod(shape)


def _shaped(name, array, shape):
    try:
        return array.reshape(shape)
    except ValueError:
        raise invalid(f"tensor '{name}' has the shape {list(shape)}, which is too large") from None


def from_bytes(name, datatype, shape, data):
    """An array from the binary form: elements in row-major order, little endian; BYTES as a length of four bytes and
    the bytes of each element. data: bytes or a memoryview. The array may share its memory."""
    count = element_count(name, shape)
    if datatype == "BYTES":
        return _shaped(name, _strings_from_bytes(name, count, bytes(data)), shape)
    dtype = dtype_of(datatype)
    if len(data) != count * dtype.itemsize:
        raise invalid(
            f"tensor '{name}' has {len(data)} bytes of data, its shape {list(shape)} of {datatype} takes "
            f"{count * dtype.itemsize}"
        )
    if datatype == "BOOL":
        return _shaped(name, np.frombuffer(data, np.uint8) != 0, shape)
    return _shaped(name, np.frombuffer(data, dtype), shape)


def _strings_from_bytes(name, count, data):
    found, at = [], 0
    while at < len(data) and len(found) <= count:
        if at + 4 > len(data):
            break
        (length,) = struct.unpack_from("<I", data, at)
        if at + 4 + length > len(data):
            break
        found.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    if at != len(data) or len(found) != count:
        raise invalid(
            f"tensor '{name}' holds {len(found)} whole strings in {at} of its {len(data)} bytes, its shape takes "
            f"{count}; "
            "a string is its length in four bytes, little endian, and its bytes"
        )
    return _objects(found)


def _objects(elements):
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def to_bytes(array):
    """The binary form of an array; elements of object arrays are str or bytes."""
    if array.dtype.kind not in "OUS":
        return np.ascontiguousarray(array).tobytes()
    parts = []
    for element in array.ravel().tolist():
        data = element.encode("utf-8", "surrogateescape") if isinstance(element, str) else element
        parts += [struct.pack("<I", len(data)), data]
    return b"".join(parts)


def from_json(name, datatype, shape, data):
    """An array from the rows of JSON, nested as the shape says or flat."""
    count = element_count(name, shape)
    if not isinstance(data, list):
        raise invalid(f"tensor '{name}': data is a list in JSON")
    try:
        # numpy has no type for integers of both halves of uint64.
        read = np.array(data, object if datatype in ("BYTES", "UINT64") else None)
    except (ValueError, OverflowError, RecursionError):
        raise invalid(f"tensor '{name}': the rows of its data differ in length or kind") from None
    if read.size != count or (read.ndim > 1 and read.shape != tuple(shape)):
        raise invalid(f"tensor '{name}': its data has the shape {list(read.shape)}, its shape is {list(shape)}")
    return _shaped(name, _converted(name, datatype, read), shape)


def _converted(name, datatype, read):
    """Elements as the datatype has them. Nothing is rounded or cut silently, but numbers with a fraction are rounded to
    the float type."""
    if datatype == "BYTES":
        if not all(isinstance(element, (str, bytes)) for element in read.ravel()):
            raise invalid(f"tensor '{name}': elements of BYTES are strings")
        return _objects([e.encode("utf-8", "surrogatepass") if isinstance(e, str) else e for e in read.ravel()])
    dtype = dtype_of(datatype)
    if read.size == 0:
        return np.empty(0, dtype)
    if datatype == "BOOL":
        if read.dtype.kind != "b":
            raise invalid(f"tensor '{name}': elements of BOOL are true and false")
        return read
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        are_integers = read.dtype.kind in "iu" or (read.dtype.kind == "O" and all(type(e) is int for e in read.ravel()))
        if not are_integers or int(read.min()) < bounds.min or int(read.max()) > bounds.max:
            raise invalid(f"tensor '{name}': elements of {datatype} are integers from {bounds.min} to {bounds.max}")
        return read.astype(dtype)
    if read.dtype.kind not in "iuf":
        raise invalid(f"tensor '{name}': elements of {datatype} are numbers")
    with np.errstate(over="ignore"):
        array = read.astype(dtype)
    if np.any(np.isinf(array.astype(np.float64)) & ~np.isinf(read.astype(np.float64))):
        raise invalid(f"tensor '{name}': a number is beyond the range of {datatype}")
    return array


def to_json(name, array):
    """The elements of an array as a flat list. Errors: a refusal for what JSON has no words for."""
    way_out = "ask for it in binary form (binary_data in REST; gRPC always has it)"
    if array.dtype.kind in "OUS":
        try:
            return [e if isinstance(e, str) else e.decode() for e in array.ravel().tolist()]
        except UnicodeDecodeError:
            raise invalid(
                f"output '{name}' holds bytes that are not UTF-8, which JSON has no form for; {way_out}"
            ) from None
    if array.dtype.kind not in "biu":
        array = array.astype(np.float64)
        if not np.isfinite(array).all():
            raise invalid(f"output '{name}' holds NaN or infinity, which JSON has no form for; {way_out}")
    return array.ravel().tolist()


def from_contents(name, datatype, shape, contents):
    """An array from the typed fields of gRPC. contents: an InferTensorContents."""
    field = _FIELDS.get(datatype)
    if field is None:
        raise invalid(f"tensor '{name}': {datatype} has no typed field, its data stands in raw_input_contents")
    filled = [descriptor.name for descriptor, _ in contents.ListFields()]
    if filled not in ([field], []):
        raise invalid(f"tensor '{name}': data of {datatype} stands in {field}, not in {', '.join(filled)}")
    values = getattr(contents, field)
    if len(values) != element_count(name, shape):
        raise invalid(f"tensor '{name}' has {len(values)} elements, which its shape {list(shape)} does not take")
    read = _objects(list(values)) if datatype in ("BYTES", "UINT64") else np.array(values)
    return _shaped(name, _converted(name, datatype, read), shape)


def check_datatype(name, datatype):
    """Errors: a refusal for a datatype that the protocol does not have."""
    if datatype not in _ELEMENT:
        raise invalid(f"tensor '{name}' has the datatype {datatype!r}; there are {', '.join(sorted(_ELEMENT))}")


__all__ = [
    "OF_ELEMENT",
    "Refusal",
    "check_datatype",
    "dtype_of",
    "element_count",
    "from_bytes",
    "from_contents",
    "from_json",
    "to_bytes",
    "to_json",
]
