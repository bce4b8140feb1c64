"""The work that is measured. Each case is a row of steps on fresh stores, the same for every peer."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from peers import GIB, MIB, Peer, Store
from process import CommandFailed, Pipeline, probe, run, synchronize
from workspace import Workspace, allocated, digests, same

KIB = 1 << 10
SMALL = 4 * KIB
PARALLEL = 64 * MIB
THREADED = GIB
SLOW_REPETITIONS_MAX = 3


@dataclass(frozen=True)
class Step:
    """One kind of table."""

    name: str
    title: str
    """With `{size}` or `{count}` for the amount that the step is measured with."""
    unit: str
    """`bytes`, `files`, `operations` or `start`: what the time is divided by."""


STEPS = {
    step.name: step
    for step in [
        Step("write", "a file in, {size}", "bytes"),
        Step("read", "a file out, {size}", "bytes"),
        Step("send", "store to store, {size}", "bytes"),
        Step("deliver", "process to process, {size}", "bytes"),
        Step("attachments", "process to process, attachments of 4 KiB: {count}", "files"),
        Step("threads", "store to store, 1 GiB, threads: {count}", "bytes"),
        Step("parallel", "store to store, 64 MiB each, at once: {count}", "bytes"),
        Step("tree-in", "small files in, {count} of 4 KiB", "files"),
        Step("list", "list with sizes, {count} files", "files"),
        Step("tree-send", "store to store, {count} files of 4 KiB", "files"),
        Step("tree-out", "small files out, {count} of 4 KiB", "files"),
        Step("random-read", "random reads of 4 KiB, file of {size}", "operations"),
        Step("random-write", "random writes of 4 KiB, file of {size}", "operations"),
        Step("first-byte", "a file of {size}, from the start of the program", "start"),
    ]
}


@dataclass(frozen=True)
class Case:
    """Steps on one amount: bytes of a file, or a number of small files, threads or transfers."""

    name: str
    amount: int

    @property
    def key(self) -> str:
        return f"{self.name}-{self.amount}"

    @property
    def byte_count(self) -> int:
        """The bytes of all its files."""
        if self.name == "threads":
            return THREADED
        return self.amount * {"tree": SMALL, "attachments": SMALL, "parallel": PARALLEL}.get(self.name, 1)

    def is_for(self, peer: Peer) -> bool:
        if not peer.cases.issuperset(PLAYS[self.name][0]):
            return False
        return peer.is_fast or (self.name != "parallel" and self.byte_count in peer.sizes)

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
        # Large files need their space again; many small ones would slow down the next peer.
        self._discards_at_once = not durable or case.name not in ("tree", "attachments")
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
        self.workspace.discard(path, at_once=self._discards_at_once)
        return path

    def measure(
        self, step: str, pipelines: list[Pipeline], stores: list[Store], sources: list[Path],
        work: int | None = None,
    ) -> None:
        """Runs one step and notes its cost. `work` is what the time is divided by, the case's amount by default."""
        for store in stores:
            store.reopen()
        servers = [server for store in stores for server in store.servers]
        mounts = [mount for store in stores for mount in store.mounts]
        if self._probes:
            cost = probe(*pipelines, servers=servers, scratch=self.workspace.path / "probe")
        else:
            self.workspace.prepare(sources)
            durable_in = mounts if self._durable or self.peer.encrypts_late else []
            durable_in = [*durable_in, self.workspace.path] if self._durable else durable_in
            cost = run(*pipelines, servers=servers, durable_in=durable_in)
        self.results.append({"step": step, "amount": self.case.amount, "work": work or self.case.amount, **vars(cost)})

    def note_space(self, step: str, store: Store, byte_count: int) -> None:
        """Notes what the store takes for so many bytes of contents."""
        if not self._probes:
            return
        store.reopen()
        synchronize(self.workspace.path)
        self.results.append({"step": step, "amount": byte_count, "allocated": allocated(store.data)})

    def check(self, left: Path, right: Path) -> None:
        """Raises CommandFailed when the peer did not store what it was given."""
        if self._probes and not same(left, right):
            raise CommandFailed(f"{self.peer.name} returned other bytes than it was given")

    def check_received(self, store: Store, name: str, plain: Path) -> None:
        """As `check`, of what `send` or `deliver` stored."""
        if self._probes:
            target = self.target()
            get = store.get_tree if plain.is_dir() else store.get
            run(get(store.received(name), target))
            self.check(plain, target)

    def check_delivered(self, store: Store, name: str, tree: Path) -> None:
        """As `check`, of the files that `deliver_tree` stored, in whichever folders they stand."""
        if not self._probes:
            return
        target = self.target()
        run(store.get_tree(store.delivered_tree(name), target))
        if digests(target) != digests(tree):
            raise CommandFailed(f"{self.peer.name} delivered other files than it was given")

    def close(self) -> None:
        for store in self._stores:
            store.close()
        # And what a store that could not be made has left.
        for index in range(len(self._stores) + 1):
            self.workspace.discard(
                self.workspace.path / f"{self.peer.name}-{index}", at_once=self._discards_at_once)
        self.target()


