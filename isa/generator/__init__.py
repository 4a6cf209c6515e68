# SPDX-License-Identifier: Apache-2.0
"""Parts of isa/generate.py: the checked model of the instruction set and one writer for each language."""
