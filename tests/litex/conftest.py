# SPDX-License-Identifier: Apache-2.0
from tests.system import conftest  # noqa: F401  finds the built package
