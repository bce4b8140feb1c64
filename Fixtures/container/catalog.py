"""CONTAINER-FORMAT.md, "Catalog": keys and values, directories, inodes and extents."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Callable, Iterable, Iterator

from opendynamics import Extent

from .fields import ContainerError, Fields, Inconsistent, Lost
from .journal import Change
from .table import Part

STATE, ENTRY, INODE, EXTENT = b"\x01", b"\x10", b"\x20", b"\x30"
ATTRIBUTE, SLAB, ANCHOR = b"\x40", b"\x50", b"\x80"
FILE_KIND, DIRECTORY_KIND, LINK_KIND = 1, 2, 3
ROOT = 1
GROUP = 9  # a type and a 64-bit number
LAYOUT = 2
HAS_FIRST_EXTENT, HAS_RUN_TAG = 1, 2  # flags of an inode
MAXIMUM_NAME, MAXIMUM_TARGET = 255, 4096
MAXIMUM_PERMISSIONS = 0o7777
MAXIMUM_SLAB = 67108864  # bytes
ID_LIMIT, SLAB_LIMIT, SIZE_LIMIT = 1 << 62, 1 << 31, 1 << 62
U32 = 1 << 32
GRAIN = 16384
NO_SECRET = bytes(32)

Report = Callable[[ContainerError], None]


def number_key(kind: bytes, number: int) -> bytes:
    """The key, or the beginning of keys, of a type and a number; numbers in keys are big-endian."""
    return kind + number.to_bytes(8, "big")


def number_in(key: bytes) -> int:
    """The 64-bit number after a key's type."""
    return int.from_bytes(key[1:GROUP], "big")


def is_name(name: bytes) -> bool:
    """Whether a directory can have an entry of that name."""
    possible = 1 <= len(name) <= MAXIMUM_NAME and name not in (b".", b"..")
    return possible and b"/" not in name and b"\0" not in name


@dataclass(frozen=True)
class Inode:
    """A file, directory or symbolic link."""

    kind: int
    permissions: int
    links: int
    size: int
    created: int
    modified: int
    changed: int
    version: int
    epoch: int
    secret: bytes
    first: Extent | None
    target: bytes
    has_run_tag: bool

    @staticmethod
    def parse(data: bytes, name: str) -> Inode:
        """Reads an inode's value."""
        fields = Fields(data, name)
        fields.range(fields.u8(), LAYOUT, LAYOUT, "layout")
        kind = fields.range(fields.u8(), FILE_KIND, LINK_KIND, "kind")
        flags = fields.u8()
        allowed = (0, 1, 3) if kind == FILE_KIND else (0,)
        if flags not in allowed:
            raise fields.fail(f"flags {flags}")
        permissions = fields.range(fields.u16(), 0, MAXIMUM_PERMISSIONS, "permissions")
        created = fields.time()
        modified, changed = fields.time_after(created), fields.time_after(created)
        links, size = fields.varint(U32), fields.varint(SIZE_LIMIT)
        version, epoch = fields.varint(), fields.varint(U32)
        secret = fields.take(32) if kind == FILE_KIND else NO_SECRET
        target = b""
        if kind == LINK_KIND:
            target = fields.take(fields.range(size, 1, MAXIMUM_TARGET, "length of the target"))
            if b"\0" in target:
                raise fields.fail("NUL in the target")
        elif kind == DIRECTORY_KIND:
            fields.range(size, 0, 0, "size")
        first = parse_first_extent(fields) if flags & HAS_FIRST_EXTENT else None
        if flags & HAS_RUN_TAG:
            fields.take(16)
        fields.end()
        return Inode(
            kind, permissions, links, size, created, modified, changed, version, epoch, secret,
            first, target, bool(flags & HAS_RUN_TAG),
        )


def parse_first_extent(fields: Fields) -> Extent:
    """Takes the extent in an inode, without a run tag."""
    start, slab, count = fields.varint(), fields.varint(SLAB_LIMIT), fields.varint(U32)
    offset, last_length = fields.varint(), fields.varint(U32)
    session, counter = fields.take(16), fields.varint()
    return checked_extent(fields, start, slab, count, offset, last_length, session, counter)


