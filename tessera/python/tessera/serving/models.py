# SPDX-License-Identifier: Apache-2.0
"""The options of `tessera serve --model-repository`; plugin.py serves. Nothing here needs gRPC or HTTP, so that --help
never does."""

WAY = "--model-repository DIR, a folder of models"


def add_arguments(parser):
    add = parser.add_argument_group("models, by the Open Inference Protocol").add_argument
    add("--model-repository", metavar="DIR", help="folder with NAME/VERSION/model.onnx, and NAME/tessera.toml")
    add("--http-listen", metavar="HOST:PORT", default="127.0.0.1:9191", help="REST and /metrics (127.0.0.1:9191)")
    add("--model-device", default="fsim", help="device of models whose settings name none (fsim)")
    add("--model-config", default="", help="configuration of models whose settings name none (npu256)")
    add("--model-control", choices=("none", "poll", "explicit"), default="none",
        help="when models come and go: never, as the folder changes, or as clients ask (none)")  # fmt: skip
    add("--poll-seconds", type=float, default=5, help="between looks of --model-control poll (5)")
    add(
        "--load-model",
        action="append",
        metavar="NAME",
        help="model to load at the start, may be repeated; default: all",
    )
    add("--shapes", action="append", default=[], metavar="[MODEL:]INPUT=SIZES",
        help="shapes that will come to models whose settings name none, compiled while they serve, as "
        "'reader:x=1-6,3,48,320-960/64'; may be repeated")  # fmt: skip
    add("--model-memory", type=int, metavar="MIB", help="of all models together; who was asked longest ago makes room")
    add("--max-held", type=int, default=1024, help="most MiB of requests over HTTP at one moment (1024)")
    add("--request-seconds", type=float, default=60, help="most seconds from a request to its answer (60)")
    add("--read-seconds", type=float, default=20, help="a request is whole after so long, or refused (20)")
    add("--write-seconds", type=float, default=20, help="a client takes an answer within so long (20)")
    add("--trusted-keys", help="file or folder of public keys: refuse artifacts (.tsr) that none of them has signed")


def wanted(arguments):
    return arguments.model_repository is not None


def plugin(arguments, access):
    from .plugin import Plugin

    return Plugin(arguments, access)
