# SPDX-License-Identifier: Apache-2.0
"""`tessera app` and tessera.onnxruntime: small programs that use ONNX Runtime as people do run unchanged, and every
result is compared with the one that ONNX Runtime itself gives for the same program or the same call."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tessera.app import capture
from tests.system.conftest import BUILD, ROOT
from tests.system.float_models import Builder

PACKAGES = [str(ROOT / "tessera" / "python"), str(BUILD / "lib")]


def small_network():
    """A convolution, an average and a product, of any batch, height and width."""
    b = Builder(opset=17, seed=3)
    x = b.node("Relu", [b.conv("image", 3, 8)])
    x = b.node("Relu", [b.conv(x, 8, 8)])
    pooled = b.node("Flatten", [b.node("GlobalAveragePool", [x])])
    y = b.node("MatMul", [pooled, b.weights(8, 5)])
    b.nodes[-1].output[0], y = "scores", "scores"
    model = b.model({"image": ["N", 3, "H", "W"]}, [y])
    model.metadata_props.add(key="labels", value="a,b,c,d,e")
    return model


def unknown_operator():
    """An operator of ONNX Runtime's own domain that Tessera does not have, behind one that it has."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("SampleOp", ["r"], ["y"], domain="com.microsoft")]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "unknown", [value("x", TensorProto.FLOAT, [1, 6])], [value("y", TensorProto.FLOAT, [1, 6])]
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("app")
    onnx.save(small_network(), path / "small.onnx")
    onnx.save(unknown_operator(), path / "unknown.onnx")
    return path


def start(folder, program, *options, plain=False, command=None, **process):
    """Runs a program below `tessera app`, or without it."""
    file = folder / f"program{abs(hash(program))}.py"
    file.write_text(textwrap.dedent(program))
    words = command or [sys.executable, str(file)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PACKAGES)}
    if not plain:
        words = [sys.executable, "-m", "tessera.app", *options, "--", *words]
    return subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **process
    )


def finish(process, status=0):
    out, err = process.communicate(timeout=120)
    assert process.returncode == status, err
    return out, err


def cells(err, model):
    """The row of a model in the table, by its titles."""
    lines = err.splitlines()
    title = next(k for k, line in enumerate(lines) if line.startswith("model  "))
    split = lambda line: [cell.strip() for cell in line.split("  ") if cell.strip()]
    row = next((line for line in lines[title + 1 :] if line.startswith(model)), None)
    assert row is not None, err
    return dict(zip(split(lines[title]), split(row)))


