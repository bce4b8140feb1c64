"""CONTAINER-FORMAT.md, "Journals": from two copies to the commits and the accepted end."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

from opendynamics import OVERHEAD, NotAuthentic, kb, label, open_message, u32, u64

from .fields import Altered, ContainerError, Damage, Fields
from .files import JOURNALS, Copies
from .superblock import NO_END, NO_ID, End, Link

JOURNAL_MAGIC = b"OD1JRNL\n"
FRAME_HEAD, FRAME_STEP = 96, 4096
MAXIMUM_PAYLOAD = 1044480
MAXIMUM_KEY, MAXIMUM_VALUE = 600, 32768
LAST_OF_COMMIT, SEGMENTS_DURABLE = 1, 2

Change = tuple[bytes, bytes | None]  # key and value; no value deletes


class Torn(Exception):
    """Bytes that are no whole frame of this journal, as a crash may leave them."""


@dataclass(frozen=True)
class Frame:
    """A frame with good checksums, not opened yet."""

    number: int
    length: int
    previous: bytes
    offset: int
    end: int
    sealed: bytes


@dataclass(frozen=True)
class Record:
    """A good frame and its opened payload."""

    frame: Frame
    payload: bytes

    @property
    def number(self) -> int:
        return self.frame.number

    @property
    def tag(self) -> bytes:
        return self.frame.sealed[-16:]


@dataclass
class Commit:
    """The changes of one commit and the records that carry them."""

    number: int
    first: Record
    last: Record
    segments_durable: bool = False
    changes: list[Change] = field(default_factory=list)


@dataclass(frozen=True)
class TornTail:
    """What a crash left behind the accepted end of the current journal."""

    journal: bytes
    record: int
    offset: int
    reason: str


@dataclass(frozen=True)
class CommitRecord:
    """The payload of a record after the first."""

    commit: int
    durable_through: int
    flags: int
    changes: list[Change]

    @staticmethod
    def parse(record: Record, name: str) -> CommitRecord:
        """Reads the payload."""
        fields = Fields(record.payload, f"{name}: record {record.number}", Damage)
        commit = fields.u64()
        durable = fields.range(fields.u64(), 0, record.number - 1, "durable through")
        fields.time()
        flags = fields.range(fields.u32(), 0, LAST_OF_COMMIT | SEGMENTS_DURABLE, "flags")
        changes: list[Change] = []
        for _ in range(fields.u32()):
            op = fields.range(fields.u8(), 1, 2, "op")
            key = fields.take(fields.range(fields.u16(), 1, MAXIMUM_KEY, "key length"))
            value = None
            if op == 1:
                value = fields.take(fields.range(fields.u32(), 0, MAXIMUM_VALUE, "value length"))
            changes.append((key, value))
        fields.end()
        return CommitRecord(commit, durable, flags, changes)


class JournalContents:
    """The records of a journal so far, put together to commits."""

    def __init__(self, header: Record, base_commit: int) -> None:
        self.header, self.base_commit = header, base_commit
        self.last = header
        self.commits: list[Commit] = []
        self.open: Commit | None = None  # its last record has not been seen
        self.proven = 0
        self.torn: TornTail | None = None
        self.damage: Damage | None = None  # where reading ended when what is left is to be saved

    @property
    def end(self) -> End:
        """The accepted end."""
        last = self.commits[-1].last if self.commits else self.header
        commit = self.commits[-1].number if self.commits else self.base_commit
        return End(last.number, last.frame.end, last.tag, commit)

    def add(self, record: Record, name: str) -> None:
        """The next record."""
        parsed = CommitRecord.parse(record, name)
        expected = self.end.commit + 1
        if parsed.commit != expected:
            raise Damage(f"{name}: record {record.number}: commit {parsed.commit}, not {expected}")
        commit = self.open or Commit(parsed.commit, record, record)
        commit.changes += parsed.changes
        commit.last, self.last = record, record
        self.proven = max(self.proven, parsed.durable_through)
        self.open = commit
        if parsed.flags & LAST_OF_COMMIT:
            commit.segments_durable = bool(parsed.flags & SEGMENTS_DURABLE)
            self.commits.append(commit)
            self.open = None


def read_frame(data: bytes, offset: int, journal: bytes, name: str) -> Frame:
    """The frame at an offset of a copy, if its magic, id and checksums are right."""
    head = data[offset : offset + FRAME_HEAD]
    if len(head) < FRAME_HEAD:
        raise Torn("cut short" if head else "absent")
    magic, identifier, number, length, zero, previous, zeros, payload_sum, head_sum = (
        struct.unpack("<8s16sQII16s8s16s16s", head)
    )
    if magic != JOURNAL_MAGIC or identifier != journal:
        raise Torn("not a frame of this journal")
    if kb(16, b"", head[:80]) != head_sum:
        raise Torn("checksum of the frame's head")
    if not 1 <= length <= MAXIMUM_PAYLOAD or zero or any(zeros):
        raise Altered(f"{name}: record {number}: fields that cannot be")
    end = offset + FRAME_HEAD + length + OVERHEAD
    sealed = data[offset + FRAME_HEAD : end]
    if len(sealed) < length + OVERHEAD:
        raise Torn("cut short")
    if kb(16, b"", sealed) != payload_sum:
        raise Torn("checksum of the payload")
    return Frame(number, length, previous, offset, end, sealed)


class Journal:
    """The two copies of a journal, and its header."""

    def __init__(self, path: Path, container_id: bytes, generation_key: bytes, link: Link) -> None:
        self.link = link
        self.name = f"journal {link.id.hex()}"
        self.container_id = container_id
        self.key = kb(32, generation_key, label("OD1-journal") + link.id)
        self.copies = Copies(path, JOURNALS, link.id)
        try:
            # A journal is durable before it is named, so no crash explains a bad header.
            self.header = self.record(0, 0, NO_ID)
        except Torn as error:
            raise Damage(f"{self.name}: record 0: {error}") from None
        self.read_header()

    def read_header(self) -> None:
        """Takes the fields off record 0."""
        fields = Fields(self.header.payload, f"{self.name}: header", Damage)
        fields.range(fields.u32(), 1, 1, "kind")
        fields.zero(4)
        self.session = fields.take(16)
        if fields.u64() != self.link.generation:
            raise fields.fail("another generation than the one by which it was found")
        fields.time()
        identifier, generation, end = fields.take(16), fields.u64(), End.parse(fields)
        fields.zero(24)
        fields.end()
        self.base_commit = end.commit
        self.predecessor = None
        if identifier != NO_ID:
            fields.range(generation, 1, self.link.generation, "generation of the predecessor")
            self.predecessor = Link(identifier, generation, end)
        elif generation or (end.number, end.offset, end.tag) != (0, 0, NO_END.tag):
            raise fields.fail("no predecessor, and a generation or an end of one")

    def frame(self, data: bytes, offset: int) -> Frame:
        """The frame at an offset of a copy, if its magic, id and checksums are right."""
        return read_frame(data, offset, self.link.id, self.name)

    def open(self, frame: Frame) -> Record:
        """The record in a frame, if it opens under its own number and previous tag."""
        numbers = u64(frame.number) + u32(frame.length) + u32(0)
        ad = label("OD1-record") + self.container_id + self.link.id + numbers + frame.previous
        return Record(frame, open_message(self.key, ad, frame.sealed))

    def record_in(self, data: bytes, offset: int, number: int, previous: bytes) -> Record:
        """The record expected at an offset of a copy."""
        frame = self.frame(data, offset)
        if frame.number != number or frame.previous != previous:
            raise Altered(f"{self.name}: record {number}: another record is at its offset")
        try:
            return self.open(frame)
        except NotAuthentic:
            raise Altered(f"{self.name}: record {number}: does not open") from None

    def record(self, offset: int, number: int, previous: bytes) -> Record:
        """The record expected at an offset, from the copy that has it."""
        good: list[Record] = []
        bad: list[tuple[int, Torn | Altered]] = []
        for copy, data in enumerate(self.copies.data):
            try:
                good.append(self.record_in(data or b"", offset, number, previous))
            except (Torn, Altered) as error:
                bad.append((copy, error))
        if not good:
            raise next((error for _, error in bad if isinstance(error, Altered)), bad[0][1])
        for copy, _ in bad:
            if number <= self.link.end.number:
                self.copies.add_damage(copy, f"record {number}")
        return good[0]

    def next_record(self, last: Record) -> Record:
        """The record after another one."""
        return self.record(next_step(last.frame.end), last.number + 1, last.tag)

    def proven_behind(self, offset: int) -> int:
        """The greatest "durable through" of authentic records after an offset, in either copy."""
        proven = 0
        for data in self.copies.data:
            for later in range(offset + FRAME_STEP, len(data or b""), FRAME_STEP):
                try:
                    record = self.open(self.frame(data or b"", later))
                    if record.number:  # not the journal's header once more
                        durable = CommitRecord.parse(record, self.name).durable_through
                        proven = max(proven, durable)
                except (Torn, NotAuthentic, ContainerError):
                    continue
        return proven

    def contents(self, saving: bool = False) -> JournalContents:
        """The commits up to the accepted end. Saving, the commits before damage."""
        contents = JournalContents(self.header, self.base_commit)
        try:
            self.read_to_known_end(contents)
            if not self.link.is_exact:
                self.read_on(contents)
        except Damage as damage:
            if not saving:
                raise
            contents.damage, contents.open = damage, None
        return contents

    def read_to_known_end(self, contents: JournalContents) -> None:
        """Reads records that must all be good."""
        end = self.link.end
        while contents.last.number < end.number:
            try:
                contents.add(self.next_record(contents.last), self.name)
            except Torn as error:
                number = contents.last.number + 1
                raise Damage(f"{self.name}: record {number} of {end.number}: {error}") from None
        if contents.open or contents.end != end:
            raise Altered(f"{self.name}: its known end is another")

    def read_on(self, contents: JournalContents) -> None:
        """Reads on until a record is not good."""
        while True:
            try:
                contents.add(self.next_record(contents.last), self.name)
            except Torn as error:
                self.end_before(contents, str(error))
                return

    def end_before(self, contents: JournalContents, reason: str) -> None:
        """Accepts the end before a torn record, unless it is proven that the record was durable."""
        number, offset = contents.last.number + 1, next_step(contents.last.frame.end)
        contents.proven = max(contents.proven, self.proven_behind(offset))
        if number <= contents.proven:
            raise Damage(f"{self.name}: record {number}, which was durable: {reason}")
        if any(offset < len(data or b"") for data in self.copies.data):
            contents.torn = TornTail(self.link.id, number, offset, reason)
        if contents.open:
            self.drop_from(contents, contents.open, "a commit without its last record")

    def drop_from(self, contents: JournalContents, commit: Commit, reason: str) -> None:
        """Makes a commit, and all after it, a torn tail."""
        first = commit.first
        contents.commits = [kept for kept in contents.commits if kept.number < commit.number]
        contents.open = None
        contents.torn = TornTail(self.link.id, first.number, first.frame.offset, reason)


def next_step(offset: int) -> int:
    """The first multiple of 4096 from there on."""
    return -(-offset // FRAME_STEP) * FRAME_STEP
