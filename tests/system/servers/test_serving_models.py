# SPDX-License-Identifier: Apache-2.0
"""The repository of `tessera serve`: settings, versions, memory, models that come and go while clients ask."""

import json
import shutil
import threading
import time

import numpy as np
import pytest
from onnx import TensorProto, helper

import tessera
from tests.system import serving

for package in serving.PACKAGES:
    pytest.importorskip(package, reason=f"the Python package {package} is missing; ./dev setup installs it")
import tritonclient.grpc  # noqa: E402
import tritonclient.http  # noqa: E402

from tessera.serving import batching, served, settings  # noqa: E402
from tessera.serving.metrics import Metrics  # noqa: E402
from tessera.serving.refusals import Kind, Refusal  # noqa: E402
from tessera.serving.repository import Repository  # noqa: E402
from tessera.serving.store import Store  # noqa: E402

pytestmark = pytest.mark.usefixtures("compiled_once")


def adds(number):
    """y = x + number, on any number of rows."""
    ports = [serving.tensor(name, TensorProto.INT64, ["n"]) for name in ("x", "y")]
    node = helper.make_node("Add", ["x", "number"], ["y"])
    return serving.model([node], ports[:1], ports[1:], [("number", np.array([number], np.int64))])


def store_of(root, **options):
    made = Store(Repository(root, {"device": "fsim", "config": ""}), Metrics(), **options)
    made.load_all()
    return made


def ask(store, name, x=0, version=""):
    """The version that answered, and the answer of a model of adds()."""
    feeds = {"x": np.array([x], np.int64)}
    number, _, job = store.submit(name, version, lambda there: feeds, time.monotonic() + 30)
    return int(number), int(job.future.result(30)["y"][0])


# --- settings -----------------------------------------------------------------------------------------------


def test_settings_that_are_missing_are_the_defaults(tmp_path):
    assert settings.read(tmp_path, {"device": "sysc"}).device == "sysc"
    (tmp_path / "tessera.toml").write_text("device = 'fsim'\n[batching]\nmax_batch = 6\n")
    read = settings.read(tmp_path, {"device": "sysc"})
    assert read.device == "fsim" and read.batching.sizes == (1, 2, 4, 6)


@pytest.mark.parametrize(
    "text, cause",
    [
        ("device = 3", "'device' is a text, not 3"),
        ("devise = 'fsim'", "no key 'devise'; the keys are device"),
        ("a b", "not TOML"),
        ("instances = 0", "'instances' is a whole number of 1 or more"),
        ("versions = {first = 1}", "'versions' is"),
        ("versions = []", "'versions' is"),
        ("shapes = {x = [-1]}", "'shapes' is"),
        ("cores = [0, -1]", "'cores' is a list of numbers of cores"),
        ("priority = true", "'priority' is a whole number"),
        ("[batching]\nmax_batch = -1", "'batching.max_batch'"),
        ("[batching]\nmax_rows = 1", "no key 'batching.max_rows'"),
        ("[batching]\nmax_queue_delay = 100", "seconds from 0 to 60"),
        ("[batching]\nmax_batch = 8\nsizes = [1, 4]", "the largest of 'batching.sizes' is max_batch"),
        ("[batching]\nmax_batch = 9\nsizes = [1, 2, 3, 4, 5, 6, 7, 8, 9]", "eight are the most"),
        ("[calibration]\nsamples = 3", "'calibration' is a table with the key data"),
        ("[calibration]\ndata = '../other.npz'", "leaves the model's folder"),
        ("config = '../other.toml'", "leaves the model's folder"),
        ("config = '../../etc/passwd'", "leaves the model's folder"),
    ],
)
def test_settings_that_are_wrong(tmp_path, text, cause):
    (tmp_path / "tessera.toml").write_text(text)
    with pytest.raises(tessera.Error, match=cause.replace("[", r"\[").replace("{", r"\{")):
        settings.read(tmp_path, {})


# --- the folder ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy, served_versions",
    [
        ("", [10]),
        ("versions = {latest = 2}", [2, 10]),
        ('versions = "all"', [1, 2, 10]),
        ("versions = [1, 10]", [1, 10]),
    ],
)
def test_the_policy_of_versions(tmp_path, policy, served_versions):
    for version in (1, 2, 10):
        serving.put(tmp_path, "adds", adds(version), version, policy)
    (tmp_path / "adds" / "011").mkdir()
    (tmp_path / "adds" / "notes").mkdir()
    store = store_of(tmp_path)
    assert store.versions_of("adds") == [str(version) for version in served_versions]
    assert ask(store, "adds") == (served_versions[-1], served_versions[-1])
    for version in served_versions:
        assert ask(store, "adds", 5, str(version)) == (version, 5 + version)
    for version in ("3", "01", "1.0", "-1", "\u0661", "9" * 50):
        with pytest.raises(Refusal, match="has no version"):
            store.find("adds", version)