def parse_extent(value: bytes, start: int, name: str) -> Extent:
    """Reads an extent value. Whether it is possible in its file is checked elsewhere."""
    fields = Fields(value, name)
    slab = fields.range(fields.u32(), 0, SLAB_LIMIT - 1, "slab")
    count, offset, last_length = fields.u32(), fields.u64(), fields.u32()
    flags = fields.range(fields.u32(), 0, 1, "flags of an extent")
    session, counter = fields.take(16), fields.u64()
    if flags:
        fields.take(16)
    fields.end()
    return checked_extent(fields, start, slab, count, offset, last_length, session, counter)


def checked_extent(
    fields: Fields, start: int, slab: int, count: int, offset: int, last_length: int,
    session: bytes, counter: int,
) -> Extent:
    """An extent whose lengths are in range, so that its stored length is known."""
    fields.range(count, 1, U32 - 1, "count of segments")
    fields.range(last_length, 1, GRAIN, "last length")
    return Extent(start, count, last_length, session, counter, offset, slab)


def extents_of(
    name: str, inode: Inode, others: Iterable[tuple[bytes, bytes]]
) -> list[Extent]:
    """A file's extents in order: the inode's, then the others by start."""
    extents = [inode.first] if inode.first else []
    for rest, value in sorted(others):
        start = int.from_bytes(rest, "big")
        extent = parse_extent(value, start, f"extent at {start} of {name}")
        if len(rest) != 8 or not extents or start <= extents[-1].start:
            raise Inconsistent(f"extent at {start} of {name}: out of order")
        extents.append(extent)
    return extents


@dataclass(frozen=True)
class Entry:
    """A directory entry."""

    name: bytes
    kind: int
    file_id: int

    @staticmethod
    def parse(directory: int, name: bytes, value: bytes) -> Entry:
        """Reads a directory entry."""
        fields = Fields(value, f"entry in directory {directory}")
        if not is_name(name):
            raise fields.fail("a name that is not possible")
        kind = fields.range(fields.u8(), FILE_KIND, LINK_KIND, "kind")
        fields.zero(7)
        entry = Entry(name, kind, fields.range(fields.u64(), ROOT, ID_LIMIT - 1, "file id"))
        fields.end()
        return entry


@dataclass(frozen=True)
class NextNumbers:
    """The value of type 01."""

    file_id: int
    slab: int

    @staticmethod
    def parse(value: bytes) -> NextNumbers:
        """Reads the value."""
        fields = Fields(value, "state")
        file_id = fields.range(fields.u64(), ROOT + 1, ID_LIMIT - 1, "next file id")
        slab = fields.range(fields.u32(), 0, SLAB_LIMIT - 1, "next slab")
        fields.zero(4)
        fields.end()
        return NextNumbers(file_id, slab)


def refuse(damage: ContainerError) -> None:
    """Goes on with no damage at all."""
    raise damage


