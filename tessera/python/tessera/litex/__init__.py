# SPDX-License-Identifier: Apache-2.0
"""`tessera litex`: systems of hw/litex, simulated or as bitstreams. See docs/fpga.md."""
