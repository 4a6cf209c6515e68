# SPDX-License-Identifier: Apache-2.0
"""Tests that cross rooms; a package so that tests of every room can import tests.oracle."""
