# SPDX-License-Identifier: Apache-2.0
"""What leaves the build: the wheel, installed into an empty virtual environment without compilers in PATH; the C
library, found by a project outside; versions and stubs that agree."""

import ast
import importlib.util
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import venv

import numpy as np
import onnxruntime
import pytest
from packaging.requirements import Requirement

import tessera
from tests.system.conftest import BUILD, ODD, ROOT

DIGITS = ROOT / "examples" / "digits"
MODEL = DIGITS / "digits.onnx"
SANITIZED = "asan" in BUILD.name
# What a bare Debian 12 with Python has (libffi is of Python's ctypes); everything else comes with the wheel.
OF_THE_SYSTEM = r"^(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|z|expat|util|ffi)\.so.*|libpython.*)$"
MOST_MEGABYTES = 80


def run(command, **options):
    return subprocess.run([str(w) for w in command], capture_output=True, text=True, errors="replace", **options)


def done(command, **options):
    result = run(command, **options)
    assert result.returncode == 0, f"{command}: {result.stderr[-3000:]}"
    return result.stdout


@pytest.fixture(scope="module")
def image_and_logits():
    image = np.load(DIGITS / "digits_test.npz")["images"][:1]
    oracle = onnxruntime.InferenceSession(str(MODEL), providers=["CPUExecutionProvider"])
    return image, oracle.run(None, {"image": image})[0]


