# SPDX-License-Identifier: Apache-2.0
"""What a server costs beside the session in the process.

A row is a way to ask the digits network (functional simulator, one image a request) and a number of clients: requests
a second, and the milliseconds within which half and 99 of 100 requests were answered. The first rows are a session in
this process, with as many threads as clients. REST and gRPC are asked by h2load of nghttp2, which sends the same
request again and again over one connection a client and keeps the time of each. The server counts what it has answered,
and an answer is compared before. The last rows are sessions whose device stands in another process
(serve_remote.py). `relative` is the requests a second over those of one client in the process."""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import numpy as np
import serve_chip
import serve_remote

import tessera
from tessera.errors import error

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIGITS = ROOT / "examples" / "digits"
CLIENTS = (1, 8, 50)
SETTINGS = "[batching]\nmax_batch = 16\n"


def row_of(way, clients, seconds, times):
    """times: seconds of each request."""
    ordered = sorted(times)
    return {
        "way": way,
        "clients": clients,
        "requests": len(times),
        "requests_a_second": round(len(times) / seconds),
        "median_ms": round(1000 * statistics.median(ordered), 3),
        "p99_ms": round(1000 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 3),
    }


def in_process(image, clients, requests):
    session = tessera.Session(DIGITS / "digits.onnx")
    session.run(None, {"image": image})
    times = []

    def ask():
        for _ in range(requests // clients):
            begun = time.perf_counter()
            session.run(None, {"image": image})
            times.append(time.perf_counter() - begun)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return row_of("session", clients, time.perf_counter() - begun, times)


class Server:
    def __init__(self, folder, build):
        repository = folder / "models" / "digits" / "1"
        repository.mkdir(parents=True)
        shutil.copy(DIGITS / "digits.onnx", repository / "model.onnx")
        (repository.parent / "tessera.toml").write_text(SETTINGS)
        env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "tessera" / "python"), str(build / "lib")]))
        words = ["--model-repository", folder / "models", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tessera.serving", *map(str, words)], env=env, stdout=subprocess.PIPE, text=True
        )
        line = self._process.stdout.readline()
        if "REST on " not in line:
            raise error("io", f"the server did not start: {line}")
        self.http, self.grpc = line.split("REST on ")[1].split(" (")[0].split(", with gRPC on ")

    def answered(self):
        with urllib.request.urlopen(f"http://{self.http}/metrics") as answer:
            rows = answer.read().decode().splitlines()
        return sum(float(r.split()[-1]) for r in rows if r.startswith("tessera_requests_total") and 'outcome="ok"' in r)

    def close(self):
        self._process.terminate()
        self._process.wait()


def rest_request(folder, image):
    """h2load's words for a request over REST with binary tensors."""
    tensor = {"name": "image", "datatype": "FP32", "shape": list(image.shape)}
    tensor["parameters"] = {"binary_data_size": image.nbytes}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    (folder / "rest").write_bytes(head + image.tobytes())
    return [
        "--h1",
        "-H",
        f"Inference-Header-Content-Length: {len(head)}",
        "-d",
        folder / "rest",
    ], head + image.tobytes()


def grpc_request(folder, image):
    """h2load's words for a call of gRPC, whose body is a byte, the message's length and the message."""
    from tessera.serving import wire

    message = wire.message("ModelInferRequest")(model_name="digits")
    message.inputs.add(name="image", datatype="FP32", shape=image.shape)
    message.raw_input_contents.append(image.tobytes())
    data = message.SerializeToString()
    (folder / "grpc").write_bytes(b"\0" + len(data).to_bytes(4, "big") + data)
    return ["-H", "content-type: application/grpc", "-H", "te: trailers", "-d", folder / "grpc"]


def asked(server, way, url, words, clients, requests, folder):
    log = folder / "log"
    log.unlink(missing_ok=True)
    before = server.answered()
    command = ["h2load", "-n", requests, "-c", clients, "-m", 1, f"--log-file={log}", *words, url]
    begun = time.perf_counter()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    seconds = time.perf_counter() - begun
    if done.returncode != 0 or server.answered() - before != requests:
        raise error("io", f"{way} with {clients} clients: {done.stdout[-500:]}{done.stderr[-500:]}")
    return row_of(way, clients, seconds, [int(line.split("\t")[2]) / 1e6 for line in log.read_text().splitlines()])


def check(server, body, words, expected):
    request = urllib.request.Request(f"http://{server.http}/v2/models/digits/infer", body)
    request.add_header(*words[2].split(": "))
    with urllib.request.urlopen(request) as answer:
        logits = np.frombuffer(answer.read()[int(answer.headers["inference-header-content-length"]) :], np.float32)
    assert np.array_equal(logits, expected.ravel())


def bench(build, requests=6000):
    if shutil.which("h2load") is None:
        raise error("unsupported", "h2load is missing; ./dev setup installs it (nghttp2-client)")
    image = np.load(DIGITS / "digits_test.npz")["images"][:1]
    expected = tessera.Session(DIGITS / "digits.onnx").run(None, {"image": image})[0]
    rows = [in_process(image, clients, 5 * requests) for clients in CLIENTS]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        server = Server(folder, build)
        try:
            words, body = rest_request(folder, image)
            check(server, body, words, expected)
            ways = (
                ("rest", f"http://{server.http}/v2/models/digits/infer", words),
                (
                    "grpc",
                    f"http://{server.grpc}/inference.GRPCInferenceService/ModelInfer",
                    grpc_request(folder, image),
                ),
            )
            for way, url, words in ways:
                for clients in CLIENTS:
                    rows.append(asked(server, way, url, words, clients, requests, folder))
        finally:
            server.close()
    rows += serve_remote.rows(build, image, expected, CLIENTS, requests, row_of)
    for row in rows:
        row["relative"] = round(row["requests_a_second"] / rows[0]["requests_a_second"], 3)
    return {"serve": rows, "chip": serve_chip.rows()}
