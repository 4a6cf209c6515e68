# SPDX-License-Identifier: Apache-2.0
"""What a person gets wrong: files, names, shapes, types, options. Each ends in one line that names the thing and the
way out; the exit status is 1 (2 for the command line itself) and nothing is left half-written."""

import os
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

import tessera
from tests.system.conftest import BUILD, ROOT

MODEL = ROOT / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    path = tmp_path_factory.mktemp("artifact") / "d.tsr"
    tessera.compile(MODEL, path, "npu64", shapes={"image": [1, 1, 8, 8]})
    return path


def expect(done, status, *words):
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert lines, "no message"
    if status == 1:
        assert len(lines) == 1 and lines[0].startswith("tessera: error ("), done.stderr
    for word in words:
        assert word in done.stderr, f"'{word}' not in: {done.stderr}"


def test_files(command, tmp_path):
    expect(command("run", tmp_path / "none.onnx"), 1, "none.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"")
    expect(command("run", tmp_path / "empty.onnx"), 1, "empty.onnx")
    (tmp_path / "text.onnx").write_text("this is no model\n" * 50)
    expect(command("run", tmp_path / "text.onnx"), 1, "text.onnx")
    expect(command("compile", tmp_path), 1)
    expect(
        command("compile", MODEL, "--shape", "image=1,1,8,8", "-o", tmp_path / "no" / "such" / "folder.tsr"),
        1,
        "folder.tsr",
    )


def test_options(command, tmp_path):
    expect(command("run", MODEL, "--device", "abacus"), 1, "abacus", "fsim")
    expect(command("run", MODEL, "--config", "npu3"), 1, "npu3", "npu256")
    (tmp_path / "bad.toml").write_text("name = 'x'\nbatch = 1\n")
    expect(command("run", MODEL, "--config", tmp_path / "bad.toml"), 1, "block_in")
    expect(command("compile", MODEL, "--shape", "image=1,2,8,8"), 1, "image")
    expect(command("compile", MODEL, "--shape", "picture=1,1,8,8"), 1, "picture")
    expect(command("compile", MODEL, "--shape", "image=1,one,8,8"), 1, "image")
    expect(command("compile", MODEL, "--config", "npu256x2", "--cores", "5"), 1, "core 5", "0 to 1")
    expect(command("schedule", MODEL, "--config", "npu256x2", "--cores", "1,1"), 1, "core 1 is named twice")
    expect(command("compile", MODEL, "--shape", "image=1,1,8,8", "--print-ir-after", "fly"), 1, "'fly'", "fuse-stages")
    for words in (("--device-option", "wings=2"), ("--check-races",)):
        expect(command("run", MODEL, "--random-inputs", "1", "--device", "reference", *words), 1, "interpreter")
    expect(command("run", MODEL, "--device", "sysc", "--device-option", "latency=1000000"), 1, "from 1 to 100000")


def test_command_lines(command):
    """One line that names the word, what it takes, and where there is more."""
    for words, said in (
        (("fly", MODEL), ("there is no command 'fly'", "compile, run", "`tessera --help`")),
        (("run",), ("model is required", "`tessera run --help`")),
        (("run", MODEL, "--wings"), ("--wings", "`tessera run --help`")),
        (("run", MODEL, "--random-inputs", "-1"), ("--random-inputs", "a whole number from 0, not '-1'")),
        (("run", MODEL, "--dram-latency", "0"), ("from 1 to 100000, not '0'",)),
        (("board", "--dram-bandwidth", "wide", "--", "true"), ("a whole number from 1, not 'wide'",)),
    ):
        done = command(*words)
        expect(done, 2, *said)
        assert done.stderr.startswith("tessera: error (invalid_argument): ") and len(done.stderr.splitlines()) == 1
        assert len(done.stderr) < 500


def test_layouts(command):
    random = ("run", MODEL, "--random-inputs", "1")
    expect(command(*random, "--input-layout", "NHWX"), 1, "NCHW or NHWC, got 'NHWX'")
    expect(command(*random, "--input-layout", "picture=NHWC"), 1, "no input 'picture'; it takes 'image'")
    assert command(*random, "--input-layout", "image=NCHW").returncode == 0


def test_a_report_of_the_interpreter_has_no_table(command):
    expect(command("report", MODEL, "--device", "reference"), 1, "interpreter", "--json")
    assert command("report", MODEL, "--device", "reference", "--json").returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
@pytest.mark.parametrize("words", [("report", MODEL), ("run", MODEL, "--random-inputs", "1"), ("doctor",)])
def test_output_that_is_cut_short(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [BUILD / "bin" / "tessera", *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=300
        )
    assert done.returncode == 1
    assert "tessera: error (io): cannot write to the standard output" in done.stderr


def little_room():
    """Files of this process end at 500 bytes, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))


@pytest.mark.parametrize(
    "words",
    [
        ("compile", MODEL, "--shape", "image=1,1,8,8", "-q", "-o"),
        ("run", MODEL, "--shape", "image=64,1,8,8", "--random-inputs", "1", "-o"),
        ("run", MODEL, "--random-inputs", "1", "--stats"),
        ("report", MODEL, "--json", "-o"),
        ("schedule", MODEL, "-q", "-o"),
    ],
)
def test_a_file_that_does_not_fit_leaves_what_was_there(command, tmp_path, words):
    path = tmp_path / "result.npz"
    path.write_text("before")
    done = command(*words, path, env={**os.environ, "TESSERA_CACHE": "off"}, preexec_fn=little_room)
    expect(done, 1, f"cannot write '{path}': File too large")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("result.npz", "before")]


def test_a_model_from_a_pipe(command):
    with subprocess.Popen(["cat", MODEL], stdout=subprocess.PIPE) as source:
        done = command("run", "/dev/stdin", "--random-inputs", "1", stdin=source.stdout)
    expect(done, 1, "'/dev/stdin' is a pipe", "give a file")


def test_who_wants_no_npu_is_not_told_to_quantise(command, tmp_path):
    for words in (("run", "--random-inputs", "1"), ("compile", "--shape", "image=1,1,8,8", "-o", tmp_path / "d.tsr")):
        done = command(words[0], MODEL, "--no-npu", *words[1:])
        assert (done.returncode, done.stderr) == (0, "")


def test_the_way_out_for_an_artifact_names_no_artifact(command, tmp_path):
    model = ROOT / "examples" / "digits" / "digits_float.onnx"
    assert command("compile", model, "--shape", "image=1,1,8,8", "-o", tmp_path / "float.tsr").returncode == 0
    done = command("run", tmp_path / "float.tsr", "--random-inputs", "1")
    assert done.returncode == 0 and "`tessera quantize MODEL --calibrate DATA`" in done.stderr


@pytest.mark.parametrize("program", ["digits/demo.py", "text/generate.py"])
@pytest.mark.parametrize("wrong", [("--device", "abacus"), ("--config", "npu3")])
def test_examples(program, wrong):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / program, "--device", "fsim", *wrong], capture_output=True, text=True
    )
    assert done.returncode == 1 and wrong[1] in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("sides, shape", [(("N", 3, "H", "W"), "1,3,224,224"), (("N", "L", 16), "1,1,16")])
def test_the_shape_that_an_error_names_can_be_compiled(command, tmp_path, sides, shape):
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, sides)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, sides)
    node = helper.make_node("Relu", ["x"], ["y"])
    graph = helper.make_graph([node], "pictures", [value], [result])
    path = tmp_path / "m.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    expect(command("compile", path), 1, f"--shape x={shape}")
    done = command("compile", path, "--shape", f"x={shape}", "-o", tmp_path / "m.tsr")
    assert done.returncode == 0, done.stderr


def test_inputs(command, tmp_path):
    expect(command("run", MODEL), 1, "image", "missing")
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 8, 8), np.float64))
    expect(command("run", MODEL, "--input", tmp_path / "x.npy"), 1, "image", "float32", "float64")
    np.save(tmp_path / "y.npy", np.zeros((1, 8, 8), np.float32))
    expect(command("run", MODEL, "--input", tmp_path / "y.npy"), 1, "image", "[1,8,8]", "[N,1,8,8]")
    expect(command("run", MODEL, "--input", f"picture={tmp_path / 'y.npy'}"), 1, "picture", "image")
    np.savez(tmp_path / "z.npz", picture=np.zeros(3), other=np.zeros(3))
    expect(command("run", MODEL, "--input", tmp_path / "z.npz"), 1, "z.npz", "image")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:100])
    expect(command("run", MODEL, "--input", tmp_path / "cut.npy"), 1, "cut.npy")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "z.npz").read_bytes()[:-30])
    expect(command("run", MODEL, "--input", tmp_path / "cut.npz"), 1, "cut.npz")
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    expect(command("run", MODEL, "--input", tmp_path / "objects.npy"), 1, "objects.npy")
    np.save(tmp_path / "g.npy", np.zeros((1, 1, 8, 8), np.float32))
    expect(
        command("run", MODEL, "--input", tmp_path / "g.npy", "--outputs", "probabilities"), 1, "probabilities", "logits"
    )
    expect(command("run", MODEL, "--input", tmp_path / "g.npy", "--output", tmp_path / "no" / "y.npz"), 1, "y.npz")
    expect(command("run", MODEL, "--input", tmp_path / "g.npy", "--input-layout", "CHWN"), 1, "CHWN")
    expect(command("run", MODEL, "--input", tmp_path), 1, str(tmp_path), "folder")
    expect(command("run", MODEL, "--random-inputs", "-1"), 2, "--random-inputs")
    expect(command("run", MODEL, "--device", "remote:127.0.0.1:99999", "--random-inputs", "1"), 1, "HOST:PORT")


def test_corrupt_artifacts(command, artifact, tmp_path):
    data = artifact.read_bytes()
    rng = np.random.default_rng(3)
    cases = [data[:n] for n in (4, 8, 63, 64, 200, len(data) // 2, len(data) - 1)]
    for _ in range(10):
        broken = bytearray(data)
        broken[int(rng.integers(0, len(data)))] ^= int(rng.integers(1, 256))
        cases.append(bytes(broken))
    for broken in cases:
        (tmp_path / "broken.tsr").write_bytes(broken)
        expect(command("info", tmp_path / "broken.tsr"), 1, "invalid_artifact", "broken.tsr")
    expect(command("run", artifact, "--device", "reference"), 1, "reference")
    expect(command("run", artifact, "--config", "npu256", "--random-inputs", "1"), 1, "npu64", "npu256")
    expect(command("run", artifact, "--random-inputs", "1", "--shape", "image=2,1,8,8", "--input", artifact), 1)


def test_an_artifact_takes_no_options_of_a_compilation(command, artifact, tmp_path):
    """What cannot be heeded any more is refused, not passed over."""
    run = ("run", artifact, "--random-inputs", "1")
    for words, said in (
        (("--shape", "image=2,1,8,8"), "[2,1,8,8]"),
        (("--shape", "picture=1"), "picture"),
        (("--shape", "N=3"), "'N'"),
        (("--numerics", "close"), "--numerics"),
        (("--tuned", tmp_path / "t.db"), "--tuned"),
        (("--no-chains",), "--no-chains"),
    ):
        expect(command(*run, *words), 1, "compiled already", said)
        if words[0] != "--tuned":
            for name in ("info", "schedule"):
                expect(command(name, artifact, *words), 1, "compiled already", said)
    expect(command("compile", artifact), 1, "compiled already")
    for name in ("info", "schedule"):
        assert command(name, artifact, "--config", "npu64").returncode == 0
        expect(command(name, artifact, "--config", "npu256"), 1, "compiled already, for 'npu64'", "--config")
        expect(command(name, artifact, "--schedule", artifact), 1, "schedule")
    expect(command("schedule", artifact, "--cores", "0"), 1, "compiled already", "--cores")
    for words in (("--shape", "image=1,1,8,8"), ("--threads", "1"), ("--cache", "off"), ("--effort", "best")):
        assert command(*run, *words).returncode == 0
    with pytest.raises(tessera.Error, match="compiled already"):
        tessera.Session(artifact, shapes={"image": [3, 1, 8, 8]})


def test_the_report_of_a_run_takes_no_options_of_a_run(command, artifact, tmp_path):
    saved = tmp_path / "run.json"
    assert command("report", artifact, "--random-inputs", "1", "--json", "-o", saved).returncode == 0
    assert command("report", saved, "--brief").returncode == 0
    for words in (("--device", "rtl"), ("--config", "npu256"), ("--random-inputs", "2")):
        expect(command("report", saved, *words), 1, "report of a run that is over", words[0])


def test_results_are_written_as_their_file_says(command, artifact, tmp_path):
    run = ("run", artifact, "--random-inputs", "1", "-o")
    for name in ("y.txt", "y.json", "y.npz.gz", "-"):
        expect(command(*run, name if name == "-" else tmp_path / name), 1, "--output", name, ".npz", ".npy")
    for name in ("y.npz", "y.npy", "y"):
        assert command(*run, tmp_path / name).returncode == 0
    assert np.load(tmp_path / "y.npy").shape == next(iter(np.load(tmp_path / "y").values())).shape


def test_assembly(command, tmp_path):
    (tmp_path / "a.asm").write_text("load space=inp length=8\nfly me\nfinish\n")
    expect(command("asm", tmp_path / "a.asm"), 1, "a.asm:2", "fly")
    (tmp_path / "b.asm").write_text("fence engine=alu wait=load:1\nfinish\n")
    expect(command("asm", tmp_path / "b.asm"), 1, "instruction 0")
    (tmp_path / "c.bin").write_bytes(b"\0" * 65)
    expect(command("disasm", tmp_path / "c.bin"), 1, "c.bin")
    (tmp_path / "d.bin").write_bytes(b"\xff" * 64)
    expect(command("disasm", tmp_path / "d.bin"), 1, "d.bin", "instruction 0")
    expect(command("asm", tmp_path), 1, "folder")


@pytest.mark.parametrize("strides", [[1 << 20, 2], [2, (1 << 28) - 1]])
def test_windows_beyond_any_size(strides):
    """A stride that is never taken is legal, however large."""
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[1, 2], strides=strides)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [value("x", TensorProto.INT8, [1, 3, 4, 5])], [value("y", TensorProto.INT8, None)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    feeds = {"x": np.arange(60, dtype=np.int8).reshape(1, 3, 4, 5)}
    (want,) = tessera.Session(model, "reference").run(None, feeds)
    (got,) = tessera.Session(model, "fsim", "npu64").run(None, feeds)
    assert np.array_equal(got, want)


def test_names_of_any_bytes(tmp_path):
    """What stands in names reaches messages and reports as one line of UTF-8."""
    node = helper.make_node("Relu", ["x"], ["y"], name="the_name")
    value = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [value("x", TensorProto.FLOAT, [2])], [value("y", TensorProto.FLOAT, [2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = tessera.Session(model.replace(b"the_name", b"t\nhe\xff\xfeee"))
    session.run(None, {"x": np.zeros(2, np.float32)})
    assert "\ufffd" in session.stats().layers[0].name and session.trace() and session.info()
    with pytest.raises(tessera.Error) as caught:
        tessera.Session(model.replace(b"the_name", b"t\nhe\xff\xfeee").replace(b"Relu", b"Rulu"))
    assert "t\\nhe\\xff\\xfeee" in str(caught.value) and "\n" not in str(caught.value)


def test_inputs_and_dimensions_of_any_bytes(command, tmp_path):
    """A program is kept, and found again, whatever the names of what it takes."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["the_input"], ["y"])], "g",
        [value("the_input", TensorProto.FLOAT, ["the_batch", 2])], [value("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    strange = model.replace(b"the_input", b"in\n\xff\xfe\x80\xc0ut").replace(b"the_batch", b"ba\xff\xfe\x80\xc0tch")
    (tmp_path / "m.onnx").write_bytes(strange)
    for _ in range(2):
        done = command("run", tmp_path / "m.onnx", "--random-inputs", "1", "--cache", tmp_path / "cache")
        assert done.returncode == 0 and "float32 [1,2]" in done.stdout, done.stderr
    assert list((tmp_path / "cache").iterdir())


def test_python_errors_have_codes():
    with pytest.raises(tessera.Error) as caught:
        tessera.Session(b"not a model")
    assert caught.value.code == "invalid_model"
    session = tessera.Session(MODEL)
    with pytest.raises(tessera.Error) as caught:
        session.run(None, {"image": np.zeros((1, 1, 9, 8), np.float32)})
    assert caught.value.code == "invalid_argument" and "[1,1,9,8]" in str(caught.value)
    with pytest.raises(tessera.Error):
        session.run(None, {})
    for names, feeds, said in (("logits", {}, "a list of names or None"), (None, [1], "a dict .* not a list")):
        with pytest.raises(TypeError, match=said):
            session.run(names, feeds)
    with pytest.raises(tessera.Error):
        session.stats()
    assert issubclass(tessera.Error, RuntimeError)