EVERYTHING = """
    import copy, inspect, pickle, sys, threading, weakref
    import numpy as np
    import onnxruntime, onnxruntime as ort
    from onnxruntime import InferenceSession
    from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession as Same
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    assert Same is InferenceSession is ort.InferenceSession
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 9, 7)).astype(np.float32)
    told = [ort.__version__, ort.get_available_providers(), str(inspect.signature(InferenceSession))]
    told.append(str(inspect.signature(InferenceSession.run)))
    show = lambda *arrays: told.extend((a.dtype.name, a.shape, np.round(a.astype(float), 3).tolist()) for a in arrays)

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads, options.inter_op_num_threads = 2, 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.add_free_dimension_override_by_name("H", 9)
    options.optimized_model_filepath = sys.argv[0] + ".optimized.onnx"
    options.enable_profiling, options.profile_file_prefix = True, sys.argv[0] + ".profile"
    session = InferenceSession("small.onnx", options, providers=[("CPUExecutionProvider", {"use_arena": "1"})])
    told.append([[p.name, p.type, p.shape] for p in [*session.get_inputs(), *session.get_outputs()]])
    told.append([session.get_providers(), session.get_modelmeta().custom_metadata_map])
    told.append(session.get_session_options().intra_op_num_threads)
    show(*session.run(None, {"image": x}), *session.run([], {"image": x}), *session.run(["scores"] * 2, {"image": x}))
    show(*session.run(("scores",), {"image": x}, ort.RunOptions()))
    show(*session.run(None, {"image": x.transpose(0, 1, 2, 3)[:, :, :, ::-1]}))
    show(*session.run(None, {"image": ort.OrtValue.ortvalue_from_numpy(x)}))
    told.append(session.end_profiling().startswith(sys.argv[0]))
    session.set_providers(["CPUExecutionProvider"])
    show(*session.run(None, {"image": x}))

    session = InferenceSession(open("small.onnx", "rb").read())
    value = ort.OrtValue.ortvalue_from_numpy(x.copy())
    for _ in range(2):
        result = session.run_with_ort_values(["scores"], {"image": value})[0]
        told.append([type(result).__name__, result.data_type(), result.shape()])
        show(result.numpy())
        value.update_inplace(x * 2)
    binding = session.io_binding()
    held = x.copy()
    binding.bind_cpu_input("image", held)
    binding.bind_output("scores")
    for factor in (1, 3):
        held *= factor
        session.run_with_iobinding(binding)
        show(*binding.copy_outputs_to_cpu(), binding.get_outputs()[0].numpy())
    kept = binding.get_outputs()[0]
    binding.bind_output("scores")  # an output of another shape
    binding.bind_input("image", "cpu", 0, np.float32, (1, 3, 9, 7), x.ctypes.data)
    session.run_with_iobinding(binding)
    show(binding.get_outputs()[0].numpy(), kept.numpy())
    there = ort.OrtValue.ortvalue_from_shape_and_type([2, 5], np.float32, "cpu", 0)
    binding.clear_binding_inputs(), binding.clear_binding_outputs()
    binding.bind_ortvalue_input("image", ort.OrtValue.ortvalue_from_numpy(x))
    binding.bind_ortvalue_output("scores", there)
    session.run_with_iobinding(binding)
    show(there.numpy())
    out = np.zeros((2, 5), np.float32)
    binding.bind_output("scores", "cpu", 0, np.float32, out.shape, out.ctypes.data)
    session.run_with_iobinding(binding)
    show(out)

    done = threading.Event()
    def callback(results, data, error):
        told.append([len(results), data, error]); show(*results); done.set()
    session.run_async(["scores"], {"image": x}, callback, "mine")
    assert done.wait(60)
    threads = [threading.Thread(target=lambda k=k: results.__setitem__(k, session.run(None, {"image": x[:, :, k:]})[0]))
               for k in range(4)]
    results = {}
    [t.start() for t in threads], [t.join() for t in threads]
    show(*(results[k] for k in range(4)))

    for names, feed in ((None, {"image": x.astype(float)}), (None, {"image": x[0]}), (None, {}), (["no"], {"image": x}),
                        (None, {"image": x, "other": x}), (None, {"image": "text"}), (None, {"image": x[:, :2]})):
        try:
            session.run(names, feed)
        except Exception as e:
            told.append([type(e).__module__, type(e).__name__, str(e)])
    made = [lambda of=of: InferenceSession(of) for of in ("absent.onnx", b"no model", 3)]
    for make in made:
        try:
            make()
        except Exception as e:
            told.append([type(e).__module__, type(e).__name__, isinstance(e, state.Fail), str(e)])

    class Own(InferenceSession):
        def __init__(self, path):
            super().__init__(path); self.path = path
        def __getstate__(self):
            return {"path": self.path}
        def __setstate__(self, values):
            self.__init__(values["path"])
        def run(self, feed):
            return super().run(None, feed)
    own = pickle.loads(pickle.dumps(Own("small.onnx")))
    show(*own.run({"image": x}), *copy.deepcopy(own).run({"image": x}), *copy.copy(session).run(None, {"image": x}))
    again = pickle.loads(pickle.dumps(InferenceSession))
    told.append([isinstance(own, ort.InferenceSession), again is InferenceSession])
    told.append(sorted(vars(session)))
    reference = weakref.ref(own)
    del own
    told.append(reference() is None)
    print(*told, sep="\\n")
    sys.exit(7)
"""


def test_a_program_prints_what_it_prints_without_tessera(folder):
    below, plain = start(folder, EVERYTHING), start(folder, EVERYTHING, plain=True)
    expected, _ = finish(plain, 7)
    out, err = finish(below, 7)
    assert out == expected
    row = cells(err, "small.onnx")
    assert row["of these on ONNX Runtime"] == "0" and int(row["runs"]) >= 12, err
    assert "Traceback" not in err


