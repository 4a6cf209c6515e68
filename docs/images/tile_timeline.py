#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One convolution tile on the timeline of the five engines, drawn from a run of the timing model.

    docs/images/tile_timeline.py [--build build/release]      writes docs/images/tile_timeline.svg

Enters: the network, configuration and layer named below; they are compiled and run on device `sysc` with a trace.
Leaves: an SVG in which every instruction of the layer is a bar from its first to its last busy cycle, one tile in
colour. A tile is the stretch of the program from behind one STORE to the next. FETCH has the bursts of its words.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PICTURE = pathlib.Path(__file__).with_suffix(".svg")
NETWORK, CONFIG, LAYER, TILE = "resnet8", "npu64", "conv4", 4
TRACKS = ["fetch", "load", "gemm", "alu", "store"]
COLOURS = {"load": "#8fbfe8", "gemm": "#8fd18a", "alu": "#f5b95f", "store": "#e88f8f"}
WIDTH, LEFT, TOP, ROW = 1000, 80, 64, 46


def run(build):
    """The trace of the network: slices as (track, name, arguments, first cycle, cycles)."""
    sys.path.insert(0, str(ROOT))
    from bench import networks

    with tempfile.TemporaryDirectory() as folder:
        model, trace = pathlib.Path(folder, "model.onnx"), pathlib.Path(folder, "trace.json")
        model.write_bytes(networks.build(NETWORK)[0])
        command = [build / "bin" / "tessera", "run", model, "--device", "sysc", "--config", CONFIG]
        command += ["--no-chains", "--random-inputs", "1", "--trace", trace, "--quiet"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        events = json.loads(trace.read_text())["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    return [(tracks[e["tid"]], e["name"], e["args"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]


def tiles_of(slices):
    """The layer's instructions, cut behind each STORE: lists of (track, first cycle, cycles, bytes read)."""
    mine = [s for s in slices if s[0] in COLOURS and s[1] == LAYER]
    tiles = [[]]
    for track, _, args, first, cycles in sorted(mine, key=lambda s: s[2]["pc"]):
        tiles[-1].append((track, first, cycles, args["bytes_read"]))
        if track == "store":
            tiles.append([])
    return [tile for tile in tiles if tile]


def draw(slices):
    tiles = tiles_of(slices)
    begin = min(first for _, first, _, _ in tiles[TILE])
    end = max(first + cycles for _, first, cycles, _ in tiles[TILE])
    margin = (end - begin) // 16
    begin, end = begin - margin, end + margin
    height = TOP + ROW * len(TRACKS) + 34

    def x(cycle):
        return LEFT + (WIDTH - LEFT - 16) * (min(max(cycle, begin), end) - begin) / (end - begin)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="DejaVu Sans, Verdana, sans-serif" fill="#222">',
        "<!-- SPDX-License-Identifier: Apache-2.0. Drawn by docs/images/tile_timeline.py; do not edit. -->",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="24" font-size="15" font-weight="bold">One tile of a convolution ({LAYER} of {NETWORK} on '
        f"{CONFIG}), and its neighbours in grey</text>",
    ]
    step = 10 ** (len(str(end - begin)) - 1)
    step = step if (end - begin) / step > 4 else step // 2
    for cycle in range(begin // step * step + step, end, step):
        out.append(f'<path d="M{x(cycle):.1f},{TOP - 8} V{height - 30}" stroke="#ddd"/>')
        out.append(
            f'<text x="{x(cycle):.1f}" y="{height - 14}" text-anchor="middle" font-size="10">cycle {cycle}</text>'
        )
    for row, track in enumerate(TRACKS):
        y = TOP + ROW * row
        out.append(f'<text x="12" y="{y + 20}" font-size="12" font-weight="bold">{track.upper()}</text>')
        words = [s for s in slices if s[0] == "bus reads" and s[1] == track == "fetch"]
        bars = [(first, cycles, "#777", "") for *_, first, cycles in words]
        for k, tile in enumerate(tiles):
            for t, first, cycles, read in tile:
                if t == track:
                    text = f"{read} B" if read else f"{cycles} cycles"
                    bars.append((first, cycles, COLOURS[t] if k == TILE else "#e4e4e4", text if k == TILE else ""))
        for first, cycles, colour, text in bars:
            if first + cycles <= begin or first >= end:
                continue
            left, right = x(first), x(first + cycles)
            width = max(right - left, 1)
            out.append(
                f'<rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 16}" fill="{colour}" '
                f'stroke="{"none" if track == "fetch" else "#555"}" stroke-width="0.6"/>'
            )
            if text and width > 6.4 * len(text):
                middle = (left + right) / 2
                out.append(f'<text x="{middle:.1f}" y="{y + 19}" text-anchor="middle" font-size="10">{text}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    PICTURE.write_text(draw(run(parser.parse_args().build)))
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
