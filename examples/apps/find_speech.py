# SPDX-License-Identifier: Apache-2.0
"""Finds speech with silero-vad.

    python find_speech.py FOLDER ANSWERS.json

Answers: for each file the segments as (start, end), in samples of 16 kHz."""

import json
import pathlib
import sys
import wave

import numpy as np
import torch
from silero_vad import get_speech_timestamps, load_silero_vad

folder, answers = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
model = load_silero_vad(onnx=True)
found = {}
for path in sorted(folder.glob("*.wav")):
    with wave.open(str(path)) as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    segments = get_speech_timestamps(torch.from_numpy(sound), model, sampling_rate=16000)
    found[path.name] = [[segment["start"], segment["end"]] for segment in segments]
answers.write_text(json.dumps(found, indent=1))