def test_children_count_in_the_table_and_what_is_not_served_is_told_once(folder):
    program = """
        import multiprocessing, subprocess, sys
        import numpy as np
        import onnxruntime

        def work(shift):
            x = np.full((1, 3, 8, 8), shift, np.float32)
            return onnxruntime.InferenceSession("small.onnx").run(None, {"image": x})[0].shape

        if __name__ == "__main__":
            session = onnxruntime.InferenceSession("small.onnx")
            session.run(None, {"image": np.ones((1, 3, 8, 8), np.float32)})
            for method in ("fork", "spawn"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(method, pool.map(work, [1, 2]))
            code = "import numpy, onnxruntime as o; "
            code += "o.InferenceSession('small.onnx').run(None, {'image': numpy.ones((1, 3, 8, 8), 'f')})"
            subprocess.run([sys.executable, "-c", code], check=True)
            unknown = onnxruntime.InferenceSession("unknown.onnx")
            for _ in range(3):
                unknown.run(None, {"x": np.ones((1, 6), np.float32)})
            options = onnxruntime.SessionOptions()
            weight = np.zeros((8, 5), np.float32)
            held = onnxruntime.OrtValue.ortvalue_from_numpy(weight)  # as long as the session, which does not hold it
            options.add_initializer("c4", held)
            other = onnxruntime.InferenceSession("small.onnx", options)
            other.run(None, {"image": np.ones((1, 3, 8, 8), np.float32)})
    """
    out, err = finish(start(folder, program))
    assert out.count("(1, 5)") == 4
    row = cells(err, "small.onnx")
    assert (row["runs"], row["sessions"], row["of these on ONNX Runtime"]) == ("7", "7", "1"), err
    assert cells(err, "unknown.onnx")["of these on ONNX Runtime"] == "3"
    assert sum("session 'unknown.onnx'" in line for line in err.splitlines()) == 1
    assert sum("initializers that its options hold" in line for line in err.splitlines()) == 1


CALLS = """
    import sys
    import numpy as np, onnxruntime
    session = onnxruntime.InferenceSession("small.onnx")
    rng = np.random.default_rng(5)
    for k in range(12):
        x = rng.standard_normal((1, 3, 8 + 4 * (k % 2), 8)).astype(np.float32)
        for _ in range(2):
            print(session.run(None, {"image": x})[0].argmax())
"""


CHANGED = """
    import os, shutil, sys, tempfile
    import numpy as np, onnxruntime as ort

    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    show = lambda *sessions: print(*(np.round(s.run(None, {"x": x})[0], 3).tolist() for s in sessions))
    at = tempfile.mkdtemp()
    def session(name, to=f"{at}/m.onnx"):
        shutil.copy(name, to)
        return ort.InferenceSession(to)
    show(session("one.onnx"), session("two.onnx"))  # before the first run, and behind it
    made = session("one.onnx"), session("two.onnx")
    pid = os.fork()
    if pid == 0:
        show(*made), sys.stdout.flush(), os._exit(0)
    os.waitpid(pid, 0)
    shutil.rmtree(at)
    show(*made)
    os.mkdir(at)
    made = ort.InferenceSession("one.onnx")
    shutil.copy("two.onnx", f"{at}/one.onnx")
    for name in ("large.onnx", "large.data"):
        shutil.copy(name, at)
    large, other = ort.InferenceSession(f"{at}/large.onnx"), ort.InferenceSession("large.onnx")
    with open(f"{at}/new", "wb") as file:
        file.write(np.ones(4, np.float32).tobytes())
    os.rename(f"{at}/new", f"{at}/large.data")
    os.chdir(at)
    show(made, large, other)
"""


def test_a_session_has_the_model_that_it_was_made_of(folder):
    """Whatever becomes of its file, its data and the program's folder before its first run."""
    for name, value in (("one", 1.5), ("two", -2.0), ("large", 4.0)):
        port = lambda of: helper.make_tensor_value_info(of, TensorProto.FLOAT, ["N", 4])
        factor = onnx.numpy_helper.from_array(np.full(4, value, np.float32), "w")
        node = helper.make_node("Mul", ["x", "w"], ["y"])
        graph = helper.make_graph([node], name, [port("x")], [port("y")], [factor])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        large = dict(save_as_external_data=True, location="large.data", size_threshold=0) if name == "large" else {}
        onnx.save(model, folder / f"{name}.onnx", **large)
    plain, _ = finish(start(folder, CHANGED, plain=True))
    out, err = finish(start(folder, CHANGED, "--config", "npu64"))
    assert out == plain
    assert "'large.data' has changed since the session was made; ONNX Runtime runs it" in err
    assert cells(err, "large.onnx")["of these on ONNX Runtime"] in "01" and err.count("ONNX Runtime runs it") == 1


