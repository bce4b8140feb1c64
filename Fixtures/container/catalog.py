"""CONTAINER-FORMAT.md, "Catalog": directories, inodes and extents."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Callable, Iterable, Iterator

from opendynamics import Extent

from .fields import Damage, Fields
from .journal import Change
from .table import Part

STATE, ENTRY, INODE, EXTENT, ATTRIBUTE, SLAB = b"\x01", b"\x10", b"\x20", b"\x30", b"\x40", b"\x50"
FILE_KIND, DIRECTORY_KIND, LINK_KIND = 1, 2, 3
ROOT = 1
MAXIMUM_NAME = 255
GROUP = 9  # a type and a 64-bit number
MAXIMUM_TARGET = 4096
HAS_FIRST_EXTENT = 1  # a flag of layout 2
NO_SECRET = bytes(32)
U32 = 1 << 32
KEY_LENGTHS = {
    STATE: (1, 1), ENTRY: (10, 264), INODE: (9, 9), EXTENT: (17, 17), ATTRIBUTE: (10, 264), SLAB: (5, 5),
    b"\x60": (19, 273), b"\x61": (27, 281), b"\x62": (4, 512), b"\x78": (9, 9), b"\x79": (13, 13),
    b"\x70": (9, 9), b"\x71": (13, 13), b"\x72": (21, 21), b"\x73": (13, 13), b"\x74": (1, 1), b"\x75": (21, 21),
}


def number_key(kind: bytes, number: int) -> bytes:
    """The key, or the beginning of keys, of a type and a number; numbers in keys are big-endian."""
    return kind + number.to_bytes(8, "big")


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

    @staticmethod
    def parse(data: bytes, name: str, newest_layout: int) -> Inode:
        """Reads an inode's value; a container has layouts up to the number of its format."""
        fields = Fields(data, name)
        layout = fields.range(fields.u8(), 1, newest_layout, "layout")
        return Inode.parse_layout_1(fields) if layout == 1 else Inode.parse_layout_2(fields)

    @staticmethod
    def parse_layout_2(fields: Fields) -> Inode:
        """Takes the fields after the layout's number, which stand close together."""
        kind = fields.range(fields.u8(), FILE_KIND, LINK_KIND, "kind")
        flags = fields.range(fields.u8(), 0, HAS_FIRST_EXTENT if kind == FILE_KIND else 0, "flags")
        permissions, created = fields.u16(), fields.time()
        modified, changed = fields.time_after(created), fields.time_after(created)
        links, size, version = fields.varint(U32), fields.varint(), fields.varint()
        epoch = fields.varint(U32)
        secret = fields.take(32) if kind == FILE_KIND else NO_SECRET
        target = b""
        if kind == LINK_KIND:
            target = fields.take(fields.range(size, 1, MAXIMUM_TARGET, "length of the target"))
        elif kind == DIRECTORY_KIND:
            fields.range(size, 0, 0, "size")
        first = None
        if flags & HAS_FIRST_EXTENT:
            start, slab, count = fields.varint(), fields.varint(U32), fields.varint(U32)
            offset, last_length = fields.varint(), fields.varint(U32)
            first = Extent(start, count, last_length, fields.take(16), fields.varint(), offset, slab)
        fields.end()
        return Inode(
            kind, permissions, links, size, created, modified, changed, version, epoch, secret, first, target
        )

    @staticmethod
    def parse_layout_1(fields: Fields) -> Inode:
        """Takes the fields after the layout's number, which have fixed places."""
        kind = fields.range(fields.u8(), FILE_KIND, LINK_KIND, "kind")
        permissions, links, size = fields.u16(), fields.u32(), fields.u64()
        created, modified, changed, version = fields.time(), fields.time(), fields.time(), fields.u64()
        epoch = fields.u32()
        fields.zero(4)
        secret = fields.take(32)
        has_first = fields.range(fields.u8(), 0, 1 if kind == FILE_KIND else 0, "first extent")
        fields.zero(1)
        lowest, highest = (1, MAXIMUM_TARGET) if kind == LINK_KIND else (0, 0)
        target_length = fields.range(fields.u16(), lowest, highest, "length of the target")
        fields.zero(4)
        if kind != FILE_KIND:
            fields.range(size, target_length, target_length, "size")
            Fields(secret, f"{fields.name}: secret").zero(32)
        first = parse_extent(fields, fields.u64()) if has_first else None
        target = fields.take(target_length)
        fields.end()
        return Inode(
            kind, permissions, links, size, created, modified, changed, version, epoch, secret, first, target
        )


def parse_extent(fields: Fields, start: int) -> Extent:
    """Takes an extent value off the fields; whether it is possible is checked against the file's size."""
    slab, count, offset, last_length = fields.u32(), fields.u32(), fields.u64(), fields.u32()
    fields.zero(4)
    session, counter = fields.take(16), fields.u64()
    return Extent(start, count, last_length, session, counter, offset, slab)


Report = Callable[[Damage], None]


def refuse(damage: Damage) -> None:
    """Goes on with no damage at all."""
    raise damage


