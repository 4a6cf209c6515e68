# SPDX-License-Identifier: Apache-2.0
"""ONNX graphs that operators become: nodes with shapes that are known at once, and no node for what changes nothing."""

import dataclasses

import numpy as np
from onnx import TensorProto, helper, numpy_helper

TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int32": TensorProto.INT32}
OPSETS = {"": 21, "ai.tessera": 1, "litert": 1}
IR_VERSION = 10


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor of the graph."""

    name: str
    dtype: str
    shape: tuple


class GraphMaker:
    """where(): the name of the nodes that are added now."""

    def __init__(self):
        self.nodes, self.initializers = [], []
        self.where = "operator"
        self.terms = {}  # name of a node -> what it computes, as text
        self._count = 0
        self._lists = {}

    def _name(self):
        self._count += 1
        return f"t{self._count}"

    def constant(self, array):
        array = np.ascontiguousarray(array)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._lists:
            name = self._lists[key] = self._name()
            self.initializers.append(numpy_helper.from_array(array, name))
        return Value(self._lists[key], array.dtype.name, array.shape)

    def node(self, operator, inputs, dtype, shape, domain="", **attributes):
        """inputs: Values, or None where one is absent."""
        result = Value(self._name(), dtype, tuple(int(extent) for extent in shape))
        names = ["" if one is None else one.name for one in inputs]
        self.nodes.append(
            helper.make_node(operator, names, [result.name], name=self.where, domain=domain, **attributes)
        )
        return result

    # --- movements

    def reshape(self, value, shape):
        shape = tuple(int(extent) for extent in shape)
        if shape == value.shape:
            return value
        return self.node("Reshape", [value, self.constant(np.array(shape, np.int64))], value.dtype, shape)

    def transpose(self, value, order):
        order = list(order)
        shape = tuple(value.shape[axis] for axis in order)
        moved = [axis for axis in order if value.shape[axis] > 1]
        if moved == sorted(moved):
            return self.reshape(value, shape)
        return self.node("Transpose", [value], value.dtype, shape, perm=order)

    def take(self, value, axis, positions):
        """The elements of an axis at these positions."""
        positions, extent = np.asarray(positions, np.int64), value.shape[axis]
        shape = (*value.shape[:axis], positions.size, *value.shape[axis + 1 :])
        if np.array_equal(positions, np.arange(extent)):
            return value
        if positions.size == 1 or (np.diff(positions) == positions[1] - positions[0]).all():
            step = int(positions[1] - positions[0]) if positions.size > 1 else 1
            if step > 0:
                numbers = (positions[0], positions[-1] + 1, axis, step)
                return self.node(
                    "Slice", [value, *(self.constant(np.array([one], np.int64)) for one in numbers)], value.dtype, shape
                )
        return self.node("Gather", [value, self.constant(positions)], value.dtype, shape, axis=axis)

    def pad(self, value, before, after, byte):
        if not any(before) and not any(after):
            return value
        shape = [a + b + c for a, b, c in zip(before, value.shape, after, strict=True)]
        pads = self.constant(np.array([*before, *after], np.int64))
        filler = self.constant(np.array(byte, value.dtype))
        return self.node("Pad", [value, pads, filler], value.dtype, shape)

    def expand(self, value, shape):
        if tuple(shape) == value.shape:
            return value
        return self.node("Expand", [value, self.constant(np.array(shape, np.int64))], value.dtype, shape)

    def concat(self, values, axis):
        shape = list(values[0].shape)
        shape[axis] = sum(one.shape[axis] for one in values)
        return self.node("Concat", values, values[0].dtype, shape, axis=axis)

    # --- work

    def lookup(self, value, table, dtype):
        """table: a byte for each bit pattern of the value."""
        table = np.asarray(table)
        if dtype == value.dtype and np.array_equal(table.astype(np.uint8), np.arange(256)):
            return value
        return self.node("Lookup", [value], dtype, value.shape, "litert", table=self.table(table.astype(dtype)))

    @staticmethod
    def table(entries):
        """Bytes as an attribute of a node."""
        return numpy_helper.from_array(entries, "table")

    def model(self, name, inputs, outputs):
        """inputs, outputs: [(name, Value)]; the Values of inputs have these names already."""
        info = lambda label, value: helper.make_tensor_value_info(label, TYPES[value.dtype], value.shape)
        nodes = list(self.nodes)
        for label, value in outputs:
            nodes.append(helper.make_node("Identity", [value.name], [label], name=label))
        graph = helper.make_graph(
            nodes, name, [info(*one) for one in inputs], [info(*one) for one in outputs], self.initializers
        )
        opsets = [helper.make_opsetid(*one) for one in OPSETS.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
