# SPDX-License-Identifier: Apache-2.0
"""lit configuration: lit compiler/nn/tests compiler/graph/tests compiler/partition/tests
-Dtessera_bin=build/release/bin [-Dfilecheck=FileCheck-19] [-Dlit_out=folder]."""

import os
import tempfile

import lit.formats

config.name = "compiler"
config.test_format = lit.formats.ShTest(True)
config.suffixes = [".mlir", ".npu"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = lit_config.params.get("lit_out") or tempfile.mkdtemp(prefix="tessera-lit-")
binaries = lit_config.params.get("tessera_bin") or os.path.join(
    config.test_source_root, "..", "build", "release", "bin"
)
config.substitutions.append(("tessera-opt", os.path.join(os.path.abspath(binaries), "tessera-opt")))
config.substitutions.append(("FileCheck", lit_config.params.get("filecheck") or "FileCheck-19"))
