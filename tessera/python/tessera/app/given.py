# SPDX-License-Identifier: Apache-2.0
"""The model that a session of ONNX Runtime was given. Enters: a path or bytes, when the session is made. Leaves: what a
session of Tessera is made of, at the first run: the same model, whatever has become of its file, the program's folder
and its external data."""

import contextlib
import hashlib
import os

import _tessera


class Changed(Exception):
    """What the model was is not there any more."""


def _stamp(path):
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class Given:
    def __init__(self, path, data):
        """path: of the file, or None; data: else the bytes."""
        self.path, self.data = os.path.abspath(os.fspath(path)) if path else None, data
        self.digest, self.stamps = None, {}
        if self.path is None:
            return
        with contextlib.suppress(OSError):
            with open(self.path, "rb") as file:
                self.data = file.read()
            self.digest = hashlib.sha256(self.data).digest()
            self.stamps = {place: _stamp(place) for place in self._places_of_data()}

    def _places_of_data(self):
        """The files with the model's external data. A cache of downloads links models and data to files elsewhere."""
        locations = ()
        if b"location" in self.data:
            with contextlib.suppress(Exception):  # no ONNX model: whoever opens it says so
                locations = _tessera.external_locations(self.data)
        folders = {os.path.dirname(self.path), os.path.dirname(os.path.realpath(self.path))}
        return {os.path.join(folder, location) for folder in folders for location in locations}

    def source(self):
        """(the path or the bytes to open, the bytes with the external data inside where that is possible). The bytes of
        a file that is as it was are not kept: a process that is forked later reads it again. Raises Changed."""
        if self.path is None:
            return self.data, self.data
        if self.digest is None:
            raise Changed("its file could not be read when the session was made")
        changed = next((place for place, stamp in self.stamps.items() if _stamp(place) != stamp), None)
        if changed is not None:
            raise Changed(f"its data '{os.path.basename(changed)}' has changed since the session was made")
        now = None
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            now = file.read()
        if now is None or hashlib.sha256(now).digest() != self.digest:
            if self.data is None or self.stamps:
                raise Changed("its file has changed since the session was made")
            return self.data, self.data
        self.data = None
        try:
            return self.path, _tessera.model_bytes(self.path)
        except _tessera.Error:
            return self.path, now
