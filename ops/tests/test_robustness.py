# SPDX-License-Identifier: Apache-2.0
"""Every operator under random operands and attributes, and the standard's node cases with something about them changed:
whatever comes, an operator either answers or raises TesseraError, and what inference said about an answer was true.

Cases run in child processes under a memory limit; the last line a child printed names the case that ended it. The seed
is fixed; TESSERA_OPS_FUZZ_CASES sets the number of cases for each operator, TESSERA_OPS_FUZZ_SEED another seed.
"""

import os
import subprocess
import sys

import _tessera_ops
import numpy as np
import onnx.defs
import pytest

CASES = int(os.environ.get("TESSERA_OPS_FUZZ_CASES", "60"))
SEED = int(os.environ.get("TESSERA_OPS_FUZZ_SEED", "1"))
KINDS = [np.float32] * 6 + [np.float16, np.float64, np.int64, np.int64, np.int32, np.int8, np.uint8, np.uint8, np.bool_]
LIMIT = 2 << 30
# A failed allocation ends a sanitized process: no values that ask for one.
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
# Operators that call back into a graph are run with graphs elsewhere.
GRAPHS = {"If", "Loop", "Scan", "SequenceMap", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"}


def random_array(random, kind, shape):
    if kind == np.bool_:
        return random.integers(0, 2, shape).astype(bool)
    if np.issubdtype(kind, np.integer):
        return random.integers(-3 if np.issubdtype(kind, np.signedinteger) else 0, 6, shape).astype(kind)
    return (random.standard_normal(shape) * 2).astype(kind)


def random_attribute(random, attribute):
    kinds = onnx.defs.OpSchema.AttrType
    small = lambda: (
        int(random.choice([0, 1, 1, 1, 2, 2, 3, -1, -2, 5, 10**9])) if not SANITIZED else int(random.integers(-2, 6))
    )
    if attribute.type == kinds.INT:
        return small()
    if attribute.type == kinds.INTS:
        return [small() for _ in range(int(random.integers(0, 5)))]
    if attribute.type == kinds.FLOAT:
        return float(random.choice([0.0, 1.0, -1.0, 0.5, 1e30]))
    if attribute.type == kinds.FLOATS:
        return [float(value) for value in random.standard_normal(int(random.integers(0, 4)))]
    if attribute.type == kinds.STRING:
        return str(
            random.choice(
                [
                    "",
                    "NOTSET",
                    "SAME_UPPER",
                    "VALID",
                    "linear",
                    "ij,jk->ik",
                    "...i,i",
                    "add",
                    "none",
                    "constant",
                    "\xff",
                ]
            )
        )
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


def check_types(arguments, results):
    """Inference agrees with the results, with and without knowledge of contents."""
    name, inputs = arguments[0], arguments[4]
    # A reduction over an axis named twice is served, but inference counts on different axes where it cannot read them.
    repeated = (
        name.startswith("Reduce")
        and len(inputs) > 1
        and inputs[1] is not None
        and len(set(inputs[1].ravel().tolist())) < inputs[1].size
    )
    for constants in (True,) if repeated else (True, False):
        types = _tessera_ops.infer_node(*arguments, constants, False)
        for value, (_dtype, shape, _constant, _kind) in zip(results, types):
            if isinstance(value, np.ndarray) and shape is not None:
                assert len(shape) == value.ndim and all(have in (-1, real) for have, real in zip(shape, value.shape)), (
                    f"inferred {shape}, got {value.shape}: {arguments}"
                )


def fuzz(operator):
    domain, name = operator.split("::")
    domain = "" if domain == "ai.onnx" else domain
    random = np.random.default_rng([SEED, *operator.encode()])
    answered = 0
    for _case in range(CASES):
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
            check_types(arguments, results)
            break
    print(operator, answered, "of", CASES, "answered")


# ---------------------------------------------------------------------------------------- changed cases of the standard

EXTREMES = {
    "i": [0, -1, 1, 7, 10**9, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)],
    "f": [0.0, -1.0, np.inf, -np.inf, np.nan, 1e38],
}

if SANITIZED:
    EXTREMES["i"] = [value for value in EXTREMES["i"] if abs(value) < 100]


