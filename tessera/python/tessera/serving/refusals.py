# SPDX-License-Identifier: Apache-2.0
"""Why a request is not answered: one kind of refusal has one status of HTTP and one of gRPC."""

import enum

import grpc


class Kind(enum.Enum):
    INVALID = (400, grpc.StatusCode.INVALID_ARGUMENT)
    FORBIDDEN = (403, grpc.StatusCode.PERMISSION_DENIED)
    NOT_FOUND = (404, grpc.StatusCode.NOT_FOUND)
    TOO_SLOW = (408, grpc.StatusCode.DEADLINE_EXCEEDED)
    TOO_LARGE = (413, grpc.StatusCode.RESOURCE_EXHAUSTED)
    ENCODING = (415, grpc.StatusCode.UNIMPLEMENTED)
    BUSY = (429, grpc.StatusCode.RESOURCE_EXHAUSTED)
    FAULT = (500, grpc.StatusCode.INTERNAL)
    UNAVAILABLE = (503, grpc.StatusCode.UNAVAILABLE)
    DEADLINE = (504, grpc.StatusCode.DEADLINE_EXCEEDED)

    @property
    def http(self):
        return self.value[0]

    @property
    def grpc(self):
        return self.value[1]


class Refusal(Exception):
    """A request that is refused; the text goes to the client."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


def invalid(text):
    return Refusal(Kind.INVALID, text)


def of_run(error):
    """The refusal for a tessera.Error of a run whose inputs had the names, types and ranks of the model."""
    of_request = ("invalid_argument", "invalid_model", "unsupported")
    return Refusal(Kind.INVALID if getattr(error, "code", "") in of_request else Kind.FAULT, str(error))
