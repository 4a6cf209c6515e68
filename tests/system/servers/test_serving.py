# SPDX-License-Identifier: Apache-2.0
"""Models by the Open Inference Protocol, asked with tritonclient, curl and plain sockets: what comes back is what a
session in this process and ONNX Runtime give."""

import concurrent.futures
import json
import shutil
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.system import serving

for package in serving.PACKAGES:
    pytest.importorskip(package, reason=f"the Python package {package} is missing; ./dev setup installs it")
import grpc  # noqa: E402
import tritonclient.grpc  # noqa: E402
import tritonclient.http  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

from tessera.serving import wire  # noqa: E402

ELEMENTS = {
    "BOOL": TensorProto.BOOL,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16,
    "BYTES": TensorProto.STRING,
}
BATCHED = "[batching]\nmax_batch = 8\nmax_queue_delay = 0.002\n"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    serving.put(root, "digits", serving.digits(), settings=BATCHED)
    serving.put(root, "single", serving.digits())
    serving.put(root, "two", serving.two_by_two())
    serving.put(root, "lookup", serving.lookup(), settings=BATCHED)
    serving.put(root, "counting", serving.counting(), settings="[batching]\nmax_queue = 2\n")
    serving.put(root, "broken", b"no model")
    serving.put(root, "two words", serving.digits())
    serving.put(root, "typo", serving.two_by_two(), settings="devise = 'fsim'\n")
    for datatype, element in ELEMENTS.items():
        serving.put(root, f"echo_{datatype}", serving.echo(element, ["n"]))
    return root


@pytest.fixture(scope="module")
def server(repository):
    with serving.Server(repository) as running:
        yield running


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    """The module of tritonclient and a client of it."""
    library = getattr(tritonclient, request.param)
    with library.InferenceServerClient(getattr(server, request.param)) as made:
        made.library = library
        yield made


def infer(client, name, feeds, outputs=None, binary=True, datatypes=None, **options):
    """Arrays by output. datatypes: of inputs whose numpy type does not say it."""
    inputs = []
    for feed, array in feeds.items():
        datatype = (datatypes or {}).get(feed) or _datatype(array)
        tensor = client.library.InferInput(feed, list(array.shape), datatype)
        if client.library is tritonclient.http:
            tensor.set_data_from_numpy(array, binary_data=binary)
        else:
            tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    if outputs is not None or client.library is tritonclient.http:
        names = outputs or [row["name"] for row in _outputs(client, name)]
        wanted = client.library.InferRequestedOutput
        kind = {"binary_data": binary} if client.library is tritonclient.http else {}
        outputs = [wanted(output, **kind) for output in names]
    result = client.infer(name, inputs, outputs=outputs, **options)
    answer = result.get_response()
    rows = answer["outputs"] if isinstance(answer, dict) else answer.outputs
    names = [row["name"] if isinstance(row, dict) else row.name for row in rows]
    return {output: result.as_numpy(output) for output in names}


def _datatype(array):
    from tritonclient.utils import np_to_triton_dtype

    return np_to_triton_dtype(array.dtype)


def _outputs(client, name):
    metadata = client.get_model_metadata(name)
    return metadata["outputs"] if isinstance(metadata, dict) else [{"name": row.name} for row in metadata.outputs]


def ask(url, body=None, **headers):
    """Status, headers and body of an answer over HTTP."""
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as answer:
        return answer.code, dict(answer.headers), answer.read()


# --- what there is ------------------------------------------------------------------------------------------