# --- the wheel ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, from the objects of this build."""
    if SANITIZED:
        pytest.skip("a wheel of a sanitized build would need the sanitizer's runtime")
    for package in ("scikit_build_core", "auditwheel"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the Python package {package} is missing; ./dev setup installs it")
    done(["cmake", "--build", BUILD, "--target", "tessera_wheel"])
    folder = tmp_path_factory.mktemp("wheel")
    env = dict(os.environ, TESSERA_WHEEL_FROM=str(BUILD))
    done(
        [sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation", "-w", folder, "-q"],
        env=env,
        cwd=folder,
    )
    (made,) = folder.glob("*.whl")
    return made


class Installed:
    """An environment with the wheel and numpy, and nothing else in PATH."""

    def __init__(self, folder, wheel):
        venv.create(folder, with_pip=False)
        self.folder = folder
        (site,) = folder.glob("lib/python3*/site-packages")
        own = pathlib.Path(np.__file__).resolve().parent
        for path in own.parent.glob("numpy*"):
            (site / path.name).symlink_to(path)
        done([sys.executable, "-m", "pip", "--python", folder, "install", "-q", "--no-deps", "--no-index", wheel])
        self.env = {"PATH": str(folder / "bin"), "HOME": str(folder), "LANG": "C.UTF-8"}

    def run(self, *words, program="tessera"):
        return run([self.folder / "bin" / program, *words], env=self.env, cwd=self.folder)

    def done(self, *words, program="tessera"):
        result = self.run(*words, program=program)
        assert result.returncode == 0, f"{words}: {result.stderr[-3000:]}"
        return result.stdout


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    return Installed(tmp_path_factory.mktemp("bare"), wheel)


def test_wheel_is_small_and_says_what_it_runs_on(wheel):
    assert wheel.stat().st_size < MOST_MEGABYTES * 1e6
    glibc = re.search(r"manylinux_2_(\d+)_", wheel.name)
    assert glibc and int(glibc[1]) <= 36, wheel.name  # that of Debian 12


def test_wheel_compiles_and_runs(installed, image_and_logits, tmp_path):
    image, logits = image_and_logits
    np.save(tmp_path / "image.npy", image)
    devices = ["fsim", "sysc", "reference"] + (["rtl"] if "rtl" in tessera.backends() else [])
    for device in devices:
        words = ["run", MODEL, "--device", device, "--config", "npu64", "--input", tmp_path / "image.npy"]
        installed.done(*words, "-o", tmp_path / "out.npy", "--stats", tmp_path / f"{device}.json")
        assert np.array_equal(np.load(tmp_path / "out.npy"), logits), device
    assert "cycles" in installed.done("report", tmp_path / "sysc.json")
    installed.done("compile", MODEL, "-o", tmp_path / "digits.tsr")
    assert "npu256" in installed.done("info", tmp_path / "digits.tsr")


def test_wheel_runs_the_demo_and_loads_no_library_of_the_build(installed):
    """The float model: its operators are compiled by the LLVM inside the wheel."""
    device = "rtl" if "rtl" in tessera.backends() else "sysc"
    text = installed.done(
        DIGITS / "demo.py", "--device", device, "--config", "npu64", "--batch", "40", program="python"
    )
    assert "equal outputs" in text
    script = (
        "import re, tessera, numpy\n"
        f"s = tessera.Session({str(DIGITS / 'digits_float.onnx')!r})\n"
        "i = s.get_inputs()[0]\n"
        "s.run(None, {i.name: numpy.zeros([d if isinstance(d, int) else 1 for d in i.shape], numpy.float32)})\n"
        "print(tessera.__file__)\n"
        "print('\\n'.join(sorted(set(re.findall(r'/\\S+\\.so\\S*', open('/proc/self/maps').read())))))\n"
    )
    first, *libraries = installed.done("-c", script, program="python").splitlines()
    assert first.startswith(str(installed.folder))
    numpy_home = str(pathlib.Path(np.__file__).resolve().parent.parent)
    for library in libraries:
        path = pathlib.Path(library)
        known = path.is_relative_to(installed.folder) or library.startswith(numpy_home) or "lib-dynload" in library
        assert known or re.match(OF_THE_SYSTEM, path.name), library


def test_wheel_holds_the_execution_provider(installed, image_and_logits, tmp_path):
    """The module of the wheel is the library that ONNX Runtime registers."""
    image, logits = image_and_logits
    np.save(tmp_path / "image.npy", image)
    script = f"""
import sys
sys.path.append({str(pathlib.Path(onnxruntime.__file__).resolve().parent.parent)!r})
import numpy, onnxruntime
from tessera.onnxruntime import execution_provider_library
print(execution_provider_library())
onnxruntime.register_execution_provider_library("tessera", execution_provider_library())
devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == "TesseraExecutionProvider"]
options = onnxruntime.SessionOptions()
options.add_provider_for_devices(devices, {{"statistics": {str(tmp_path / "statistics")!r}}})
image = numpy.load({str(tmp_path / "image.npy")!r})
(result,) = onnxruntime.InferenceSession({str(MODEL)!r}, options).run(None, {{"image": image}})
numpy.save({str(tmp_path / "out.npy")!r}, result)
"""
    library = installed.done("-c", script, program="python").strip()
    assert library.startswith(str(installed.folder))
    assert np.array_equal(np.load(tmp_path / "out.npy"), logits)
    assert (tmp_path / "statistics").read_text().count("\n") == 1


def test_wheel_reaches_a_device_elsewhere(installed, image_and_logits, tmp_path):
    """gRPC comes with the wheel."""
    from tests.system.remote_server import Server, needs_grpc

    needs_grpc()
    image, logits = image_and_logits
    np.save(tmp_path / "image.npy", image)
    with Server("--device", "fsim") as server:
        words = ["run", MODEL, "--device", server.device, "--input", tmp_path / "image.npy"]
        installed.done(*words, "-o", tmp_path / "out.npy")
    assert np.array_equal(np.load(tmp_path / "out.npy"), logits)


def test_wheel_says_what_it_lacks(installed, tmp_path):
    if "rtl" in tessera.backends():
        (tmp_path / "odd.toml").write_text(ODD)
        words = ["run", MODEL, "--device", "rtl", "--config", tmp_path / "odd.toml", "--random-inputs", "1"]
        result = installed.run(*words)
        assert result.returncode == 1 and "verilator and a C++ compiler is needed" in result.stderr
    report = installed.done("doctor")
    assert f"tessera {tessera.__version__}" in report
    assert re.search(r"no +onnx +for tessera quantize: pip install onnx onnxruntime", report)
    assert re.search(r"yes +numpy", report)
    result = installed.run("quantize", DIGITS / "digits_float.onnx", "--calibrate", "random")
    assert result.returncode == 1 and "pip install" in result.stderr and "Traceback" not in result.stderr
    result = installed.run("serve", "--device", "fsim")
    assert result.returncode == 1 and "pip install tessera[serve]" in result.stderr
    assert "Traceback" not in result.stderr


# --- the command --------------------------------------------------------------------------------------------


def tessera_command(*words, **options):
    return run([BUILD / "bin" / "tessera", *words], **options)


def commands():
    return re.findall(r"^  (\w+) +", tessera_command("--help").stdout.partition("Subcommands:")[2], re.M)


def test_every_command_has_help_with_an_example():
    assert {"run", "compile", "quantize", "doctor", "completion"} <= set(commands())
    for command in commands():
        result = tessera_command(command, "--help")
        assert result.returncode == 0 and "Example:" in result.stdout, command
        assert "tessera " + command in result.stdout.partition("Example:")[2], command


def test_completion(tmp_path):
    script = tmp_path / "completion"
    script.write_text(tessera_command("completion", "bash").stdout)

    def completed(*words):
        line = " ".join(f"'{w}'" for w in words)
        ask = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _tessera; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        return done(["bash", "-c", f"source {script}; {ask}"], cwd=tmp_path)

    assert set(completed("tessera", "re").split()) == {"report"}
    assert set(completed("tessera", "run", "--device", "").split()) >= {"fsim", "reference", "sysc"}
    assert "npu256" in completed("tessera", "run", "m.onnx", "--config", "npu2").split()
    assert "--random-inputs" in completed("tessera", "run", "--ra").split()
    for shell in ("zsh", "fish"):
        assert "quantize" in tessera_command("completion", shell).stdout
    result = tessera_command("completion", "tcsh")
    assert result.returncode == 1 and "bash, zsh and fish" in result.stderr


# --- the C library ------------------------------------------------------------------------------------------


def test_a_project_outside_finds_the_library(image_and_logits, tmp_path):
    if SANITIZED or not shutil.which("cmake"):
        pytest.skip("needs cmake and a build without sanitizers")
    image, logits = image_and_logits
    prefix, build = tmp_path / "prefix", tmp_path / "build"
    done(["cmake", "--install", BUILD, "--component", "library", "--prefix", prefix])
    done(["cmake", "-S", ROOT / "tests" / "outside", "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}"])
    done(["cmake", "--build", build])
    result = subprocess.run([build / "classify", MODEL], input=image.tobytes(), capture_output=True, check=True)
    assert np.array_equal(np.frombuffer(result.stdout, np.float32).reshape(logits.shape), logits)


# --- what must agree ----------------------------------------------------------------------------------------


def test_versions_agree():
    (version,) = re.findall(r"project\(tessera VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert tessera.__version__ == version
    assert tessera_command("--version").stdout.strip() == f"tessera {version}"
    assert re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(), re.M)


def pins(path):
    return set(re.findall(r"^[\w.-]+==[\w.]+$", path.read_text(), re.M))


def test_extras_take_the_pins_of_the_requirements():
    """An extra asks for a pin, or for a range from that of requirements-oldest.txt to that of requirements.txt."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pinned = pins(ROOT / "requirements.txt")
    known = pinned.union(*(pins(p) for p in ROOT.glob("requirements-*.txt")))
    oldest, newest = pins(ROOT / "requirements-oldest.txt"), dict(pin.split("==") for pin in pinned)
    for name, wanted in project["project"]["optional-dependencies"].items():
        for text in wanted:
            requirement = Requirement(text)
            ends = {clause.operator: clause.version for clause in requirement.specifier}
            if text in known:
                continue
            assert f"{requirement.name}=={ends['>=']}" in oldest, name
            assert newest[requirement.name] in requirement.specifier, name
    assert set(project["build-system"]["requires"]) <= known


def test_stubs_have_the_names_and_parameters_of_the_package():
    package = pathlib.Path(tessera.__file__).parent
    assert (package / "py.typed").exists()
    tree = ast.parse((package / "__init__.pyi").read_text())
    stubs = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}

    def compare(name, stub, real):
        parameters = [a.arg for a in (*stub.args.posonlyargs, *stub.args.args, *stub.args.kwonlyargs)]
        parameters += [a.arg for a in (stub.args.vararg, stub.args.kwarg) if a]
        signature = inspect.signature(real)
        assert sorted(parameters) == sorted(signature.parameters), name

    for name in tessera.__all__:
        real, stub = getattr(tessera, name), stubs.get(name)
        assert stub is not None, f"the stub lacks {name}"
        if name == "Error" or name == "backends":
            continue
        if isinstance(stub, ast.FunctionDef):
            if name != "quantize":  # its keywords are those of tessera.quantization.quantize
                compare(name, stub, real)
            continue
        methods = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
        public = {n for n, f in vars(real).items() if inspect.isfunction(f) and (n[0] != "_" or n == "__init__")}
        for method in public:
            assert method in methods or name == "NodeArg", f"the stub lacks {name}.{method}"
            if method in methods:
                compare(f"{name}.{method}", methods[method], getattr(real, method))
