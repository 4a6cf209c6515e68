# SPDX-License-Identifier: Apache-2.0
"""The integer functions that an expression may apply to elements: their signs in text, and what they are in NumPy."""

import numpy as np

SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "shift": ">>", "less": "<", "equal": "=="}
FUNCTIONS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "shift": np.right_shift,
    "less": np.less,
    "equal": np.equal,
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
    "where": lambda condition, a, b: np.where(condition != 0, a, b),
}
OF_NUMPY = {
    FUNCTIONS[name]: name for name in ("add", "sub", "mul", "floordiv", "mod", "shift", "less", "equal", "max", "min")
}
