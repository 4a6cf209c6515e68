# SPDX-License-Identifier: Apache-2.0
"""Programs that people install, unchanged, with their models on the NPU. In: the programs of examples/apps, which are
installed by name into an environment of their own, and inputs that are made here. Each program runs four times: on
ONNX Runtime, in float on Tessera, in float on a few other inputs, which are captured and quantised from, and in int8 on
the timing model. Where that takes long, the timing model runs a few of the inputs, and the functional simulator, whose
integers are the same, answers all. Out: a row for each model of a program: whether the answers in float are ONNX
Runtime's, how near those in int8 are to them, cycles, seconds, and the share of products on the NPU."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "apps"
LIMIT = 7200  # seconds of one run
TOLERANCE = 1e-3  # of numbers in answers that count as equal
NEAR_SECONDS = 0.05  # of a note's start
NEAR_SAMPLES = 1024  # of a segment's ends: 64 ms


# --- how near answers are: each function takes those in float and in int8, {file: answer}


def characters(real, other):
    """Share of the characters that were read alike: one less the distance of edits over the length."""
    texts = [("\n".join(real[file]), "\n".join(other.get(file, []))) for file in real]
    return 1 - sum(edits(a, b) for a, b in texts) / max(1, sum(len(a) for a, _ in texts))


def edits(a, b):
    """Levenshtein's distance of two texts."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def labels(real, other):
    """Share of files with the same label."""
    return sum(real[file][0] == other[file][0] for file in real) / len(real)


def matched(real, other, same):
    """Pairs of answers that `same` takes for one, each answer in one pair at most."""
    left, count = list(other), 0
    for one in real:
        found = next((two for two in left if same(one, two)), None)
        if found is not None:
            left.remove(found)
            count += 1
    return count


def share_matched(real, other, same):
    """The F1 of the pairs over all files."""
    pairs = sum(matched(real[file], other[file], same) for file in real)
    return 2 * pairs / max(1, sum(len(real[file]) + len(other[file]) for file in real))


def notes(real, other):
    """F1 of notes: the same pitch, starts within 50 ms."""
    return share_matched(real, other, lambda a, b: a[2] == b[2] and abs(a[0] - b[0]) <= NEAR_SECONDS)


def segments(real, other):
    """F1 of segments of speech: both ends within 64 ms."""
    return share_matched(real, other, lambda a, b: all(abs(x - y) <= NEAR_SAMPLES for x, y in zip(a, b)))


def scores(real, other):
    """The largest difference of a wake word's score."""
    return max(abs(real[file][word] - other[file][word]) for file in real for word in real[file])


def overlap(a, b):
    """Intersection over union of two boxes (left, top, right, bottom)."""
    area = lambda box: max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])
    inner = area([max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])])
    return inner / max(area(a) + area(b) - inner, 1e-9)


def boxes(real, other):
    """The mean overlap of boxes of one class, each with the nearest of the other answer; one without any counts 0."""
    found = []
    for file in real:
        for own, others in ((real[file], other[file]), (other[file], real[file])):
            found += [max((overlap(a[2:], b[2:]) for b in others if a[0] == b[0]), default=0.0) for a in own]
    return sum(found) / max(1, len(found))


def alike(a, b):
    """Whether two answers are equal, numbers to within their last rounded digit."""
    if isinstance(a, (list, dict)):
        pairs = zip(a.values(), b.values()) if isinstance(a, dict) else zip(a, b)
        return type(a) is type(b) and len(a) == len(b) and all(alike(x, y) for x, y in pairs)
    return abs(a - b) <= TOLERANCE if isinstance(a, float) and isinstance(b, float) else a == b


@dataclasses.dataclass
class App:
    """driver: a program of examples/apps. inputs: a kind that inputs.py makes. captured, tested: how many of them.
    score: a function of the answers, and what is wanted of it: at least, or at most where `least` is False. timed: how
    many of the tested ones run on the timing model; None: all."""

    driver: str
    inputs: str
    captured: int
    tested: int
    score: object
    goal: float
    least: bool = True
    timed: int = None

    def reached(self, value):
        return value >= self.goal if self.least else value <= self.goal


APPS = {
    "rapidocr": App("read_pages.py", "pages", 2, 20, characters, 0.98, timed=1),
    "magika": App("name_files.py", "files", 12, 100, labels, 0.98),
    "basic-pitch": App("find_notes.py", "tunes", 2, 5, notes, 0.97),
    "silero-vad": App("find_speech.py", "speech", 4, 10, segments, 1.0),
    "openwakeword": App("wake_words.py", "words", 7, 21, scores, 0.03, least=False),
    "rapid-layout": App("find_layout.py", "layouts", 4, 10, boxes, 0.9),
}


# --- running them


