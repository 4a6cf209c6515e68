# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol over gRPC: inference.GRPCInferenceService."""

import concurrent.futures
import time

import grpc
from google.protobuf.message import DecodeError

import tessera

from . import wire
from .refusals import Kind, Refusal, invalid
from .requests import Input, Output, Request, deadline_of, feeds_of, late, wanted_outputs
from .rest import EXTENSIONS, NO_CONTROL, refuse_overrides
from .tensors import from_bytes, from_contents, to_bytes
from .watch import Watch

_CHOICE = "parameter_choice"


def _parameters(table):
    found = {}
    for name, value in table.items():
        chosen = value.WhichOneof(_CHOICE)
        found[name] = getattr(value, chosen) if chosen else None
    return found


def parse(message):
    """The Request in a ModelInferRequest. Errors: a Refusal."""
    request = Request(message.model_name, message.model_version, message.id, _parameters(message.parameters))
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise invalid(f"raw_input_contents has {len(raw)} entries for {len(message.inputs)} inputs; each input has one")
    for at, tensor in enumerate(message.inputs):
        if raw and tensor.HasField("contents"):
            raise invalid(f"input '{tensor.name[:200]}' has contents beside raw_input_contents; one of them is right")
        if "shared_memory_region" in tensor.parameters:
            raise invalid(f"input '{tensor.name[:200]}': the extension for shared memory is not offered")
        request.inputs.append(_input(tensor, raw[at] if raw else None))
    request.outputs = [Output(tensor.name, _parameters(tensor.parameters)) for tensor in message.outputs]
    return request


def _input(tensor, data):
    name, datatype, shape = tensor.name, tensor.datatype, list(tensor.shape)
    if data is not None:
        return Input(name, datatype, shape, lambda: from_bytes(name, datatype, shape, data))
    return Input(name, datatype, shape, lambda: from_contents(name, datatype, shape, tensor.contents))


def encode(request, served, version, arrays):
    """The ModelInferResponse; tensors in binary form, or in typed fields where the request says binary_data false."""
    answer = wire.message("ModelInferResponse")(model_name=request.model, model_version=version, id=request.id)
    for output in wanted_outputs(request, served):
        array = arrays[output.name]
        row = answer.outputs.add(name=output.name, datatype=served.outputs[output.name].datatype)
        row.shape.extend(array.shape)
        answer.raw_output_contents.append(to_bytes(array))
    return answer


class Service(grpc.GenericRpcHandler):
    """controls: whether clients may load and unload models. limits: request_seconds of a request, read_seconds for its
    message to arrive, write_seconds for its answer to be taken."""

    def __init__(self, store, metrics, limits, controls):
        self._store, self._metrics = store, metrics
        self._limits, self._controls = limits, controls
        self._watch = Watch()
        self._handlers = {
            f"/{wire.SERVICE.full_name}/{method.name}": self._handler(method) for method in wire.SERVICE.methods
        }

    def close(self):
        self._watch.close()

    def service(self, details):
        return self._handlers.get(details.method)

    def _handler(self, method):
        """Messages are read by the handler itself, as of a stream, so that the time this takes can be watched."""
        behaviour = getattr(self, f"_{method.name}")
        respond = wire.message(method.output_type.name).SerializeToString
        kind = wire.message(method.input_type.name)

        def messages(requests, context):
            limits = self._limits
            number = self._watch.begin(context, limits.read_seconds)
            for data in requests:
                self._watch.extend(number, limits.request_seconds + limits.write_seconds)
                try:
                    yield kind.FromString(data)
                except DecodeError:
                    raise invalid(f"the message is not a {kind.DESCRIPTOR.name}") from None

        def single(requests, context):
            try:
                for message in messages(requests, context):
                    return behaviour(message, context)
                raise invalid("the call ended without a message")
            except Refusal as refusal:
                context.abort(refusal.kind.grpc, str(refusal))

        def several(requests, context):
            try:
                yield from behaviour(messages(requests, context), context)
            except Refusal as refusal:
                context.abort(refusal.kind.grpc, str(refusal))

        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(several, None, respond)
        return grpc.stream_unary_rpc_method_handler(single, None, respond)

    # --- inference ---

    def _ModelInfer(self, message, context):
        started = time.monotonic()
        outcome, labels = "vanished", None
        try:
            request = parse(message)
            remaining = context.time_remaining()
            most = self._limits.request_seconds
            if remaining is not None:
                most = min(remaining, most)
            deadline = deadline_of(request, most)
            number, served, job = self._store.submit(
                request.model, request.version, lambda there: feeds_of(request, there), deadline
            )
            labels = (request.model, number)
            context.add_callback(job.future.cancel)  # of a client that is gone
            try:
                arrays = job.future.result(max(0.0, deadline - time.monotonic()))
            except concurrent.futures.TimeoutError:
                job.future.cancel()
                raise late() from None
            answer = encode(request, served, number, arrays)
            outcome = "ok"
            return answer
        except concurrent.futures.CancelledError:
            raise Refusal(Kind.DEADLINE, "the client has left") from None
        except Refusal as refusal:
            outcome = refusal.kind.name.lower()
            raise
        finally:
            self._metrics.count(labels, "grpc", outcome, time.monotonic() - started)

    def _ModelStreamInfer(self, messages, context):
        respond = wire.message("ModelStreamInferResponse")
        for message in messages:
            try:
                yield respond(infer_response=self._ModelInfer(message, context))
            except Refusal as refusal:
                answer = respond(error_message=str(refusal))
                answer.infer_response.id = message.id
                yield answer

    # --- what there is ---

    def _ServerLive(self, _message, _context):
        return wire.message("ServerLiveResponse")(live=True)

    def _ServerReady(self, _message, _context):
        return wire.message("ServerReadyResponse")(ready=self._store.is_ready())

    def _ModelReady(self, message, _context):
        return wire.message("ModelReadyResponse")(ready=self._store.is_ready(message.name, message.version))

    def _ServerMetadata(self, _message, _context):
        return wire.message("ServerMetadataResponse")(
            name="tessera", version=tessera.__version__, extensions=EXTENSIONS
        )

    def _ModelMetadata(self, message, _context):
        return wire.message("ModelMetadataResponse")(**self._store.metadata(message.name, message.version))

    def _RepositoryIndex(self, message, _context):
        rows = [row for row in self._store.index() if row["state"] == "READY" or not message.ready]
        return wire.message("RepositoryIndexResponse")(models=rows)

    def _RepositoryModelLoad(self, message, _context):
        self._check_control(message)
        self._store.load_or_refuse(message.model_name)
        return wire.message("RepositoryModelLoadResponse")()

    def _RepositoryModelUnload(self, message, _context):
        self._check_control(message)
        self._store.unload(message.model_name)
        return wire.message("RepositoryModelUnloadResponse")()

    def _check_control(self, message):
        if not self._controls:
            raise Refusal(Kind.FORBIDDEN, NO_CONTROL)
        refuse_overrides(message.parameters)