def changed_array(random, value):
    choice = random.integers(7)
    if value.dtype.kind in "USO" or choice == 0:
        return None
    if choice == 1 and value.ndim:  # one extent shrinks
        axis = random.integers(value.ndim)
        return np.take(value, range(random.integers(value.shape[axis] + 1)), axis)
    if choice == 2:
        return value.reshape(-1) if random.random() < 0.5 else value[None]
    if choice == 3 and value.ndim:
        return (
            value.sum(-1).astype(value.dtype)
            if value.dtype.kind in "if"
            else value[..., 0]
            if value.shape[-1]
            else value
        )
    if choice == 4:
        with np.errstate(all="ignore"):
            return value.astype(KINDS[random.integers(len(KINDS))])
    if choice == 5 and value.ndim:
        return np.moveaxis(value, random.integers(value.ndim), random.integers(value.ndim)).copy()
    kind = "f" if value.dtype.kind == "f" else "i"
    result = value.copy()
    if result.size and result.dtype.kind in "iuf":
        with np.errstate(all="ignore"):
            extreme = np.array(EXTREMES[kind][random.integers(len(EXTREMES[kind]))]).astype(result.dtype)
        result.reshape(-1)[random.integers(result.size)] = extreme
    return result


def changed_attribute(random, value):
    if isinstance(value, list) and value:
        result = list(value)
        choice = random.integers(3)
        at = random.integers(len(result))
        if choice == 0:
            del result[at]
        elif choice == 1:
            result.append(result[at])
        else:
            result[at] = changed_attribute(random, result[at])
        return result
    if isinstance(value, int):
        return EXTREMES["i"][random.integers(len(EXTREMES["i"]))]
    if isinstance(value, float):
        return float(EXTREMES["f"][random.integers(len(EXTREMES["f"]))])
    return "changed" if isinstance(value, str) else value


def change_standard_cases(part, parts):
    from onnx import numpy_helper
    from test_standard_cases import attribute_value, find_cases, load

    answered = refused = 0
    for folder, model, version in [case.values for case in find_cases()][part::parts]:
        print("start", folder.name, flush=True)
        random = np.random.default_rng([SEED, *folder.name.encode()])
        node = model.graph.node[0]
        data = folder / "test_data_set_0"
        fed = [load(path) for path in sorted(data.glob("input_*.pb"), key=lambda path: int(path.stem.split("_")[1]))]
        given = dict(zip([info.name for info in model.graph.input], fed)) | {
            t.name: numpy_helper.to_array(t) for t in model.graph.initializer
        }
        for _ in range(max(4, CASES // 5)):
            attributes = {a.name: attribute_value(a) for a in node.attribute}
            inputs = [given[name] if name else None for name in node.input]
            if attributes and random.random() < 0.4:
                key = list(attributes)[random.integers(len(attributes))]
                attributes[key] = changed_attribute(random, attributes[key])
                if random.random() < 0.2:
                    del attributes[key]
            else:
                at = random.integers(len(inputs)) if inputs else 0
                if inputs and inputs[at] is not None:
                    inputs[at] = changed_array(random, inputs[at])
                elif inputs:
                    inputs.pop()
            arguments = (node.op_type, node.domain, version, attributes, inputs, len(node.output))
            try:
                results = _tessera_ops.run_node(*arguments)
            except _tessera_ops.TesseraError as error:
                assert error.code != "internal", error
                refused += 1
                continue
            except (MemoryError, RuntimeError) as error:  # a result that fits the limit once but not twice
                assert "allocate" in str(error) or isinstance(error, MemoryError), error
                continue
            answered += 1
            check_types(arguments, results)
    print(answered, "answered,", refused, "refused")
    assert answered > refused / 10


def run_child(*arguments):
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    run = subprocess.run(
        [sys.executable, os.path.abspath(__file__), *arguments], capture_output=True, text=True, env=environment
    )
    last = run.stdout.strip().splitlines()[-1:] or ["nothing"]
    assert run.returncode == 0, f"after '{last[0]}': exit {run.returncode}\n{run.stderr[-3000:]}"


@pytest.mark.parametrize("part", range(4))
def test_random_operands(part):
    run_child(*[name for name in _tessera_ops.operators() if name.split("::")[1] not in GRAPHS][part::4])


@pytest.mark.parametrize("part", range(4))
def test_changed_cases_of_the_standard(part):
    run_child("--standard", str(part), "4")


if __name__ == "__main__":
    import resource
    import warnings

    if not SANITIZED:  # the sanitizer reserves terabytes of addresses
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    warnings.simplefilter("ignore")
    if sys.argv[1] == "--standard":
        change_standard_cases(int(sys.argv[2]), int(sys.argv[3]))
    else:
        for operator in sys.argv[1:]:
            print("start", operator, flush=True)
            fuzz(operator)
