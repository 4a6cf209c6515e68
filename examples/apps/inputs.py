# SPDX-License-Identifier: Apache-2.0
"""Inputs for the programs of this folder, made here: pages of text, files of many kinds, speech, wake words, notes, and
pages with a layout.

    python inputs.py KIND FOLDER COUNT SEED

writes COUNT files of the KIND (pages, files, speech, words, tunes, layouts) into FOLDER; the same for the same seed.
Text is drawn in fonts of Debian's package fonts-dejavu-core where it is installed, and in Pillow's own. Speech comes
from espeak-ng."""

import bz2
import ctypes
import functools
import gzip
import io
import json
import lzma
import pathlib
import pickle
import sqlite3
import sys
import tarfile
import wave
import zipfile

import espeakng_loader
import numpy as np
from PIL import Image, ImageDraw, ImageFont

DEJAVU = pathlib.Path("/usr/share/fonts/truetype/dejavu")
RATE = 16000
RETRIEVAL, UTF8, SPEED, PITCH = 1, 1, 1, 3  # of espeak-ng's speak_lib.h
TEXT = """quick brown fox jumps over a lazy dog while seven merchants carry boxes of glass from harbour to their store
near Bridge Street where Mrs Walker keeps accounts for Winter and Summer sales total amount due before delivery
number twelve invoice paid thanks please return this form with your name address date birth green tea black
coffee sugar milk bread butter price per unit quarter year report weather rain clouds north wind temperature
machine engine wheel water paper letter page chapter figure table result method value measure error between
about under without again never always often people city country river mountain garden window kitchen music
picture science"""
WORDS = TEXT.split()


def font(rng, size):
    files = [file for file in sorted(DEJAVU.glob("DejaVu*.ttf")) if "Condensed" not in file.name]
    if files and rng.random() < 0.7:
        return ImageFont.truetype(str(files[rng.integers(len(files))]), size)
    return ImageFont.load_default(size)


def phrase(rng, words):
    """Words as they stand in letters: capitals, numbers, signs."""
    out = []
    for word in rng.choice(WORDS, words):
        kind = rng.random()
        if kind < 0.08:
            word = f"{rng.integers(1, 10000)}"
        elif kind < 0.12:
            word = f"${rng.integers(1, 500)}.{rng.integers(10, 100)}"
        elif kind < 0.3:
            word = word.capitalize()
        out.append(str(word) + ("," if kind > 0.95 else ""))
    return " ".join(out)


def page(rng, path):
    """A page of 736 x 736 with lines in several sizes, on paper that is not quite white."""
    paper = int(rng.integers(225, 256))
    image = Image.new("RGB", (736, 736), (paper, paper, int(rng.integers(215, 256))))
    draw, y = ImageDraw.Draw(image), 30
    while y < 660:
        size = int(rng.choice([22, 24, 26, 30, 34]))
        face, words = font(rng, size), phrase(rng, int(rng.integers(3, 8))).split()
        ink, x = int(rng.integers(0, 90)), 28.0
        colour = ink, ink, int(rng.integers(0, 120))
        for word in words:  # as wide apart as in lines that are stretched to the margin
            end = x + draw.textlength(word, face)
            if end > 708:
                break
            draw.text((x, y), word, colour, face)
            x = end + 0.8 * size
        y += int(size * rng.uniform(1.9, 2.6))
    pixels = np.asarray(image, np.float32) + rng.normal(0, 3, (736, 736, 1))
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(path.with_suffix(".png"))


def picture(rng, width, height):
    """Something like a photograph: colours that run into each other, with blobs."""
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    planes = [np.full((height, width), 0.5) for _ in range(3)]
    for _ in range(12):
        cx, cy, r = rng.uniform(0, 1, 2).tolist() + [rng.uniform(0.05, 0.4)]
        blob = np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / r**2)
        planes = [plane + rng.uniform(-0.6, 0.6) * blob for plane in planes]
    pixels = np.clip(np.stack(planes, -1) * 255 + rng.normal(0, 6, (height, width, 3)), 0, 255)
    return Image.fromarray(pixels.astype(np.uint8))


