"""CONTAINER-FORMAT.md, "Superblock": from two slots and a secret to the opened body."""

from __future__ import annotations

import hmac
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from nacl import bindings

from opendynamics import NotAuthentic, kb, label, open_message, u64

from .fields import Altered, CostlyKey, Fields, NotAContainer, TornSuperblock, Unsupported, WrongKey

READER_VERSION = 2
NO_ID = bytes(16)
SLOT_SIZE = 4096
SLOT_OFFSETS = (0, 65536)
SUPERBLOCK_MAGIC = b"ODCONT1\n"
KEY_SLOTS = 8
NO_SECRET = bytes(32)
MAXIMUM_TABLES = {1: 8, 2: 5}  # of a generation, in each format
TABLE_SIZES = {1: 48, 2: 80}
GENERATION_HEAD = 72
GENERATIONS = 3
BODY_SIZE = 2560
PASSPHRASE, RAW_KEY, RECOVERY_CODE = 1, 2, 3
DEFAULT_MEMORY_KIB = 256 * 1024
RECOVERY_DIGITS = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
RECOVERY_LENGTH = 32
ATTEMPTS, SECONDS_BETWEEN = 100, 0.01  # while a writer lives


@dataclass(frozen=True)
class Secret:
    """What the user has: bytes, and the kinds of key slot that they may open."""

    data: bytes
    kinds: tuple[int, ...]
    memory_kib: int = DEFAULT_MEMORY_KIB

    def bytes_for(self, kind: int) -> bytes | None:
        """What to try on a key slot of that kind; nothing when the secret is none of this kind."""
        if kind not in self.kinds:
            return None
        if kind != RECOVERY_CODE:
            return self.data or None
        code = self.data.upper().translate(None, b"- \t")
        return code if len(code) == RECOVERY_LENGTH and not code.strip(RECOVERY_DIGITS) else None


@dataclass(frozen=True)
class Slot:
    """One copy of the superblock's slot, not trusted yet."""

    data: bytes

    @property
    def has_magic(self) -> bool:
        return self.data[:8] == SUPERBLOCK_MAGIC

    @property
    def is_torn(self) -> bool:
        return not self.has_magic or kb(32, b"", self.data[:4064]) != self.data[4064:]

    @property
    def version(self) -> int:
        return int.from_bytes(self.data[8:10], "little")

    @property
    def minimum_reader(self) -> int:
        return int.from_bytes(self.data[10:12], "little")

    @property
    def container_id(self) -> bytes:
        return self.data[16:32]

    @property
    def sequence(self) -> int:
        return int.from_bytes(self.data[32:40], "little")


def choose_slot(path: Path, writer_is_alive: Callable[[], bool]) -> tuple[Slot, Slot]:
    """The slot to use, and the other one. While a writer lives, an update may be under way, and is waited for."""
    for _ in range(ATTEMPTS):
        try:
            return choose_slot_once(path)
        except (TornSuperblock, Altered):
            if not writer_is_alive():
                break
            time.sleep(SECONDS_BETWEEN)
    return choose_slot_once(path)


