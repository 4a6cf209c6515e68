# SPDX-License-Identifier: Apache-2.0
"""What has been evaluated, in a SQLite file, so that nothing is done twice and a killed run goes on where it was. A
result's key is a digest of all that it depends on: the machine, the memory, the network's bytes, the judge, the
compiler. Several processes may use one file."""

import contextlib
import hashlib
import json
import pathlib
import sqlite3
import time

import _tessera

from ..errors import error

SCHEMA = 1
COUNTS = ("cycles", "bytes", "issued_macs")  # of each result that is no error
WAIT_SECONDS = 60.0  # for another process that writes
ROOM = "nothing that was kept is lost: make room and give the command again"
WAYS = {  # {part of SQLite's message: what to do}
    "full": ROOM,
    "disk I/O error": ROOM,
    "locked": f"another process has kept it for {WAIT_SECONDS:.0f} s: wait for it, or choose another file with --db",
    "unable to open": "its folder must be there and writable; or choose another file with --db",
    "readonly": "make it writable, or choose another file with --db",
    "": "delete it or choose another file with --db",
}


def digest(*parts):
    """Of texts and bytes, as text."""
    found = hashlib.sha256()
    for part in parts:
        content = part if isinstance(part, bytes) else str(part).encode()
        found.update(len(content).to_bytes(8, "little"))
        found.update(content)
    return found.hexdigest()[:32]


def compiler_digest():
    """Of the compiler that predicts: the extension module's bytes."""
    return digest(pathlib.Path(_tessera.__file__).read_bytes())


class Results:
    """Errors of each method: io with the file, the cause and a way out."""

    def __init__(self, path):
        self.path = str(path)
        with self._guard():
            self.connection = sqlite3.connect(self.path, timeout=WAIT_SECONDS)
            self.connection.execute("PRAGMA synchronous = NORMAL")
            version = self._version()
            self._use_write_ahead_log()
            if version == SCHEMA:
                return  # nothing is written where all is there: the disk may be full
            with self.connection:
                self.connection.execute(
                    "CREATE TABLE IF NOT EXISTS evaluations (key TEXT PRIMARY KEY, network TEXT NOT NULL, "
                    "machine TEXT NOT NULL, judge TEXT NOT NULL, result TEXT NOT NULL, made REAL NOT NULL)"
                )
                self.connection.execute(f"PRAGMA user_version = {SCHEMA}")

    def _version(self):
        """SCHEMA, or 0 of what is not made yet. A file of something else is left as it is. Errors: io."""
        version = self.connection.execute("PRAGMA user_version").fetchone()[0]
        tables = {name for (name,) in self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables - {"evaluations"} or (version == SCHEMA and not tables):
            raise error("io", f"'{self.path}' is a database of something else; choose another file with --db")
        if version not in (0, SCHEMA):
            raise error(
                "io", f"'{self.path}' has results of another form ({version}, not {SCHEMA}); choose another file"
            )
        return version

    def _use_write_ahead_log(self):
        """SQLite does not wait for another process that switches at the same time: it refuses at once."""
        end = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                self.connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as refused:
                if "locked" not in str(refused) or time.monotonic() > end:
                    raise
            time.sleep(0.02)

    @contextlib.contextmanager
    def _guard(self):
        try:
            yield
        except sqlite3.Error as refused:
            way = next((way for sign, way in WAYS.items() if sign in str(refused)), WAYS[""])
            raise error("io", f"results file '{self.path}': {refused}; {way}") from None

    def find(self, keys):
        """{key: result} of those that are there."""
        found, keys = {}, list(keys)
        with self._guard():
            for at in range(0, len(keys), 500):
                some = keys[at : at + 500]
                marks = ",".join("?" * len(some))
                for key, result in self.connection.execute(
                    f"SELECT key, result FROM evaluations WHERE key IN ({marks})", some
                ):
                    found[key] = self._counts(result)
        return found

    def _counts(self, text):
        try:
            counts = json.loads(text)
        except (TypeError, ValueError):
            counts = None
        if not isinstance(counts, dict) or not ("error" in counts or all(type(counts.get(k)) is int for k in COUNTS)):
            raise error("io", f"results file '{self.path}': a result is no result: {str(text)[:60]!r}; {WAYS['']}")
        return counts

    def add(self, rows):
        """rows: (key, network, machine, judge, result). What is there stays."""
        now = time.time()
        with self._guard(), self.connection:
            self.connection.executemany(
                "INSERT OR IGNORE INTO evaluations VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (key, network, machine, judge, json.dumps(result), now)
                    for key, network, machine, judge, result in rows
                ],
            )

    def count(self):
        with self._guard():
            return self.connection.execute("SELECT COUNT(*) FROM evaluations").fetchone()[0]

    def close(self):
        self.connection.close()
