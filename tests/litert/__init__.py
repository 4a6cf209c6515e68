# SPDX-License-Identifier: Apache-2.0
"""LiteRT (TensorFlow Lite) files against LiteRT's own interpreter."""
