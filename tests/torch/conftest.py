# SPDX-License-Identifier: Apache-2.0
"""What tests of tessera.torch need: PyTorch and its exporter, which are extras."""

import pytest

from tests.system import conftest  # noqa: F401  finds the built package

pytest.importorskip("torch", reason="PyTorch is not installed (./dev setup --extras torch)")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (./dev setup --extras torch)")