def choose_slot_once(path: Path) -> tuple[Slot, Slot]:
    """The slot to use, and the other one."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotAContainer("no superblock") from None
    first, second = (Slot(data[offset : offset + SLOT_SIZE]) for offset in SLOT_OFFSETS)
    if not first.has_magic and not second.has_magic:
        raise NotAContainer("neither slot has the magic")
    if first.is_torn and second.is_torn:
        raise TornSuperblock("both slots")
    if first.is_torn or second.is_torn:
        chosen, other = (second, first) if first.is_torn else (first, second)
    else:
        if first.sequence == second.sequence and first.data != second.data:
            raise Altered("superblock: two slots with one sequence")
        chosen, other = (second, first) if second.sequence > first.sequence else (first, second)
    if chosen.minimum_reader > READER_VERSION:
        raise Unsupported(f"needs a reader of version {chosen.minimum_reader}")
    return chosen, other


@dataclass(frozen=True)
class KeySlot:
    """A key slot whose fields are in range."""

    kind: int
    passes: int
    memory_kib: int
    salt: bytes
    sealed: bytes
    commitment: bytes
    beginning: bytes

    @staticmethod
    def parse(data: bytes, number: int) -> KeySlot | None:
        """The slot, or nothing when it is empty."""
        fields = Fields(data, f"key slot {number}", Altered)
        kind = fields.range(fields.u8(), 0, RECOVERY_CODE, "kind")
        fields.zero(3 if kind else 159)
        if not kind:
            return None
        passes, memory = fields.u32(), fields.u32()
        if kind == RAW_KEY:
            fields.range(passes, 0, 0, "passes")
            fields.range(memory, 0, 0, "memory")
        else:
            fields.range(passes, 1, 16, "passes")
            fields.range(memory, 8, 1048576, "memory")
        fields.zero(4)
        salt, sealed, commitment = fields.take(16), fields.take(73), fields.take(32)
        fields.zero(23)
        return KeySlot(kind, passes, memory, salt, sealed, commitment, data[:32])

    def key(self, secret: bytes, memory_kib: int, container_id: bytes) -> bytes:
        """S, the slot's key, if the secret is the right one."""
        if self.kind == RAW_KEY:
            return kb(32, secret, label("OD1-raw-slot") + container_id + self.salt)
        if self.memory_kib > memory_kib:
            raise CostlyKey(f"a key slot asks for {self.memory_kib} KiB")
        return bindings.crypto_pwhash_alg(
            32, secret, self.salt, self.passes, self.memory_kib * 1024, bindings.crypto_pwhash_ALG_ARGON2ID13
        )


def unlock(slot: Slot, secret: Secret) -> bytes:
    """R, the root key, from the first key slot that the secret fits."""
    container_id = slot.container_id
    parts = (slot.data[64 + 160 * n : 224 + 160 * n] for n in range(KEY_SLOTS))
    for key_slot in [KeySlot.parse(part, number) for number, part in enumerate(parts)]:
        data = None if key_slot is None else secret.bytes_for(key_slot.kind)
        if key_slot is None or data is None:
            continue
        key = key_slot.key(data, secret.memory_kib, container_id)
        commitment = kb(32, key, label("OD1-slot-commit") + container_id + key_slot.beginning)
        if not hmac.compare_digest(commitment, key_slot.commitment):
            continue
        try:
            return open_message(key, label("OD1-slot") + container_id + key_slot.beginning + bytes(16), key_slot.sealed)
        except NotAuthentic:
            raise Altered("key slot: fits, and does not open") from None
    raise WrongKey("no key slot fits")


def open_body(slot: Slot, root: bytes) -> Body:
    """The body; the slot is trusted from here on."""
    if slot.minimum_reader > READER_VERSION:
        raise Unsupported(f"needs a reader of version {slot.minimum_reader}")
    container_id = slot.container_id
    mac = kb(32, kb(32, root, label("OD1-super-mac") + container_id), slot.data[:4032])
    if not hmac.compare_digest(mac, slot.data[4032:4064]):
        raise Altered("superblock: MAC")
    if not 1 <= slot.minimum_reader <= slot.version:
        raise Altered(f"superblock: version {slot.version} for readers of {slot.minimum_reader}")
    for start, end in ((12, 16), (40, 64), (3945, 4032)):
        Fields(slot.data[start:end], f"superblock from {start}", Altered).zero(end - start)
    try:
        data = open_message(
            kb(32, root, label("OD1-super-body") + container_id),
            label("OD1-super-ad") + container_id + u64(slot.sequence) + bytes(40),
            slot.data[1344:3945],
        )
    except NotAuthentic:
        raise Altered("superblock: body") from None
    # What a reader has to know at least is what the rest is written in.
    return Body.parse(data, slot.minimum_reader)


@dataclass(frozen=True)
class Table:
    """A table as a generation names it."""

    id: bytes
    size: int
    footer_length: int
    footer_authenticator: bytes
    epoch: int = 0
    secret: bytes = NO_SECRET

    @staticmethod
    def parse(fields: Fields, container_format: int) -> Table:
        """Takes one table's entry off a generation."""
        identifier, size, footer_length = fields.take(16), fields.u64(), fields.u32()
        if container_format == 1:
            fields.zero(4)
            return Table(identifier, size, footer_length, fields.take(16))
        epoch, authenticator, secret = fields.u32(), fields.take(16), fields.take(32)
        if secret == NO_SECRET and epoch:
            raise fields.fail(f"table {identifier.hex()}: an epoch and no secret")
        return Table(identifier, size, footer_length, authenticator, epoch, secret)

    @property
    def is_of_format_1(self) -> bool:
        """Whether its key comes from the generation that names it."""
        return self.secret == NO_SECRET


