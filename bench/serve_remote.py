# SPDX-License-Identifier: Apache-2.0
"""What a device of another process costs beside the same device in one's own: the digits network on the functional
simulator, one session and one thread for each client. A request is the whole of Session.run: the CPU's part here, and
the NPU's behind `remote:`."""

import os
import pathlib
import subprocess
import sys
import threading
import time

import numpy as np

import tessera
from tessera.errors import error

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "examples" / "digits" / "digits.onnx"


def measured(device, image, expected, clients, requests):
    """(seconds of all, seconds of each request)."""
    sessions = [tessera.Session(MODEL, device, profile=False) for _ in range(clients)]
    times, failures, start = [], [], threading.Barrier(clients + 1)

    def ask(session):
        start.wait()
        try:
            for _ in range(requests // clients):
                begun = time.perf_counter()
                (logits,) = session.run(None, {"image": image})
                times.append(time.perf_counter() - begun)
                if not np.array_equal(logits, expected):
                    raise error("io", f"{device} has other results")
        except tessera.Error as problem:
            failures.append(problem)

    threads = [threading.Thread(target=ask, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    start.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return time.perf_counter() - begun, times


def rows(build, image, expected, counts, requests, row_of):
    """Rows of row_of(way, clients, seconds, times): sessions of one's own (`sessions`), and on a server with one slot
    and with four (`remote`, `remote, 4 slots`)."""
    found = []
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "tessera" / "python"), str(build / "lib")]))
    for way, words in (("sessions", None), ("remote", []), ("remote, 4 slots", ["--slots", "4"])):
        server, device = None, "fsim"
        if words is not None:
            line = [sys.executable, "-m", "tessera.serving", "--device", "fsim", "--listen", "127.0.0.1:0", *words]
            server = subprocess.Popen(line, env=env, stdout=subprocess.PIPE, text=True)
            said = server.stdout.readline()
            if " on " not in said:
                raise error("io", f"the server did not start: {said}")
            device = "remote:" + said.split(" on ")[1].split()[0]
        try:
            for clients in counts:
                found.append(row_of(way, clients, *measured(device, image, expected, clients, requests)))
        finally:
            if server is not None:
                server.terminate()
                server.wait()
    return found
