# SPDX-License-Identifier: Apache-2.0
"""Listens for wake words with openwakeword.

    python wake_words.py FOLDER ANSWERS.json

Answers: for each file the largest score of each word."""

import json
import pathlib
import sys

from openwakeword.model import Model

folder, answers = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
model = Model()
found = {}
for file in sorted(folder.glob("*.wav")):
    model.reset()
    frames = model.predict_clip(str(file))
    found[file.name] = {word: round(max(float(frame[word]) for frame in frames), 4) for word in frames[0]}
answers.write_text(json.dumps(found, indent=1))