def test_names_of_clients_are_never_paths(tmp_path):
    serving.put(tmp_path / "models", "adds", adds(1))
    serving.put(tmp_path / "outside", "secret", adds(2))
    store = store_of(tmp_path / "models")
    for name in ("../outside/secret", "..", ".", "", "adds/1", "/etc", "adds\0", "%2e%2e"):
        with pytest.raises(Refusal) as refused:
            store.load_or_refuse(name)
        assert refused.value.kind is Kind.NOT_FOUND
        with pytest.raises(Refusal):
            store.find(name)
    assert [row["name"] for row in store.index()] == ["adds"]


def test_models_that_cannot_be_served(tmp_path):
    """Each is refused with its reason; the others are served."""
    sequence = helper.make_graph(
        [helper.make_node("SplitToSequence", ["x"], ["y"], axis=0)],
        "graph",
        [serving.tensor("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)],
    )
    sequence = helper.make_model(sequence, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    serving.put(tmp_path, "sequence", sequence.SerializeToString())
    serving.put(tmp_path, "float8", serving.echo(TensorProto.FLOAT8E4M3FN, [2]))
    serving.put(tmp_path, "no_rows", serving.echo(TensorProto.FLOAT, [3]), settings="[batching]\nmax_batch = 2")
    serving.put(tmp_path, "wrong_warm", adds(1), settings="warm = [{z = [1]}]")
    serving.put(tmp_path, "device", adds(1), settings="device = 'abacus'")
    serving.put(tmp_path, "twice", adds(1))
    shutil.copy(tmp_path / "twice" / "1" / "model.onnx", tmp_path / "twice" / "1" / "model.tsr")
    (tmp_path / "empty").mkdir()
    serving.put(tmp_path, "good", adds(1))
    store = store_of(tmp_path)
    reasons = {row["name"]: row["reason"] for row in store.index()}
    for name, cause in (
        ("sequence", "has no output that the Open Inference Protocol"),
        ("float8", "input 'x' is a tensor of float8e4m3fn"),
        ("no_rows", "'x' has the shape [3], whose first dimension is not open"),
        ("wrong_warm", "'warm' names the inputs ['z']"),
        ("device", "abacus"),
        ("twice", "has 2 files of model.onnx, model.tflite, model.tsr"),
        ("empty", "has no version to serve"),
        ("good", ""),
    ):
        assert cause in reasons[name], reasons[name]
    assert ask(store, "good", 2) == (1, 3)


def test_artifacts_and_their_signatures(tmp_path, command):
    tessera.Session(serving.digits(), shapes={"image": [1, 1, 8, 8]}).save(tmp_path / "digits.tsr")
    assert command("keygen", tmp_path / "release").returncode == 0
    for name in ("signed", "unsigned"):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        shutil.copy(tmp_path / "digits.tsr", tmp_path / "models" / name / "1" / "model.tsr")
    signed = tmp_path / "models" / "signed" / "1" / "model.tsr"
    assert command("sign", signed, "--key", tmp_path / "release.key").returncode == 0
    store = store_of(tmp_path / "models", trusted_keys=tmp_path / "release.pub")
    assert {row["name"]: row["state"] for row in store.index()} == {"signed": "READY", "unsigned": "UNAVAILABLE"}
    assert [port["shape"] for port in store.metadata("signed")["inputs"]] == [[1, 1, 8, 8]]


def test_a_float_model_is_quantised_as_its_settings_say(tmp_path):
    folder = serving.DIGITS
    serving.put(
        tmp_path,
        "digits",
        (folder / "digits_float.onnx").read_bytes(),
        settings="[calibration]\ndata = 'calibration.npz'\nengine = 'onnxruntime'\nsamples = 8\nreport = false\n",
    )
    shutil.copy(folder / "digits_calibration.npz", tmp_path / "digits" / "calibration.npz")
    store = store_of(tmp_path)
    image = serving.images()[:4]
    _, _, job = store.submit("digits", "", lambda there: {"image": image}, time.monotonic() + 60)
    here = tmp_path / "here.onnx"
    options = dict(engine="onnxruntime", samples=8, report=False)
    tessera.quantize(folder / "digits_float.onnx", folder / "digits_calibration.npz", here, **options)
    wanted = serving.in_process(here.read_bytes(), {"image": image})
    assert np.array_equal(job.future.result(60)["logits"], wanted["logits"])


def test_only_shapes_that_were_warmed(tmp_path):
    serving.put(tmp_path, "adds", adds(1), settings="only_warm = true\nwarm = [{x = [1]}, {x = [4]}]")
    store = store_of(tmp_path)
    assert ask(store, "adds", 2) == (1, 3)
    with pytest.raises(Refusal, match="only_warm"):
        store.submit("adds", "", lambda there: {"x": np.zeros(2, np.int64)}, None)


def test_shapes_that_will_come_are_prepared_behind_the_requests(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(tessera.Session, "prepare", lambda session, shapes: asked.extend(shapes))
    serving.put(tmp_path, "adds", adds(1))
    path = tmp_path / "adds" / "1" / "model.onnx"
    served.Served("adds", path, settings.Settings(prepare=("ad*:x=2-6/2", "other:x=9", "x=1,1"))).retire()
    assert asked == [{"x": [2]}, {"x": [4]}, {"x": [6]}]
    own = settings.parse("tessera.toml", "prepare = ['x=2,3']", {"prepare": ["x=7"]})
    with pytest.raises(tessera.Error, match="input 'x' of 'adds' is [?]"):
        served.Served("adds", path, own)
    with pytest.raises(tessera.Error, match="list of texts"):
        settings.parse("tessera.toml", "prepare = 'x=1'", {})


# --- the queue ----------------------------------------------------------------------------------------------


def test_batches_hold_what_fits_and_belongs_together():
    queue = batching.Queue("m", settings.Batching(max_batch=4, sizes=(1, 2, 4), max_queue_delay=60, max_queue=6))
    jobs = [batching.Job({}, rows, key) for rows, key in ((2, "a"), (1, "b"), (2, "a"), (4, "b"), (1, "a"))]
    for job in jobs:
        queue.put(job)
    assert queue.take() == [jobs[0], jobs[2]]  # full; the next of its kind waits
    assert queue.take() == [jobs[1]]  # the next of its kind does not fit
    assert queue.take() == [jobs[3]]
    jobs[4].future.cancel()
    late = batching.Job({}, 1, "a", deadline=time.monotonic() - 1)
    good = batching.Job({}, 1, "a")
    for job in (late, good):
        queue.put(job)
    queue.close()
    assert queue.take() == [good] and queue.take() is None
    assert late.future.exception().kind is Kind.DEADLINE
    with pytest.raises(batching.Closed):
        queue.put(batching.Job({}))


def test_the_delay_is_bounded():
    queue = batching.Queue("m", settings.Batching(max_batch=4, sizes=(4,), max_queue_delay=0.05))
    queue.put(batching.Job({}, 1, "a"))
    begun = time.monotonic()
    assert len(queue.take()) == 1
    assert 0.04 <= time.monotonic() - begun < 5


# --- memory -------------------------------------------------------------------------------------------------


def test_who_was_asked_longest_ago_makes_room(tmp_path):
    for name in ("a", "b", "c"):
        serving.put(tmp_path, name, serving.digits(), settings="shapes = {image = [1, 1, 8, 8]}")
    each = store_of(tmp_path).find("a").served.bytes
    store = store_of(tmp_path, memory_limit=int(2.5 * each))
    image = serving.images()[:1]
    oracle = serving.in_process(serving.digits(), {"image": image})["logits"]
    resident = lambda: {name for name in "abc" if store.is_resident(name)}

    def logits(name):
        _, _, job = store.submit(name, "", lambda there: {"image": image}, None)
        return job.future.result(30)["logits"]

    assert resident() == {"b", "c"}
    for name, there in (("b", "bc"), ("a", "ab"), ("b", "ab"), ("c", "bc"), ("a", "ac")):
        assert np.array_equal(logits(name), oracle)
        assert resident() == set(there)
        assert all(store.is_ready(other) for other in "abc")
    assert "the next request loads it" in {row["name"]: row["reason"] for row in store.index()}["b"]
    small = store_of(tmp_path, memory_limit=each // 2)
    assert all("--model-memory" in row["reason"] and row["state"] == "UNAVAILABLE" for row in small.index())


# --- faults -------------------------------------------------------------------------------------------------


class Faulty:
    """A session whose device fails when it sees the number 13, and then always, as a device that hangs does."""

    opened = 0

    def __init__(self, session):
        Faulty.opened += 1
        self._inner, self._broken = session, False

    def run(self, names, feeds):
        self._broken |= 13 in feeds["x"]
        if self._broken:
            raise tessera.errors.error("device_fault", "the device stopped")
        return self._inner.run(names, feeds)

    def __getattr__(self, name):
        return getattr(self._inner, name)


def test_a_device_fault_ends_one_request_alone(tmp_path, monkeypatch):
    opens = served.Served._open
    monkeypatch.setattr(served.Served, "_open", lambda self: Faulty(opens(self)))
    Faulty.opened = 0
    serving.put(tmp_path, "adds", adds(1), settings="[batching]\nmax_batch = 8\nmax_queue_delay = 0.05\n")
    store = store_of(tmp_path)
    feeds = lambda number: lambda there: {"x": np.array([number], np.int64)}
    jobs = {number: store.submit("adds", "", feeds(number), None)[2] for number in range(10, 18)}
    for number, job in jobs.items():
        if number == 13:
            assert job.future.exception(30).kind is Kind.FAULT and "the device stopped" in str(job.future.exception())
        else:
            assert job.future.result(30)["y"].tolist() == [number + 1]
    assert Faulty.opened == 3  # at first, after the batch, after the request alone


# --- models that come and go --------------------------------------------------------------------------------


class Asking:
    """Clients of both protocols that ask adds without a pause. Every answer is noted; none may fail."""

    def __init__(self, server):
        self._stop, self.numbers, self.problems = threading.Event(), {}, []
        self._threads = []
        for kind, library in (("http", tritonclient.http), ("grpc", tritonclient.grpc)):
            for _ in range(3):
                thread = threading.Thread(target=self._ask, args=(library, getattr(server, kind)))
                self._threads.append(thread)
                thread.start()

    def _ask(self, library, address):
        numbers = self.numbers.setdefault(threading.get_ident(), [])
        with library.InferenceServerClient(address) as client:
            while not self._stop.is_set():
                tensor = library.InferInput("x", [1], "INT64")
                tensor.set_data_from_numpy(np.array([100], np.int64))
                try:
                    numbers.append(int(client.infer("adds", [tensor]).as_numpy("y")[0]) - 100)
                except Exception as problem:
                    self.problems.append(problem)

    def latest(self):
        return [numbers[-1] for numbers in self.numbers.values() if numbers]

    def end(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("control", ["poll", "explicit"])
def test_a_model_is_replaced_without_a_lost_request(tmp_path, control):
    serving.put(tmp_path, "adds", adds(1), settings="[batching]\nmax_batch = 4\n")
    with serving.Server(tmp_path, "--model-control", control, "--poll-seconds", 0.1) as server:
        asking = Asking(server)
        client = tritonclient.grpc.InferenceServerClient(server.grpc)
        try:
            for number in range(2, 6):
                # Sometimes another version, sometimes another file of the same one.
                serving.put(tmp_path, "adds", adds(number), 1 + number // 2, "[batching]\nmax_batch = 4\n")
                if control == "explicit":
                    client.load_model("adds")
                serving.eventually(lambda wanted=number: set(asking.latest()) == {wanted}, 20)
            # What cannot be loaded leaves the old one where it is.
            serving.put(tmp_path, "adds", b"nonsense", 4)
            if control == "explicit":
                with serving.refused("model 'adds' version 4 cannot be loaded"):
                    client.load_model("adds")
            reason = lambda: client.get_model_repository_index(as_json=True)["models"][0].get("reason", "")
            serving.eventually(lambda: "the new ones cannot be loaded" in reason(), 20)
            time.sleep(0.1)
        finally:
            asking.end()
            client.close()
        assert not asking.problems, asking.problems[0]
        assert set(asking.latest()) == {5}
        for numbers in asking.numbers.values():
            assert numbers == sorted(numbers)  # never an old one after a new one


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_clients_load_and_unload(tmp_path, kind):
    serving.put(tmp_path, "adds", adds(1))
    serving.put(tmp_path, "more", adds(2))
    library = getattr(tritonclient, kind)
    words = ("--model-control", "explicit", "--load-model", "adds")
    with serving.Server(tmp_path, *words) as server, library.InferenceServerClient(getattr(server, kind)) as client:
        assert client.is_model_ready("adds") and not client.is_model_ready("more")
        client.load_model("more")
        assert client.is_model_ready("more")
        client.unload_model("adds")
        assert not client.is_model_ready("adds")
        with serving.refused("there is no model 'adds' to ask: unloaded"):
            client.get_model_metadata("adds")
        for act in (client.load_model, client.unload_model):
            with serving.refused("no model 'nobody'"):
                act("nobody")
        with serving.refused("come from the repository alone"):
            client.load_model("more", config=json.dumps({"backend": "python"}))
        client.load_model("adds")
        assert client.is_model_ready("adds")


def test_models_come_and_go_with_their_folders(tmp_path):
    serving.put(tmp_path, "adds", adds(1))
    store = store_of(tmp_path)
    serving.put(tmp_path, "more", adds(2))
    store.poll()
    assert ask(store, "more") == (1, 2) and ask(store, "adds") == (1, 1)
    there = store.find("adds").served
    store.poll()
    assert store.find("adds").served is there  # nothing has changed
    shutil.rmtree(tmp_path / "adds")
    store.poll()
    with pytest.raises(Refusal, match="no model 'adds'"):
        store.find("adds")
    assert [row["name"] for row in store.index()] == ["more"] and there.join(10)


def test_what_runs_is_answered_when_the_server_ends(tmp_path):
    serving.put(tmp_path, "counting", serving.counting())
    results = []
    with serving.Server(tmp_path) as server:

        def ask(library, address):
            with library.InferenceServerClient(address) as client:
                tensor = library.InferInput("times", [1], "INT64")
                tensor.set_data_from_numpy(np.array([200_000], np.int64))
                results.append(client.infer("counting", [tensor]).as_numpy("counted").tolist())

        asking = [
            threading.Thread(target=ask, args=pair)
            for pair in ((tritonclient.http, server.http), (tritonclient.grpc, server.grpc))
        ]
        for thread in asking:
            thread.start()
        time.sleep(0.4)
        server.terminate()
        for thread in asking:
            thread.join()
        server.process.wait(20)
    assert results == [[200_000]] * 2


# --- models on one chip -------------------------------------------------------------------------------------


def test_models_share_a_chip(tmp_path):
    """Three models on one chip, two of them on the same cores, asked all at once: each answers as ONNX Runtime does."""
    import onnxruntime

    images = np.load(serving.DIGITS / "digits_test.npz")["images"][:4]
    path = serving.DIGITS / "digits.onnx"
    expected = onnxruntime.InferenceSession(str(path)).run(None, {"image": images})[0]
    for name, cores, priority in (("urgent", "[0, 1]", 1), ("steady", "[0, 1]", 0), ("other", "[3, 2]", 0)):
        folder = tmp_path / name / "1"
        folder.mkdir(parents=True)
        shutil.copy(path, folder / "model.onnx")
        text = f'device = "sysc"\nconfig = "npu256x4"\ncores = {cores}\npriority = {priority}\n'
        (folder.parent / "tessera.toml").write_text(text + "shapes = {image = [1, 1, 8, 8]}\n")
    store = store_of(tmp_path)
    chips = {id(store.served(store.find(name))._chip) for name in ("urgent", "steady", "other")}
    assert len(chips) == 1
    jobs = []
    for k in range(24):
        feeds = {"image": images[k % 4 : k % 4 + 1]}
        name = ("urgent", "steady", "other")[k % 3]
        jobs.append((k % 4, store.submit(name, "", lambda there, feeds=feeds: feeds, time.monotonic() + 60)[2]))
    for row, job in jobs:
        assert np.array_equal(job.future.result(60)["logits"][0], expected[row])


def test_cores_without_a_chip(tmp_path):
    """A model whose settings name cores of no chip is left out with the reason."""
    causes = {
        "no_config": ("cores = [0]", "there is no 'config'"),
        "one_core": ('config = "npu64"\ncores = [1]', "core 1 of configuration 'npu64'"),
    }
    for name, (text, _) in causes.items():
        folder = tmp_path / name / "1"
        folder.mkdir(parents=True)
        shutil.copy(serving.DIGITS / "digits.onnx", folder / "model.onnx")
        (folder.parent / "tessera.toml").write_text(text)
    store = store_of(tmp_path)
    for row in store.index():
        assert row["state"] == "UNAVAILABLE" and causes[row["name"]][1] in row["reason"]
