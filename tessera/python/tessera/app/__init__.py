# SPDX-License-Identifier: Apache-2.0
"""`tessera app`: a Python program that uses ONNX Runtime, unchanged, with its sessions on Tessera. See docs/app.md;
`python -m tessera.app` is the command, and tessera.onnxruntime what its sessions are."""
