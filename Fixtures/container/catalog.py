"""CONTAINER-FORMAT.md, "Catalog": directories, inodes and extents."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Iterable, Iterator

from opendynamics import Extent

from .fields import Damage, Fields
from .journal import Change

STATE, ENTRY, INODE, EXTENT, ATTRIBUTE, SLAB = b"\x01", b"\x10", b"\x20", b"\x30", b"\x40", b"\x50"
PINNED_EXTENT, STAGING = b"\x72", b"\x90"
FILE_KIND, DIRECTORY_KIND, LINK_KIND = 1, 2, 3
ROOT = 1
GROUP = 9  # a type and a 64-bit number
MAXIMUM_TARGET = 4096
KEY_LENGTHS = {STATE: (1, 1), ENTRY: (10, 264), INODE: (9, 9), EXTENT: (17, 17), ATTRIBUTE: (9, 600), SLAB: (5, 5)}


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
    def parse(data: bytes, name: str) -> Inode:
        """Reads an inode's value."""
        fields = Fields(data, name)
        fields.range(fields.u8(), 1, 1, "layout")
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
            Fields(secret, f"{name}: secret").zero(32)
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
    """The whole catalog in memory: keys grouped by their first nine bytes, a type and a number."""

    def __init__(self) -> None:
        self.groups: dict[bytes, dict[bytes, bytes]] = {}

    def apply(self, changes: Iterable[Change]) -> None:
        """Puts and deletes in order."""
        for key, value in changes:
            beginning, rest = key[:GROUP], key[GROUP:]
            if value is not None:
                self.groups.setdefault(beginning, {})[rest] = value
            elif beginning in self.groups:
                self.groups[beginning].pop(rest, None)
                if not self.groups[beginning]:
                    del self.groups[beginning]

    def get(self, key: bytes) -> bytes | None:
        """A value."""
        return self.groups.get(key[:GROUP], {}).get(key[GROUP:])

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
        return Inode.parse(data, f"inode of file {file_id}")

    def extents(self, file_id: int, inode: Inode) -> list[Extent]:
        """A file's extents in order: the inode's, then those of type 30."""
        others = self.groups.get(number_key(EXTENT, file_id), {})
        extents = [inode.first] if inode.first else []
        for rest in sorted(others):
            fields = Fields(others[rest], f"extent of file {file_id}")
            start = int.from_bytes(rest, "big")
            if len(rest) != 8 or not extents or start <= extents[-1].start:
                raise fields.fail("out of place")
            extents.append(parse_extent(fields, start))
            fields.end()
        return extents

    def directory(self, file_id: int) -> list[Entry]:
        """A directory's entries, sorted by name."""
        entries = []
        for name, value in sorted(self.groups.get(number_key(ENTRY, file_id), {}).items()):
            fields = Fields(value, f"entry in directory {file_id}")
            if not 1 <= len(name) <= 255 or b"/" in name or b"\0" in name or name in (b".", b".."):
                raise fields.fail("a name that is not possible")
            kind = fields.range(fields.u8(), FILE_KIND, LINK_KIND, "kind")
            fields.zero(7)
            entries.append(Entry(name, kind, fields.u64()))
            fields.end()
        return entries

    def tree(self) -> Iterator[tuple[bytes, int, Inode]]:
        """Path, file id and inode of all that has a path, directories before what is in them."""
        seen = {ROOT}
        waiting = [(b"", ROOT)]
        while waiting:
            path, directory = waiting.pop()
            for entry in self.directory(directory):
                inode = self.inode(entry.file_id)
                child = path + b"/" + entry.name if path else entry.name
                if inode.kind != entry.kind:
                    raise Damage(f"{os.fsdecode(child)}: entry and inode differ in kind")
                if inode.kind == DIRECTORY_KIND:
                    if entry.file_id in seen:
                        raise Damage(f"{os.fsdecode(child)}: a directory with two entries")
                    seen.add(entry.file_id)
                    waiting.append((child, entry.file_id))
                yield child, entry.file_id, inode