def layout(rng, path):
    """A page of 800 x 1100: a title, paragraphs in one or two columns, a table, a figure with a caption."""
    image = Image.new("RGB", (800, 1100), "white")
    draw = ImageDraw.Draw(image)
    title = ImageFont.load_default(int(rng.integers(28, 38)))
    draw.text((60, 50), phrase(rng, 4).title()[:34], "black", title)
    columns = [(60, 740)] if rng.random() < 0.5 else [(60, 385), (415, 740)]
    for left, right in columns:
        y = 120
        while y < 980:
            kind = rng.choice(["text", "text", "table", "figure", "head"])
            y = PARTS[kind](rng, image, draw, left, right, y, min(1050 - y, int(rng.integers(120, 260)))) + 26
    image.save(path.with_suffix(".png"))


def _text(rng, image, draw, left, right, y, height):
    face = ImageFont.load_default(15)
    end = y + height
    while y + 20 < end:
        line = phrase(rng, 14)
        while draw.textlength(line, face) > right - left:
            line = line.rpartition(" ")[0]
        draw.text((left, y), line, "black", face)
        y += 20
    return y


def _head(rng, image, draw, left, right, y, height):
    draw.text((left, y), phrase(rng, 2).title(), "black", ImageFont.load_default(21))
    return y + 24


