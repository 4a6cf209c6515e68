# SPDX-License-Identifier: Apache-2.0
"""Exploration of machines: which one to build for given networks. See docs/explore.md; `python -m tessera.exploration`
is the command."""
