# SPDX-License-Identifier: Apache-2.0
"""Float models in the one form that quantisation works on: of any opset, of any exporter's spelling, with recurrent
cells and caches as products, and with sizes for what is dynamic. `prepare` calls these steps in order."""
