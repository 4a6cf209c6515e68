# SPDX-License-Identifier: Apache-2.0
"""The options of `tessera serve --device`; clients.py serves. Nothing here needs gRPC, so that --help never does."""

import _tessera

WAY = "--device NAME, a device for other processes"


def add_arguments(parser):
    add = parser.add_argument_group("devices").add_argument
    names = ", ".join(_tessera.backends()[1:])
    add("--device", action="append", default=[], metavar="NAME", help=f"device to serve, may be repeated: {names}")
    add("--device-option", action="append", default=[], metavar="NAME=VALUE", help="of the devices, for every client")
    add("--slots", type=int, default=1, help="programs of a device that run at one moment (1)")
    add("--client-memory", type=int, default=1024, help="most MiB of device memory of a client (1024)")
    add("--memory", type=int, default=0, help="MiB of all clients together (half of the machine's memory)")
    add("--run-seconds", type=float, default=600, help="most seconds of one program; 0: no limit (600)")
    add("--idle-seconds", type=float, default=3600, help="a client that is silent so long is let go (3600)")
    add("--cache", help="folder of what clients have sent, kept from start to start; default: one that ends with it")
    add("--cache-size", type=int, default=1024, help="most MiB of --cache (1024)")
    add("--allow-builds", action="store_true", help="device rtl verilates machines that nobody ships")


def wanted(arguments):
    return bool(arguments.device)


def plugin(arguments, access):
    from .clients import Plugin

    return Plugin(arguments, access)
