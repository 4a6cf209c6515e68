# SPDX-License-Identifier: Apache-2.0
"""Finds titles, paragraphs, tables and figures of pages with rapid-layout.

    python find_layout.py FOLDER ANSWERS.json

Answers: for each file the boxes as (class, score, left, top, right, bottom), in pixels."""

import json
import pathlib
import sys

from rapid_layout import RapidLayout

folder, answers = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
engine = RapidLayout()
found = {}
for file in sorted(folder.glob("*.png")):
    result = engine(str(file))
    rows = zip(result.class_names or [], result.scores or [], result.boxes or [])
    found[file.name] = [[name, round(float(score), 4), *(round(float(v), 1) for v in box)] for name, score, box in rows]
answers.write_text(json.dumps(found, indent=1))
