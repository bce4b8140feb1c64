"""CONTAINER-FORMAT.md, "The reader's algorithm": a whole container and its newest state."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator

from opendynamics import STRIDE, Extent, File, FileError, kb, label, u64, writer_key

from .catalog import EXTENT, INODE, MAXIMUM_SLAB, Catalog, Inode, number_in
from .fields import Altered, ContainerError, Damage, Finding, Lost, RolledBack
from .files import (
    COPIES, JOURNALS, SLABS, TABLES, Copies, check_directories, names_in, open_regular,
    require_of_file,
)
from .journal import (
    FRAME_STEP, Commit, Journal, JournalContents, Torn, TornTail, read_frame,
)
from .locks import ENTRY_BYTE, Lock
from .outbox import PINNED, PINNED_EXTENT, versions_of
from .superblock import NO_END, Link, Secret, Table, choose_slot, open_body, unlock
from .table import TableReader

Segment = tuple[int, bytes, int, int, int, int]  # index, session, counter, slab, offset, length


@dataclass
class State:
    """The catalog as of the last accepted commit, and how it was found."""

    catalog: Catalog
    commit: int
    journals: list[tuple[Journal, JournalContents]] = field(default_factory=list)  # oldest first
    torn: TornTail | None = None


@contextmanager
def open_container(
    path: Path, secret: Secret, accepting_older: bool = False, saving: bool = False
) -> Iterator[Container]:
    """Opens a container and keeps its state from being cleaned up until it is closed."""
    with closing(Lock(path / "lock")) as lock:
        yield Container(path, secret, lock, accepting_older, saving)


class Container:
    """An opened container; `findings` are what has to be reported about it."""

    def __init__(
        self, path: Path, secret: Secret, lock: Lock, accepting_older: bool, saving: bool
    ) -> None:
        self.path, self.lock, self.saving = path, lock, saving
        self.findings: list[Finding] = []
        self.is_incomplete = False  # what is left after damage of a journal
        self.lock.hold(ENTRY_BYTE)
        if self.lock.file is None:
            self.report("note", "not locked", "no lock: a writer elsewhere would not be noticed")
        check_directories(path)
        self.slot, self.other_slot = choose_slot(path / "superblock", lock.writer_is_alive)
        self.id = self.slot.container_id
        self.root_key = unlock(self.slot, secret)
        self.body = open_body(self.slot, self.root_key)
        self.report_other_slot()
        self.state = self.newest_state()
        self.check_rollback(accepting_older)
        self.lock.hold(ENTRY_BYTE + 1 + self.state.commit)
        self.lock.release(ENTRY_BYTE)

    # Findings

    def report(self, level: str, word: str, text: str) -> None:
        """Notes a finding, once."""
        finding = Finding(level, word, text)
        if finding not in self.findings:
            self.findings.append(finding)

    def report_error(self, error: ContainerError) -> None:
        """Notes damage."""
        self.report("damage", error.kind, str(error))

    def report_cause(self, error: ContainerError) -> None:
        """Notes damage, unless it follows from a lost block, which is reported itself."""
        if not isinstance(error, Lost):
            self.report_error(error)

    def report_contents(self, name: str, error: FileError) -> None:
        """Notes damage of contents."""
        self.report("damage", error.kind.replace("-", " "), f"{name}: grain {error.grain}")

    def report_other_slot(self) -> None:
        """Reports the superblock's slot that is not in use."""
        behind = self.slot.sequence - self.other_slot.sequence
        if self.other_slot.is_torn:
            self.report("damage", "torn", "superblock: one slot, the other is good")
        elif behind:
            level = "note" if behind == 1 else "damage"
            self.report(level, "older slot", f"superblock: one slot is older by {behind}")

    # The state

    def newest_state(self) -> State:
        """The tables of the complete generation, and the journals' commits since."""
        state = State(self.tables(), self.body.complete.commit)
        self.reached = self.journals_to_replay()
        for journal in self.reached:
            if journal.base_commit != state.commit:
                words = f"begins after commit {journal.base_commit}, not {state.commit}"
                raise Damage(f"{journal.name}: {words}")
            contents = journal.contents(self.saving)
            self.apply_journal(state, journal, contents)
            state.journals.append((journal, contents))
            state.torn, state.commit = contents.torn, contents.end.commit
            if not journal.link.is_exact:
                journal.copies.report_absent()
            for text in journal.copies.damage():
                self.report("damage", "damaged copy", text)
            if contents.damage:
                self.report_error(contents.damage)
                self.is_incomplete = True
                break
        self.report_end(state)
        return state

    def report_end(self, state: State) -> None:
        """Reports what an unclean end leaves. While a writer lives, that is a commit under way."""
        if self.body.clean or self.lock.writer_is_alive():
            return
        self.report("note", "not closed", "the last writer did not close the container")
        if torn := state.torn:
            place = f"journal {torn.journal.hex()}, record {torn.record} at {torn.offset}"
            self.report("note", "torn tail", f"dropped: {place}: {torn.reason}")

    def generation_key(self, number: int) -> bytes:
        """G, from the generation's secret and its epoch's key."""
        for generation in self.body.generations:
            if generation.number == number:
                purpose = label("OD1-generation") + self.id + u64(number) + generation.secret
                return kb(32, self.body.epochs[generation.epoch], purpose)
        raise Altered(f"a journal of generation {number}, which the superblock does not have")

    def table_key(self, table: Table) -> bytes:
        """The key of a table."""
        purpose = label("OD1-table-key") + self.id + table.id + table.secret
        return kb(32, self.body.epochs[table.epoch], purpose)

    def tables(self) -> Catalog:
        """The catalog as the complete generation's tables have it."""
        catalog = Catalog()
        tables = self.body.complete.tables
        for table in reversed(tables):
            key, is_oldest = self.table_key(table), table is tables[-1]
            reader = TableReader(self.path, self.id, key, table, is_oldest)
            for text in reader.copies.damage():
                self.report("damage", "damaged copy", text)
            for contradiction in reader.contradictions:
                self.report_error(contradiction)
            for part in reader.parts:
                if part.damage:
                    self.report_error(part.damage)
                catalog.apply_part(part)
        return catalog

    def journals_to_replay(self) -> list[Journal]:
        """The journals; none when one is damaged and what is left is to be saved."""
        try:
            return self.journals()
        except Damage as damage:
            if not self.saving:
                raise
            self.report_error(damage)
            self.is_incomplete = True
            return []

    def journals(self) -> list[Journal]:
        """The current journal and its predecessors from the complete generation on, in order."""
        found: list[Journal] = []
        link = self.body.journal
        while link and link.generation >= self.body.complete.number:
            if any(journal.link.id == link.id for journal in found):
                raise Altered(f"journal {link.id.hex()}: its own predecessor")
            found.append(self.journal(link))
            link = found[-1].predecessor
        return found[::-1]

    def journal(self, link: Link) -> Journal:
        """A journal under its generation's key."""
        return Journal(self.path, self.id, self.generation_key(link.generation), link)

    def apply_journal(self, state: State, journal: Journal, contents: JournalContents) -> None:
        """Applies a journal's commits. One that was not synced and does not open is the end."""
        bound = max(journal.link.end.number, contents.proven)
        unclean = not journal.link.is_exact and not self.lock.writer_is_alive()
        for commit in contents.commits:
            unsynced = not commit.segments_durable and commit.last.number > bound
            if unclean and unsynced and not self.segments_are_there(state.catalog, commit):
                journal.drop_from(contents, commit, "segments that do not open")
                return
            state.catalog.apply(commit.changes)

    # A later state

    def check_rollback(self, accepting: bool) -> None:
        """Refuses a superblock that was put back, unless the older state is accepted."""
        # Behind damage there may be commits, and they are no later state.
        if self.lock.writer_is_alive() or self.is_incomplete:
            return
        known = {journal.link.id.hex() for journal in self.reached}
        known |= {table.id.hex() for table in self.body.complete.tables}
        names = {name for folder in (JOURNALS, TABLES, COPIES) for name in names_in(self.path / folder)}
        for name in sorted(names - known):
            if len(name) != 32 or name.strip("0123456789abcdef"):
                continue
            updates = int(name[:16], 16) - self.slot.sequence
            if 1 < updates < 1 << 32 or (updates == 1 and self.has_commit(name)):
                error = RolledBack(f"file {name} is of a later update than {self.slot.sequence}")
                if not accepting:
                    raise error
                self.report_error(error)

    def has_commit(self, name: str) -> bool:
        """Whether a whole frame stands where record 1 of a journal does, under whatever key."""
        identifier = bytes.fromhex(name)
        for data in Copies(self.path, JOURNALS, identifier).data:
            try:
                read_frame(data or b"", FRAME_STEP, identifier, f"journal {name}")
                return True
            except Torn:
                continue
            except Altered:
                return True
        return False

    # Contents

    def file(self, file_id: int, inode: Inode) -> File:
        """A regular file, ready to be read with `stored`."""
        return self.version(file_id, inode, self.state.catalog.extents(file_id, inode))

    def version(self, file_id: int, inode: Inode, extents: list[Extent]) -> File:
        """A file with given extents."""
        for extent in extents:
            if extent.offset + extent.stored_length() > MAXIMUM_SLAB:
                raise FileError("damaged-extent", extent.start)
        if inode.epoch not in self.body.epochs:
            raise Damage(f"file {file_id}: no key for epoch {inode.epoch}")
        epoch = self.body.epochs[inode.epoch]
        key = kb(32, epoch, label("OD1-file") + self.id + u64(file_id) + inode.secret)
        return File(key, inode.size, extents)

    def stored(self, slab: int, offset: int, length: int) -> bytes:
        """Bytes of a slab, fewer where it ends, and none when the system does not read them."""
        try:
            return self.read_slab(slab, offset, length)
        except OSError as error:
            require_of_file(error)
            return b""

    def read_slab(self, slab: int, offset: int, length: int) -> bytes:
        """Bytes of a slab, fewer where it ends."""
        file = open_regular(self.path / SLABS / f"{slab:08x}")
        if file is None:
            return b""
        try:
            return os.pread(file, length, offset)
        finally:
            os.close(file)

    # Commits that were not synced

    def segments_are_there(self, catalog: Catalog, commit: Commit) -> bool:
        """Whether each segment that a commit names anew, and that the system reads, is authentic.

        Changes no catalog.
        """
        after = Catalog()
        after.groups = {group: dict(rests) for group, rests in catalog.groups.items()}
        after.lost, after.absent = catalog.lost, set(catalog.absent)
        after.apply(commit.changes)
        for file_id in files_in(catalog, commit) | files_in(after, commit):
            try:
                old, new = self.named(catalog, file_id), self.named(after, file_id)
            except Lost:
                continue  # nobody knows which are new
            for segment, (file, extent, k) in new.items():
                if segment in old:
                    continue
                try:
                    stored = self.read_slab(extent.slab, extent.offset + STRIDE * k, STRIDE)
                    file.open_segment(writer_key(file.key, extent.session), extent, k, stored)
                except OSError as error:
                    require_of_file(error)
                except FileError:
                    return False
        return True

    def named(self, catalog: Catalog, file_id: int) -> dict[Segment, tuple[File, Extent, int]]:
        """The segments that a file and its versions name; what is malformed names none."""
        found: dict[Segment, tuple[File, Extent, int]] = {}

        def add(inode: Inode, extents: list[Extent]) -> None:
            file = self.version(file_id, inode, extents)
            file.check()
            for extent in extents:
                found.update(
                    (segment, (file, extent, k)) for k, segment in enumerate(segments(extent))
                )

        try:
            inode = catalog.inode(file_id)
            add(inode, catalog.extents(file_id, inode))
        except Lost:
            raise
        except (ContainerError, FileError):
            pass
        for version in versions_of(catalog, file_id):
            try:
                add(version.inode, version.extents)
            except (ContainerError, FileError):
                pass
        return found


def files_in(catalog: Catalog, commit: Commit) -> set[int]:
    """The ids of the files whose contents, or versions, a commit's changes are about."""
    ids = {number_in(key) for key, _ in commit.changes if key[:1] in (INODE, EXTENT)}
    for key, _ in commit.changes:
        if key[:1] in (PINNED, PINNED_EXTENT):
            value = catalog.groups.get(PINNED + key[1:9], {}).get(key[9:13], b"")
            ids.add(int.from_bytes(value[:8], "little"))
    return ids - {0}


def segments(extent: Extent) -> Iterator[Segment]:
    """What makes each segment of a run another than others."""
    for k in range(extent.count):
        index, counter, offset = extent.start + k, extent.counter + k, extent.offset + STRIDE * k
        yield index, extent.session, counter, extent.slab, offset, extent.plaintext_length(k)