def test_health_and_metadata(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("digits") and client.is_model_ready("digits", "1")
    assert not client.is_model_ready("digits", "2") and not client.is_model_ready("nobody")
    assert not client.is_model_ready("broken")
    as_json = {} if client.library is tritonclient.http else {"as_json": True}
    assert client.get_server_metadata(**as_json)["name"] == "tessera"
    metadata = client.get_model_metadata("digits", **as_json)
    assert metadata["versions"] == ["1"] and metadata["platform"] == "tessera"
    (image,), (logits,) = metadata["inputs"], metadata["outputs"]
    assert (image["name"], image["datatype"], [int(d) for d in image["shape"]]) == ("image", "FP32", [-1, 1, 8, 8])
    assert (logits["name"], logits["datatype"], [int(d) for d in logits["shape"]]) == ("logits", "FP32", [-1, 10])


def test_the_server_says_what_is_not_served_and_why(server):
    (broken,) = (line for line in server.lines if "model broken is not served" in line)
    assert broken.endswith("or of another kind"), broken  # and no address behind it
    assert any("folder 'two words' is not served: a model's name has" in line for line in server.lines)


def test_the_index_says_what_is_not_served_and_why(client):
    as_json = {} if client.library is tritonclient.http else {"as_json": True}
    index = client.get_model_repository_index(**as_json)
    rows = {row["name"]: row for row in (index if isinstance(index, list) else index["models"])}
    assert rows["digits"]["state"] == "READY" and rows["broken"]["state"] == "UNAVAILABLE"
    assert "model 'broken' version 1" in rows["broken"]["reason"]
    assert "there is no key 'devise'" in rows["typo"]["reason"]
    with serving.refused("there is no model 'broken' to ask", "cannot be loaded"):
        infer(client, "broken", {"x": np.zeros(1, np.float32)}, outputs=["y"])


# --- answers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["digits", "single"])
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "text"])
def test_answers_are_those_of_a_session_and_of_onnx_runtime(client, name, binary):
    for rows in (1, 3, 8):
        feeds = {"image": serving.images()[:rows]}
        (logits,) = infer(client, name, feeds, binary=binary).values()
        assert np.array_equal(logits, serving.in_process(serving.digits(), feeds)["logits"])
        oracle = onnxruntime.InferenceSession(serving.digits(), providers=["CPUExecutionProvider"])
        assert np.array_equal(logits, oracle.run(None, feeds)[0])


def elements_of(datatype):
    if datatype == "BYTES":
        return np.array([b"", b"a", "\u00e4\u20ac".encode(), b"with\nline", b"x" * 1000], object)
    if datatype == "BOOL":
        return np.array([True, False, True])
    if datatype in ("FP16", "FP32", "FP64"):
        dtype = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}[datatype]
        return np.array([0, -0.0, 1 / 3, np.finfo(dtype).max, np.finfo(dtype).tiny], dtype)
    if datatype == "BF16":
        return np.array([0, 1, -2.5, 2.0**100, 2.0**-100], ml_dtypes.bfloat16)
    bounds = np.iinfo(datatype.lower())
    return np.array([bounds.min, 0, 1, bounds.max], datatype.lower())


@pytest.mark.parametrize("datatype", ELEMENTS)
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "text"])
def test_every_datatype(client, datatype, binary):
    sent = elements_of(datatype)
    if not binary and (client.library is tritonclient.grpc or datatype in ("FP16", "BF16")):
        pytest.skip("tritonclient has no text form of it")
    (got,) = infer(client, f"echo_{datatype}", {"x": sent}, binary=binary, datatypes={"x": datatype}).values()
    if datatype == "BYTES":
        assert [e if isinstance(e, bytes) else e.encode() for e in got.tolist()] == sent.tolist()
    else:
        assert got.dtype == sent.dtype and got.tobytes() == sent.tobytes()


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_short_floats_as_text(server, datatype):
    body = {"inputs": [{"name": "x", "datatype": datatype, "shape": [3], "data": [0.5, -2, 1024]}]}
    status, _, answer = ask(f"http://{server.http}/v2/models/echo_{datatype}/infer", json.dumps(body).encode())
    assert status == 200 and json.loads(answer)["outputs"][0]["data"] == [0.5, -2, 1024]


def test_typed_fields_of_grpc(server):
    """Data in `contents`, as clients without tritonclient's raw form send it."""
    fields = {
        "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
        "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
        "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
    }  # fmt: skip
    request, response = wire.message("ModelInferRequest"), wire.message("ModelInferResponse")
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer", request.SerializeToString, response.FromString
        )
        for datatype, field in fields.items():
            sent = elements_of(datatype)
            message = request(model_name=f"echo_{datatype}", id="seven")
            tensor = message.inputs.add(name="x", datatype=datatype, shape=sent.shape)
            getattr(tensor.contents, field).extend(sent.tolist())
            answer = call(message)
            assert answer.id == "seven" and answer.outputs[0].datatype == datatype
            if datatype != "BYTES":
                assert answer.raw_output_contents[0] == sent.tobytes()
        # A number that the field takes and the datatype does not.
        message = request(model_name="echo_INT8")
        message.inputs.add(name="x", datatype="INT8", shape=[1]).contents.int_contents.append(300)
        with pytest.raises(grpc.RpcError, match="integers from -128 to 127"):
            call(message)


