"""CONTAINER-FORMAT.md, "Tables": from a table file to its entries."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

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


class TableReader:
    """One table file."""

    def __init__(self, folder: Path, container_id: bytes, generation_key: bytes, table: Table) -> None:
        self.table = table
        self.name = f"table {table.id.hex()}"
        self.container_id = container_id
        self.key = kb(32, generation_key, label("OD1-table") + table.id)
        self.path = folder / table.id.hex()

    def entries(self) -> Iterator[Change]:
        """Every entry in the order of keys; the value of a tombstone is None."""
        try:
            with self.path.open("rb") as file:
                yield from self.entries_of(file.fileno())
        except FileNotFoundError:
            raise Damage(f"{self.name}: no such file") from None

    def entries_of(self, file: int) -> Iterator[Change]:
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
        data = [entry for place in index for entry in self.index_block(file, place)]
        if len(data) != block_count:
            raise Damage(f"{self.name}: {len(data)} data blocks and not {block_count}")
        position = 0
        for place in data + index:
            if place.offset != position:
                raise Damage(f"{self.name}: a block at {place.offset} and not at {position}")
            position += place.length + OVERHEAD
        if position != footer_offset:
            raise Damage(f"{self.name}: its blocks end at {position} and not at {footer_offset}")
        previous = b""
        for place in data:
            for key, value in self.data_block(file, place):
                if key <= previous:
                    raise Damage(f"{self.name}: keys out of order")
                previous = key
                entry_count -= 1
                yield key, value
        if entry_count:
            raise Damage(f"{self.name}: number of entries")

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
