# SPDX-License-Identifier: Apache-2.0
"""Self-attention with a residual, quantised by ONNX Runtime."""

import sys

import numpy as np

from tests.oracle import oracle
from tests.system.conftest import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import networks


def quantised(batch, tokens, heads, width, **how):
    """(the model of input [batch, tokens, heads * width], feeds); `how` of oracle.quantize()."""
    shape = [batch, tokens, heads * width]
    b = networks.Builder("attention", shape)
    b.channels["input"] = shape[2]
    model = b.finish(b.add(b.attention("input", heads), "input", None))
    rng = np.random.default_rng(3)
    feeds = [{"input": rng.standard_normal(shape).astype(np.float32)} for _ in range(3)]
    return oracle.quantize(model, feeds[:2], **how), feeds[2]
