# SPDX-License-Identifier: Apache-2.0
"""The standard's own conformance suite, run case by case in child processes."""
