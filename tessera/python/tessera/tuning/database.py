# SPDX-License-Identifier: Apache-2.0
"""What tunings have found, in a file of SQLite. Enters: results of units of work by the digest of what they depend on,
and the best schedules of models and of layers with where they come from. Leaves: the same, after any number of kills,
to any number of processes at once.

Tables: `units` (a tuning that goes on asks here before it works), `networks` (the best schedules of a whole model:
what --tuned takes), `layers` (schedules of single layers and chains, for models that have never been tuned). All are
written in transactions; a worse result of the same build and judge never replaces a better one.

A record is found by the version of the compiler, so that its schedules serve every build of that version. Its cycles
are those of one build: `provenance["build"]` is the digest of the compiler that measured them, and what another build
measured is not compared with them. Records that older programs wrote lack it; they are as of another build.

Each judge has a record of its own for a model: cycles of different judges do not compare. Whoever takes schedules takes
those of the strictest judge (STRICT)."""

import contextlib
import json
import os
import sqlite3

from .. import errors

APPLICATION = 0x54535254  # "TSRT", in the header of the file
VERSION = 2  # 1: a model had one record, whoever judged it
STRICT = ("rtl", "sysc", "replay")  # judges, the strictest first; others follow by name

NETWORKS = """CREATE TABLE networks (
  model TEXT, machine TEXT, compiler TEXT, judge TEXT NOT NULL, cycles INTEGER NOT NULL, bytes INTEGER NOT NULL,
  default_cycles INTEGER NOT NULL, schedules TEXT NOT NULL, provenance TEXT NOT NULL,
  PRIMARY KEY (model, machine, compiler, judge)) WITHOUT ROWID;
"""
SCHEMA = f"""
CREATE TABLE units (key TEXT PRIMARY KEY, result TEXT NOT NULL) WITHOUT ROWID;
{NETWORKS}
CREATE TABLE layers (
  piece TEXT, machine TEXT, compiler TEXT, judge TEXT NOT NULL, cycles INTEGER NOT NULL, bytes INTEGER NOT NULL,
  schedule TEXT NOT NULL, provenance TEXT NOT NULL, PRIMARY KEY (piece, machine, compiler)) WITHOUT ROWID;
"""

# From the form before this one.
UPGRADE = f"""
ALTER TABLE networks RENAME TO before;
{NETWORKS}
INSERT INTO networks SELECT * FROM before;
DROP TABLE before
"""

# Fewer cycles replace more, and what this build measured replaces what another one did.
BETTER = (
    "excluded.cycles < cycles"
    " OR json_extract(excluded.provenance, '$.build') IS NOT json_extract(provenance, '$.build')"
)

KEPT = "what was found before is kept"
MEND = "move the file away, or restore a copy"
WAYS = {  # {part of SQLite's message: what to do}
    "not a database": MEND,
    "malformed": MEND,
    "no such table": MEND,
    "no such column": MEND,
    "locked": "another process holds it; end that one or name another file",
    "full": f"make room and run the same command again; {KEPT}",
    "disk I/O": f"make room and run the same command again; {KEPT}",
    "unable to open": "its folder must be there and writable; or name another file",
    "readonly": "make it writable, or name another file",
    "": KEPT,
}


def is_result(value):
    """Of a unit of work: {"trials": [[cycles, bytes, [[piece, schedule], ...]], ...]}, and perhaps samples, or on a
    chip "divided": the same with the divisions behind each."""
    trials = value.get("trials") if isinstance(value, dict) else None
    if not isinstance(trials, list) or not all(map(is_trial, trials)):
        return False
    divided = value.get("divided", [])
    return isinstance(divided, list) and all(map(is_divided, divided)) and isinstance(value.get("samples", []), list)


def is_divided(value):
    return (
        isinstance(value, list)
        and len(value) == 4
        and is_trial(value[:3])
        and isinstance(value[3], dict)
        and all(isinstance(division, str) for division in value[3].values())
    )


def is_trial(value):
    return (
        isinstance(value, list)
        and [type(part) for part in value] == [int, int, list]
        and all(isinstance(unit, list) and [type(part) for part in unit] == [int, str] for unit in value[2])
    )


def is_object(value):
    return isinstance(value, dict)


def is_keys(value):
    return isinstance(value, list) and all(isinstance(key, str) for key in value)


