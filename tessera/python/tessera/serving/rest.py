# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol over HTTP: JSON, and tensors in binary form behind it. Answers of every error are
{"error": text}."""

import asyncio
import contextlib
import json
import threading
import time

import tessera

from .access import REFUSAL
from .refusals import Kind, Refusal, invalid
from .requests import Input, Output, Request, deadline_of, feeds_of, late, wanted_outputs
from .tensors import element_count, from_bytes, from_json, to_bytes, to_json

HEADER_LENGTH = "inference-header-content-length"
JSON_GROWTH = 16  # bytes of Python's objects for a byte of JSON, at most
SMALL = 64 << 10  # bytes that are read on the loop itself
WATCH_AFTER = 0.5  # seconds after which the server looks whether the client is still there
EXTENSIONS = ["binary_tensor_data", "model_repository"]


class Budget:
    """Bytes of requests that the server holds at one moment."""

    def __init__(self, most):
        self._most, self._held = most, 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def hold(self, count):
        with self._lock:
            if self._held + count > self._most:
                raise Refusal(
                    Kind.BUSY if self._held else Kind.TOO_LARGE,
                    f"the server holds {self._held} bytes of other requests and {self._most} at most (--max-held); "
                    "this one "
                    f"takes {count}",
                )
            self._held += count
        try:
            yield
        finally:
            with self._lock:
                self._held -= count


# --- reading ---


def _typed(value, kind, what):
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise invalid(f"{what} is {'an object' if kind is dict else 'a list' if kind is list else 'a string'} in JSON")
    return value


def parse(model, version, body, header_length):
    """The Request in a body. header_length: bytes of JSON in front of the binary data, None where all is JSON. Errors:
    a Refusal."""
    end = len(body) if header_length is None else header_length
    if end > len(body):
        raise invalid(f"{HEADER_LENGTH} is {end}, the body has {len(body)} bytes")
    try:
        given = json.loads(bytes(body[:end]))
    except (ValueError, RecursionError) as problem:
        raise invalid(f"the request is not JSON: {problem}"[:300]) from None
    _typed(given, dict, "the request")
    request = Request(model, version, _typed(given.get("id", ""), str, "'id'"))
    request.parameters = _typed(given.get("parameters", {}), dict, "'parameters'")
    rest = _Binary(memoryview(body)[end:])
    request.inputs = [_input(row, rest) for row in _typed(given.get("inputs", []), list, "'inputs'")]
    rest.check_end()
    for row in _typed(given.get("outputs", []), list, "'outputs'"):
        _typed(row, dict, "an output")
        name = _typed(row.get("name"), str, "an output's 'name'")
        request.outputs.append(Output(name, _typed(row.get("parameters", {}), dict, f"'parameters' of '{name[:200]}'")))
    return request


class _Binary:
    """The data behind the JSON, tensor after tensor."""

    def __init__(self, data):
        self._data, self._at = data, 0

    def take(self, name, size):
        if type(size) is not int or size < 0 or size > len(self._data) - self._at:
            raise invalid(
                f"tensor '{name}' has binary_data_size {size!r}, and {len(self._data) - self._at} bytes are left "
                "behind the JSON"
            )
        self._at += size
        return self._data[self._at - size : self._at]

    def check_end(self):
        if self._at != len(self._data):
            raise invalid(f"{len(self._data) - self._at} bytes behind the JSON belong to no tensor")


def _input(row, binary):
    _typed(row, dict, "an input")
    name = _typed(row.get("name"), str, "an input's 'name'")
    datatype = _typed(row.get("datatype"), str, f"'datatype' of '{name[:200]}'")
    shape = _typed(row.get("shape"), list, f"'shape' of '{name[:200]}'")
    parameters = _typed(row.get("parameters", {}), dict, f"'parameters' of '{name[:200]}'")
    element_count(name[:200], shape)
    if "shared_memory_region" in parameters:
        raise invalid(f"input '{name[:200]}': the extension for shared memory is not offered")
    if "binary_data_size" in parameters:
        data = binary.take(name[:200], parameters["binary_data_size"])
        return Input(name, datatype, shape, lambda: from_bytes(name, datatype, shape, data))
    return Input(name, datatype, shape, lambda: from_json(name, datatype, shape, row.get("data")))


# --- answering ---


def encode(request, served, version, arrays):
    """Body and headers of an answer."""
    rows, parts = [], []
    everything_binary = request.parameters.get("binary_data_output") is True
    for output in wanted_outputs(request, served):
        array = arrays[output.name]
        row = dict(name=output.name, datatype=served.outputs[output.name].datatype, shape=list(array.shape))
        if output.parameters.get("binary_data", everything_binary):
            parts.append(to_bytes(array))
            row["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            row["data"] = to_json(output.name, array)
        rows.append(row)
    answer = {"model_name": request.model, "model_version": version, "outputs": rows}
    if request.id:
        answer["id"] = request.id
    head = json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    if not parts:
        return head, {"content-type": "application/json"}
    headers = {"content-type": "application/octet-stream", HEADER_LENGTH: str(len(head))}
    return b"".join([head, *parts]), headers


def application(store, access, metrics, limits, controls):
    """The ASGI application. limits: max_body (bytes), max_held (bytes), request_seconds. controls: whether clients may
    load and unload models."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    budget = Budget(limits.max_held)

    def refused(refusal, headers=None):
        text = str(refusal).encode(errors="replace").decode()  # a client may have named half a character
        return JSONResponse({"error": text}, refusal.kind.http, headers)

    async def read_body(request):
        """The body and the hold on the budget that goes with it."""
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise Refusal(Kind.ENCODING, "compressed requests are not taken; leave content-encoding out")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > limits.max_body:
                raise too_large(len(body))
        return body

    def too_large(size):
        return Refusal(
            Kind.TOO_LARGE, f"the request has {size} bytes or more, the server takes {limits.max_body} (--max-message)"
        )

    def sizes(request):
        """Bytes that the request says its body has, and those of its JSON, or None where it does not say."""
        found = []
        for name in ("content-length", HEADER_LENGTH):
            text = request.headers.get(name)
            if text is not None and not (text.isascii() and text.isdecimal() and len(text) < 16):
                raise invalid(f"the header {name} is a number of bytes, not {text[:40]!r}")
            found.append(None if text is None else int(text))
        return found

    async def infer(request):
        started = time.monotonic()
        names = request.path_params
        outcome, labels = "ok", None
        try:
            size, header = sizes(request)
            if size is not None and size > limits.max_body:
                raise too_large(size)
            held = limits.max_body if size is None else size
            json_bytes = held if header is None else min(header, held)
            with budget.hold(held + JSON_GROWTH * json_bytes):
                body = await read_body(request)
                labels, response = await answer(request, names["model"], names.get("version", ""), body, header)
                return response
        except Refusal as refusal:
            outcome = refusal.kind.name.lower()
            labels = getattr(refusal, "labels", None)
            return refused(refusal, {"retry-after": "1"} if refusal.kind is Kind.BUSY else None)
        except (asyncio.CancelledError, ClientDisconnect):
            outcome = "vanished"
            raise
        finally:
            metrics.count(labels, "rest", outcome, time.monotonic() - started)

    async def answer(request, model, version, body, header):
        """Labels for the metrics, and the response."""

        def submit():
            parsed = parse(model, version, body, header)
            deadline = deadline_of(parsed, limits.request_seconds)
            return parsed, deadline, *store.submit(model, version, lambda served: feeds_of(parsed, served), deadline)

        def pack():
            return encode(parsed, served, number, arrays)

        is_small = len(body) <= SMALL
        on_loop = is_small and store.is_resident(model, version)
        parsed, deadline, number, served, job = submit() if on_loop else await in_time(asyncio.to_thread(submit))
        labels = (model, number)
        try:
            arrays = await result_of(request, job, deadline)
            small = sum(array.nbytes for array in arrays.values()) <= SMALL
            content, headers = pack() if small else await asyncio.to_thread(pack)
        except Refusal as refusal:
            refusal.labels = labels
            raise
        return labels, Response(content, headers=headers)

    async def in_time(work):
        try:
            return await asyncio.wait_for(work, limits.request_seconds)
        except TimeoutError:
            raise late() from None

    async def result_of(request, job, deadline):
        """Waits for the result; leaves when the time is over or the client is gone."""
        future = asyncio.wrap_future(job.future)
        remaining = max(0.0, deadline - time.monotonic())
        done, _ = await asyncio.wait([future], timeout=min(WATCH_AFTER, remaining))
        if not done:
            gone = asyncio.create_task(request.receive())  # the body is read: what comes now is the end
            remaining = max(0.0, deadline - time.monotonic())
            await asyncio.wait([future, gone], timeout=remaining, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
        if not future.done():
            future.cancel()  # of a job that waits; one that runs ends by itself
            raise late()
        return future.result()

    async def live(_request):
        return JSONResponse({"live": True})

    async def ready(_request):
        return JSONResponse({"ready": store.is_ready()}, 200 if store.is_ready() else 503)

    async def server_metadata(_request):
        return JSONResponse({"name": "tessera", "version": tessera.__version__, "extensions": EXTENSIONS})

    async def model_ready(request):
        names = request.path_params
        is_ready = store.is_ready(names["model"], names.get("version", ""))
        return JSONResponse({"name": names["model"], "ready": is_ready}, 200 if is_ready else 503)

    async def model_metadata(request):
        names = request.path_params
        return JSONResponse(await in_time(asyncio.to_thread(store.metadata, names["model"], names.get("version", ""))))

    async def index(request):
        only_ready = False
        body = await read_body(request)
        if body.strip():
            try:
                only_ready = bool(_typed(json.loads(bytes(body)), dict, "the request").get("ready", False))
            except (ValueError, RecursionError):
                raise invalid("the request is not JSON") from None
        rows = await asyncio.to_thread(store.index)
        return JSONResponse([row for row in rows if row["state"] == "READY" or not only_ready])

    def control(act):
        async def endpoint(request):
            if not controls:
                raise Refusal(Kind.FORBIDDEN, NO_CONTROL)
            body = await read_body(request)
            if body.strip():
                check_parameters(body)
            await asyncio.to_thread(act, request.path_params["model"])
            return JSONResponse({})

        return endpoint

    async def scrape(_request):
        return Response(await asyncio.to_thread(metrics.text), media_type=metrics.CONTENT_TYPE)

    async def on_refusal(_request, refusal):
        return refused(refusal)

    async def on_http(_request, problem):
        return JSONResponse({"error": f"{problem.detail}; /v2 begins every path"}, problem.status_code)

    async def on_leaving(_request, _problem):
        return Response(status_code=400)  # nobody takes it

    async def on_fault(_request, problem):
        return JSONResponse({"error": f"the server failed: {type(problem).__name__}"}, 500)

    routes = [
        Route("/v2/health/live", live),
        Route("/v2/health/ready", ready),
        Route("/v2", server_metadata),
        Route("/v2/", server_metadata),
        Route("/v2/repository/index", index, methods=["GET", "POST"]),
        Route("/v2/repository/models/{model}/load", control(store.load_or_refuse), methods=["POST"]),
        Route("/v2/repository/models/{model}/unload", control(store.unload), methods=["POST"]),
        Route("/metrics", scrape),
    ]
    for of_model in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        routes += [
            Route(f"{of_model}/infer", infer, methods=["POST"]),
            Route(f"{of_model}/ready", model_ready),
            Route(of_model, model_metadata),
        ]
    handlers = {Refusal: on_refusal, HTTPException: on_http, ClientDisconnect: on_leaving, Exception: on_fault}
    return _Guarded(Starlette(routes=routes, exception_handlers=handlers), access)


NO_CONTROL = "clients may not load and unload models of this server; --model-control explicit lets them"


def check_parameters(body):
    """Errors: a Refusal for parameters of load that would bring files along."""
    try:
        given = _typed(json.loads(bytes(body)), dict, "the request")
    except (ValueError, RecursionError):
        raise invalid("the request is not JSON") from None
    refuse_overrides(_typed(given.get("parameters", {}), dict, "'parameters'"))


def refuse_overrides(parameters):
    strange = sorted(name for name in parameters if name != "unload_dependents")
    if strange:
        raise invalid(f"the parameter {strange[0]!r} is not taken: models and settings come from the repository alone")


class _Guarded:
    """Asks for the token before anything of a request is read."""

    def __init__(self, application, access):
        self._application, self._access = application, access

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        given = dict(scope["headers"]).get(b"authorization")
        if not self._access.permits(None if given is None else given.decode("latin-1")):
            body = json.dumps({"error": REFUSAL}).encode()
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"www-authenticate", b"Bearer"),
                (b"connection", b"close"),
            ]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        await self._application(scope, receive, send)
