# SPDX-License-Identifier: Apache-2.0
"""Reads the text of pictures with RapidOCR.

    python read_pages.py FOLDER ANSWERS.json

Answers: for each file the lines that were read, from top to bottom."""

import json
import pathlib
import sys

from rapidocr_onnxruntime import RapidOCR

folder, answers = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
engine = RapidOCR()
found = {}
for file in sorted(folder.glob("*.png")):
    lines, _ = engine(str(file))
    found[file.name] = [text for _, text, _ in lines or []]
answers.write_text(json.dumps(found, indent=1))