@dataclass(frozen=True)
class Generation:
    """A set of tables, newest first, and the secret that the journals' keys come from."""

    number: int
    epoch: int
    complete: bool
    secret: bytes
    commit: int
    tables: list[Table]

    @staticmethod
    def parse(fields: Fields, container_format: int) -> Generation:
        """Takes one generation off the body."""
        number, epoch = fields.u64(), fields.u32()
        state = fields.range(fields.u16(), 1, 2, "state of a generation")
        count = fields.range(fields.u16(), 0, MAXIMUM_TABLES[container_format], "number of tables")
        secret, commit = fields.take(32), fields.u64()
        if state == 2:
            fields.range(count, 0, 0, "number of a pending generation's tables")
            fields.range(commit, 0, 0, "commit of a pending generation")
        fields.zero(16)
        tables = [Table.parse(fields, container_format) for _ in range(count)]
        fields.zero(TABLE_SIZES[container_format] * (MAXIMUM_TABLES[container_format] - count))
        if len({table.id for table in tables}) != count:
            raise fields.fail(f"generation {number} has a table twice")
        return Generation(number, epoch, state == 1, secret, commit, tables)


@dataclass(frozen=True)
class End:
    """Where a journal's accepted records end."""

    number: int
    offset: int
    authenticator: bytes
    commit: int


@dataclass(frozen=True)
class Link:
    """How a journal is found: from the superblock or from its successor. The end is known unless it is open."""

    id: bytes
    generation: int
    end: End | None


@dataclass(frozen=True)
class Body:
    """The superblock's body."""

    format: int
    created: int
    epochs: dict[int, bytes]
    generations: list[Generation]
    clean: bool
    journal: Link | None

    @staticmethod
    def parse(data: bytes, container_format: int) -> Body:
        """Reads the 2560 bytes."""
        fields = Fields(data, "superblock body", Altered)
        created, current_epoch = fields.time(), fields.u32()
        count = fields.range(fields.u32(), 1, 16, "number of epochs")
        epochs: dict[int, bytes] = {}
        for _ in range(count):
            number = fields.u32()
            fields.zero(4)
            if number in epochs:
                raise fields.fail(f"epoch {number} twice")
            epochs[number] = fields.take(32)
        fields.zero(40 * (16 - count))
        if current_epoch not in epochs:
            raise fields.fail(f"no key for the current epoch {current_epoch}")
        count = fields.range(fields.u32(), 1, GENERATIONS, "number of generations")
        clean = fields.range(fields.u32(), 1, 2, "state") == 2
        generations = [Generation.parse(fields, container_format) for _ in range(count)]
        size = GENERATION_HEAD + TABLE_SIZES[container_format] * MAXIMUM_TABLES[container_format]
        fields.zero(size * (GENERATIONS - count))
        numbers = [generation.number for generation in generations]
        if numbers != sorted(set(numbers), reverse=True):
            raise fields.fail("generations out of order")
        for generation in generations:
            if generation.epoch not in epochs:
                raise fields.fail(f"no key for epoch {generation.epoch}")
            for table in generation.tables:
                if not table.is_of_format_1 and table.epoch not in epochs:
                    raise fields.fail(f"no key for epoch {table.epoch} of table {table.id.hex()}")
        if not any(generation.complete for generation in generations):
            raise fields.fail("no complete generation")
        if not all(generation.complete for generation in generations[1:]):
            raise fields.fail("a pending generation that is not the newest")
        journal_id, journal_generation = fields.take(16), fields.u64()
        end = End(fields.u64(), fields.u64(), fields.take(16), fields.u64())
        fields.zero(BODY_SIZE - fields.position)
        fields.end()
        has_journal = journal_id != NO_ID
        if not (clean and has_journal) and end != End(0, 0, NO_ID, 0):
            raise fields.fail("says where a journal ends, and is open or has none")
        if journal_generation not in (numbers if has_journal else [0]):
            raise fields.fail(f"a journal of generation {journal_generation}")
        journal = Link(journal_id, journal_generation, end if clean else None) if has_journal else None
        return Body(container_format, created, epochs, generations, clean, journal)
