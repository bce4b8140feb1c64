"""CONTAINER-FORMAT.md, "Tables": from two copies to the entries, and to what is lost of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, TypeVar

from opendynamics import OVERHEAD, NotAuthentic, label, open_message, u32, u64

from .fields import Damage, Fields
from .files import TABLES, Copies
from .journal import MAXIMUM_KEY, MAXIMUM_VALUE, Change
from .superblock import Table

DATA_BLOCK, INDEX_BLOCK, FOOTER = 1, 2, 3
MAXIMUM_BLOCK = 65536
MAXIMUM_FOOTER = 16777216

Content = TypeVar("Content")


@dataclass(frozen=True)
class BlockEntry:
    """A block as the level above names it."""

    offset: int
    length: int
    first_key: bytes

    @property
    def end(self) -> int:
        return self.offset + self.length + OVERHEAD

    @staticmethod
    def parse(fields: Fields) -> BlockEntry:
        """Takes one entry off an index block or the footer."""
        offset = fields.u64()
        length = fields.range(fields.u32(), 1, MAXIMUM_BLOCK, "block length")
        key_length = fields.range(fields.u16(), 1, MAXIMUM_KEY, "key length")
        return BlockEntry(offset, length, fields.take(key_length))


@dataclass(frozen=True)
class Part:
    """The entries of a data block, or the damage of it or of the block that names it."""

    first_key: bytes
    end_key: bytes | None  # the first key of the next part
    entries: list[Change]
    damage: Damage | None = None

    def has(self, key: bytes) -> bool:
        """Whether a key belongs to this part."""
        return self.first_key <= key and (self.end_key is None or key < self.end_key)

    def overlaps(self, beginning: bytes) -> bool:
        """Whether any key with that beginning belongs to this part."""
        ends_after = self.end_key is None or beginning < self.end_key
        return ends_after and self.first_key[: len(beginning)] <= beginning


@dataclass(frozen=True)
class Footer:
    """The footer of a table; without totals where it is lost."""

    totals: tuple[int, int] | None  # entries, data blocks
    index: list[BlockEntry]


class TableReader:
    """The two copies of a table; `parts` are its data blocks in the order of keys."""

    def __init__(
        self, path: Path, container_id: bytes, key: bytes, table: Table, is_oldest: bool
    ) -> None:
        self.table, self.is_oldest = table, is_oldest
        self.name = f"table {table.id.hex()}"
        self.container_id, self.key = container_id, key
        self.copies = Copies(path, TABLES, table.id, limit=table.size + 1)
        self.parts: list[Part] = []
        self.contradictions: list[Damage] = []  # between blocks that are whole
        for copy, data in enumerate(self.copies.data):
            if data is not None and len(data) != table.size:
                fault = "longer" if len(data) > table.size else "shorter"
                self.copies.add_damage(copy, f"{fault} than {table.size} bytes")
        self.read()

    def read(self) -> None:
        """Reads footer, index blocks and data blocks."""
        length = self.table.footer_length
        self.footer_offset = self.table.size - length - OVERHEAD
        try:
            if self.footer_offset < 0 or not 1 <= length <= MAXIMUM_FOOTER:
                raise Damage(f"{self.name}: a footer of {length} bytes")
            footer = self.block(self.footer_offset, length, FOOTER, self.read_footer)
        except Damage as damage:
            index = self.index_without_footer()
            if index is None:
                self.parts.append(Part(b"", None, [], damage))
                return
            for copy in range(len(self.copies.data)):
                self.copies.add_damage(copy, f"block at {self.footer_offset}")
            footer = Footer(None, index)
        blocks: list[BlockEntry] = []
        for place, end_key in _with_ends(footer.index, None):
            try:
                found = self.block(
                    place.offset, place.length, INDEX_BLOCK,
                    lambda fields: self.read_index(fields, place, end_key),
                )
            except Damage as damage:
                self.parts.append(Part(place.first_key, end_key, [], damage))
                continue
            blocks += found
            self.parts += [self.part(entry, end) for entry, end in _with_ends(found, end_key)]
        self.compare(footer, blocks)

    def compare(self, footer: Footer, blocks: list[BlockEntry]) -> None:
        """Holds the footer's numbers against the blocks, as far as all of these are known."""
        if any(part.damage for part in self.parts):
            return
        data_end = footer.index[0].offset if footer.index else self.footer_offset
        starts = [block.offset for block in blocks] + [data_end]
        if starts != [0] + [block.end for block in blocks]:
            self.contradictions.append(Damage(f"{self.name}: its data blocks do not tile it"))
        entry_count = sum(len(part.entries) for part in self.parts)
        if footer.totals not in (None, (entry_count, len(blocks))):
            found = f"{entry_count} entries in {len(blocks)} blocks"
            self.contradictions.append(Damage(f"{self.name}: {found}, its footer has others"))

    def part(self, place: BlockEntry, end_key: bytes | None) -> Part:
        """A data block, or its damage."""
        part = Part(place.first_key, end_key, [])
        try:
            entries = self.block(
                place.offset, place.length, DATA_BLOCK,
                lambda fields: self.read_data(fields, part),
            )
            return replace(part, entries=entries)
        except Damage as damage:
            return replace(part, damage=damage)

    def block(
        self, offset: int, length: int, kind: int, read: Callable[[Fields], Content]
    ) -> Content:
        """What is read from a block, in the copy where it is whole."""
        found: list[Content] = []
        failures: list[tuple[int, Damage]] = []
        for copy, data in enumerate(self.copies.data):
            try:
                found.append(read(self.open(data or b"", offset, length, kind)))
            except Damage as damage:
                failures.append((copy, damage))
        if not found:
            raise failures[0][1]
        for copy, _ in failures:
            self.copies.add_damage(copy, f"block at {offset}")
        return found[0]

    def open(self, data: bytes, offset: int, length: int, kind: int) -> Fields:
        """A block's plaintext in one copy."""
        name = f"{self.name}: block at {offset}"
        sealed = data[offset : offset + length + OVERHEAD]
        place = self.table.id + u64(offset) + u32(length) + bytes([kind, 0, 0, 0])
        if kind == FOOTER and sealed[-16:] != self.table.footer_tag:
            raise Damage(f"{name}: another footer than the one named")
        try:
            ad = label("OD1-block") + self.container_id + place
            return Fields(open_message(self.key, ad, sealed), name, Damage)
        except NotAuthentic:
            raise Damage(f"{name}: not authentic") from None

    def read_footer(self, fields: Fields) -> Footer:
        """The footer; the index blocks that it names follow each other up to it."""
        entry_count, block_count, index_count = fields.u64(), fields.u64(), fields.u32()
        fields.zero(4)
        index = [BlockEntry.parse(fields) for _ in range(index_count)]
        fields.end()
        self.check_order(index, None, fields)
        if index and index[-1].end != self.footer_offset:
            raise fields.fail("the last index block does not end before it")
        if not index and (entry_count or block_count or self.footer_offset):
            raise fields.fail("no index block, and the table is not empty")
        return Footer((entry_count, block_count), index)

    def index_without_footer(self) -> list[BlockEntry] | None:
        """The index blocks, from the last one back; nothing when one of them is lost, too."""
        index: list[BlockEntry] = []
        data_offset = end = self.footer_offset
        while data_offset != 0:
            found = self.index_block_before(end)
            if found is None:
                return None
            place, data_offset = found
            index.insert(0, place)
            end = place.offset
        return index

    def index_block_before(self, end: int) -> tuple[BlockEntry, int] | None:
        """The index block that ends there, and where its first data block is."""
        for data in self.copies.data:
            for length in range(1, min(MAXIMUM_BLOCK, end - OVERHEAD) + 1):
                try:
                    offset = end - length - OVERHEAD
                    fields = self.open(data or b"", offset, length, INDEX_BLOCK)
                    fields.u32()
                    first = BlockEntry.parse(fields)
                    return BlockEntry(offset, length, first.first_key), first.offset
                except Damage:
                    continue
        return None

    def read_index(
        self, fields: Fields, place: BlockEntry, end_key: bytes | None
    ) -> list[BlockEntry]:
        """The data blocks that an index block names."""
        entries = [BlockEntry.parse(fields) for _ in range(fields.u32())]
        fields.end()
        if not entries or entries[0].first_key != place.first_key:
            raise fields.fail("its first key is another than the footer says")
        self.check_order(entries, end_key, fields)
        return entries

    def check_order(self, blocks: list[BlockEntry], end_key: bytes | None, fields: Fields) -> None:
        """Keys ascend, and the blocks follow each other."""
        for block, next_key in _with_ends(blocks, end_key):
            if next_key is not None and block.first_key >= next_key:
                raise fields.fail("keys out of order")
        for block, following in zip(blocks, blocks[1:]):
            if block.end != following.offset:
                raise fields.fail("names blocks that do not tile")

    def read_data(self, fields: Fields, part: Part) -> list[Change]:
        """The entries of a data block."""
        entries: list[Change] = []
        previous = b""
        for _ in range(fields.u32()):
            op = fields.range(fields.u8(), 1, 2, "op")
            key = fields.take(fields.range(fields.u16(), 1, MAXIMUM_KEY, "key length"))
            longest = MAXIMUM_VALUE if op == 1 else 0
            value = fields.take(fields.range(fields.u32(), 0, longest, "value length"))
            if op == 2 and self.is_oldest:
                raise fields.fail("a tombstone in the oldest table")
            if key <= previous or not part.has(key):
                raise fields.fail("keys out of order")
            entries.append((key, value if op == 1 else None))
            previous = key
        fields.end()
        if not entries or entries[0][0] != part.first_key:
            raise fields.fail("its first key is another than the index says")
        return entries


def _with_ends(
    places: list[BlockEntry], end: bytes | None
) -> list[tuple[BlockEntry, bytes | None]]:
    """Each block with the first key after it."""
    return list(zip(places, [*(place.first_key for place in places[1:]), end]))