def environment(build):
    """The Python of the applications' environment; TESSERA_APPS_PYTHON names one that is there."""
    if os.environ.get("TESSERA_APPS_PYTHON"):
        return pathlib.Path(os.environ["TESSERA_APPS_PYTHON"])
    folder = build.parent / "apps"
    python, stamp = folder / "bin" / "python", folder / "requirements.stamp"
    lists = [EXAMPLES / "requirements-apps.txt", EXAMPLES / "requirements-alone.txt"]
    wanted = "".join(path.read_text(encoding="utf-8") for path in lists)
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        say("installing the applications")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", lists[0]], check=True)
        subprocess.run([*pip, "--no-deps", "-r", lists[1]], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return python


def say(text):
    print(text, file=sys.stderr, flush=True)


class Runner:
    """Runs one application in a folder of its own."""

    def __init__(self, app, python, build, folder):
        self.app, self.python, self.folder = app, str(python), folder
        self.tessera = str(build / "bin" / "tessera")
        for kind, count, seed in (("captured", app.captured, 1), ("tested", app.tested, 2)):
            words = [app.inputs, folder / kind, count, seed]
            self.call([self.python, EXAMPLES / "inputs.py", *words], f"making inputs ({kind})")

    def first(self, kind, count):
        """The kind of the first `count` inputs of a kind."""
        few = f"{kind}_first"
        (self.folder / few).mkdir()
        for file in sorted((self.folder / kind).iterdir())[:count]:
            (self.folder / few / file.name).symlink_to(file)
        return few

    def call(self, words, what):
        start = time.monotonic()
        done = subprocess.run(
            [str(w) for w in words], capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            raise SystemExit(f"bench apps: {what}: {(done.stderr or done.stdout).strip()[-1500:]}")
        return time.monotonic() - start

    def run(self, kind, what, options=None):
        """The answers, the rows of `tessera app --json`, and the seconds. options: of `tessera app`, or None for ONNX
        Runtime alone."""
        answers, table = self.folder / "answers.json", self.folder / "table.json"
        words = [self.python, EXAMPLES / self.app.driver, self.folder / kind, answers]
        if options is not None:
            words = [self.tessera, "app", "--json", table, *options, "--", *words]
        seconds = self.call(words, what)
        rows = json.loads(table.read_text(encoding="utf-8")) if options is not None else []
        return json.loads(answers.read_text(encoding="utf-8")), rows, seconds


def rows_of(name, python, build, config):
    """The rows of one application."""
    app = APPS[name]
    with tempfile.TemporaryDirectory() as folder:
        say(f"{name}: making {app.tested} inputs")
        work = Runner(app, python, build, pathlib.Path(folder))
        machine = ["--config", config]
        real, _, alone = work.run("tested", "ONNX Runtime")
        say(f"{name}: ONNX Runtime in {alone:.0f} s; float on Tessera")
        ours, _, seconds = work.run("tested", "float", ["--compare", *machine])
        equal = sum(alike(ours[file], real[file]) for file in real)
        say(f"{name}: {equal} of {len(real)} answers are equal, {seconds:.0f} s; capturing and quantising")
        kept = pathlib.Path(folder) / "kept"
        work.run("captured", "capture", ["--quantize", kept, *machine])
        made = [json.loads(path.read_text(encoding="utf-8")) for path in kept.glob("*/int8_*.json")]
        say(f"{name}: {len(made)} models quantised in {sum(m['seconds'] for m in made):.0f} s; int8")
        int8 = lambda kind, device: work.run(kind, "int8", ["--device", device, "--quantize", kept, *machine])
        other, rows, seconds = int8("tested", "sysc" if app.timed is None else "fsim")
        if app.timed is not None:
            say(f"{name}: int8 on the functional simulator in {seconds:.0f} s; {app.timed} on the timing model")
            few, timed_rows, _ = int8(work.first("tested", app.timed), "sysc")
            if any(few[file] != other[file] for file in few):
                raise SystemExit(f"bench apps: {name}: the timing model's answers are not the functional simulator's")
            cycles = {row["key"]: row["cycles"] for row in timed_rows}
            rows = [{**row, "cycles": cycles.get(row["key"])} for row in rows]
    score = app.score(real, other)
    say(f"{name}: {seconds:.0f} s, score {score:.4f}, goal {app.goal}")
    told = {m["model"]: m for m in made}
    return [
        {
            "application": name,
            "model": row["model"],
            "float_equal": f"{equal} of {len(real)}",
            "int8_score": round(score, 4),
            "goal": f"{'at least' if app.least else 'at most'} {app.goal}",
            "reached": app.reached(score),
            "runs_as": row["how"],
            "runs": row["runs"],
            "on_onnx_runtime": row["fallback_runs"],
            "products_on_npu_percent": row["npu_percent"],
            "cycles_a_run": row["cycles"],
            "cycles_of_inputs": app.timed or app.tested,
            "cpu_seconds_a_run": round(row["cpu_seconds"] / max(1, row["runs"]), 5),
            "quantise_seconds": told.get(row["key"], {}).get("seconds"),
            "first_runs_seconds": row["first_seconds"],
        }
        for row in rows
    ]


def bench(names, config, build):
    python, rows = environment(build), []
    for name in names or APPS:
        rows += rows_of(name, python, build, config or "npu256")
    return {"apps": rows}
