"""Compares dynamics with other programs that store files encrypted. Scripts/bench installs and builds what this needs."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import layers
import machine
from cases import GIB, KIB, MIB, PLAYS, SLOW_REPETITIONS_MAX, SMALL, Case, Turn
from held_memory import held_memory
from peers import Peer, all_peers
from process import CommandFailed
from program import REPOSITORY
from results import Results
from workspace import Workspace

# A turn more than the repetitions: it is checked and not timed.
PROBE = -1
# Larger cases would take minutes under strace.
PROBED_BYTES_MAX, SLOW_PROBED_BYTES_MAX = GIB, 64 * MIB
UNITS = {"K": KIB, "M": MIB, "G": GIB}


def byte_count(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if not match or not int(match[1]):
        raise argparse.ArgumentTypeError(f"{text} is no size; write for instance 64M or 1G")
    return int(match[1]) * UNITS.get(match[2], 1)


def positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return int(text)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="Scripts/bench",
        description="Measures dynamics beside cp and other encrypted stores, on the same files, in turns.",
        epilog="An interrupted run goes on when the same command is given again.")
    parser.add_argument("--output", type=Path, default=Path("bench-results"), metavar="DIR",
                        help="the folder for the report; bench-results by default")
    parser.add_argument("--short", action="store_true", help="small files, once: whether everything works; no figures")
    parser.add_argument(
        "--only", nargs="+", choices=[*PLAYS, *layers.NAMES], metavar="CASE",
        help=f"these cases alone: {', '.join([*PLAYS, *layers.NAMES])}")
    parser.add_argument("--sizes", nargs="+", type=byte_count, metavar="SIZE", help="of single files, such as 64M 1G")
    parser.add_argument("--files", nargs="+", type=positive, metavar="N",
                        help="numbers of small files and of attachments, such as 1000 10000")
    parser.add_argument("--directory", nargs="+", type=Path, metavar="DIR",
                        help="where to measure; by default /dev/shm (memory) and the output folder's disk")
    parser.add_argument("--peers", nargs="+", metavar="NAME", default=["all"],
                        help="these beside dynamics and cp: their names, 'installed' for those that are there, or 'none'")
    parser.add_argument("--repetitions", type=positive, metavar="N", help="5 by default")
    parser.add_argument("--program", type=Path, default=REPOSITORY / ".build/release/dynamics", help=argparse.SUPPRESS)
    parser.add_argument("--tools", type=Path, default=REPOSITORY / ".build/release", help=argparse.SUPPRESS)
    parser.add_argument("--packages", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def chosen_peers(names: list[str], program: Path) -> list[Peer]:
    peers = all_peers(program)
    if names in (["all"], ["installed"]):
        return peers
    unknown = set(names) - {peer.name for peer in peers} - {"none"}
    if unknown:
        sys.exit(f"no peer {', '.join(sorted(unknown))}; there are: {', '.join(sorted(peer.name for peer in peers))}")
    return [peer for peer in peers if peer.name in names or peer.name in ("cp", "dynamics")]


def planned_cases(arguments: argparse.Namespace) -> list[Case]:
    sizes = arguments.sizes or ([4 * MIB] if arguments.short else [KIB, MIB, 64 * MIB, GIB])
    counts = arguments.files or ([100] if arguments.short else [10000])
    attachments = arguments.files or ([10] if arguments.short else [1, 100, 1000, 10000])
    large = max(size for size in sizes if size <= GIB or size == min(sizes))
    threads = sorted({1, 2, os.cpu_count() or 1})
    cases: dict[str, list[Case]] = {
        "file": [Case("file", size) for size in sizes],
        "deliver": [Case("deliver", size) for size in sizes if MIB <= size <= GIB],
        "attachments": [Case("attachments", count) for count in attachments],
        "threads": [] if arguments.short else [Case("threads", count) for count in threads],
        "parallel": [] if arguments.short else [Case("parallel", count) for count in (4, 16)],
        "tree": [Case("tree", count) for count in counts],
        "random": [Case("random", large)] if large >= SMALL else [],
        "first-byte": [Case("first-byte", SMALL)],
    }
    return [case for name in arguments.only or PLAYS for case in cases.get(name, [])]


def planned_layers(arguments: argparse.Namespace) -> list[str]:
    if arguments.only:
        return [name for name in layers.NAMES if name in arguments.only]
    return [] if arguments.short or "none" in arguments.peers else list(layers.NAMES)


def is_planned(case: Case, system: dict, places: list, arguments: argparse.Namespace) -> bool:
    """A disk beside memory gets, by default, only what durability can change; memory shows what computing costs."""
    if system["is_memory"] or len(places) == 1 or arguments.only or arguments.sizes or arguments.files or arguments.short:
        return True
    return case.name in ("tree", "random") or (case.name in ("file", "deliver") and case.amount >= 64 * MIB)


class Progress:
    def __init__(self, total: int):
        self._total = total
        self._done = 0
        self._measured = 0
        self._begin = time.monotonic()

    def skip(self) -> None:
        self._done += 1

    def step(self, text: str) -> None:
        left = ""
        if self._measured:
            each = (time.monotonic() - self._begin) / self._measured
            left = f", {each * (self._total - self._done) / 60:.0f} min left"
        print(f"[{self._done + 1}/{self._total}{left}] {text}", file=sys.stderr, flush=True)
        self._done += 1
        self._measured += 1


def check_same_run(path: Path, run: dict) -> None:
    """What was measured before has to be of this machine, this build and these options."""
    if not path.exists():
        return
    before = json.loads(path.read_text())
    for member in ("machine", "versions", "options", "places"):
        if before[member] != run[member]:
            sys.exit(f"{path.parent} has results of another run ({member} differ); choose another folder, or remove it")
    run["date"] = before["date"]


def main() -> None:
    arguments = options()
    chosen = chosen_peers(arguments.peers, arguments.program.resolve())
    if arguments.packages:
        # What is to be installed for them.
        packages: set[str] = set()
        if arguments.peers != ["installed"]:
            packages |= {package for name in planned_layers(arguments) for package in layers.PACKAGES[name]}
            if planned_cases(arguments):
                packages |= {package for peer in chosen for package in peer.packages}
        print(*sorted(packages))
        return
    if not planned_cases(arguments) and not planned_layers(arguments):
        sys.exit("nothing to measure: these options leave no case; see Scripts/bench --help")
    # Needs the plotting library, which may not be there before.
    import report

    # What is mounted is unmounted when somebody ends us.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    output = arguments.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    places = arguments.directory or [Path("/dev/shm"), output]
    for place in places:
        if not place.is_dir():
            sys.exit(f"{place} is no directory")
    repetitions = arguments.repetitions or (1 if arguments.short else 5)
    missing = {peer.name: reason for peer in chosen if (reason := peer.missing())}
    peers = [peer for peer in chosen if peer.name not in missing]
    cases = planned_cases(arguments)
    systems = []
    for place in places:
        system = machine.file_system(place)
        kind = "memory" if machine.is_memory(place) else "disk"
        name = kind if kind not in [s["name"] for s in systems] else f"{kind} {len(systems)}"
        systems.append({"name": name, "is_memory": kind == "memory", **system})
    run = {
        "date": machine.now(),
        "machine": machine.describe(REPOSITORY, arguments.program),
        "versions": {peer.name: peer.version() for peer in peers},
        "missing": missing,
        "options": {"short": arguments.short, "repetitions": repetitions, "cases": [case.key for case in cases]},
        "places": systems,
        "peers": [
            {
                "name": p.name, "label": p.label, "lane": p.lane, "note": p.note, "protection": vars(p.protection),
                "archives_folders": p.archives_folders}
            for p in peers],
    }
    check_same_run(output / "run.json", run)
    (output / "run.json").write_text(json.dumps(run, indent=2) + "\n")
    for name, reason in missing.items():
        print(f"without {name}: {reason}", file=sys.stderr)
    results = Results(output)
    with nullcontext() if arguments.short else held_memory():
        measure(results, list(zip(places, systems)), cases, peers, repetitions, arguments)
        measure_layers(results, output, list(zip(places, systems)), repetitions, arguments)
    report.write(output, run, results)
    print(f"{output / 'report.html'}")
    if failures := results.failures():
        sys.exit(f"{len(failures)} turns failed; the report has their messages")


def measure_layers(
    results: Results, output: Path, places: list, repetitions: int, arguments: argparse.Namespace
) -> None:
    works = [
        ("ladder", system["name"], lambda place=place, system=system: layers.measure_ladder(
            output, place, system["name"], arguments.tools, repetitions))
        for place, system in places]
    works.append(("calls", "", lambda: layers.measure_calls(output, REPOSITORY, repetitions)))
    for name, place, work in works:
        if name not in planned_layers(arguments):
            continue
        try:
            work()
        except (subprocess.CalledProcessError, OSError) as failure:
            print(f"  {name} failed: {failure}", file=sys.stderr)
            results.add({"place": place, "case": name, "peer": "dynamics", "repetition": 0, "failure": str(failure)})


def is_due(repetition: int, case: Case, peer: Peer) -> bool:
    if repetition == PROBE:
        return case.byte_count <= (PROBED_BYTES_MAX if peer.is_fast else SLOW_PROBED_BYTES_MAX)
    return peer.is_fast or repetition < SLOW_REPETITIONS_MAX


def measure(results: Results, places: list, cases: list[Case], peers: list[Peer], repetitions: int,
            arguments: argparse.Namespace) -> None:
    plan = [
        (place, system, case, peer, repetition)
        for place, system in places
        for case in cases
        if is_planned(case, system, places, arguments)
        for repetition in [*range(repetitions), PROBE]
        # Every other time the other way round: nobody always comes after the same one.
        for peer in (reversed(peers) if repetition % 2 else peers)
        if case.is_for(peer) and is_due(repetition, case, peer)
    ]
    progress = Progress(len(plan))
    workspace, current = None, None
    try:
        for place, system, case, peer, repetition in plan:
            if results.has(system["name"], case.key, peer.name, repetition):
                progress.skip()
                continue
            if current != (place, case):
                if workspace:
                    workspace.remove()
                workspace = Workspace(place)
                current = (place, case)
            turn_of = {"place": system["name"], "case": case.key, "peer": peer.name, "repetition": repetition}
            # Contents, both stores and the file that comes out.
            if machine.free_bytes(place) < 4 * case.byte_count + 256 * MIB:
                results.add({**turn_of, "failure": "there is not enough free space"})
                progress.skip()
                continue
            what = "memory and system calls" if repetition == PROBE else f"{repetition + 1} of {repetitions}"
            progress.step(f"{system['name']}: {case.key}, {peer.label}, {what}")
            turn = Turn(
                peer, case, workspace, durable=not system["is_memory"], probes=repetition == PROBE,
                tools=arguments.tools)
            load = machine.load_average()
            try:
                case.play(turn)
                results.add({**turn_of, "load": load, "results": turn.results})
            except (CommandFailed, OSError) as failure:
                print(f"  {peer.label} failed: {failure}", file=sys.stderr)
                results.add({**turn_of, "failure": str(failure), "results": turn.results})
            finally:
                turn.close()
    finally:
        if workspace:
            workspace.remove()


main()
