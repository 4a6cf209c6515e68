# SPDX-License-Identifier: Apache-2.0
"""Expressions of an operator as nodes of ONNX: sums of products, windows, functions of bytes, and what the host
computes. `lowering` chooses among these forms."""
