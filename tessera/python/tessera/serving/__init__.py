# SPDX-License-Identifier: Apache-2.0
"""`tessera serve`: devices and models for clients across the network (docs/serving.md)."""