def test_shapes_of_two_inputs_and_a_choice_of_outputs(client):
    rng = np.random.default_rng(1)
    for shape in ((1, 1), (2, 3), (5, 1), (0, 4)):
        a, b = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
        got = infer(client, "two", {"b": b, "a": a})
        assert np.array_equal(got["sum"], a + b) and np.array_equal(got["difference"], a - b)
        assert list(infer(client, "two", {"b": b, "a": a}, outputs=["difference"])) == ["difference"]
        assert list(infer(client, "two", {"a": a, "b": b}, outputs=["difference", "sum"])) == ["difference", "sum"]


def test_ids_and_parameters(client):
    tensor = client.library.InferInput("x", [1], "INT8")
    tensor.set_data_from_numpy(np.zeros(1, np.int8))
    answer = client.infer("echo_INT8", [tensor], request_id="\u00e4 17", parameters={"colour": "red"}).get_response()
    assert (answer["id"] if isinstance(answer, dict) else answer.id) == "\u00e4 17"
    assert (answer["model_version"] if isinstance(answer, dict) else answer.model_version) == "1"


def test_a_stream_of_requests(server):
    answers, done = [], threading.Event()

    def heard(result, error):
        answers.append(error or result.as_numpy("y").tolist())
        if len(answers) == 3:
            done.set()

    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(heard)
        for size in (1, 2):
            tensor = tritonclient.grpc.InferInput("x", [size], "INT8")
            tensor.set_data_from_numpy(np.arange(size, dtype=np.int8))
            client.async_stream_infer("echo_INT8", [tensor])
        client.async_stream_infer("nobody", [tensor])
        assert done.wait(20)
        client.stop_stream()
    assert answers[:2] == [[0], [0, 1]] and "there is no model 'nobody'" in str(answers[2])


# --- mistakes -----------------------------------------------------------------------------------------------


def test_one_clear_error_for_each_mistake(client):
    image = serving.images()[:1]
    for feeds, options, words in (
        ({"image": image.astype(np.float64)}, {}, ["'image' is FP64", "takes FP32"]),
        ({"image": image[0]}, {}, ["shape [1, 8, 8]", "takes [-1, 1, 8, 8]"]),
        ({"image": image[:, :, :7]}, {}, ["shape [1, 1, 7, 8]"]),
        ({"picture": image}, {}, ["no input 'picture'", "'image'"]),
        ({}, {}, ["lacks 'image'"]),
        ({"image": serving.images()[:9]}, {}, ["from 1 to 8 rows"]),
        ({"image": image[:0]}, {}, ["from 1 to 8 rows"]),
        ({"image": image}, {"outputs": ["classes"]}, ["no output 'classes'", "'logits'"]),
        ({"image": image}, {"model_version": "3"}, ["no version '3'", "[1]"]),
    ):
        with serving.refused(*words):
            infer(client, "digits", feeds, **{"outputs": ["logits"], **options})
    with serving.refused("there is no model 'nobody'"):
        infer(client, "nobody", {"image": image}, outputs=["logits"])
    with pytest.raises(InferenceServerException, match="explicit"):
        client.unload_model("digits")
    assert client.is_model_ready("digits")


def row(**changes):
    given = {"name": "x", "datatype": "INT8", "shape": [2], "data": [1, 2]}
    return {k: v for k, v in {**given, **changes}.items() if v is not None}


