# SPDX-License-Identifier: Apache-2.0
"""Where the node cases of the onnx package's conformance suite are files. Older packages bring them; newer ones make
them in memory, and they are written here once for each version, below build/."""

import os
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
WRITTEN = Path(__file__).resolve().parent.parent.parent / "build" / "conformance"


def node_folder():
    """The folder of the node cases: one folder each, with model.onnx and test_data_set_<n>."""
    if (DATA / "node").is_dir():
        return DATA / "node"
    folder = WRITTEN / f"onnx-{onnx.__version__}"
    if not folder.is_dir():
        WRITTEN.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=WRITTEN))
        write(made)
        try:
            os.rename(made, folder)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return folder


def write(folder):
    """Writes every node case that the package makes."""
    from onnx.backend.test.loader import load_node_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the arithmetic that makes the records
        cases = load_node_model_tests()
    for case in cases:
        target = folder / case.name
        target.mkdir()
        (target / "model.onnx").write_bytes(case.model.SerializeToString())
        for number, (inputs, outputs) in enumerate(case.data_sets):
            data = target / f"test_data_set_{number}"
            data.mkdir()
            for what, values, infos in (
                ("input", inputs, case.model.graph.input),
                ("output", outputs, case.model.graph.output),
            ):
                for i, (value, info) in enumerate(zip(values, infos, strict=True)):
                    (data / f"{what}_{i}.pb").write_bytes(proto(value, info).SerializeToString())


def proto(value, info):
    """A value as the message that its declared type asks for."""
    if isinstance(value, onnx.TensorProto):
        return value
    if info.type.HasField("sequence_type"):
        return numpy_helper.from_list(value, info.name)
    if info.type.HasField("optional_type"):
        return numpy_helper.from_optional(value, info.name)
    return numpy_helper.from_array(np.asarray(value), info.name)
