"""The work that is measured. Each case is a row of steps on fresh stores, the same for every peer."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from peers import Peer, Store
from process import Pipeline, probe, run, synchronize
from workspace import Workspace, allocated, same

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
SMALL = 4 * KIB


@dataclass(frozen=True)
class Step:
    """One line of the tables."""

    name: str
    title: str
    unit: str
    """`bytes`, `files`, `operations` or `start`: what the time is divided by."""


STEPS = {
    step.name: step
    for step in [
        Step("write", "a file in", "bytes"),
        Step("read", "a file out", "bytes"),
        Step("send", "store to store", "bytes"),
        Step("tree-in", "small files in", "files"),
        Step("list", "list with sizes", "files"),
        Step("tree-out", "small files out", "files"),
        Step("random-read", "random reads of 4 KiB", "operations"),
        Step("random-write", "random writes of 4 KiB", "operations"),
        Step("first-byte", "one small file, from the start of the program", "start"),
    ]
}


@dataclass(frozen=True)
class Case:
    """Steps on one size: bytes of a file, or a number of small files."""

    name: str
    amount: int

    @property
    def key(self) -> str:
        return f"{self.name}-{self.amount}"

    @property
    def byte_count(self) -> int:
        return self.amount * SMALL if self.name == "tree" else self.amount

    def is_for(self, peer: Peer) -> bool:
        return peer.cases.issuperset(PLAYS[self.name][0])

    def play(self, turn: "Turn") -> None:
        PLAYS[self.name][1](turn)


class Turn:
    """One peer's turn at one case: its stores, and the results of its steps."""

    def __init__(
        self, peer: Peer, case: Case, workspace: Workspace, durable: bool, probes: bool, tools: Path
    ):
        self.peer = peer
        self.case = case
        self.workspace = workspace
        self.tools = tools
        self.results: list[dict] = []
        self._durable = durable
        self._probes = probes
        self._stores: list[Store] = []

    def can(self, *steps: str) -> bool:
        return self.peer.cases.issuperset(steps)

    def store(self) -> Store:
        store = self.peer.store(self.workspace.path / f"{self.peer.name}-{len(self._stores)}")
        self._stores.append(store)
        return store

    def target(self) -> Path:
        """A path with nothing there."""
        path = self.workspace.path / "out"
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        return path

    def measure(
        self, step: str, pipeline: Pipeline, stores: list[Store], sources: list[Path], amount: int,
        byte_count: int = 0,
    ) -> None:
        """Runs one step and notes its cost. `byte_count`: the memory that its target takes."""
        for store in stores:
            store.reopen()
        servers = [server for store in stores for server in store.servers]
        mounts = [mount for store in stores for mount in store.mounts]
        if self._probes:
            cost = probe(pipeline, servers, self.workspace.path / "probe")
        else:
            self.workspace.prepare(sources, byte_count)
            cost = run(pipeline, servers, [*mounts, self.workspace.path] if self._durable else [])
        self.results.append({"step": step, "amount": amount, **vars(cost)})

    def note_space(self, step: str, store: Store, byte_count: int) -> None:
        """Notes what the store takes for so many bytes of contents."""
        if not self._probes:
            return
        store.reopen()
        synchronize(self.workspace.path)
        self.results.append({"step": step, "amount": byte_count, "allocated": allocated(store.data)})

    def check(self, left: Path, right: Path) -> None:
        """Raises AssertionError when the peer did not store what it was given."""
        if self._probes and not same(left, right):
            raise AssertionError(f"{self.peer.name} returned other bytes than it was given")

    def close(self) -> None:
        for index, store in enumerate(self._stores):
            store.close()
            shutil.rmtree(self.workspace.path / f"{self.peer.name}-{index}", ignore_errors=True)
        self.target()


def play_file(turn: Turn) -> None:
    size = turn.case.amount
    plain = turn.workspace.file(f"plain-{size}", size)
    a, b = turn.store(), turn.store()
    turn.measure("write", a.put(plain, "large"), [a], [plain], size, size)
    turn.note_space("space-file", a, size)
    target = turn.target()
    turn.measure("read", a.get("large", target), [a], [a.data], size, size)
    turn.check(plain, target)
    turn.target()
    turn.measure("send", a.send("large", b), [a, b], [a.data], size, size)
    target = turn.target()
    run(b.get(b.received("large"), target))
    turn.check(plain, target)


def play_tree(turn: Turn) -> None:
    count = turn.case.amount
    tree = turn.workspace.tree(f"tree-{count}", count, SMALL)
    store = turn.store()
    turn.measure("tree-in", store.put_tree(tree, "tree"), [store], [tree], count, 2 * count * SMALL)
    turn.note_space("space-tree", store, count * SMALL)
    if turn.can("list"):
        turn.measure("list", store.list_tree("tree"), [store], [store.data], count)
    target = turn.target()
    turn.measure("tree-out", store.get_tree("tree", target), [store], [store.data], count, 2 * count * SMALL)
    turn.check(tree, target)


def play_first_byte(turn: Turn) -> None:
    size = turn.case.amount
    plain = turn.workspace.file(f"plain-{size}", size)
    store = turn.store()
    run(store.put(plain, "small"))
    turn.measure("first-byte", store.cat("small"), [store], [store.data], 1)


def play_random(turn: Turn) -> None:
    size = turn.case.amount
    count = min(65536, size // SMALL)
    plain = turn.workspace.file(f"plain-{size}", size)
    store = turn.store()
    run(store.put(plain, "large"))
    for step, options in (("random-read", []), ("random-write", ["--write"])):
        command = [str(turn.tools / "random-io"), *store.random_target("large"), "--count", str(count), *options]
        turn.measure(step, Pipeline([command]), [store], [store.data], count)


PLAYS: dict[str, tuple[tuple[str, ...], Callable[[Turn], None]]] = {
    "file": (("write", "read", "send"), play_file),
    "tree": (("tree-in", "tree-out"), play_tree),
    "random": (("random-read", "random-write"), play_random),
    "first-byte": (("first-byte",), play_first_byte),
}
