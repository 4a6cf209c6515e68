# SPDX-License-Identifier: Apache-2.0
"""Names the kinds of files with magika.

    python name_files.py FOLDER ANSWERS.json

Answers: for each file the label and its score."""

import json
import pathlib
import sys

from magika import Magika

folder, answers = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
engine = Magika()
found = {}
for file in sorted(folder.glob("*.data")):
    result = engine.identify_path(file)
    found[file.name] = [result.output.label, round(float(result.score), 4)]
answers.write_text(json.dumps(found, indent=1))
