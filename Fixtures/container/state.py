"""A whole container: its newest state, from tables and journals."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

from opendynamics import STRIDE, Extent, File, FileError, kb, label, u64, writer_key

from .catalog import EXTENT, GROUP, INODE, Catalog, Inode, number_key
from .fields import Damage, Finding
from .journal import Change, Journal, JournalContents, TornTail
from .locks import ENTRY_BYTE, Lock
from .superblock import Body, Generation, Secret, choose_slot, open_body, unlock
from .table import TableReader


@dataclass
class State:
    """The catalog as of the last accepted commit, and how it was found."""

    generation: Generation
    catalog: Catalog
    commit: int
    journals: list[tuple[Journal, JournalContents]]  # oldest first
    torn: TornTail | None


@contextmanager
def open_container(path: Path, secret: Secret) -> Iterator[Container]:
    """Opens a container and keeps its state from being cleaned up until it is closed."""
    with closing(Lock(path / "lock")) as lock:
        yield Container(path, secret, lock)


class Container:
    """An opened container; `findings` are what has to be reported about it."""

    def __init__(self, path: Path, secret: Secret, lock: Lock) -> None:
        self.path = path
        self.lock = lock
        self.findings: list[Finding] = []
        self.lock.hold(ENTRY_BYTE)
        self.slot, self.other_slot = choose_slot(path / "superblock", lock.writer_is_alive)
        self.id = self.slot.container_id
        self.root_key = unlock(self.slot, secret)
        self.body = Body.parse(open_body(self.slot, self.root_key))
        self.state = self.newest_state()
        self.lock.hold(ENTRY_BYTE + 1 + self.state.commit)
        self.lock.release(ENTRY_BYTE)

    def complete_generations(self) -> list[Generation]:
        """The generations that can be read, newest first."""
        return [generation for generation in self.body.generations if generation.complete]

    def newest_state(self) -> State:
        """The state, from the generation before if the newest one's tables are damaged."""
        generations = self.complete_generations()
        for generation in generations:
            try:
                catalog = self.tables(generation)
            except Damage as error:
                if generation == generations[-1]:
                    raise
                self.report("damage", f"generation {generation.number} is not usable: {error}")
                continue
            state = self.replay(generation, catalog)
            if state.torn:
                torn = state.torn
                place = f"journal {torn.journal.hex()}, record {torn.record} at {torn.offset}"
                self.report("note", f"torn tail, dropped: {place}: {torn.reason}")
            return state
        raise AssertionError("a body has a complete generation")

    def report(self, level: str, text: str) -> None:
        """Notes a finding."""
        self.findings.append(Finding(level, text))

    def generation_key(self, number: int) -> bytes:
        """G, from the generation's secret and its epoch's key."""
        for generation in self.body.generations:
            if generation.number == number:
                purpose = label("OD1-generation") + self.id + u64(number) + generation.secret
                return kb(32, self.body.epochs[generation.epoch], purpose)
        raise Damage(f"the superblock has no generation {number}")

    def tables(self, generation: Generation) -> Catalog:
        """The catalog as a generation's tables have it."""
        catalog = Catalog()
        key = self.generation_key(generation.number)
        for table in reversed(generation.tables):
            catalog.apply(TableReader(self.path / "catalog", self.id, key, table).entries())
        return catalog

    def journals(self, oldest_generation: int) -> list[Journal]:
        """The current journal and its predecessors back to a generation, oldest first; none if all are older."""
        found: list[Journal] = []
        link = self.body.journal
        while link and link.generation >= oldest_generation:
            if any(journal.link.id == link.id for journal in found):
                raise Damage(f"journal {link.id.hex()}: its own predecessor")
            found.append(Journal(self.path / "journal", self.id, self.generation_key(link.generation), link))
            link = found[-1].predecessor
        return found[::-1]

    def replay(self, generation: Generation, catalog: Catalog) -> State:
        """Applies the journals' commits to a generation's tables."""
        state = State(generation, catalog, generation.commit, [], None)
        for journal in self.journals(generation.number):
            if journal.base_commit != state.commit:
                raise Damage(f"{journal.name}: begins after commit {journal.base_commit}, not {state.commit}")
            contents = journal.contents()
            self.apply_journal(state, journal, contents)
            state.journals.append((journal, contents))
            state.torn = contents.torn
            state.commit = contents.end.commit
        return state

    def apply_journal(self, state: State, journal: Journal, contents: JournalContents) -> None:
        """Applies a journal's commits. An unsynced one whose segments do not open is the end."""
        unclean = journal.link.end is None and not self.lock.writer_is_alive()
        for index, commit in enumerate(contents.commits):
            doubtful = (
                unclean and not commit.segments_durable and commit.last.frame.number > contents.durable_through
            )
            undo = [(key, state.catalog.get(key)) for key, _ in commit.changes] if doubtful else []
            before = self.extents_named(state.catalog, commit.changes) if doubtful else {}
            state.catalog.apply(commit.changes)
            if doubtful and not self.new_segments_open(state.catalog, commit.changes, before):
                state.catalog.apply(undo[::-1])
                contents.commits = contents.commits[:index]
                contents.end = journal.end_after(contents.commits)
                first = commit.first
                contents.torn = TornTail(journal.link.id, first.number, first.offset, "segments that do not open")
                return

    def extents_named(self, catalog: Catalog, changes: list[Change]) -> dict[int, set[Extent]]:
        """The extents of the files that changes are about."""
        ids = {int.from_bytes(key[1:GROUP], "big") for key, _ in changes if key[:1] in (INODE, EXTENT)}
        present = (file_id for file_id in ids if catalog.get(number_key(INODE, file_id)) is not None)
        return {file_id: set(catalog.extents(file_id, catalog.inode(file_id))) for file_id in present}

    def new_segments_open(self, catalog: Catalog, changes: list[Change], before: dict[int, set[Extent]]) -> bool:
        """Whether each segment that the changes name, and that was not named before, is authentic."""
        for file_id, extents in self.extents_named(catalog, changes).items():
            old = before.get(file_id, set())
            known = {segment for extent in old for segment in segments(extent)}
            file = self.file(file_id, catalog.inode(file_id), catalog)
            for extent in extents - old:
                writer = writer_key(file.key, extent.session)
                for k, segment in enumerate(segments(extent)):
                    if segment not in known:
                        stored = self.stored(extent.slab, extent.offset + STRIDE * k, extent.stored_length(k, k + 1))
                        try:
                            file.open_segment(writer, extent, k, stored)
                        except FileError:
                            return False
        return True

    def file(self, file_id: int, inode: Inode, catalog: Catalog | None = None) -> File:
        """A regular file, ready to be read with `stored`."""
        if inode.epoch not in self.body.epochs:
            raise Damage(f"file {file_id}: no key for epoch {inode.epoch}")
        epoch = self.body.epochs[inode.epoch]
        key = kb(32, epoch, label("OD1-file") + self.id + u64(file_id) + inode.secret)
        extents = (catalog or self.state.catalog).extents(file_id, inode)
        return File(self.id, file_id, key, inode.size, extents)

    def slab_path(self, slab: int) -> Path:
        """The file of a slab."""
        return self.path / "slab" / f"{slab:08x}"

    def stored(self, slab: int, offset: int, length: int) -> bytes:
        """Bytes of a slab, fewer where it ends."""
        try:
            with self.slab_path(slab).open("rb") as file:
                # A length or offset that no file can have comes from a damaged extent; it stores nothing.
                return os.pread(file.fileno(), length, offset) if offset < 1 << 63 else b""
        except FileNotFoundError:
            return b""


def segments(extent: Extent) -> Iterator[tuple[int, int, bytes, int, int, int]]:
    """What tells each segment of a run from others: its place in the file and in storage, its write and its length."""
    for k in range(extent.count):
        place = (extent.start + k, extent.slab, extent.session, extent.counter + k, extent.offset + STRIDE * k)
        yield (*place, extent.plaintext_length(k))
