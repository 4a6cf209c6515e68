# SPDX-License-Identifier: Apache-2.0
"""Puts the project's root on the import path, so that `tests.oracle` and the rooms' helpers are importable from every
test. Programs are compiled in tests, and not found on disk, but for tests that ask for `compiled_once`. ONNX Runtime is
the oracle of integers: on processors without VNNI its products of uint8 and int8 saturate unless an option says
otherwise (docs/numerics.md), so every session of the tests has that option. Programs that tests start heed Ctrl-C, also
where a shell has started the tests in its background and lets them ignore it."""

import functools
import os
import signal
import sys
from pathlib import Path

import pytest

os.environ.setdefault("TESSERA_CACHE", "off")
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

try:
    import onnx
    import onnxruntime
except ImportError:
    pass
else:
    plain = onnxruntime.InferenceSession.__init__
    # What an older ONNX Runtime says of an operator, or of a form of one, that it does not know yet.
    UNKNOWN = ("is not a registered function/op", "is an invalid model. In Node")

    def unshared(model):
        """The model with constants of their own for every node: ONNX Runtime changes a zero point once for each node
        that has it, and refuses the second change."""
        model = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
        constants, copies = {tensor.name: tensor for tensor in model.graph.initializer}, []
        for number, node in enumerate(model.graph.node):
            for place, name in enumerate(node.input):
                if name in constants and node.op_type != "Identity":
                    copies.append(onnx.TensorProto())
                    copies[-1].CopyFrom(constants[name])
                    copies[-1].name = node.input[place] = f"{name}/{number}/{place}"
            if node.op_type == "Identity" and node.input[0] in constants:
                constants[node.output[0]] = constants[node.input[0]]
        model.graph.initializer.extend(copies)
        return model.SerializeToString()

    @functools.wraps(plain)
    def precise(self, model, sess_options=None, *arguments, **keywords):
        options = sess_options or onnxruntime.SessionOptions()
        # Threads of sessions spin while they wait, and the tests of several processes have the processors busy.
        options.intra_op_num_threads = options.intra_op_num_threads or 1
        options.add_session_config_entry("session.x64quantprecision", "1")
        try:
            plain(self, model, options, *arguments, **keywords)
        except Exception as failure:  # products of two activations have no kernel with the option
            from tests.oracle import oracle

            if not oracle.pinned() and any(words in str(failure) for words in UNKNOWN):
                pytest.skip("this ONNX Runtime does not have the operator, or not this form of it")
            if "AddInitializer" in str(failure):
                model = unshared(model)
            else:
                options.add_session_config_entry("session.x64quantprecision", "0")
            plain(self, model, options, *arguments, **keywords)

    onnxruntime.InferenceSession.__init__ = precise


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """A folder of programs, of all processes of a run, that is empty when the tests begin."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "programs"
    folder.mkdir(mode=0o700, exist_ok=True)
    return str(folder)


@pytest.fixture
def compiled_once(programs, monkeypatch):
    """The same model is compiled once for the same machine, shapes and options by all tests that ask for this; the
    program is found for the next device, or the next question about it. Not for tests that compare two runs of the
    compiler."""
    monkeypatch.setenv("TESSERA_CACHE", programs)


def pytest_collection_modifyitems(items):
    """MatMulInteger and what is made of it have no such option: without VNNI ONNX Runtime is no oracle for them. With
    another version than the pinned one some tests are expected to fail."""
    if "onnxruntime" in sys.modules:
        from tests.oracle import departures

        departures.mark(items)
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else "vnni"
    if "vnni" in flags:
        return
    saturating = ("test_products_with_a_run_time_zero_point", "test_networks_of_the_dynamic_quantiser")
    for item in items:
        if getattr(item, "originalname", item.name) in saturating:
            item.add_marker(pytest.mark.skip(reason="ONNX Runtime's products of uint8 and int8 saturate without VNNI"))