def test_captured_quantised_compared_and_shown(folder, tmp_path):
    kept, page = tmp_path / "kept", tmp_path / "page.html"
    _, err = finish(start(folder, CALLS, "--quantize", str(kept), "--samples", "8", "--compare"))
    row = cells(err, "small.onnx")
    assert row["runs as"] == "as given" and row["of the range"] in ("0", "-") or float(row["of the range"][:-1]) < 0.01
    (model,) = kept.iterdir()
    samples = sorted((model / "samples").iterdir())
    assert len(samples) == 8  # of twelve different inputs, each given twice
    session_input = onnx.load_tensor(str(samples[0] / "input_0.pb"))
    answer = onnx.numpy_helper.to_array(onnx.load_tensor(str(samples[0] / "output_0.pb")))
    import onnxruntime

    there = onnxruntime.InferenceSession(str(folder / "small.onnx"))
    image = onnx.numpy_helper.to_array(session_input)
    np.testing.assert_array_equal(answer, there.run(None, {"image": image})[0])
    assert (model / "int8_npu256_exact.onnx").exists(), err
    listing = tmp_path / "table.json"
    words = ("--quantize", str(kept), "--device", "sysc", "--compare", "--report", str(page), "--json", str(listing))
    _, err = finish(start(folder, CALLS, *words))
    row = cells(err, "small.onnx")
    assert row["runs as"] == "int8" and row["products on the NPU"] == "100.0 %" and "predicted" not in err
    assert int(row["cycles a run"].replace(",", "")) > 0 and 0 < float(row["of the range"].rstrip(" %")) < 20
    (data,) = re.findall('<script id="data" type="application/json">(.*?)</script>', page.read_text(), re.DOTALL)
    runs = json.loads(data)["runs"]
    assert [run["name"] for run in runs] == ["small.onnx", *(f"small.onnx {n}" for n in range(2, len(runs) + 1))]
    assert {run["report"]["model"]["name"] for run in runs} == {"small.onnx"}
    (told,) = json.loads(listing.read_text())
    assert told["how"] == "int8" and told["npu_percent"] == 100 and told["cycles"] > 0 and told["cycles_measured"]
    assert told["runs"] == told["compared"] == 24 and model.name.endswith(told["key"])
    assert json.loads((model / "int8_npu256_exact.json").read_text())["model"] == told["key"]


def test_rare_answers_stay_among_what_is_captured(tmp_path):
    """Half of the room is a uniform sample; the other half keeps answers that are far from others, in any order."""
    rng, rare = np.random.default_rng(7), {}
    answers = np.full((400, 3), 0.01, np.float32) + rng.uniform(0, 0.001, (400, 3)).astype(np.float32)
    for k, row in {5: [0.9, 0, 0], 171: [0.5, 0.4, 0], 290: [0, 0, 0.3], 399: [0, 1, 0]}.items():
        answers[k] = row
    inputs = rng.standard_normal((400, 6)).astype(np.float32)
    for seed in range(3):
        taken = capture.Capture(tmp_path / str(seed), 8, 256, lambda: b"")
        for k in np.random.default_rng(seed).permutation(400):
            outputs = {"scores": answers[k], "unread": None}
            taken.add({"x": inputs[k]}, outputs, lambda k=k: {"scores": answers[k]})
        kept = capture.samples_of(tmp_path / str(seed))
        held = [onnx.numpy_helper.to_array(onnx.load_tensor(str(path / "output_0.pb"))).max() for path in kept]
        assert len(kept) == 8 and sum(value > 0.2 for value in held) == 4
        uniform = sorted((path.name for path in kept), key=capture.rank_of)[:4]
        rare[seed] = {path.name for path, value in zip(kept, held) if value > 0.2}
        assert uniform and kept == sorted(kept)
    assert rare[0] == rare[1] == rare[2]


def test_what_is_captured_is_bounded_in_bytes(tmp_path):
    taken = capture.Capture(tmp_path, 64, 1, lambda: b"")
    for k in range(7):
        array = np.full((1, 2, 1 << 15), k, np.float32)  # a quarter of a megabyte
        taken.add({"x": array}, {"y": np.float32(k)}, lambda: {"y": np.float32(0)})
    assert len(capture.samples_of(tmp_path)) == 4
    assert capture.sketch([np.zeros((0, 3)), None, np.arange(30.0)])[2].max() == 29


