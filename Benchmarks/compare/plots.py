"""Plots as SVG that follow the reader's light or dark theme."""

import io
import re
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

OURS = "#2f7ed8"
PLAIN = "#8c8c8c"
OTHER = "#c78a3b"
# One for each peer in a plot of lines; none is close to ours.
OTHERS = (
    "#c78a3b", "#2e9e6b", "#d1495b", "#8e6bbf", "#b0a100", "#d77fa1", "#6b4f3a", "#3fb0ac", "#e8743b", "#7a9a2e", "#a83279",
    "#556070")
# Written where the theme's color of text is to stand.
TEXT = "#010203"

STYLE = """<style>
  svg { color: #1f2328; }
  @media (prefers-color-scheme: dark) { svg { color: #e6edf3; } }
</style>"""

pyplot.rcParams.update({
    "svg.fonttype": "none",
    "svg.hashsalt": "opendynamics",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
})


def color(peer: dict) -> str:
    return {"plain": PLAIN, "container": OURS}.get(peer["lane"], OTHER)


def bars(rows: list[tuple[dict, float, float, float]], title: str, unit: str) -> str:
    """Horizontal bars: a peer, its median and the ends of its spread. The best stands on top."""
    figure, axes = pyplot.subplots(figsize=(7.2, 0.8 + 0.36 * len(rows)))
    labels = [row[0]["label"] for row in rows]
    medians = [row[1] for row in rows]
    below = [max(0.0, row[1] - row[2]) for row in rows]
    above = [max(0.0, row[3] - row[1]) for row in rows]
    positions = range(len(rows))
    axes.barh(positions, medians, color=[color(row[0]) for row in rows], height=0.72)
    axes.errorbar(medians, positions, xerr=[below, above], fmt="none", ecolor=TEXT, elinewidth=0.9, capsize=2)
    limit = max(row[3] for row in rows)
    for position, row in zip(positions, rows):
        axes.text(max(row[1], row[3]) + limit * 0.015, position, figure_text(row[1]), va="center", fontsize=10)
    axes.set_yticks(list(positions), labels)
    axes.invert_yaxis()
    axes.set_xlim(0, limit * 1.14)
    axes.set_xlabel(unit)
    axes.set_title(title, loc="left", fontsize=12)
    return svg(figure)


def lines(series: list[tuple[dict, list[tuple[int, float]]]], title: str, unit: str) -> str:
    """Speed against the size of the file, both logarithmic."""
    figure, axes = pyplot.subplots(figsize=(7.2, 4.2))
    for index, (peer, points) in enumerate(series):
        ours = peer["lane"] == "container"
        others = ["o", "s", "^", "v", "D", "P", "X", "*", "<", ">", "p", "h"]
        axes.plot(
            [p[0] for p in points], [p[1] for p in points], label=peer["label"],
            marker=others[index % len(others)], markersize=4, linewidth=2.4 if ours else 1.2,
            color=color(peer) if peer["lane"] in ("plain", "container") else OTHERS[index % len(OTHERS)])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size_text(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: figure_text(value)))
    axes.yaxis.set_major_locator(LogLocator(numticks=8))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(unit)
    axes.set_title(title, loc="left", fontsize=12)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    return svg(figure)


def svg(figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None})
    pyplot.close(figure)
    drawing = text.getvalue()
    drawing = drawing[drawing.index("<svg"):].replace(TEXT, "currentColor")
    # A width of its own would keep it from shrinking with the window.
    drawing = re.sub(r'(<svg[^>]*?) width="([\d.]+)pt" height="[\d.]+pt"', r'\1 style="width: 100%; max-width: \2pt"', drawing, count=1)
    return re.sub(r"(<svg[^>]*>)", r"\1" + STYLE.replace("\\", r"\\"), drawing, count=1)


def save(directory: Path, name: str, drawing: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.svg").write_text('<?xml version="1.0" encoding="utf-8"?>\n' + drawing)


def figure_text(value: float) -> str:
    """Three digits that mean something."""
    if value == 0:
        return "0"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def size_text(value: float) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if value >= 1 << power:
            return f"{value / (1 << power):g} {unit}"
    return f"{value:g} B"
