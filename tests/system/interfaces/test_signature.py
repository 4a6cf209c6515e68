# SPDX-License-Identifier: Apache-2.0
"""Signed artifacts as a user meets them: the command, the Python package and the C interface take what is signed with a
trusted key, and refuse the rest with one error before any of it runs (docs/security.md)."""

import ctypes
import json
import pathlib

import numpy as np
import pytest

import tessera
from tests.system.conftest import BUILD, ROOT

MODEL = ROOT / "examples" / "digits" / "digits.onnx"
FEEDS = {"image": np.ones((1, 1, 8, 8), np.float32)}


@pytest.fixture(scope="module")
def signed(command, tmp_path_factory):
    """A folder with artifact, plain and signed, and the keys own and other."""
    folder = tmp_path_factory.mktemp("signed")
    tessera.compile(MODEL, folder / "plain.tsr", "npu64", shapes={"image": [1, 1, 8, 8]})
    for name in ("own", "other"):
        assert command("keygen", folder / name).returncode == 0
    for name in ("own", "other"):
        done = command("sign", folder / "plain.tsr", "--key", folder / f"{name}.key", "-o", folder / f"{name}.tsr")
        assert done.returncode == 0, done.stderr
    altered = bytearray((folder / "own.tsr").read_bytes())
    altered[-1] ^= 1
    (folder / "altered.tsr").write_bytes(altered)
    return folder


def refused(done, *words):
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 1 and len(lines) == 1, done
    for word in ("invalid_artifact", *words):
        assert word in lines[0], lines


CASES = {"plain": "not signed", "other": "not among the trusted", "altered": "altered"}


@pytest.mark.parametrize("words", [("run", "--random-inputs", "1"), ("info",), ("disasm",), ("schedule",), ("report",)])
def test_every_command_that_loads_artifacts_asks_for_the_signature(command, signed, words):
    name, *options = words
    keys = ("--trusted-keys", signed / "own.pub")
    done = command(name, signed / "own.tsr", *options, *keys)
    assert done.returncode == 0, done.stderr
    for case, cause in CASES.items():
        refused(command(name, signed / f"{case}.tsr", *options, *keys), f"{case}.tsr", cause)


def test_what_has_no_signature_is_not_listed_with_trusted_keys(command, signed, tmp_path):
    (tmp_path / "a.asm").write_text("finish\n")
    assert command("asm", tmp_path / "a.asm").returncode == 0
    assert command("disasm", tmp_path / "a.bin").returncode == 0
    done = command("disasm", tmp_path / "a.bin", "--trusted-keys", signed / "own.pub")
    assert done.returncode == 1 and "no artifact" in done.stderr and "--trusted-keys" in done.stderr


def test_without_trusted_keys_all_of_them_run(command, signed):
    for name in ("plain", "own", "other"):
        done = command("run", signed / f"{name}.tsr", "--random-inputs", "1")
        assert done.returncode == 0, done.stderr


def test_info_tells_what_trust_means(command, signed):
    text = command("info", signed / "plain.tsr").stdout
    assert "carries machine code" in text and "signature       none" in text
    key = (signed / "own.pub").read_text().split()[1]
    assert f"by the key {key}" in command("info", signed / "own.tsr").stdout
    info = json.loads(command("info", signed / "own.tsr", "--json").stdout)
    assert info["signer"] == key and info["machine_code"] is True
    assert json.loads(command("info", signed / "plain.tsr", "--json").stdout)["signer"] is None
    refused(command("info", signed / "altered.tsr"), "altered")


def test_sign_in_place(command, signed, tmp_path):
    path = tmp_path / "a.tsr"
    path.write_bytes((signed / "plain.tsr").read_bytes())
    assert command("sign", path, "--key", signed / "own.key", "-q").returncode == 0
    assert path.read_bytes() == (signed / "own.tsr").read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["a.tsr"]
    done = command("sign", path, "--key", signed / "own.pub")
    assert done.returncode == 1 and "no secret key" in done.stderr
    (tmp_path / "no.tsr").write_text("no artifact")
    refused(command("sign", tmp_path / "no.tsr", "--key", signed / "own.key"), "no.tsr")
    done = command("keygen", signed / "own")
    assert done.returncode == 1 and "own.pub" in done.stderr


def test_keys_that_are_none(command, signed, tmp_path):
    (tmp_path / "keys").write_text("tessera-ed25519 00\n")
    for keys, word in ((tmp_path / "keys", "line 1"), (tmp_path / "none", "none"), ("", "keys")):
        for model in (signed / "own.tsr", MODEL) if keys != "" else (signed / "own.tsr",):
            done = command("run", model, "--random-inputs", "1", "--trusted-keys", keys)
            if model == MODEL and done.returncode == 0:
                continue  # a model is compiled here, and no artifact is loaded
            assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1 and word in done.stderr


def test_python(signed):
    expected = tessera.Session(signed / "plain.tsr").run(None, FEEDS)
    session = tessera.Session(signed / "own.tsr", trusted_keys=signed / "own.pub")
    assert np.array_equal(session.run(None, FEEDS)[0], expected[0])
    tessera.Session((signed / "own.tsr").read_bytes(), trusted_keys=str(signed))
    for case, cause in CASES.items():
        for model in (signed / f"{case}.tsr", (signed / f"{case}.tsr").read_bytes()):
            with pytest.raises(tessera.Error, match=cause) as caught:
                tessera.Session(model, trusted_keys=signed / "own.pub")
            assert caught.value.code == "invalid_artifact"
    with pytest.raises(tessera.Error):
        tessera.Session(signed / "own.tsr", trusted_keys="")


def test_c(signed):
    library = ctypes.CDLL(str(BUILD / "lib" / "libtessera.so"))
    library.tessera_last_error.restype = ctypes.c_char_p

    def open_session(path):
        session = ctypes.c_void_p()
        option = ctypes.c_char_p(b"trusted_keys=" + bytes(signed / "own.pub"))
        status = library.tessera_session_open_with(
            bytes(pathlib.Path(path)), None, None, ctypes.byref(option), ctypes.c_size_t(1), ctypes.byref(session)
        )
        library.tessera_session_close(session)
        return status, library.tessera_last_error().decode()

    assert open_session(signed / "own.tsr")[0] == 0
    invalid_artifact = 4
    for case, cause in CASES.items():
        status, message = open_session(signed / f"{case}.tsr")
        assert status == invalid_artifact and cause in message, (status, message)