class Database:
    """path: a file, made when missing. Errors: tessera.Error "io" for what is no such database, is damaged, stays
    locked for a minute, or cannot be written; what was committed before stays."""

    def __init__(self, path):
        self.path = os.fspath(path)
        if not self.path:
            raise errors.argument("a tuning database needs a name; SQLite forgets one without a name")
        with self._errors():
            self._file = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            self._file.execute("PRAGMA synchronous=FULL")
            self._open()

    def _open(self):
        with self._transaction():
            application = self._one("PRAGMA application_id")
            tables = self._one("SELECT count(*) FROM sqlite_master")
            if application == 0 and tables == 0:
                self._make(SCHEMA)
                self._file.execute(f"PRAGMA application_id={APPLICATION}")
            elif application != APPLICATION:
                raise errors.error("io", f"'{self.path}' is a database of something else; name another file")
            elif self._one("PRAGMA user_version") == 1:
                self._make(UPGRADE)
        version = self._one("PRAGMA user_version")
        if version != VERSION:
            raise errors.error(
                "io", f"'{self.path}' is a tuning database of version {version}, and this is version {VERSION}"
            )

    def _make(self, statements):
        for statement in statements.split(";"):
            self._file.execute(statement)
        self._file.execute(f"PRAGMA user_version={VERSION}")

    def _one(self, statement, values=()):
        row = self._file.execute(statement, values).fetchone()
        return None if row is None else row[0]

    @contextlib.contextmanager
    def _errors(self):
        try:
            yield
        except sqlite3.DatabaseError as error:
            text = str(error)
            hint = next(way for sign, way in WAYS.items() if sign in text)
            raise errors.error("io", f"tuning database '{self.path}': {text}; {hint}") from None

    @contextlib.contextmanager
    def _transaction(self):
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.DatabaseError):
                self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")

    def close(self):
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _value(self, text, fine, what):
        """The value of a row's JSON. Errors: io where it is none, or is not `fine`."""
        try:
            value = json.loads(text)
        except (TypeError, ValueError):
            value = None
        if not fine(value):
            raise errors.error("io", f"tuning database '{self.path}': {what} is damaged: {str(text)[:60]!r}; {MEND}")
        return value

    def unit(self, key, fine=is_result):
        """The result of a unit, or None. fine: whether a value can be one."""
        with self._errors():
            text = self._one("SELECT result FROM units WHERE key=?", (key,))
        return None if text is None else self._value(text, fine, "a unit of work")

    def keep_unit(self, key, result):
        """Once: a result that is there already stays."""
        with self._errors(), self._transaction():
            self._file.execute("INSERT OR IGNORE INTO units VALUES (?, ?)", (key, json.dumps(result)))

    def units_with_samples(self, build, features, count):
        """Keys of units of a build that have samples for the learned cost model, of the features of this version."""
        with self._errors():
            rows = self._file.execute(
                "SELECT key FROM units WHERE json_extract(result, '$.build')=? AND json_extract(result, '$.features')=?"
                " ORDER BY key LIMIT ?",
                (build, features, count),
            )
            return [key for (key,) in rows]

    def networks(self, model, machine, compiler):
        """[{judge, cycles, bytes, default_cycles, schedules, provenance}], one of each judge, the strictest first."""
        names = ("judge", "cycles", "bytes", "default_cycles", "schedules", "provenance")
        with self._errors():
            rows = self._file.execute(
                f"SELECT {', '.join(names)} FROM networks WHERE model=? AND machine=? AND compiler=? ORDER BY judge",
                (model, machine, compiler),
            ).fetchall()
        found = [dict(zip(names, row)) for row in rows]
        found.sort(key=lambda record: STRICT.index(record["judge"]) if record["judge"] in STRICT else len(STRICT))
        for record in found:
            for name in ("schedules", "provenance"):
                record[name] = self._value(record[name], is_object, f"a record's {name}")
        return found

    def network(self, model, machine, compiler):
        """The strictest judge's of networks(), or None."""
        return next(iter(self.networks(model, machine, compiler)), None)

    def last_network(self, model, machine):
        """The record that was written last, of any version and judge, as one of networks(); or None."""
        with self._errors():
            row = self._file.execute(
                "SELECT compiler, judge FROM networks WHERE model=? AND machine=?"
                " ORDER BY json_extract(provenance, '$.time') DESC, compiler DESC, judge DESC",
                (model, machine),
            ).fetchone()
        found = [] if row is None else self.networks(model, machine, row[0])
        return next((record for record in found if record["judge"] == row[1]), None)

    def keep_network(self, key, found):
        """key: (model, machine, compiler). found: as one of networks(). BETTER says what it replaces of its judge's."""
        values = [
            json.dumps(found[name]) if name in ("schedules", "provenance") else found[name]
            for name in ("judge", "cycles", "bytes", "default_cycles", "schedules", "provenance")
        ]
        with self._errors(), self._transaction():
            self._file.execute(
                "INSERT INTO networks VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET"
                " cycles=excluded.cycles, bytes=excluded.bytes, default_cycles=excluded.default_cycles,"
                f" schedules=excluded.schedules, provenance=excluded.provenance WHERE {BETTER}",
                (*key, *values),
            )

    def keep_layers(self, machine, compiler, judge, provenance, rows):
        """rows: (piece, schedule as text, cycles, bytes). BETTER says what they replace."""
        with self._errors(), self._transaction():
            self._file.executemany(
                "INSERT INTO layers VALUES (?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET judge=excluded.judge,"
                " cycles=excluded.cycles, bytes=excluded.bytes, schedule=excluded.schedule,"
                f" provenance=excluded.provenance WHERE {BETTER}",
                [
                    (piece, machine, compiler, judge, cycles, moved, schedule, json.dumps(provenance))
                    for piece, schedule, cycles, moved in rows
                ],
            )

    def layer(self, piece, machine, compiler):
        """(schedule as text, cycles, bytes), or None."""
        with self._errors():
            return self._file.execute(
                "SELECT schedule, cycles, bytes FROM layers WHERE piece=? AND machine=? AND compiler=?",
                (piece, machine, compiler),
            ).fetchone()
