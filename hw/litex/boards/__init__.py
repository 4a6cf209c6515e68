# SPDX-License-Identifier: Apache-2.0
"""The boards: a module each, with what the system needs of one (see ulx3s)."""