@pytest.mark.parametrize(
    "body, cause",
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"inputs": [' + b"9" * 5000 + b"]}", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "the request is an object"),
        ({"inputs": {}}, "'inputs' is a list"),
        ({"inputs": [3]}, "an input is an object"),
        ({"id": 3, "inputs": []}, "'id' is a string"),
        ({"inputs": [row(), row()]}, "there twice"),
        ({"inputs": [row(name=None)]}, "'name' is a string"),
        ({"inputs": [row(datatype="INT4")]}, "there are BF16, BOOL"),
        ({"inputs": [row(shape=[-2])]}, "dimensions are integers"),
        ({"inputs": [row(shape=[True])]}, "dimensions are integers"),
        ({"inputs": [row(shape=[2.0])]}, "dimensions are integers"),
        ({"inputs": [row(shape=[2**40])]}, "dimensions are integers"),
        ({"inputs": [row(shape=[3])]}, "its data has the shape [2]"),
        ({"inputs": [row(data=None)]}, "data is a list"),
        ({"inputs": [row(data=[[1], [2, 3]])]}, "differ in length"),
        ({"inputs": [row(data=[1, 128])]}, "integers from -128 to 127"),
        ({"inputs": [row(data=[1, 1.5])]}, "integers from -128 to 127"),
        ({"inputs": [row(data=[1, "2"])]}, "integers from -128 to 127"),
        ({"inputs": [row(data=[1, None])]}, "integers from -128 to 127"),
        ({"inputs": [row(data=[1, 2**70])]}, "integers from -128 to 127"),
        ({"inputs": [row(data=[True, False])]}, "integers from -128 to 127"),
        ({"inputs": [row(parameters={"binary_data_size": 2})]}, "binary_data_size 2, and 0 bytes are left"),
        ({"inputs": [row(parameters={"binary_data_size": -1})]}, "binary_data_size -1"),
        ({"inputs": [row(parameters={"shared_memory_region": "a"})]}, "shared memory is not offered"),
        ({"inputs": [row()], "outputs": [{"name": "y"}, {"name": "y"}]}, "asked for twice"),
        ({"inputs": [row()], "outputs": ["y"]}, "an output is an object"),
        ({"inputs": [row()], "parameters": {"timeout": -5}}, "microseconds above 0"),
        ({"inputs": [row()], "parameters": {"timeout": "soon"}}, "microseconds above 0"),
        ({"inputs": [row()], "parameters": {"sequence_id": 5}}, "not offered"),
    ],
)
def test_bodies_that_are_wrong(server, body, cause):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, _, answer = ask(f"http://{server.http}/v2/models/echo_INT8/infer", data)
    assert status == 400 and cause in json.loads(answer)["error"], answer


def test_headers_that_are_wrong(server):
    body = json.dumps({"inputs": [row()]}).encode()
    url = f"http://{server.http}/v2/models/echo_INT8/infer"
    for headers, status, cause in (
        ({"Inference-Header-Content-Length": "x"}, 400, "is a number of bytes"),
        ({"Inference-Header-Content-Length": str(len(body) + 1)}, 400, f"the body has {len(body)}"),
        ({"Inference-Header-Content-Length": str(len(body) - 1)}, 400, "not JSON"),
        ({"Content-Encoding": "gzip"}, 415, "compressed"),
    ):
        got, _, answer = ask(url, body, **headers)
        assert got == status and cause in json.loads(answer)["error"], answer
    more = body + b"left"
    got, _, answer = ask(url, more, **{"Inference-Header-Content-Length": str(len(body))})
    assert got == 400 and "4 bytes behind the JSON belong to no tensor" in json.loads(answer)["error"]
    for path, method in (("/v2/models/echo_INT8/infer", "GET"), ("/v2/health/live", "DELETE"), ("/v3", "GET")):
        request = urllib.request.Request(f"http://{server.http}{path}", method=method)
        with pytest.raises(urllib.error.HTTPError) as problem:
            urllib.request.urlopen(request, timeout=10)
        assert problem.value.code in (404, 405) and "error" in json.loads(problem.value.read())


def test_json_has_no_infinity(server):
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [float("inf")]}]}
    url = f"http://{server.http}/v2/models/echo_FP32/infer"
    status, _, answer = ask(url, json.dumps(body).encode())
    assert status == 400 and "binary_data" in json.loads(answer)["error"]
    body["parameters"] = {"binary_data_output": True}
    status, headers, answer = ask(url, json.dumps(body).encode())
    assert status == 200 and answer[int(headers["inference-header-content-length"]) :] == np.float32("inf").tobytes()
    body["inputs"][0]["data"] = [1e300]
    status, _, answer = ask(url, json.dumps(body).encode())
    assert status == 400 and "beyond the range of FP32" in json.loads(answer)["error"]


