"""CONTAINER-FORMAT.md, "Tables": from a table file to its entries, and to what is lost of them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from opendynamics import OVERHEAD, NotAuthentic, kb, label, open_message, u32, u64

from .fields import Damage, Fields
from .journal import MAXIMUM_KEY, MAXIMUM_VALUE, Change
from .superblock import Table

DATA_BLOCK, INDEX_BLOCK, FOOTER = 1, 2, 3
MAXIMUM_BLOCK = 65536
MAXIMUM_FOOTER = 16777216


@dataclass(frozen=True)
class BlockEntry:
    """A block as the level above names it."""

    offset: int
    length: int
    first_key: bytes

    @staticmethod
    def parse(fields: Fields) -> BlockEntry:
        """Takes one entry off an index block or the footer."""
        offset, length = fields.u64(), fields.range(fields.u32(), 1, MAXIMUM_BLOCK, "block length")
        return BlockEntry(offset, length, fields.take(fields.range(fields.u16(), 1, MAXIMUM_KEY, "key length")))


@dataclass(frozen=True)
class Part:
    """The entries of a data block, or the damage that stands in their place; the value of a tombstone is None."""

    name: str
    first_key: bytes
    end_key: bytes | None  # first key of the next one
    entries: list[Change]
    damage: Damage | None = None

    def without_tombstones(self) -> Part:
        """The part as it may be in the oldest table of a generation."""
        if all(value is not None for _, value in self.entries):
            return self
        return self.lost(Damage(f"{self.name}: a tombstone in the oldest table"))

    def lost(self, damage: Damage) -> Part:
        """The part when it cannot be used."""
        return replace(self, entries=[], damage=damage)


class TableReader:
    """One table file."""

    def __init__(self, folder: Path, container_id: bytes, key: bytes, table: Table) -> None:
        self.table = table
        self.name = f"table {table.id.hex()}"
        self.container_id = container_id
        self.key = key
        self.path = folder / table.id.hex()

    def parts(self) -> list[Part]:
        """All data blocks in the order of keys. Damage of one is in its part; other damage is raised."""
        try:
            with self.path.open("rb") as file:
                return self.parts_of(file.fileno())
        except FileNotFoundError:
            raise Damage(f"{self.name}: no such file") from None

    def parts_of(self, file: int) -> list[Part]:
        """Footer, index blocks, data blocks; all that they say of each other is checked."""
        size = os.fstat(file).st_size
        if size != self.table.size:
            raise Damage(f"{self.name}: has {size} bytes and not {self.table.size}")
        footer_offset = size - self.table.footer_length - OVERHEAD
        if footer_offset < 0 or not 1 <= self.table.footer_length <= MAXIMUM_FOOTER:
            raise Damage(f"{self.name}: a footer of {self.table.footer_length} bytes")
        footer, authenticator = self.block(file, footer_offset, self.table.footer_length, FOOTER)
        if authenticator != self.table.footer_authenticator:
            raise Damage(f"{self.name}: another footer than the one named")
        entry_count, block_count = footer.u64(), footer.u64()
        index_count = footer.u32()
        footer.zero(4)
        index = [BlockEntry.parse(footer) for _ in range(index_count)]
        footer.end()
        self.check_keys(index)
        self.check_tiles(index, index[0].offset if index else 0, footer_offset)
        parts: list[Part] = []
        # Where the next data block begins, and how many there were; unknown after an index block that is lost.
        position: int | None = 0
        blocks: int | None = 0
        for place, end_key in _with_ends(index, None):
            try:
                data = self.index_block(file, place)
            except Damage as damage:
                parts.append(Part(damage.args[0], place.first_key, end_key, [], damage))
                position, blocks = None, None
                continue
            self.check_keys(data, end_key)
            if position is not None and blocks is not None:
                position, blocks = self.check_tiles(data, position), blocks + len(data)
            parts += [self.part(file, entry, end) for entry, end in _with_ends(data, end_key)]
        if position not in (None, index[0].offset if index else 0):
            raise Damage(f"{self.name}: its data blocks end at {position}")
        if blocks not in (None, block_count):
            raise Damage(f"{self.name}: {blocks} data blocks and not {block_count}")
        count = sum(len(part.entries) for part in parts)
        if count > entry_count or (count < entry_count and not any(part.damage for part in parts)):
            raise Damage(f"{self.name}: {count} entries and not {entry_count}")
        return parts

    def check_keys(self, places: list[BlockEntry], end: bytes | None = None) -> None:
        """First keys ascend, up to the next index block's."""
        for place, next_key in _with_ends(places, end):
            if next_key is not None and place.first_key >= next_key:
                raise Damage(f"{self.name}: keys out of order")

    def check_tiles(self, places: list[BlockEntry], position: int, end: int | None = None) -> int:
        """Blocks follow each other without gaps; returns where the last one ends."""
        for place in places:
            if place.offset != position:
                raise Damage(f"{self.name}: a block at {place.offset} and not at {position}")
            position += place.length + OVERHEAD
        if end not in (None, position):
            raise Damage(f"{self.name}: its blocks end at {position} and not at {end}")
        return position

    def part(self, file: int, place: BlockEntry, end_key: bytes | None) -> Part:
        """A data block, or its damage."""
        part = Part(f"{self.name}: block at {place.offset}", place.first_key, end_key, [])
        try:
            entries = self.data_block(file, place)
            previous = b""
            for key, _ in entries:
                if key <= previous or (end_key is not None and key >= end_key):
                    raise Damage(f"{part.name}: keys out of order")
                previous = key
            return replace(part, entries=entries)
        except Damage as damage:
            return part.lost(damage)

    def block(self, file: int, offset: int, length: int, kind: int) -> tuple[Fields, bytes]:
        """A block's plaintext and its authenticator."""
        name = f"{self.name}: block at {offset}"
        if offset + length + OVERHEAD > self.table.size:
            raise Damage(f"{name}: outside of the table")
        sealed = os.pread(file, length + OVERHEAD, offset)
        place = self.table.id + u64(offset) + u32(length) + bytes([kind, 0, 0, 0])
        try:
            plaintext = open_message(self.key, label("OD1-block") + self.container_id + place, sealed)
        except NotAuthentic:
            raise Damage(f"{name}: not authentic") from None
        return Fields(plaintext, name), sealed[-16:]

    def index_block(self, file: int, place: BlockEntry) -> list[BlockEntry]:
        """The data blocks that an index block names."""
        fields, _ = self.block(file, place.offset, place.length, INDEX_BLOCK)
        entries = [BlockEntry.parse(fields) for _ in range(fields.u32())]
        fields.end()
        if not entries or entries[0].first_key != place.first_key:
            raise fields.fail("its first key is another than the footer says")
        return entries

    def data_block(self, file: int, place: BlockEntry) -> list[Change]:
        """The entries of a data block."""
        fields, _ = self.block(file, place.offset, place.length, DATA_BLOCK)
        entries: list[Change] = []
        for _ in range(fields.u32()):
            op = fields.range(fields.u8(), 1, 2, "op")
            key = fields.take(fields.range(fields.u16(), 1, MAXIMUM_KEY, "key length"))
            value = fields.take(fields.range(fields.u32(), 0, MAXIMUM_VALUE if op == 1 else 0, "value length"))
            entries.append((key, value if op == 1 else None))
        fields.end()
        if not entries or entries[0][0] != place.first_key:
            raise fields.fail("its first key is another than the index says")
        return entries


def _with_ends(places: list[BlockEntry], end: bytes | None) -> list[tuple[BlockEntry, bytes | None]]:
    """Each block with the first key after it."""
    ends = [place.first_key for place in places[1:]]
    return list(zip(places, [*ends, end]))
