# SPDX-License-Identifier: Apache-2.0
"""The decoder's dimensions, in one place for training and export."""

from dataclasses import astuple, dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Shape:
    """A decoder of LLaMA's kind over bytes."""

    layers: int = 6
    width: int = 128  # channels of the residual stream
    heads: int = 4
    kv_heads: int = 2  # heads of keys and values; each serves heads / kv_heads queries
    head: int = 32  # channels of a head
    hidden: int = 352  # channels inside SwiGLU
    context: int = 256  # positions
    base: float = 10000.0  # of the rotary frequencies
    epsilon: float = 1e-5  # of RMSNorm

    def rotary(self) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines of the rotary embedding, each (context, head / 2) float32."""
        frequency = self.base ** (-np.arange(self.head // 2) / (self.head // 2))
        angle = np.outer(np.arange(self.context), frequency)
        return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def to_array(self) -> np.ndarray:
        return np.array(astuple(self), np.float64)

    @classmethod
    def from_array(cls, array: np.ndarray) -> "Shape":
        return cls(*(field.type(value) for field, value in zip(fields(cls), array)))