def play_file(turn: Turn) -> None:
    size = turn.case.amount
    plain = turn.workspace.file(f"plain-{size}", size)
    a, b = turn.store(), turn.store()
    turn.measure("write", [a.put(plain, "large")], [a], [plain])
    turn.note_space("space-file", a, size)
    target = turn.target()
    turn.measure("read", [a.get("large", target)], [a], [a.data])
    turn.check(plain, target)
    turn.target()
    turn.measure("send", [a.send("large", b)], [a, b], [a.data])
    turn.check_received(b, "large", plain)


def play_deliver(turn: Turn) -> None:
    size = turn.case.amount
    plain = turn.workspace.file(f"plain-{size}", size)
    a, b = turn.store(), turn.store()
    run(a.put(plain, "large"))
    b.serve()
    turn.measure("deliver", [a.deliver("large", b)], [a, b], [a.data])
    b.close()
    turn.check_received(b, "large", plain)


def play_attachments(turn: Turn) -> None:
    count = turn.case.amount
    tree = turn.workspace.tree(f"tree-{count}", count, SMALL)
    a, b = turn.store(), turn.store()
    run(a.put_tree(tree, "tree"))
    b.serve()
    turn.measure("attachments", [a.deliver_tree("tree", b)], [a, b], [a.data])
    b.close()
    turn.check_delivered(b, "tree", tree)


def play_threads(turn: Turn) -> None:
    plain = turn.workspace.file(f"plain-{THREADED}", THREADED)
    a, b = turn.store(), turn.store()
    run(a.put(plain, "large"))
    send = a.send("large", b, threads=turn.case.amount)
    turn.measure("threads", [send], [a, b], [a.data], work=THREADED)
    turn.check_received(b, "large", plain)


def play_parallel(turn: Turn) -> None:
    count = turn.case.amount
    plain = turn.workspace.file(f"plain-{PARALLEL}", PARALLEL)
    a = turn.store()
    targets = [turn.store() for _ in range(count)]
    run(a.put(plain, "large"))
    sends = [a.send("large", target) for target in targets]
    turn.measure(
        "parallel", sends, [a, *targets], [a.data], work=count * PARALLEL)
    for target in targets:
        turn.check_received(target, "large", plain)


def play_tree(turn: Turn) -> None:
    count = turn.case.amount
    tree = turn.workspace.tree(f"tree-{count}", count, SMALL)
    a, b = turn.store(), turn.store()
    turn.measure("tree-in", [a.put_tree(tree, "tree")], [a], [tree])
    turn.note_space("space-tree", a, count * SMALL)
    if turn.can("list"):
        turn.measure("list", [a.list_tree("tree")], [a], [a.data])
    turn.measure("tree-send", [a.send_tree("tree", b)], [a, b], [a.data])
    turn.check_received(b, "tree", tree)
    target = turn.target()
    turn.measure("tree-out", [a.get_tree("tree", target)], [a], [a.data])
    turn.check(tree, target)


def play_first_byte(turn: Turn) -> None:
    size = turn.case.amount
    plain = turn.workspace.file(f"plain-{size}", size)
    store = turn.store()
    run(store.put(plain, "small"))
    turn.measure("first-byte", [store.cat("small")], [store], [store.data])


def play_random(turn: Turn) -> None:
    size = turn.case.amount
    count = min(65536, size // SMALL)
    plain = turn.workspace.file(f"plain-{size}", size)
    store = turn.store()
    run(store.put(plain, "large"))
    for step, options in (("random-read", []), ("random-write", ["--write"])):
        command = [str(turn.tools / "random-io"), *store.random_target("large"), "--count", str(count), *options]
        turn.measure(step, [Pipeline([command])], [store], [store.data], work=count)


PLAYS: dict[str, tuple[tuple[str, ...], Callable[[Turn], None]]] = {
    "file": (("write", "read", "send"), play_file),
    "deliver": (("deliver",), play_deliver),
    "attachments": (("deliver",), play_attachments),
    "threads": (("threads",), play_threads),
    "parallel": (("send",), play_parallel),
    "tree": (("tree-in", "tree-out"), play_tree),
    "random": (("random-read", "random-write"), play_random),
    "first-byte": (("first-byte",), play_first_byte),
}
