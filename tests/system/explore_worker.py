# SPDX-License-Identifier: Apache-2.0
"""What workers run in test_explore_workers.py."""

import os
import pathlib
import signal


def dies_once(payload, shared):
    """The square; every third unit kills its worker the first time."""
    mark = pathlib.Path(shared["folder"].decode()) / f"met{payload}"
    if payload % 3 == 0 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return payload * payload


def dies_on_three(payload, _):
    if payload == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return payload


def raises(_, __):
    raise RuntimeError("on purpose")
