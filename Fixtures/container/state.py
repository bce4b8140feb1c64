"""A whole container: its newest state, from tables and journals."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

from opendynamics import STRIDE, Extent, File, FileError, kb, label, u64, writer_key

from .catalog import EXTENT, GROUP, INODE, Catalog, Inode, number_key
from .fields import ContainerError, Damage, Finding
from .journal import BadFrame, Change, CommitRecord, Journal, JournalContents, TornTail, next_step
from .locks import ENTRY_BYTE, Lock
from .outbox import PINNED, parse_pinned
from .superblock import Generation, Link, Secret, Table, choose_slot, open_body, unlock
from .table import Part, TableReader


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
        self.body = open_body(self.slot, self.root_key)
        self.read_tables: dict[tuple[bytes, Table], list[Part]] = {}
        self.state = self.newest_state()
        self.report_rollback()
        self.lock.hold(ENTRY_BYTE + 1 + self.state.commit)
        self.lock.release(ENTRY_BYTE)

    def complete_generations(self) -> list[Generation]:
        """The generations that can be read, newest first."""
        return [generation for generation in self.body.generations if generation.complete]

    def newest_state(self) -> State:
        """The state, from a generation before if the newest one's tables are damaged and its own are less so."""
        generation, catalog = self.best_generation()
        for part in catalog.lost:
            self.report("damage", f"generation {generation.number}, in part lost: {part.damage}")
        state = self.replay(generation, catalog)
        if state.torn:
            torn = state.torn
            place = f"journal {torn.journal.hex()}, record {torn.record} at {torn.offset}"
            self.report("note", f"torn tail, dropped: {place}: {torn.reason}")
        return state

    def best_generation(self) -> tuple[Generation, Catalog]:
        """The newest generation that lost nothing; without one, that which lost least."""
        best: tuple[Generation, Catalog] | None = None
        reasons: dict[int, Damage | None] = {}
        for generation in self.complete_generations():
            try:
                catalog = self.tables(generation)
            except Damage as damage:
                reasons[generation.number] = damage
                continue
            reasons[generation.number] = catalog.lost[0].damage if catalog.lost else None
            if best is None or len(catalog.lost) < len(best[1].lost):
                best = (generation, catalog)
            if not catalog.lost:
                break
        if best is None:
            raise next(reason for reason in reasons.values() if reason)
        for number, reason in reasons.items():
            if number > best[0].number and reason:
                self.report("damage", f"generation {number} is not usable: {reason}")
        return best

    def report_rollback(self) -> None:
        """A journal that nothing names and that went on after the last commit: the superblock is an older one."""
        if self.lock.writer_is_alive():
            return
        folder = self.path / "journal"
        for name in sorted(set(os.listdir(folder) if folder.is_dir() else []) - self.reached_journals()):
            commit = self.first_commit(name)
            if commit is not None and commit > self.state.commit:
                text = f"journal {name} begins with commit {commit}, after the last one, {self.state.commit}"
                self.report("rolled back", text)

    def reached_journals(self) -> set[str]:
        """The current journal and those before it, as far as the superblock has their generations."""
        generations = {generation.number for generation in self.body.generations}
        reached: set[str] = set()
        link = self.body.journal
        while link and link.generation in generations and link.id.hex() not in reached:
            reached.add(link.id.hex())
            try:
                key = self.generation_key(link.generation)
                link = Journal(self.path / "journal", self.id, key, link).predecessor
            except (BadFrame, ContainerError):
                break  # reported elsewhere
        return reached

    def first_commit(self, name: str) -> int | None:
        """The commit of record 1 of a journal that nothing names, if it is one of this container."""
        try:
            identifier = bytes.fromhex(name)
        except ValueError:
            return None
        for generation in self.body.generations:
            link = Link(identifier, generation.number, None)
            try:
                journal = Journal(self.path / "journal", self.id, self.generation_key(generation.number), link)
                record = journal.record(next_step(journal.first.frame.end), 1, journal.first.authenticator)
                return CommitRecord.parse(record.payload, journal.name).commit
            except (BadFrame, ContainerError):
                continue
        return None

    def report(self, level: str, text: str) -> None:
        """Notes a finding, once."""
        finding = Finding(level, text)
        if finding not in self.findings:
            self.findings.append(finding)

    def generation_key(self, number: int) -> bytes:
        """G, from the generation's secret and its epoch's key."""
        for generation in self.body.generations:
            if generation.number == number:
                purpose = label("OD1-generation") + self.id + u64(number) + generation.secret
                return kb(32, self.body.epochs[generation.epoch], purpose)
        raise Damage(f"the superblock has no generation {number}")

    def tables(self, generation: Generation) -> Catalog:
        """The catalog as a generation's tables have it."""
        catalog = Catalog(self.body.format)
        for table in reversed(generation.tables):
            is_oldest = table is generation.tables[-1]
            for part in self.table_parts(generation, table):
                catalog.apply_part(part.without_tombstones() if is_oldest else part)
        return catalog

    def table_parts(self, generation: Generation, table: Table) -> list[Part]:
        """A table's entries; what two generations share is read once."""
        key = self.table_key(generation, table)
        if (key, table) not in self.read_tables:
            self.read_tables[key, table] = TableReader(self.path / "catalog", self.id, key, table).parts()
        return self.read_tables[key, table]

    def table_key(self, generation: Generation, table: Table) -> bytes:
        """The key of a table, as a generation names it."""
        if table.is_of_format_1:
            return kb(32, self.generation_key(generation.number), label("OD1-table") + table.id)
        purpose = label("OD1-table-key") + self.id + table.id + table.secret
        return kb(32, self.body.epochs[table.epoch], purpose)

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
            file = self.file(file_id, catalog.inode(file_id), catalog)
            if not self.segments_open(file, extents - old, old):
                return False
        for key, value in changes:
            if key[:1] != PINNED or value is None:
                continue
            number, attachment = int.from_bytes(key[1:GROUP], "big"), int.from_bytes(key[GROUP:], "big")
            pinned = parse_pinned(catalog, number, attachment)
            known = set(before.get(pinned.file_id, set()))
            if catalog.get(number_key(INODE, pinned.file_id)) is not None:
                known.update(catalog.extents(pinned.file_id, catalog.inode(pinned.file_id)))
            file = self.version(pinned.file_id, pinned.inode, list(pinned.extents))
            if not self.segments_open(file, set(pinned.extents) - known, known):
                return False
        return True

    def segments_open(self, file: File, extents: set[Extent], old: set[Extent]) -> bool:
        """Whether the segments of some runs of a file that are not among those of others are authentic."""
        known = {segment for extent in old for segment in segments(extent)}
        for extent in extents:
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
        return self.version(file_id, inode, (catalog or self.state.catalog).extents(file_id, inode))

    def version(self, file_id: int, inode: Inode, extents: list[Extent]) -> File:
        """The same with other extents than it has now."""
        if inode.epoch not in self.body.epochs:
            raise Damage(f"file {file_id}: no key for epoch {inode.epoch}")
        epoch = self.body.epochs[inode.epoch]
        key = kb(32, epoch, label("OD1-file") + self.id + u64(file_id) + inode.secret)
        return File(key, inode.size, extents)

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
