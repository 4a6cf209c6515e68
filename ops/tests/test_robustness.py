# SPDX-License-Identifier: Apache-2.0
"""Every operator under random operands and attributes: whatever comes, an operator either answers or raises TesseraError, and what
inference said about an answer was true.

One operator's cases run in a child process under a memory limit, so that a crash names the operator. The seed is fixed;
TESSERA_OPS_FUZZ_CASES sets the number of cases for each operator, TESSERA_OPS_FUZZ_SEED another seed.
"""
import os
import subprocess
import sys

import numpy as np
import onnx.defs
import pytest

import _tessera_ops

CASES = int(os.environ.get("TESSERA_OPS_FUZZ_CASES", "60"))
SEED = int(os.environ.get("TESSERA_OPS_FUZZ_SEED", "1"))
KINDS = [np.float32] * 6 + [np.float16, np.float64, np.int64, np.int64, np.int32, np.int8, np.uint8, np.uint8, np.bool_]
LIMIT = 6 << 30
# Operators that call back into a graph are run with graphs elsewhere.
GRAPHS = {"If", "Loop", "Scan", "SequenceMap"}


def random_array(random, kind, shape):
    if kind == np.bool_:
        return random.integers(0, 2, shape).astype(bool)
    if np.issubdtype(kind, np.integer):
        return random.integers(-3 if np.issubdtype(kind, np.signedinteger) else 0, 6, shape).astype(kind)
    return (random.standard_normal(shape) * 2).astype(kind)


def random_attribute(random, attribute):
    kinds = onnx.defs.OpSchema.AttrType
    small = lambda: int(random.choice([0, 1, 1, 1, 2, 2, 3, -1, -2, 5, 10**9])) if random.random() < 0.98 else -2**63
    if attribute.type == kinds.INT:
        return small()
    if attribute.type == kinds.INTS:
        return [small() for _ in range(int(random.integers(0, 5)))]
    if attribute.type == kinds.FLOAT:
        return float(random.choice([0.0, 1.0, -1.0, 0.5, 1e30]))
    if attribute.type == kinds.FLOATS:
        return [float(value) for value in random.standard_normal(int(random.integers(0, 4)))]
    if attribute.type == kinds.STRING:
        return str(random.choice(["", "NOTSET", "SAME_UPPER", "VALID", "linear", "ij,jk->ik", "...i,i", "add", "none", "constant", "\xff"]))
    return None


def random_case(random, domain, name, version):
    """Operands that are often plausible: one type and one shape, with a disturbance here and there."""
    attributes = {}
    try:
        schema = onnx.defs.get_schema(name, version, domain)
    except onnx.defs.SchemaError:
        schema = None
    if schema:
        for key, attribute in schema.attributes.items():
            if attribute.required or random.random() < 0.4:
                value = random_attribute(random, attribute)
                if value is not None:
                    attributes[key] = value
    base = [int(random.choice([0, 1, 1, 2, 3, 4, 5])) for _ in range(int(random.integers(0, 6)))]
    kind = KINDS[random.integers(len(KINDS))]
    inputs = []
    for _ in range(int(random.integers(1, 7))):
        if random.random() < 0.05:
            inputs.append(None)
            continue
        shape = list(base)
        if random.random() < 0.3:
            shape = [int(random.integers(0, 6)) for _ in range(int(random.integers(0, 5)))]
        elif shape and random.random() < 0.3:
            shape[random.integers(len(shape))] = int(random.integers(1, 6))
        other = kind if random.random() < 0.75 else KINDS[random.integers(len(KINDS))]
        inputs.append(random_array(random, other, shape))
    return attributes, inputs, int(random.integers(1, 3))


def fuzz(operator):
    domain, name = operator.split("::")
    domain = "" if domain == "ai.onnx" else domain
    random = np.random.default_rng([SEED, *operator.encode()])
    answered = 0
    for case in range(CASES):
        version = int(random.integers(7, 25)) if domain == "" else 1
        attributes, inputs, outputs = random_case(random, domain, name, version)
        # More operands than the operator takes are cut, so that most cases get past the count.
        for count in range(len(inputs), 0, -1):
            arguments = (name, domain, version, attributes, inputs[:count], outputs)
            try:
                results = _tessera_ops.run_node(*arguments)
            except _tessera_ops.TesseraError as error:
                if "inputs where" in str(error):
                    continue
                if "outputs where" in str(error) and outputs > 1:
                    outputs = 1
                    continue
                assert error.code != "internal", error
                break
            answered += 1
            for constants in (True, False):
                types = _tessera_ops.infer_node(*arguments, constants, False)
                for value, (dtype, shape, constant, kind) in zip(results, types):
                    if isinstance(value, np.ndarray) and shape is not None:
                        assert len(shape) == value.ndim and all(have in (-1, real) for have, real in zip(shape, value.shape)), \
                            f"case {case}: inferred {shape}, got {value.shape}: {attributes} {[getattr(v, 'shape', v) for v in inputs[:count]]}"
            break
    print(operator, answered, "of", CASES, "answered")


@pytest.mark.parametrize("part", range(4))
def test_random_operands(part):
    operators = [name for name in _tessera_ops.operators() if name.split("::")[1] not in GRAPHS][part::4]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    run = subprocess.run([sys.executable, os.path.abspath(__file__), *operators], capture_output=True, text=True, env=environment)
    last = run.stdout.strip().splitlines()[-1:] or ["nothing"]
    assert run.returncode == 0, f"after '{last[0]}': exit {run.returncode}\n{run.stderr[-3000:]}"


if __name__ == "__main__":
    import resource
    import warnings

    if "libasan" not in os.environ.get("LD_PRELOAD", ""):     # the sanitizer reserves terabytes of addresses
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    warnings.simplefilter("ignore")
    for operator in sys.argv[1:]:
        print("start", operator, flush=True)
        fuzz(operator)
