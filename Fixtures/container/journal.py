"""CONTAINER-FORMAT.md, "Journal": from a journal file to its commits and its accepted end."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

from opendynamics import OVERHEAD, NotAuthentic, kb, label, open_message, u32, u64

from .fields import Altered, ContainerError, Damage, Fields
from .superblock import NO_ID, End, Link

JOURNAL_MAGIC = b"OD1JRNL\n"
FRAME_STEP = 4096
MAXIMUM_PAYLOAD = 1044480
MAXIMUM_KEY, MAXIMUM_VALUE = 600, 32768
LAST_OF_COMMIT, SEGMENTS_DURABLE = 1, 2

Change = tuple[bytes, bytes | None]  # key and value; no value deletes


class BadFrame(Exception):
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
    """A frame's place and its opened payload."""

    frame: Frame
    payload: bytes

    @property
    def authenticator(self) -> bytes:
        return self.frame.sealed[-16:]


@dataclass
class Commit:
    """The changes of one commit and the records that carry them."""

    number: int
    first: Frame
    last: Record
    segments_durable: bool
    changes: list[Change] = field(default_factory=list)


@dataclass(frozen=True)
class TornTail:
    """What a crash left behind the accepted end of the current journal."""

    journal: bytes
    record: int
    offset: int
    reason: str


@dataclass
class JournalContents:
    """What a journal holds up to its accepted end."""

    commits: list[Commit]
    durable_through: int
    end: End
    torn: TornTail | None = None


@dataclass(frozen=True)
class CommitRecord:
    """The payload of a record after the first."""

    commit: int
    durable_through: int
    flags: int
    changes: list[Change]

    @staticmethod
    def parse(payload: bytes, name: str) -> CommitRecord:
        """Reads the payload."""
        fields = Fields(payload, name)
        commit, durable_through, _ = fields.u64(), fields.u64(), fields.time()
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
        return CommitRecord(commit, durable_through, flags, changes)