# --- batches, queues, deadlines -----------------------------------------------------------------------------


def metric(server, name, **labels):
    """The sum of a metric's rows with these labels."""
    _, _, text = ask(f"http://{server.http}/metrics")
    found = 0.0
    for line in text.decode().splitlines():
        if line.startswith(f"{name}{{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
            found += float(line.rpartition(" ")[2])
    return found


def test_requests_that_come_together_run_together(server):
    images, runs = serving.images()[:64], lambda: metric(server, "tessera_batch_rows_count", model="digits")
    expected, before = serving.in_process(serving.digits(), {"image": images})["logits"], runs()

    def one(at):
        row = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": images[at].ravel().tolist()}
        status, _, answer = ask(f"http://{server.http}/v2/models/digits/infer", json.dumps({"inputs": [row]}).encode())
        assert status == 200, answer
        return np.array([json.loads(answer)["outputs"][0]["data"]], np.float32)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        results = list(pool.map(one, range(64)))
    assert np.array_equal(np.concatenate(results), expected)
    assert runs() - before < 64


def test_a_request_that_fails_takes_no_other_with_it(server):
    """Rows 8 and more are not in the table: the batch that holds one fails, and its other requests are answered."""

    def one(number):
        body = {"inputs": [{"name": "ids", "datatype": "INT64", "shape": [2], "data": [number, 1]}]}
        return ask(f"http://{server.http}/v2/models/lookup/infer", json.dumps(body).encode())

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(one, [k % 12 for k in range(96)]))
    for number, (status, _, body) in zip([k % 12 for k in range(96)], answers):
        if number < 8:
            wanted = [*range(4 * number, 4 * number + 4), 4, 5, 6, 7]
            assert status == 200 and json.loads(body)["outputs"][0]["data"] == wanted
        else:
            assert status == 400 and "model 'lookup'" in json.loads(body)["error"]


def count_to(server, times, **parameters):
    body = {"inputs": [{"name": "times", "datatype": "INT64", "shape": [1], "data": [times]}], "parameters": parameters}
    return ask(f"http://{server.http}/v2/models/counting/infer", json.dumps(body).encode())


SLOW = 300_000  # times, about a second