AHEAD = """
    import numpy as np, onnxruntime, sys, tessera.onnxruntime
    session = onnxruntime.InferenceSession("small.onnx")
    session.run(None, {"image": np.zeros((1, 3, 8, 8), np.float32)})
    served = tessera.onnxruntime._part_of(session)
    served.session.finish_search()
    session.run(None, {"image": np.zeros((1, 3, 8, 12), np.float32)})
    print(served.session.stats().get("effort", "best"))
"""


def test_shapes_that_will_come_are_compiled_behind_the_runs(folder):
    given = ["--shapes", "sm*.onnx:image=1,3,8,8-12/4", "--shapes", "other.onnx:image=1,3,9,9", "--cache", "off"]
    out, _ = finish(start(folder, AHEAD, *given))
    assert out.split() == ["best"]
    out, err = finish(start(folder, AHEAD, "--shapes", "image=1,4,8,8", "--cache", "off"))
    assert out.split() == ["quick"]
    told = [line for line in err.splitlines() if "compiled ahead" in line]
    assert len(told) == 1 and "--shapes 'image=1,4,8,8': input 'image' of 'small.onnx' is ?,3,?,?" in told[0]
    for wrong in (["--shapes", "image=1,3,8,a"], ["--shapes", "image=1,3,8,8", "--device", "reference"]):
        _, err = finish(start(folder, AHEAD, *wrong), 1)
        assert len(err.splitlines()) == 1 and "--shapes" in err


def test_signals_status_and_wrong_words(folder):
    waiting = "import onnxruntime, time\nprint('up', flush=True)\ntime.sleep(60)\n"
    process = start(folder, waiting)
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    finish(process, -signal.SIGTERM)
    process = start(folder, waiting, start_new_session=True)
    assert process.stdout.readline() == "up\n"
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does
    _, err = finish(process, -signal.SIGINT)
    assert "KeyboardInterrupt" in err
    for words, said in (
        (["--device", "nowhere", "--", "x.py"], "no device 'nowhere'"),
        (["--config", "npu3", "--", "x.py"], "no machine 'npu3'"),
        (["--", "no-such-program"], "cannot start"),
        (["--json", "/no/such/table.json", "--", "touch", str(folder / "begun")], "there is no such folder"),
        (["--report", str(folder), "--", "touch", str(folder / "begun")], "it is a folder"),
        ([], "behind --"),
    ):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PACKAGES)}
        done = subprocess.run(
            [sys.executable, "-m", "tessera.app", *words], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 1 and said in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (folder / "begun").exists()


def test_the_module_and_install_behind_the_import(folder):
    program = """
        import sys
        import numpy as np
        from onnxruntime import InferenceSession
        x = {"image": np.ones((1, 3, 8, 8), np.float32)}
        expected = InferenceSession("small.onnx").run(None, x)[0]
        import tessera.onnxruntime as ort
        assert ort.SessionOptions and ort.__version__ and "CPUExecutionProvider" in ort.get_available_providers()
        session = ort.InferenceSession("small.onnx", ort.SessionOptions())
        np.testing.assert_allclose(session.run(None, x)[0], expected, atol=1e-5)
        assert "small.onnx" in ort.table()
        InferenceSession("small.onnx").run(None, x)
        assert ort.table().splitlines()[1].split()[2] == "1"
        ort.install(device="reference", compare=True)
        InferenceSession("small.onnx").run(None, x)
        try:
            ort.install()
        except Exception as e:
            print(type(e).__name__, e.code)
    """
    out, err = finish(start(folder, program, plain=True))
    assert out == "Error invalid_argument\n" and cells(err, "small.onnx")["runs"] == "1"


def test_a_sitecustomize_of_the_program_runs_and_another_python_is_told(folder, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 'chained'\n")
    file = tmp_path / "program.py"
    file.write_text("import sys, onnxruntime\nprint(mine, any('tessera' in p for p in sys.path))\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*PACKAGES, str(tmp_path)])}
    words = [sys.executable, "-m", "tessera.app", "-q", "--", sys.executable, str(file)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[0]) == (0, "chained")
    settings = {"packages": {"tessera": "/nowhere/tessera", "_tessera": "/nowhere/_tessera.cpython-399-x.so"}}
    site = ROOT / "tessera" / "python" / "tessera" / "app" / "site"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(tmp_path)])}
    environment["TESSERA_APP"] = json.dumps(settings)
    done = subprocess.run([sys.executable, str(file)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "it runs on ONNX Runtime alone" in done.stderr
