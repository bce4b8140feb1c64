"""Makes small containers by hand, from the pages alone, for the self-test; syncs nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Callable

from nacl import bindings

from container.catalog import (
    ATTRIBUTE, DIRECTORY_KIND, ENTRY, EXTENT, FILE_KIND, INODE, LINK_KIND, SLAB, STATE, number_key,
)
from container.journal import JOURNAL_MAGIC, LAST_OF_COMMIT, SEGMENTS_DURABLE, Change
from container.superblock import (
    BODY_SIZE, GENERATION_SIZE, NO_END, NO_ERASE_SECRET, NO_ID, PASSPHRASE, RAW_KEY, RECOVERY_CODE,
    SUPERBLOCK_MAGIC, End, Generation, Table,
)
from opendynamics import HEADER, Extent, File, kb, label, u32, u64
from sealing import expand, seal, seal_run

TIME = 1_700_000_000_000_000_000
RAW = expand("raw key", 32)
WORDS = b"correct horse battery staple"
CODE = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
EPOCH = 5
VERSIONS = (3, 3, 3)  # of the format, the least of a reader, the least of a writer


def u16(value: int) -> bytes:
    """Two bytes, little-endian."""
    return value.to_bytes(2, "little")


def varint(value: int) -> bytes:
    """A number in groups of seven bits."""
    groups = bytearray()
    while value >= 128:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def difference(time: int, other: int) -> bytes:
    """A time, as its difference from another one."""
    signed = (time - other + (1 << 63)) % (1 << 64) - (1 << 63)
    return varint((signed << 1 ^ signed >> 63) % (1 << 64))


def text(data: bytes) -> bytes:
    """A key with its length in front."""
    return u16(len(data)) + data


@dataclass
class JournalDraft:
    """A journal under construction."""

    id: bytes
    generation: int
    session: bytes
    data: bytes = b""
    live: list[tuple[int, int]] = field(default_factory=list)
    end: End = NO_END  # of the last record; its commit is the last one that is whole
    known: End = NO_END  # what the superblock names while the container is open


class Builder:
    """A container under construction; `live` has the byte ranges of each file that count."""

    def __init__(self, path: Path, name: str = "container") -> None:
        self.path, self.name = path, name
        self.draws = 0
        self.id, self.root_key = self.random(16), self.random(32)
        self.epoch_key = self.random(32)
        self.generations: list[Generation] = []
        self.table_entries: dict[bytes, dict[bytes, bytes | None]] = {}
        self.journal: JournalDraft | None = None
        self.journals: dict[bytes, int] = {}  # and their generations
        self.at_pending: tuple[int, dict[bytes, bytes]] = (0, {})  # commit and catalog
        self.catalog: dict[bytes, bytes] = {}
        self.commit_number = 0
        self.sequence = 0
        self.counter = 0
        self.next_file = 2
        self.slab = b""
        self.runs: list[tuple[int, int]] = []
        self.live_bytes = 0
        self.live: dict[str, list[tuple[int, int]]] = {}
        self.key_slot_bytes = self.key_slots()
        for folder in ("journal", "catalog", "copy", "slab"):
            (path / folder).mkdir(parents=True)
        (path / "lock").write_text("pid 1\n")

    def random(self, size: int) -> bytes:
        """Bytes in the place of random ones."""
        self.draws += 1
        return expand(f"{self.name} {self.draws}", size)

    def file_id(self) -> bytes:
        """An id for a journal or table that the next superblock is to name."""
        return (self.sequence + 1).to_bytes(8, "big") + self.random(16)[:8]

    def message(self, key: bytes, ad: bytes, plaintext: bytes) -> bytes:
        """Message(key, ad, m) of the page."""
        return seal(key, self.random(HEADER), ad, plaintext)

    def write(self, name: str, data: bytes, live: list[tuple[int, int]]) -> None:
        """Writes a file and remembers which of its bytes count."""
        (self.path / name).write_bytes(data)
        self.live[name] = live

    def write_twice(
        self, folder: str, identifier: bytes, data: bytes, live: list[tuple[int, int]]
    ) -> None:
        """Writes both copies of a journal or table."""
        for copy in (folder, "copy"):
            self.write(f"{copy}/{identifier.hex()}", data, live)

    # Superblock

    def key_slot(
        self, kind: int, secret: bytes, passes: int = 1, memory: int = 8,
        erase_secret: bytes = NO_ERASE_SECRET, root_key: bytes | None = None,
    ) -> bytes:
        """A key slot; passes and memory are those of a passphrase."""
        passes, memory = (0, 0) if kind == RAW_KEY else (passes, memory)
        salt = self.random(16)
        beginning = bytes([kind, 0, 0, 0]) + u32(passes) + u32(memory) + bytes(4) + salt
        if kind == RAW_KEY:
            key = kb(32, secret, label("OD1-raw-slot") + self.id + salt)
        else:
            argon2id = bindings.crypto_pwhash_ALG_ARGON2ID13
            key = bindings.crypto_pwhash_alg(32, secret, salt, passes, memory * 1024, argon2id)
        wrap = kb(32, key, label("OD1-slot-wrap") + erase_secret)
        ad = label("OD1-slot") + self.id + beginning + bytes(16)
        sealed = self.message(wrap, ad, root_key or self.root_key)
        commitment = kb(32, key, label("OD1-slot-commit") + self.id + beginning)
        return beginning + sealed + commitment + bytes(23)

    def key_slots(self) -> bytes:
        """Three slots, one of each kind, and five empty ones."""
        kinds = ((PASSPHRASE, WORDS), (RAW_KEY, RAW), (RECOVERY_CODE, CODE))
        return b"".join(self.key_slot(kind, secret) for kind, secret in kinds) + bytes(160 * 5)

    def generation_bytes(self, generation: Generation) -> bytes:
        """A generation as the body has it."""
        data = u64(generation.number) + u32(generation.epoch)
        data += u16(1 if generation.complete else 2) + u16(len(generation.tables))
        data += generation.secret + u64(generation.commit) + bytes(16)
        for table in generation.tables:
            data += table.id + u64(table.size) + u32(table.footer_length) + u32(table.epoch)
            data += table.footer_tag + table.secret
        return data.ljust(GENERATION_SIZE, b"\0")

    def body(self, clean: bool) -> bytes:
        """The superblock's body for the present state."""
        epochs = u32(EPOCH) + u32(0) + self.epoch_key
        body = u64(TIME) + u32(EPOCH) + u32(1) + epochs.ljust(16 * 40, b"\0")
        body += u32(len(self.generations)) + u32(2 if clean or not self.journal else 1)
        generations = b"".join(self.generation_bytes(item) for item in self.generations)
        body += generations.ljust(2 * GENERATION_SIZE, b"\0")
        if self.journal:
            end = self.journal.end if clean else self.journal.known
            body += self.journal.id + u64(self.journal.generation) + end.encode()
        return body.ljust(BODY_SIZE, b"\0")

    def slot(
        self,
        clean: bool = True,
        sequence: int | None = None,
        versions: tuple[int, int, int] = VERSIONS,
        edit: Callable[[bytes], bytes] = lambda body: body,
    ) -> bytes:
        """The superblock's slot for the present state."""
        self.sequence += 1
        sequence = self.sequence if sequence is None else sequence
        key = kb(32, self.root_key, label("OD1-super-body") + self.id)
        ad = label("OD1-super-ad") + self.id + u64(sequence) + bytes(40)
        slot = SUPERBLOCK_MAGIC + b"".join(map(u16, versions)) + bytes(2) + self.id
        slot += u64(sequence) + bytes(24) + self.key_slot_bytes
        slot += self.message(key, ad, edit(self.body(clean))) + bytes(87)
        slot += kb(32, kb(32, self.root_key, label("OD1-super-mac") + self.id), slot)
        return slot + kb(32, b"", slot)

    def write_superblock(self, first: bytes, second: bytes | None = None) -> None:
        """Writes both slots."""
        data = first.ljust(65536, b"-") + (first if second is None else second)
        self.write("superblock", data, [(0, 4096), (65536, 69632)])

    def close(self, clean: bool = True) -> None:
        """Writes everything that is not written yet."""
        self.write_journal()
        if self.slab:
            self.write("slab/00000000", self.slab, self.runs)
        self.write_superblock(self.slot(clean))

    # Generations, tables, journals

    def generation_key(self, generation: Generation) -> bytes:
        """G of the page."""
        purpose = label("OD1-generation") + self.id + u64(generation.number) + generation.secret
        return kb(32, self.epoch_key, purpose)

    @property
    def complete(self) -> Generation:
        """The complete generation."""
        return self.generations[-1]

    def start_generation(self, complete: bool = True, shared: int = 0) -> None:
        """A checkpoint of the present catalog, which keeps so many of the oldest tables."""
        number = self.complete.number + 1 if self.generations else 1
        self.generations.insert(0, Generation(number, EPOCH, False, self.random(32), 0, []))
        self.at_pending = (self.commit_number, dict(self.catalog))
        if complete:
            self.complete_generation(shared)

    def complete_generation(self, shared: int = 0) -> None:
        """Writes the pending generation's tables, of the state that it began with."""
        commit, catalog = self.at_pending
        pending, *older = self.generations
        tables = older[0].tables if older else []
        kept = tables[len(tables) - shared :]
        below: dict[bytes, bytes] = {}
        for table in reversed(kept):
            for key, value in self.table_entries[table.id].items():
                if value is None:
                    del below[key]
                else:
                    below[key] = value
        changes: dict[bytes, bytes | None] = {
            key: catalog.get(key)
            for key in catalog.keys() | below.keys() if catalog.get(key) != below.get(key)
        }
        table = self.table(sorted(changes.items()))
        self.generations = [
            replace(pending, complete=True, commit=commit, tables=[table, *kept])
        ]
        if self.journal and self.journal.generation < pending.number:
            self.write_journal()
            self.journal = None  # as at closing: everything is in tables
        self.remove_unneeded()

    def remove_unneeded(self) -> None:
        """Removes the tables and journals of generations that are gone."""
        needed = {table.id.hex() for table in self.complete.tables}
        oldest = self.complete.number
        needed |= {name.hex() for name, number in self.journals.items() if number >= oldest}
        for folder in ("catalog", "journal", "copy"):
            for path in (self.path / folder).iterdir():
                if path.name not in needed:
                    path.unlink()
                    del self.live[f"{folder}/{path.name}"]

    def table(
        self,
        entries: list[Change],
        block_entries: int = 3,
        edit: Callable[[int, bytes], bytes] = lambda kind, plaintext: plaintext,
    ) -> Table:
        """Writes a table, with two data blocks to an index block: small tables have all levels."""
        identifier, secret = self.file_id(), self.random(32)
        key = kb(32, self.epoch_key, label("OD1-table-key") + self.id + identifier + secret)
        self.table_entries[identifier] = dict(entries)
        data = b""

        def append(plaintext: bytes, kind: int, first_key: bytes) -> bytes:
            nonlocal data
            plaintext = edit(kind, plaintext)
            entry = u64(len(data)) + u32(len(plaintext)) + text(first_key)
            place = identifier + u64(len(data)) + u32(len(plaintext)) + bytes([kind, 0, 0, 0])
            data += self.message(key, label("OD1-block") + self.id + place, plaintext)
            return entry

        blocks: list[tuple[bytes, bytes]] = []
        for start in range(0, len(entries), block_entries):
            part = entries[start : start + block_entries]
            plaintext = u32(len(part))
            for name, value in part:
                plaintext += (b"\2" if value is None else b"\1") + text(name)
                plaintext += u32(len(value or b"")) + (value or b"")
            blocks.append((part[0][0], append(plaintext, 1, part[0][0])))
        index: list[bytes] = []
        for start in range(0, len(blocks), 2):
            pair = blocks[start : start + 2]
            plaintext = u32(len(pair)) + b"".join(entry for _, entry in pair)
            index.append(append(plaintext, 2, pair[0][0]))
        footer = u64(len(entries)) + u64(len(blocks)) + u32(len(index)) + u32(0) + b"".join(index)
        append(footer, 3, b"")
        self.write_twice("catalog", identifier, data, [(0, len(data))])
        return Table(identifier, len(data), len(edit(3, footer)), EPOCH, data[-16:], secret)

    def start_journal(self, generation: int | None = None) -> None:
        """A new current journal, whose predecessor ends where the present one does."""
        old = self.journal
        if old:
            self.write_journal()
        number = self.generations[0].number if generation is None else generation
        self.journal = JournalDraft(self.file_id(), number, self.random(16))
        self.journals[self.journal.id] = number
        end = old.end if old else replace(NO_END, commit=self.commit_number)
        header = u32(1) + u32(0) + self.journal.session + u64(number) + u64(TIME)
        header += (old.id if old else NO_ID) + u64(old.generation if old else 0)
        header += end.encode()
        self.journal.data = self.frame(0, header.ljust(128, b"\0"), NO_ID)
        self.journal.end = End(0, len(self.journal.data), self.journal.data[-16:], end.commit)
        self.journal.known = self.journal.end
        self.journal.live.append((0, len(self.journal.data)))

    def current(self) -> JournalDraft:
        """The current journal."""
        assert self.journal
        return self.journal

    def frame(
        self, number: int, payload: bytes, previous: bytes, journal: JournalDraft | None = None
    ) -> bytes:
        """A frame of the current journal."""
        journal = journal or self.current()
        generation = next(item for item in self.generations if item.number == journal.generation)
        key = kb(32, self.generation_key(generation), label("OD1-journal") + journal.id)
        place = journal.id + u64(number) + u32(len(payload)) + u32(0) + previous
        sealed = self.message(key, label("OD1-record") + self.id + place, payload)
        head = JOURNAL_MAGIC + place + bytes(8) + kb(16, b"", sealed)
        return head + kb(16, b"", head) + sealed

    def append(self, payload: bytes) -> None:
        """Appends the next record to the current journal, on the next multiple of 4096."""
        journal = self.current()
        journal.data += b"." * (-len(journal.data) % 4096)
        start = len(journal.data)
        number = journal.end.number + 1
        journal.data += self.frame(number, payload, journal.end.tag)
        journal.live.append((start, len(journal.data)))
        journal.end = End(number, len(journal.data), journal.data[-16:], journal.end.commit)

    def record(
        self, changes: list[Change], durable: int = 0,
        flags: int = LAST_OF_COMMIT | SEGMENTS_DURABLE,
    ) -> None:
        """Appends a record of the commit under way."""
        payload = u64(self.commit_number + 1) + u64(durable) + u64(TIME)
        payload += u32(flags) + u32(len(changes))
        for key, value in changes:
            payload += bytes([2 if value is None else 1]) + text(key)
            payload += b"" if value is None else u32(len(value)) + value
        self.append(payload)
        for key, value in changes:
            if value is None:
                self.catalog.pop(key, None)
            else:
                self.catalog[key] = value
        if flags & LAST_OF_COMMIT:
            self.commit_number += 1
            self.current().end = replace(self.current().end, commit=self.commit_number)

    def write_journal(self) -> None:
        """Writes the current journal's two files."""
        if self.journal:
            self.write_twice("journal", self.journal.id, self.journal.data, self.journal.live)

    # Catalog

    def state(self) -> list[Change]:
        """State and slab counter, which belong to each commit."""
        state: list[Change] = [(STATE, u64(self.next_file) + u32(1) + u32(0))]
        if self.live_bytes:
            state.append((SLAB + bytes(4), u64(self.live_bytes) + u64(len(self.slab))))
        return state

    def inode(
        self, kind: int, size: int = 0, links: int = 1, secret: bytes = bytes(32), tail: bytes = b""
    ) -> bytes:
        """An inode's value; the tail is the first extent or a link's target."""
        has_first = kind == FILE_KIND and tail != b""
        secret = secret if kind == FILE_KIND else b""
        return encode_inode(kind, size=size, links=links, secret=secret, tail=tail, flags=has_first)

    def entry(self, parent: int, name: bytes, kind: int, file_id: int) -> Change:
        """A directory entry."""
        return number_key(ENTRY, parent) + name, bytes([kind]) + bytes(7) + u64(file_id)

    def directory(self, parent: int, name: bytes) -> tuple[int, list[Change]]:
        """A new directory: its id and the changes that make it."""
        file_id, self.next_file = self.next_file, self.next_file + 1
        entry = self.entry(parent, name, DIRECTORY_KIND, file_id)
        return file_id, [entry, (number_key(INODE, file_id), self.inode(DIRECTORY_KIND))]

    def link(self, parent: int, name: bytes, target: bytes) -> list[Change]:
        """A new symbolic link."""
        file_id, self.next_file = self.next_file, self.next_file + 1
        entry = self.entry(parent, name, LINK_KIND, file_id)
        inode = self.inode(LINK_KIND, len(target), tail=target)
        return [entry, (number_key(INODE, file_id), inode)]

    def contents(
        self, names: list[tuple[int, bytes]], pieces: dict[int, bytes], size: int
    ) -> list[Change]:
        """A new file with entries of those names; each piece, by its first grain, is an extent."""
        file_id, self.next_file = self.next_file, self.next_file + 1
        secret = self.random(32)
        key = kb(32, self.epoch_key, label("OD1-file") + self.id + u64(file_id) + secret)
        file = File(key, size, [])
        changes = [self.entry(parent, name, FILE_KIND, file_id) for parent, name in names]
        first = b""
        for start, plaintext in sorted(pieces.items()):
            extent = self.store(file, start, plaintext)
            if first:
                key_of_extent = number_key(EXTENT, file_id) + start.to_bytes(8, "big")
                changes.append((key_of_extent, encode_extent(extent)))
            else:
                first = encode_first_extent(extent)
        inode = self.inode(FILE_KIND, size, len(names), secret, first)
        note = number_key(ATTRIBUTE, file_id) + b"user.note"
        return [*changes, (number_key(INODE, file_id), inode), (note, b"kept")]

    def store(self, file: File, start: int, plaintext: bytes) -> Extent:
        """Seals a run and appends it to the slab, after a gap."""
        self.slab += b"gap"
        count = (len(plaintext) + 16383) // 16384
        last_length = len(plaintext) - 16384 * (count - 1)
        session, offset = self.current().session, len(self.slab)
        extent = Extent(start, count, last_length, session, self.counter + 1, offset)
        self.counter += count
        self.slab += seal_run(file, extent, plaintext)
        self.runs.append((extent.offset, len(self.slab)))
        self.live_bytes += extent.stored_length()
        return extent


def encode_inode(
    kind: int,
    size: int = 0,
    links: int = 1,
    secret: bytes = b"",
    tail: bytes = b"",
    flags: int = 0,
    times: tuple[int, int, int] = (TIME, TIME, TIME),
    version: int = 0,
    epoch: int = EPOCH,
) -> bytes:
    """An inode; the times are of creation, of the contents and of attributes."""
    value = bytes([2, kind, flags]) + u16(0o640) + (times[0] % (1 << 64)).to_bytes(8, "little")
    value += difference(times[1], times[0]) + difference(times[2], times[0])
    return value + varint(links) + varint(size) + varint(version) + varint(epoch) + secret + tail


def encode_extent(extent: Extent, run_tag: bytes = b"") -> bytes:
    """An extent value."""
    value = u32(extent.slab) + u32(extent.count) + u64(extent.offset) + u32(extent.last_length)
    return value + u32(1 if run_tag else 0) + extent.session + u64(extent.counter) + run_tag


def encode_first_extent(extent: Extent) -> bytes:
    """An extent as an inode has it."""
    numbers = (extent.start, extent.slab, extent.count, extent.offset, extent.last_length)
    return b"".join(map(varint, numbers)) + extent.session + varint(extent.counter)
