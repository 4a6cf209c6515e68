# SPDX-License-Identifier: Apache-2.0
"""Finds the notes of music with basic-pitch.

    python find_notes.py FOLDER ANSWERS.json

Answers: for each file the notes as (start in seconds, end, pitch of MIDI)."""

import json
import logging
import pathlib
import sys

logging.disable(logging.WARNING)  # about the runtimes that are not installed

from basic_pitch import FilenameSuffix, build_icassp_2022_model_path  # noqa: E402
from basic_pitch.inference import Model, predict  # noqa: E402

folder, answers = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
model = Model(build_icassp_2022_model_path(FilenameSuffix.onnx))
found = {}
for file in sorted(folder.glob("*.wav")):
    _, _, notes = predict(file, model)
    found[file.name] = sorted([round(float(n[0]), 3), round(float(n[1]), 3), int(n[2])] for n in notes)
answers.write_text(json.dumps(found, indent=1))
