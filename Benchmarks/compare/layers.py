"""What our own programs measure inside one process: the ladder's layers, and calls between apps beside D-Bus."""

import json
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from cases import GIB
from results import Series

NAMES = ("ladder", "calls")
PACKAGES = {"ladder": (), "calls": ("dbus-daemon", "pkg-config", "libsystemd-dev", "gcc", "libc6-dev")}
CALL_COUNT = 20000
# What Benchmarks/services measures, as the report names it.
CALLS = {
    "services": "AppServices.call; calls a second: 1,000 under way",
    "services-queue": "the same; the provider has a callback queue",
    "lane-round-trip-blocking": "a lane between apps, a thread that waits; one at a time",
    "lane-round-trip-task": "the same, a task",
    "lane-round-trip-reader": "the same, asked for again where the echo is received",
    "lane-pipelined": "a lane between apps, 64 under way",
    "bus-round-trip": "D-Bus method call; one at a time",
    "bus-pipelined": "D-Bus method calls, 64 under way",
}


def measure_ladder(output: Path, place: Path, name: str, tools: Path, repetitions: int) -> None:
    """Writes `ladder-NAME.json`, unless it is there."""
    result = output / f"ladder-{name.replace(' ', '-')}.json"
    if result.exists():
        return
    print(f"{name}: the ladder", file=sys.stderr, flush=True)
    partial = result.with_suffix(".partial")
    subprocess.run(
        [str(tools / "ladder"), "--only", "steps", "--directory", str(place), "--repetitions", str(repetitions),
         "--json", str(partial)], stdout=subprocess.DEVNULL, check=True)
    partial.rename(result)


def measure_calls(output: Path, repository: Path, repetitions: int) -> None:
    """Writes `calls.tsv`, unless it is there."""
    result = output / "calls.tsv"
    if result.exists():
        return
    print("calls between two processes", file=sys.stderr, flush=True)
    done = subprocess.run(
        [str(repository / "Benchmarks/services"), str(CALL_COUNT), str(repetitions)],
        stdout=subprocess.PIPE, check=True)
    result.write_bytes(done.stdout)


def ladder(output: Path, place: str, series: dict[tuple[str, str, int], dict[str, Series]]) -> list[dict]:
    """The layers from the lowest to the highest: label, speed in GiB/s (median, least, most), share of the layer before
    (of its median; none for whole programs).

    `series` has what was measured of whole programs, by place, step and amount.
    """
    path = output / f"ladder-{place.replace(' ', '-')}.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    rows = []
    for one in found["rungs"]["steps"]["series"]:
        rows.append(_layer(one["name"], [one["byteCount"] / s / GIB for s in one["seconds"]]))
    for before, row in zip(rows, rows[1:]):
        row["share"] = row["speed"] / before["speed"]
    # Whole programs are measured apart, on a disk until everything is durable: they have no share.
    for step, label in (("send", "program: dynamics send"), ("deliver", "process to process: dynamics send --to")):
        whole = series.get((place, step, found["size"]), {}).get("dynamics")
        if whole and whole.values("seconds"):
            rows.append(_layer(label, [found["size"] / s / GIB for s in whole.values("seconds")]))
    return rows


def _layer(label: str, speeds: list[float]) -> dict:
    return {"label": label, "speed": statistics.median(speeds), "least": min(speeds), "most": max(speeds), "share": None}


def calls(output: Path) -> list[dict]:
    """Medians over all turns: name, microseconds of a call (median and 99th percentile), calls a second.

    A way of calling that has no single calls, since they are under way together, has None for their times.
    """
    path = output / "calls.tsv"
    if not path.exists():
        return []
    turns = defaultdict(list)
    for line in path.read_text().splitlines()[1:]:
        name, *figures = line.split("\t")
        turns[name].append([None if figure == "-" else float(figure) for figure in figures])
    rows = [
        {"name": CALLS.get(name, name), **dict(zip(("median", "p99", "per_second"), map(_median, zip(*figures))))}
        for name, figures in turns.items()]
    return sorted(rows, key=lambda row: (row["median"] is None, row["median"] or 0))


def _median(figures: tuple[float | None, ...]) -> float | None:
    return None if None in figures else statistics.median(figures)
