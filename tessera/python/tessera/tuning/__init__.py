# SPDX-License-Identifier: Apache-2.0
"""Tuning: schedules of a whole model found by measuring, kept in a database (docs/tuning.md).

from tessera import tuning
outcome = tuning.tune("model.onnx", config="npu256", trials=200, judge="sysc", database="tuned.db")
session = tessera.Session("model.onnx", "sysc", "npu256", tuned="tuned.db")
"""

from .database import Database
from .prove import Proof, prove
from .tuner import Outcome, tune

__all__ = ["Database", "Outcome", "Proof", "prove", "tune"]
