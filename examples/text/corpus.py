# SPDX-License-Identifier: Apache-2.0
"""The text, and which part of it is held back."""

import re
import subprocess

PIECE = 8192  # bytes; the unit in which text is held back


def bible() -> bytes:
    """The King James Bible without the verses' numbers, a verse a line: 4.1 MB of ASCII."""
    try:
        verses = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, check=True, text=True).stdout
    except FileNotFoundError:
        raise SystemExit("the command 'bible' is missing: apt-get install bible-kjv") from None
    return re.sub(r"^\w+:\d+ ", "", verses, flags=re.MULTILINE).encode("ascii", "ignore")


def split(text: bytes) -> tuple[bytes, bytes]:
    """Bytes to train on, and every twentieth piece, which is held back."""
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    return b"".join(piece for index, piece in enumerate(pieces) if index % 20 != 10), b"".join(pieces[10::20])
