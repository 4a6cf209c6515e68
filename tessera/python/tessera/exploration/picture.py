# SPDX-License-Identifier: Apache-2.0
"""A picture of an exploration by matplotlib: all points grey, the front as a line, its machines with numbers that the
list beside explains. Enters: an Explorer, points, front. Leaves: the bytes of a PNG or SVG file."""

import io
import warnings

from ..errors import argument, error
from . import report

AXES = {
    "milliseconds": "milliseconds",
    "cycles": "cycles",
    "lut": "look-up tables",
    "ff": "flip-flops",
    "dsp": "DSP slices",
    "bram36": "block RAMs (36 Kbit)",
    "bytes": "bytes of DRAM",
    "microjoules": "microjoules (estimate)",
}
MOST_LISTED = 14
INK, GREY, LINE = "#1b2a3a", "#b8c2cc", "#d1495b"


def check(path):
    """Errors: unsupported without matplotlib, invalid_argument for another ending."""
    if not str(path).endswith((".png", ".svg")):
        raise argument(f"--picture '{path}': the name must end in .png or .svg")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise error(
            "unsupported", "--picture needs the package matplotlib: pip install -r requirements-explore.txt"
        ) from None


def pair(space):
    """(horizontal, vertical) objectives."""
    vertical = space.objectives[0]
    others = [key for key in space.objectives if key != vertical]
    return (others[0] if others else "lut" if vertical != "lut" else "milliseconds"), vertical


def drawn(explorer, points, front, path):
    """The file's bytes; its name tells their form. Errors: as check()."""
    check(path)
    import matplotlib

    made, form = io.BytesIO(), str(path)[-3:]
    # The same figures make the same file, and names are text, whatever dollars are in them.
    with matplotlib.rc_context({"svg.hashsalt": "tessera", "text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # of a name in letters that the font does not have
        metadata = {"Date": None} if form == "svg" else {}
        figure_of(explorer, points, front).savefig(made, format=form, dpi=150, metadata=metadata)
    return made.getvalue()


def scale(axis, set_scale, values):
    """Ticks as plain numbers, and a logarithmic scale where the values are far apart."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    if values and max(values) > 8 * max(min(values), 1e-12):
        set_scale("log")
        axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
        axis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 100 else f"{value:g}"))


def figure_of(explorer, points, front):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across, up = pair(explorer.space)
    figure = Figure(figsize=(12, 6.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes, beside = figure.subplots(1, 2, width_ratios=[2.1, 1])
    beside.axis("off")
    rest = [point for point in points if point not in front]
    axes.scatter(
        [p.figures[across] for p in rest],
        [p.figures[up] for p in rest],
        s=12,
        color=GREY,
        linewidths=0,
        label="machines",
    )
    line = sorted(front, key=lambda p: p.figures[across])
    if len(explorer.space.objectives) == 2:
        axes.step(
            [p.figures[across] for p in line], [p.figures[up] for p in line], where="post", color=LINE, linewidth=1.6
        )
    third = [key for key in explorer.space.objectives if key not in (across, up)]
    scatter = axes.scatter(
        [p.figures[across] for p in line],
        [p.figures[up] for p in line],
        s=46,
        c=[p.figures[third[0]] for p in line] if third else LINE,
        cmap="viridis" if third else None,
        edgecolors="white",
        linewidths=0.8,
        zorder=3,
        label="Pareto front",
    )
    if third:
        figure.colorbar(scatter, ax=axes, label=AXES[third[0]], pad=0.01)
    for number, point in enumerate(front[:MOST_LISTED]):
        axes.annotate(
            str(number + 1),
            (point.figures[across], point.figures[up]),
            xytext=(5, 5),
            textcoords="offset points",
            fontsize=9,
            color=INK,
            weight="bold",
        )
    scale(axes.xaxis, axes.set_xscale, [point.figures[across] for point in points])
    scale(axes.yaxis, axes.set_yscale, [point.figures[up] for point in points])
    if explorer.part and across in explorer.part:
        axes.axvline(explorer.part[across], color=INK, linewidth=1, linestyle=":")
        axes.text(
            explorer.part[across],
            0.03,
            f"{explorer.part['name']} ",
            transform=axes.get_xaxis_transform(),
            rotation=90,
            ha="right",
            color=INK,
        )
    axes.set_xlabel(AXES[across])
    axes.set_ylabel(AXES[up])
    title = f"{explorer.space.name}: {', '.join(network.name for network in explorer.networks)}"
    axes.set_title(printable(title), loc="right", color=INK)
    axes.grid(True, which="major", color="#e6eaee", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1.02), ncols=2, borderaxespad=0)
    listed = []
    for number, point in enumerate(front[:MOST_LISTED]):
        listed.append(
            f"{number + 1:>2}  {point.figures[up]:,.3g} {up}, {point.figures[across]:,.0f} {across}\n"
            + wrapped(report.described(point, report.choices(explorer.space)))
        )
    if len(front) > MOST_LISTED:
        listed.append(f"and {len(front) - MOST_LISTED} more")
    beside.text(0, 1, "\n".join(listed), va="top", fontsize=7.5, family="monospace", color=INK, linespacing=1.25)
    return figure


def printable(text, most=80):
    """What XML and the space above the axes take."""
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def wrapped(text, width=52):
    lines, line = [], ""
    for word in text.split(", "):
        if line and len(line) + len(word) > width:
            lines.append(line)
            line = ""
        line += (", " if line else "") + word
    return "\n".join("    " + one for one in [*lines, line])