def _table(rng, image, draw, left, right, y, height):
    rows, columns, face = max(3, height // 28), int(rng.integers(3, 6)), ImageFont.load_default(13)
    width = (right - left) // columns
    for row in range(rows + 1):
        draw.line((left, y + 28 * row, left + width * columns, y + 28 * row), "black")
    for column in range(columns + 1):
        draw.line((left + width * column, y, left + width * column, y + 28 * rows), "black")
    for row in range(rows):
        for column in range(columns):
            text = str(rng.choice(WORDS)) if row == 0 or column == 0 else f"{rng.uniform(0, 99):.1f}"
            draw.text((left + width * column + 6, y + 28 * row + 6), text[: width // 9], "black", face)
    return y + 28 * rows


def _figure(rng, image, draw, left, right, y, height):
    image.paste(picture(rng, right - left, height), (left, y))
    draw.text((left + 40, y + height + 8), f"Figure {rng.integers(1, 9)}. {phrase(rng, 4)}"[:40], "black",
              ImageFont.load_default(13))  # fmt: skip
    return y + height + 26


PARTS = {"text": _text, "table": _table, "figure": _figure, "head": _head}


# --- sounds


def write_wave(path, values, rate=RATE):
    with wave.open(str(path.with_suffix(".wav")), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(values, -1, 1) * 32767).astype("<i2").tobytes())


def say(rng, text):
    """Speech of the text, as floats at 16 kHz."""
    voice = str(rng.choice(["en-us", "en-gb", "en-us+f3", "en-us+m3", "en-gb+f2"]))
    speaker = _speaker()
    speaker.espeak_SetVoiceByName(voice.encode())
    speaker.espeak_SetParameter(SPEED, int(rng.integers(130, 180)), 0)
    speaker.espeak_SetParameter(PITCH, int(rng.integers(30, 70)), 0)
    parts = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def take(samples, count, _):
        if count:
            parts.append(np.ctypeslib.as_array(samples, (count,)) / 32768)
        return 0

    speaker.espeak_SetSynthCallback(take)
    said = text.encode()
    if speaker.espeak_Synth(said, ctypes.c_size_t(len(said) + 1), 0, 0, 0, UTF8, None, None):
        raise SystemExit(f"inputs.py: espeak-ng does not say '{text}'")
    speaker.espeak_Synchronize()
    values = np.concatenate(parts)
    places = np.arange(int(len(values) * RATE / speaker.rate)) * speaker.rate / RATE
    return np.interp(places, np.arange(len(values)), values)


@functools.cache
def _speaker():
    """espeak-ng's library; `rate` is that of its samples."""
    speaker = ctypes.CDLL(espeakng_loader.get_library_path())
    speaker.rate = speaker.espeak_Initialize(RETRIEVAL, 0, espeakng_loader.get_data_path().encode(), 0)
    return speaker


def speech(rng, path):
    """Three or four phrases with pauses between them, and a little noise."""
    parts = [np.zeros(int(RATE * rng.uniform(0.4, 1.2)))]
    for _ in range(rng.integers(3, 5)):
        parts += [rng.uniform(0.3, 1) * say(rng, phrase(rng, int(rng.integers(3, 7))))]
        parts += [np.zeros(int(RATE * rng.uniform(0.5, 1.5)))]
    values = np.concatenate(parts)
    write_wave(path, values + rng.normal(0, rng.uniform(0.0005, 0.01), len(values)))


def words(rng, path):
    """A wake word, or what is none, between silences."""
    text = rng.choice(["hey jarvis", "alexa", "hey mycroft", "hey marvin", "set a timer for ten minutes",
                       "what's the weather in Paris", "good morning, how are you today"])  # fmt: skip
    said = rng.uniform(0.4, 1) * say(rng, str(text))
    values = np.concatenate([np.zeros(RATE), said, np.zeros(RATE)])
    write_wave(path, values + rng.normal(0, 0.002, len(values)))


def tune(rng, path):
    """Ten seconds of notes, plucked or held, up to three at a time, at 22.05 kHz."""
    rate = 22050
    values, at = np.zeros(10 * rate), 0.1
    while at < 8.8:
        held = rng.uniform(0.3, 1.0)
        for note in rng.choice(np.arange(45, 80), rng.integers(1, 4), replace=False):
            time = np.arange(int(held * rate)) / rate
            hertz, fall = 440 * 2 ** ((note - 69) / 12), rng.uniform(1, 5)
            tones = sum(np.sin(2 * np.pi * hertz * k * time) / k ** rng.uniform(1, 2) for k in range(1, 7))
            tones *= np.exp(-fall * time) * np.minimum(1, time * 100) * np.minimum(1, (held - time) * 50)
            start = int(at * rate)
            values[start : start + len(time)] += 0.2 * rng.uniform(0.5, 1) * tones[: len(values) - start]
        at += held * rng.uniform(0.6, 1.2)
    write_wave(path, values + rng.normal(0, 0.001, len(values)), rate)


# --- files


def _name(rng):
    return str(rng.choice(WORDS)).lower()


def _lines(rng, make, least=8, most=60):
    return "\n".join(make() for _ in range(rng.integers(least, most))) + "\n"


def _python(rng):
    body = lambda: (
        f"def {_name(rng)}_{_name(rng)}({_name(rng)}, count={rng.integers(9)}):\n    for k in range(count):\n"
        f"        print({_name(rng)!r}, k)\n    return [{_name(rng)!r}] * count\n"
    )
    return "import os\nimport sys\nfrom pathlib import Path\n\n\n" + _lines(rng, body, 3, 12)


def _c(rng):
    body = lambda: (
        f"static int {_name(rng)}_{_name(rng)}(const char *{_name(rng)}, size_t n) {{\n  for (size_t i = 0; i < n; i++)"
        f' {{\n    printf("%s\\n", "{_name(rng)}");\n  }}\n  return {rng.integers(99)};\n}}\n'
    )
    return "#include <stdio.h>\n#include <stdlib.h>\n\n" + _lines(rng, body, 3, 12) + "int main(void) { return 0; }\n"


def _java(rng):
    body = lambda: (
        f'    public int {_name(rng)}(String {_name(rng)}) {{\n        System.out.println("{_name(rng)}");\n'
        f"        return {rng.integers(99)};\n    }}\n"
    )
    kind = _name(rng).capitalize()
    return (
        f"package org.{_name(rng)};\n\nimport java.util.List;\n\npublic class {kind} {{\n{_lines(rng, body, 3, 12)}}}\n"
    )


def _javascript(rng):
    body = lambda: (
        f"export async function {_name(rng)}({_name(rng)}) {{\n  const found = await fetch('/{_name(rng)}');\n"
        f"  document.getElementById('{_name(rng)}').innerText = `${{found}}`;\n}}\n"
    )
    return "import fs from 'fs';\n\n" + _lines(rng, body, 3, 12)


def _rust(rng):
    body = lambda: (
        f"pub fn {_name(rng)}(values: &[u32]) -> Option<String> {{\n    let mut out = Vec::new();\n"
        f'    for v in values.iter() {{\n        out.push(format!("{{}}-{_name(rng)}", v));\n    }}\n'
        "    out.into_iter().next()\n}\n"
    )
    return "use std::collections::HashMap;\n\n" + _lines(rng, body, 3, 12)


def _go(rng):
    body = lambda: (
        f'func {_name(rng).capitalize()}(n int) (string, error) {{\n\tif n < {rng.integers(9)} {{\n\t\treturn "", '
        f'fmt.Errorf("{_name(rng)}")\n\t}}\n\treturn "{_name(rng)}", nil\n}}\n'
    )
    return 'package main\n\nimport (\n\t"fmt"\n\t"os"\n)\n\n' + _lines(rng, body, 3, 12)


def _html(rng):
    body = lambda: f'<p class="{_name(rng)}">{phrase(rng, 8)}</p>\n<ul><li>{phrase(rng, 2)}</li></ul>'
    head = f"<head><title>{phrase(rng, 3)}</title></head>"
    return f"<!DOCTYPE html>\n<html>\n{head}\n<body>\n{_lines(rng, body)}</body>\n</html>\n"


def _css(rng):
    return _lines(
        rng,
        lambda: f".{_name(rng)} > a:hover {{\n  color: #{rng.integers(4096):03x};\n  margin: {rng.integers(40)}px;\n}}",
    )


def _xml(rng):
    body = lambda: f'  <{_name(rng)} id="{rng.integers(999)}"><name>{phrase(rng, 3)}</name></{_name(rng)}>'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<root>\n{_lines(rng, body)}</root>\n'


def _json(rng):
    rows = [
        {"id": int(rng.integers(999)), _name(rng): phrase(rng, 3), "on": bool(k % 2)}
        for k in range(rng.integers(5, 40))
    ]
    return json.dumps({"items": rows, "total": len(rows)}, indent=int(rng.integers(1, 5)))


def _csv(rng):
    return "id,name,price,city\n" + _lines(
        rng, lambda: f"{rng.integers(999)},{_name(rng)},{rng.uniform(0, 99):.2f},{_name(rng)}"
    )


def _ini(rng):
    return _lines(
        rng, lambda: f"[{_name(rng)}]\n{_name(rng)} = {rng.integers(99)}\n{_name(rng)} = {_name(rng)}\n", 4, 20
    )


def _toml(rng):
    body = lambda: (
        f'[tool.{_name(rng)}]\nname = "{_name(rng)}"\nversion = "{rng.integers(9)}.0"\nlist = ["{_name(rng)}", 1]\n'
    )
    return f'[project]\nname = "{_name(rng)}"\ndependencies = ["numpy>=1"]\n\n' + _lines(rng, body, 4, 20)


def _yaml(rng):
    return "version: 2\nservices:\n" + _lines(
        rng, lambda: f'  {_name(rng)}:\n    image: {_name(rng)}:latest\n    ports:\n      - "{rng.integers(9999)}"'
    )


def _shell(rng):
    body = lambda: (
        f'if [ -f "${_name(rng).upper()}" ]; then\n  echo "{phrase(rng, 3)}" | grep -v {_name(rng)} > /dev/null\nfi'
    )
    return "#!/bin/bash\nset -euo pipefail\n\n" + _lines(rng, body, 4, 20)


def _sql(rng):
    body = lambda: f"INSERT INTO {_name(rng)} (id, name) VALUES ({rng.integers(999)}, '{_name(rng)}');"
    return f"CREATE TABLE {_name(rng)} (\n  id INTEGER PRIMARY KEY,\n  name VARCHAR(80) NOT NULL\n);\n" + _lines(
        rng, body
    )


def _markdown(rng):
    return f"# {phrase(rng, 3)}\n\n" + _lines(
        rng,
        lambda: (
            f"## {phrase(rng, 3)}\n\n- **{_name(rng)}**: {phrase(rng, 9)}\n- [{_name(rng)}](https://example.org/{_name(rng)})\n"
        ),
        4,
        20,
    )


def _makefile(rng):
    return "CC = gcc\nCFLAGS = -O2 -Wall\n\nall: main\n\n" + _lines(
        rng, lambda: f"{_name(rng)}.o: {_name(rng)}.c\n\t$(CC) $(CFLAGS) -c $< -o $@\n", 4, 20
    )


def _prose(rng):
    return _lines(rng, lambda: phrase(rng, 14) + ".")


def _svg(rng):
    number = lambda most: rng.integers(most)
    body = lambda: f'  <circle cx="{number(99)}" cy="{number(99)}" r="{number(9)}" fill="#{number(4096):03x}"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100">\n{_lines(rng, body)}</svg>\n'


TEXTS = {
    "py": _python, "c": _c, "java": _java, "js": _javascript, "rs": _rust, "go": _go, "html": _html, "css": _css,
    "xml": _xml, "json": _json, "csv": _csv, "ini": _ini, "toml": _toml, "yaml": _yaml, "sh": _shell, "sql": _sql,
    "md": _markdown, "mk": _makefile, "txt": _prose, "svg": _svg,
}  # fmt: skip


def _picture_as(kind):
    def make(rng):
        out = io.BytesIO()
        picture(rng, int(rng.integers(20, 200)), int(rng.integers(20, 200))).save(out, kind)
        return out.getvalue()

    return make


def _zip(rng):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for _ in range(rng.integers(1, 6)):
            archive.writestr(f"{_name(rng)}.txt", _prose(rng))
    return out.getvalue()


def _tar(rng):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for _ in range(rng.integers(1, 6)):
            data = _prose(rng).encode()
            info = tarfile.TarInfo(f"{_name(rng)}.txt")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _sqlite(rng):
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE t (id INTEGER, name TEXT)")
    base.executemany("INSERT INTO t VALUES (?, ?)", [(k, _name(rng)) for k in range(int(rng.integers(5, 99)))])
    base.commit()
    return base.serialize()


def _numpy(rng):
    out = io.BytesIO()
    np.save(out, rng.normal(size=(int(rng.integers(5, 50)), 8)))
    return out.getvalue()


def _wave(rng):
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes((rng.normal(0, 0.1, 4000) * 32767).astype("<i2").tobytes())
    return out.getvalue()


BYTES = {
    "png": _picture_as("PNG"), "jpg": _picture_as("JPEG"), "gif": _picture_as("GIF"), "bmp": _picture_as("BMP"),
    "tiff": _picture_as("TIFF"), "webp": _picture_as("WEBP"), "pdf": _picture_as("PDF"), "zip": _zip, "tar": _tar,
    "gz": lambda rng: gzip.compress(_prose(rng).encode()), "bz2": lambda rng: bz2.compress(_prose(rng).encode()),
    "xz": lambda rng: lzma.compress(_prose(rng).encode()), "sqlite": _sqlite, "npy": _numpy, "wav": _wave,
    "pickle": lambda rng: pickle.dumps({_name(rng): [phrase(rng, 3)] * 9, "n": int(rng.integers(99))}),
}  # fmt: skip


def files(rng, path):
    """Every kind in turn; the number in the name says which."""
    kinds = [*TEXTS, *BYTES]
    kind = kinds[int(path.stem) % len(kinds)]
    data = TEXTS[kind](rng).encode() if kind in TEXTS else BYTES[kind](rng)
    path.with_suffix(".data").write_bytes(data)


KINDS = {"pages": page, "files": files, "speech": speech, "words": words, "tunes": tune, "layouts": layout}


def main(kind, folder, count, seed):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(int(count)):
        KINDS[kind](np.random.default_rng([int(seed), k]), folder / f"{k:03d}")


if __name__ == "__main__":
    main(*sys.argv[1:])
