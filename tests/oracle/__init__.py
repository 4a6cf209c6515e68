# SPDX-License-Identifier: Apache-2.0
"""The oracle kit: ONNX Runtime on the CPU, run so that its quantised results are a reference (see docs/numerics.md)."""