@dataclass(frozen=True)
class Entry:
    """A directory entry."""

    name: bytes
    kind: int
    file_id: int


def key_is_possible(key: bytes) -> bool:
    """Whether a key has the length that its type asks for, as far as the type is known here."""
    shortest, longest = KEY_LENGTHS.get(key[:1], (1, len(key)))
    return shortest <= len(key) <= longest


class Catalog:
    """The whole catalog in memory: keys grouped by their first nine bytes, a type and a number.

    What stood in damaged blocks is lost, and so is what older tables say of those keys; what newer tables and
    commits say counts.
    """

    def __init__(self, container_format: int) -> None:
        self.format = container_format
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
        for key in [key for key in self.keys() if _is_in(part, key)]:
            self.remove(key)
        self.absent = {key for key in self.absent if not _is_in(part, key)}
        self.lost.append(part)

    def get(self, key: bytes) -> bytes | None:
        """A value."""
        value = self.groups.get(key[:GROUP], {}).get(key[GROUP:])
        if value is None and key not in self.absent:
            for part in self.lost:
                if _is_in(part, key):
                    raise Damage(f"key {key.hex()} is lost: {part.damage}")
        return value

    def group(self, beginning: bytes, report: Report) -> dict[bytes, bytes]:
        """What is known of the keys with that beginning; what is lost of them is reported."""
        for part in self.lost:
            if part.first_key[:GROUP] <= beginning and (part.end_key is None or beginning < part.end_key):
                report(Damage(f"keys of {beginning.hex()} are lost: {part.damage}"))
        return self.groups.get(beginning, {})

    def keys(self) -> Iterator[bytes]:
        """Every key."""
        for group, rests in self.groups.items():
            for rest in rests:
                yield group + rest

    def numbers(self, kind: bytes) -> list[int]:
        """Every number that has keys of a type, in order."""
        groups = (group for group in self.groups if group[:1] == kind and len(group) == GROUP)
        return sorted(int.from_bytes(group[1:], "big") for group in groups)

    def slab_counters(self) -> dict[int, Fields]:
        """The value of type 50 of each slab that the catalog knows."""
        return {
            int.from_bytes(group[1:], "big"): Fields(rests[b""], f"counter of slab {group[1:].hex()}")
            for group, rests in self.groups.items()
            if group[:1] == SLAB and len(group) == 5
        }

    def inode(self, file_id: int) -> Inode:
        """The inode of a file id."""
        data = self.get(number_key(INODE, file_id))
        if data is None:
            raise Damage(f"file {file_id}: no inode")
        return Inode.parse(data, f"inode of file {file_id}", newest_layout=self.format)

    def extents(self, file_id: int, inode: Inode) -> list[Extent]:
        """A file's extents in order: the inode's, then those of type 30."""
        others = self.group(number_key(EXTENT, file_id), refuse)
        extents = [inode.first] if inode.first else []
        for rest in sorted(others):
            fields = Fields(others[rest], f"extent of file {file_id}")
            start = int.from_bytes(rest, "big")
            if len(rest) != 8 or not extents or start <= extents[-1].start:
                raise fields.fail("out of place")
            extents.append(parse_extent(fields, start))
            fields.end()
        return extents

    def entry(self, directory: int, name: bytes) -> Entry | None:
        """The entry of a name in a directory."""
        if not 1 <= len(name) <= MAXIMUM_NAME:
            return None
        value = self.get(number_key(ENTRY, directory) + name)
        return None if value is None else parse_entry(directory, name, value)

    def directory(self, file_id: int, report: Report = refuse) -> list[Entry]:
        """A directory's entries, sorted by name."""
        entries = []
        for name, value in sorted(self.group(number_key(ENTRY, file_id), report).items()):
            try:
                entries.append(parse_entry(file_id, name, value))
            except Damage as damage:
                report(damage)
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
                        raise Damage("entry and inode differ in kind")
                    if inode.kind == DIRECTORY_KIND and entry.file_id in seen:
                        raise Damage("a directory with two entries")
                except Damage as damage:
                    report(Damage(f"{os.fsdecode(child)}: {damage}"))
                    continue
                if inode.kind == DIRECTORY_KIND:
                    seen.add(entry.file_id)
                    waiting.append((child, entry.file_id))
                yield child, entry.file_id, inode


def parse_entry(directory: int, name: bytes, value: bytes) -> Entry:
    """Reads a directory entry."""
    fields = Fields(value, f"entry in directory {directory}")
    if not 1 <= len(name) <= MAXIMUM_NAME or b"/" in name or b"\0" in name or name in (b".", b".."):
        raise fields.fail("a name that is not possible")
    kind = fields.range(fields.u8(), FILE_KIND, LINK_KIND, "kind")
    fields.zero(7)
    entry = Entry(name, kind, fields.u64())
    fields.end()
    return entry


def _is_in(part: Part, key: bytes) -> bool:
    """Whether a key belongs to a part of a table."""
    return part.first_key <= key and (part.end_key is None or key < part.end_key)
