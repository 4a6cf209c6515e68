# SPDX-License-Identifier: Apache-2.0
"""Chips of several cores that models share: those of one device, configuration and options are one. A chip lives as
long as a model that uses it."""

import threading
import weakref

import tessera

from ..errors import argument

_chips = weakref.WeakValueDictionary()
_lock = threading.Lock()


def chip_of(settings):
    """The Chip of a model's Settings, or None where they name no cores. Errors: tessera.Error when it cannot be
    opened."""
    if not settings.cores:
        return None
    if not settings.config:
        raise argument("'cores' names cores of a chip, but there is no 'config'; write config = \"npu256x4\" beside it")
    key = settings.device, settings.config, tuple(sorted(settings.device_options.items()))
    with _lock:
        chip = _chips.get(key)
        if chip is None:
            chip = tessera.Chip(settings.config, settings.device, device_options=settings.device_options)
            _chips[key] = chip
        return chip
