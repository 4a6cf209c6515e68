# SPDX-License-Identifier: Apache-2.0
"""Runs one case through tessera.Session and says how it went. It runs in a child process: a case may kill it."""

import dataclasses
import os
import resource

import onnx

from tests.conformance import cases

# What a case may take of the address space; compiled code maps little, a runaway loop maps much.
MEMORY_BYTES = 12 << 30


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How a case went. outcome: "passed"; "follows": the recorded outputs differ, ONNX Runtime's are met; "refused":
    an error of Tessera; "differs"; "died"; "too slow". detail: the error, or where values differ."""

    outcome: str
    detail: str = ""


def limit_memory():
    """A sanitizer maps more than any limit."""
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def ort_outputs(model, feeds):
    """Outputs of ONNX Runtime without graph optimisation by name, or None where it refuses the model."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))
    except Exception:  # its errors have no common class
        return None


def compare(actual, expected, tolerances):
    texts = (f"{name}: {t}" for name, e in expected.items() if (t := cases.difference(actual[name], e, *tolerances)))
    return next(texts, "")


def same_types(actual, expected):
    """The difference in types and shapes alone."""
    pairs = ((name, cases.shown(actual[name]), cases.shown(e)) for name, e in expected.items())
    return next((f"{name}: {a} instead of {e}" for name, a, e in pairs if a != e), "")


def judge(case, device, config="", chance=False):
    """Runs all sets of a case. chance: the model draws random numbers, so only types and shapes are compared."""
    import tessera

    verdict = Verdict("passed")
    try:
        session = tessera.Session(str(case.model), device=device, config=config)
        proto = onnx.load(str(case.model))
        names = {port.name for port in session.get_inputs()}
        outputs = [port.name for port in session.get_outputs()]
        for feeds, expected in cases.data_sets(case, proto):
            fed = {name: value for name, value in feeds.items() if name in names}
            actual = dict(zip(outputs, session.run(None, fed)))
            text = same_types(actual, expected) if chance else compare(actual, expected, case.tolerances())
            if not text:
                continue
            others = None if chance else ort_outputs(case.model, feeds)
            if others is None or compare(actual, others, case.tolerances()):
                return Verdict("differs", text)
            verdict = Verdict("follows", text)
    except tessera.Error as error:
        return Verdict("refused", str(error))
    except MemoryError:
        return Verdict("died", "no memory")
    return verdict