class Catalog:
    """The whole catalog in memory: keys grouped by their first nine bytes, a type and a number.

    What was in damaged blocks is lost, and so is what older tables have of those keys; what newer
    tables and commits have counts.
    """

    def __init__(self) -> None:
        self.groups: dict[bytes, dict[bytes, bytes]] = {}
        self.lost: list[Part] = []
        self.absent: set[bytes] = set()  # deleted since their part was lost

    def apply(self, changes: Iterable[Change]) -> None:
        """Puts and deletes in order."""
        for key, value in changes:
            if value is None:
                self.remove(key)
                if self.lost:
                    self.absent.add(key)
            else:
                self.groups.setdefault(key[:GROUP], {})[key[GROUP:]] = value

    def remove(self, key: bytes) -> None:
        """Forgets a key."""
        group = self.groups.get(key[:GROUP], {})
        group.pop(key[GROUP:], None)
        if not group:
            self.groups.pop(key[:GROUP], None)

    def apply_part(self, part: Part) -> None:
        """Applies a part of a table, over the parts of older ones."""
        if part.damage is None:
            self.apply(part.entries)
            return
        for key in [key for key in self.keys() if part.has(key)]:
            self.remove(key)
        self.absent = {key for key in self.absent if not part.has(key)}
        self.lost.append(part)

    def get(self, key: bytes) -> bytes | None:
        """A value."""
        value = self.groups.get(key[:GROUP], {}).get(key[GROUP:])
        if value is None and key not in self.absent:
            for part in self.lost:
                if part.has(key):
                    raise Lost(f"key {key.hex()} is lost: {part.damage}")
        return value

    def lacks(self, *beginnings: bytes) -> bool:
        """Whether keys with one of these beginnings may be lost."""
        return any(part.overlaps(beginning) for part in self.lost for beginning in beginnings)

    def group(self, beginning: bytes, report: Report = refuse) -> dict[bytes, bytes]:
        """What is known of the keys with that beginning; what is lost of them is reported."""
        for part in self.lost:
            if part.overlaps(beginning):
                report(Lost(f"keys of {beginning.hex()} are lost: {part.damage}"))
        return self.groups.get(beginning, {})

    def keys(self) -> Iterator[bytes]:
        """Every key."""
        for group, rests in self.groups.items():
            for rest in rests:
                yield group + rest

    def items(self, kind: bytes) -> list[tuple[bytes, bytes]]:
        """Keys and values of a type, in order."""
        return sorted(
            (group + rest, value)
            for group, rests in self.groups.items() if group[:1] == kind
            for rest, value in rests.items()
        )

    def numbers(self, kind: bytes) -> list[int]:
        """Every number that has keys of a type, in order."""
        groups = (group for group in self.groups if group[:1] == kind and len(group) == GROUP)
        return sorted(number_in(group) for group in groups)

    def next_numbers(self) -> NextNumbers:
        """The numbers to be given out next."""
        value = self.get(STATE)
        if value is None:
            raise Inconsistent("no state")
        return NextNumbers.parse(value)

    def inode(self, file_id: int) -> Inode:
        """The inode of a file id."""
        data = self.get(number_key(INODE, file_id))
        if data is None:
            raise Inconsistent(f"file {file_id}: no inode")
        return Inode.parse(data, f"inode of file {file_id}")

    def extents(self, file_id: int, inode: Inode) -> list[Extent]:
        """A file's extents in order."""
        try:
            others = self.group(number_key(EXTENT, file_id)).items()
        except Lost:
            # An extent never reaches past the size: the first one may be the only one.
            first = inode.first
            if first is None or GRAIN * (first.start + first.count) < inode.size:
                raise
            others = {}.items()
        return extents_of(f"file {file_id}", inode, others)

    def entry(self, directory: int, name: bytes) -> Entry | None:
        """The entry of a name in a directory."""
        if not 1 <= len(name) <= MAXIMUM_NAME:
            return None
        value = self.get(number_key(ENTRY, directory) + name)
        return None if value is None else Entry.parse(directory, name, value)

    def directory(self, file_id: int, report: Report = refuse) -> list[Entry]:
        """A directory's entries, sorted by name."""
        entries = []
        for name, value in sorted(self.group(number_key(ENTRY, file_id), report).items()):
            try:
                entries.append(Entry.parse(file_id, name, value))
            except ContainerError as error:
                report(error)
        return entries

    def tree(self, report: Report = refuse) -> Iterator[tuple[bytes, int, Inode]]:
        """Path, file id and inode of all that has a path, directories before what is in them."""
        seen = {ROOT}
        waiting = [(b"", ROOT)]
        while waiting:
            path, directory = waiting.pop()
            for entry in self.directory(directory, report):
                child = path + b"/" + entry.name if path else entry.name
                try:
                    inode = self.inode(entry.file_id)
                    if inode.kind != entry.kind:
                        raise Inconsistent("entry and inode differ in kind")
                    if inode.kind == DIRECTORY_KIND and entry.file_id in seen:
                        raise Inconsistent("a directory with two entries")
                except ContainerError as error:
                    report(type(error)(f"{os.fsdecode(child)}: {error}"))
                    continue
                if inode.kind == DIRECTORY_KIND:
                    seen.add(entry.file_id)
                    waiting.append((child, entry.file_id))
                yield child, entry.file_id, inode