class Journal:
    """One journal file and its header."""

    def __init__(self, folder: Path, container_id: bytes, generation_key: bytes, link: Link) -> None:
        self.link = link
        self.name = f"journal {link.id.hex()}"
        self.container_id = container_id
        self.key = kb(32, generation_key, label("OD1-journal") + link.id)
        try:
            self.data = (folder / link.id.hex()).read_bytes()
        except FileNotFoundError:
            raise Damage(f"{self.name}: no such file") from None
        try:
            # A journal is durable before it is named, so no crash explains a header that is not good.
            self.first = self.record(0, 0, NO_ID)
        except BadFrame as error:
            raise Damage(f"{self.name}: record 0: {error}") from None
        self.read_header()

    def read_header(self) -> None:
        """Takes the fields off record 0."""
        fields = Fields(self.first.payload, f"{self.name}: header")
        fields.range(fields.u32(), 1, 1, "kind")
        fields.zero(4)
        self.session = fields.take(16)
        if fields.u64() != self.link.generation:
            raise fields.fail("another generation than the one by which it was found")
        fields.time()
        identifier, generation, number = fields.take(16), fields.u64(), fields.u64()
        end = End(number, fields.u64(), fields.take(16), fields.u64())
        fields.zero(24)
        fields.end()
        self.predecessor = None if identifier == NO_ID else Link(identifier, generation, end)
        self.base_commit = end.commit

    def frame(self, offset: int) -> Frame:
        """The frame at an offset, if its magic, id and checksums are right."""
        head = self.data[offset : offset + 96]
        if len(head) < 96:
            raise BadFrame("absent" if not head else "cut short")
        magic, identifier, number, length, zero, previous, zeros, payload_sum, head_sum = struct.unpack(
            "<8s16sQII16s8s16s16s", head
        )
        if magic != JOURNAL_MAGIC or identifier != self.link.id:
            raise BadFrame("not a frame of this journal")
        if kb(16, b"", head[:80]) != head_sum:
            raise BadFrame("checksum of the frame's head")
        if not 1 <= length <= MAXIMUM_PAYLOAD or zero or any(zeros):
            raise Altered(f"{self.name}: record {number}: fields that cannot be")
        end = offset + 96 + length + OVERHEAD
        sealed = self.data[offset + 96 : end]
        if len(sealed) < length + OVERHEAD:
            raise BadFrame("cut short")
        if kb(16, b"", sealed) != payload_sum:
            raise BadFrame("checksum of the payload")
        return Frame(number, length, previous, offset, end, sealed)

    def open(self, frame: Frame) -> bytes:
        """The payload, if the frame is authentic."""
        place = self.link.id + u64(frame.number) + u32(frame.length) + u32(0) + frame.previous
        return open_message(self.key, label("OD1-record") + self.container_id + place, frame.sealed)

    def record(self, offset: int, number: int, previous: bytes) -> Record:
        """The record expected at an offset."""
        frame = self.frame(offset)
        if frame.number != number or frame.previous != previous:
            raise Altered(f"{self.name}: record {number}: another record stands in its place")
        try:
            return Record(frame, self.open(frame))
        except NotAuthentic:
            raise Altered(f"{self.name}: record {number}: does not open") from None

    def later_durable_through(self, offset: int) -> int:
        """The greatest "durable through" of authentic frames after an offset."""
        greatest = 0
        for later in range(offset + FRAME_STEP, len(self.data), FRAME_STEP):
            try:
                frame = self.frame(later)
                if frame.number == 0:  # a copy of the journal's header
                    continue
                record = CommitRecord.parse(self.open(frame), f"{self.name}: record {frame.number}")
                greatest = max(greatest, record.durable_through)
            except (BadFrame, NotAuthentic, ContainerError):
                continue
        return greatest

    def contents(self) -> JournalContents:
        """The commits up to the accepted end, whether it is known or has to be found."""
        records, durable_through, torn = [self.first], 0, None
        end = self.link.end
        while end is None or records[-1].frame.number < end.number:
            last = records[-1]
            number, offset = last.frame.number + 1, next_step(last.frame.end)
            try:
                records.append(self.record(offset, number, last.authenticator))
            except (BadFrame, Altered) as error:
                if isinstance(error, Altered):
                    raise
                if end is not None:
                    raise Damage(f"{self.name}: record {number} of {end.number}: {error}") from None
                durable_through = self.later_durable_through(offset)
                if durable_through >= number:
                    raise Damage(f"{self.name}: record {number}, which was durable: {error}") from None
                if offset < len(self.data):
                    torn = TornTail(self.link.id, number, offset, str(error))
                break
        return self.group(records, durable_through, torn)

    def group(self, records: list[Record], durable_through: int, torn: TornTail | None) -> JournalContents:
        """Puts the records of each commit together; a commit without its last record is a torn tail."""
        commits: list[Commit] = []
        current: Commit | None = None
        last_commit = self.base_commit
        for record in records[1:]:
            name = f"{self.name}: record {record.frame.number}"
            parsed = CommitRecord.parse(record.payload, name)
            durable_through = max(durable_through, parsed.durable_through)
            if parsed.commit != last_commit + 1:
                raise Damage(f"{name}: commit {parsed.commit} after {last_commit}")
            if current is None:
                current = Commit(parsed.commit, record.frame, record, False)
            current.changes += parsed.changes
            if parsed.flags & LAST_OF_COMMIT:
                current.last, current.segments_durable = record, bool(parsed.flags & SEGMENTS_DURABLE)
                commits.append(current)
                last_commit, current = parsed.commit, None
        if current is not None and self.link.end is None:
            first = current.first
            torn = TornTail(self.link.id, first.number, first.offset, "a commit without its last record")
        contents = JournalContents(commits, durable_through, self.end_after(commits), torn)
        if self.link.end is not None and contents.end != self.link.end:
            raise Altered(f"{self.name}: ends otherwise than it should")
        return contents

    def end_after(self, commits: list[Commit]) -> End:
        """The accepted end when these are the commits that count."""
        last = commits[-1].last if commits else self.first
        commit = commits[-1].number if commits else self.base_commit
        return End(last.frame.number, last.frame.end, last.authenticator, commit)


def next_step(offset: int) -> int:
    """The first multiple of 4096 from there on."""
    return -(-offset // FRAME_STEP) * FRAME_STEP