def test_a_full_queue_refuses_and_a_deadline_is_kept(server):
    """One request runs, two wait, which is the queue's limit; the next are refused, and what was taken is answered."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        first = pool.submit(count_to, server, SLOW)
        serving.eventually(lambda: not metric(server, "tessera_queued_requests", model="counting"))
        time.sleep(0.1)
        waiting = [pool.submit(count_to, server, 5) for _ in range(2)]
        serving.eventually(lambda: metric(server, "tessera_queued_requests", model="counting") == 2)
        status, headers, body = count_to(server, 5)
        assert status == 429 and headers["retry-after"] == "1" and "batching.max_queue" in json.loads(body)["error"]
        request, response = wire.message("ModelInferRequest"), wire.message("ModelInferResponse")
        with grpc.insecure_channel(server.grpc) as channel:
            call = channel.unary_unary(
                "/inference.GRPCInferenceService/ModelInfer", request.SerializeToString, response.FromString
            )
            message = request(model_name="counting")
            message.inputs.add(name="times", datatype="INT64", shape=[1]).contents.int64_contents.append(5)
            with pytest.raises(grpc.RpcError) as refused:
                call(message)
            assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        for future, count in ((first, SLOW), *((future, 5) for future in waiting)):
            status, _, body = future.result()
            assert status == 200 and json.loads(body)["outputs"][0]["data"] == [count]
        first = pool.submit(count_to, server, SLOW)
        time.sleep(0.2)
        status, _, body = count_to(server, 5, timeout=50_000)
        assert status == 504 and "deadline" in json.loads(body)["error"]
        assert first.result()[0] == 200
    # Of the request that nobody waits for nothing is left.
    assert count_to(server, 7)[0] == 200


# --- who may ask --------------------------------------------------------------------------------------------


def test_nobody_is_let_in_without_a_token(tmp_path):
    serving.put(tmp_path / "models", "echo", serving.echo(TensorProto.INT8, ["n"]))
    tokens = tmp_path / "tokens"
    tokens.write_text(serving.TOKEN)
    tokens.chmod(0o600)
    with serving.Server(tmp_path / "models", "--token-file", tokens, "--model-control", "explicit") as server:
        for path in ("/v2", "/v2/health/live", "/v2/models/echo", "/metrics", "/v2/repository/index", "/nowhere"):
            assert ask(f"http://{server.http}{path}")[0] == 401
            assert ask(f"http://{server.http}{path}", Authorization="Bearer " + "0" * 32)[0] == 401
        for path in ("/v2/models/echo/infer", "/v2/repository/models/echo/unload"):
            assert ask(f"http://{server.http}{path}", b"{}", Authorization="Basic " + serving.TOKEN)[0] == 401
        status, _, body = ask(f"http://{server.http}/v2/models/echo/ready", Authorization="Bearer " + serving.TOKEN)
        assert status == 200 and json.loads(body)["ready"]
        with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
            with pytest.raises(InferenceServerException, match="authorization"):
                client.is_server_live()
            assert client.is_server_live(headers={"authorization": "Bearer " + serving.TOKEN})


def test_tls(tmp_path):
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is missing, which makes the certificate")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
    ]
    subprocess.run([openssl, *words, "-keyout", key, "-out", cert], check=True, capture_output=True)
    serving.put(tmp_path / "models", "echo", serving.echo(TensorProto.INT8, ["n"]))
    with serving.Server(tmp_path / "models", "--tls-cert", cert, "--tls-key", key) as server:
        trusted = ssl.create_default_context(cafile=cert)
        url = f"https://localhost:{server.http.rpartition(':')[2]}/v2/health/live"
        with urllib.request.urlopen(url, timeout=10, context=trusted) as answer:
            assert json.loads(answer.read()) == {"live": True}
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(url, timeout=10)  # nobody trusts the certificate
        address = f"localhost:{server.grpc.rpartition(':')[2]}"
        with tritonclient.grpc.InferenceServerClient(address, ssl=True, root_certificates=str(cert)) as client:
            assert client.is_model_ready("echo")
        with pytest.raises(InferenceServerException), tritonclient.grpc.InferenceServerClient(address) as client:
            client.is_server_live(client_timeout=5)  # in clear


def test_addresses_that_others_reach_are_refused(tmp_path, monkeypatch, command):
    monkeypatch.setenv("TESSERA_PYTHON", sys.executable)
    serving.put(tmp_path, "echo", serving.echo(TensorProto.INT8, ["n"]))
    for words in (["--listen", "0.0.0.0:0"], ["--listen", "127.0.0.1:0", "--http-listen", "0.0.0.0:0"]):
        done = command("serve", "--model-repository", tmp_path, *words)
        assert done.returncode == 1 and "'0.0.0.0' can be reached by others" in done.stderr
    for words, cause in (
        (["--model-repository", tmp_path / "none"], "is not a folder"),
        (["--model-repository", tmp_path, "--http-listen", "9191"], "HOST:PORT"),
        (["--model-repository", tmp_path, "--read-seconds", "0"], "--read-seconds takes a number above 0"),
    ):
        done = command("serve", "--listen", "127.0.0.1:0", *words)
        assert done.returncode == 1 and cause in done.stderr and done.stderr.count("\n") == 1
    done = command("serve", "--help")
    assert done.returncode == 0 and "Example: tessera serve" in done.stdout and "--model-repository" in done.stdout


def test_helper_models_are_right():
    """The models of these tests do what their docstrings say, by ONNX Runtime."""
    run = lambda content, **feeds: onnxruntime.InferenceSession(content).run(None, feeds)
    assert run(serving.counting(), times=np.array([9]))[0].tolist() == [9]
    assert run(serving.lookup(), ids=np.array([2]))[0].tolist() == [[8, 9, 10, 11]]
    assert helper.tensor_dtype_to_np_dtype(ELEMENTS["BF16"]).name == "bfloat16"
