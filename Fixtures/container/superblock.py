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
from .files import read_regular

READER_VERSION = 3
OLDEST_VERSION = 3  # formats 1 and 2 were drafts
SLOT_SIZE = 4096
SLOT_OFFSETS = (0, 65536)
SUPERBLOCK_MAGIC = b"ODCONT1\n"
NO_ID = bytes(16)
NO_ERASE_SECRET = bytes(32)

KEY_SLOTS, KEY_SLOT_SIZE = 8, 160
PASSPHRASE, RAW_KEY, RECOVERY_CODE = 1, 2, 3
MAXIMUM_PASSES, MINIMUM_MEMORY, MAXIMUM_MEMORY = 16, 8, 1048576  # memory in KiB
MAXIMUM_COST = 16777216  # of all slots: passes × memory
MEMORY_WITHOUT_ASKING = 256 * 1024
RECOVERY_DIGITS = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
RECOVERY_LENGTH = 32

BODY_SIZE = 2560
LABELS_OFFSET, MAXIMUM_LABEL = 2048, 63
MAXIMUM_EPOCHS, MAXIMUM_GENERATIONS, MAXIMUM_TABLES = 16, 2, 5
EPOCH_SIZE, GENERATION_SIZE, TABLE_SIZE = 40, 472, 80
COMMIT_LIMIT = 1 << 62

ATTEMPTS, SECONDS_BETWEEN = 100, 0.01  # while a writer lives


@dataclass(frozen=True)
class Secret:
    """What the user has: bytes, and the kinds of key slot that they may open."""

    data: bytes
    kinds: tuple[int, ...]
    memory_kib: int = MEMORY_WITHOUT_ASKING

    def bytes_for(self, kind: int) -> bytes | None:
        """What to try on a key slot of that kind; nothing when the secret is none of this kind."""
        if kind not in self.kinds:
            return None
        if kind != RECOVERY_CODE:
            return self.data or None
        code = self.data.upper().translate(None, b"- \t")
        return code if len(code) == RECOVERY_LENGTH and not code.strip(RECOVERY_DIGITS) else None


class TwoOfOneSequence(Altered):
    """Two slots with one sequence that differ, as a reader may see them during an update."""


@dataclass(frozen=True)
class Slot:
    """One of the two slots, not trusted yet."""

    data: bytes

    @property
    def has_magic(self) -> bool:
        return self.data[:8] == SUPERBLOCK_MAGIC

    @property
    def is_torn(self) -> bool:
        return not self.has_magic or kb(32, b"", self.data[:4064]) != self.data[4064:]

    def _number(self, start: int, end: int) -> int:
        return int.from_bytes(self.data[start:end], "little")

    @property
    def version(self) -> int:
        return self._number(8, 10)

    @property
    def minimum_reader(self) -> int:
        return self._number(10, 12)

    @property
    def minimum_writer(self) -> int:
        return self._number(12, 14)

    @property
    def container_id(self) -> bytes:
        return self.data[16:32]

    @property
    def sequence(self) -> int:
        return self._number(32, 40)

    def check(self) -> None:
        """Refuses fields that can be checked without a key."""
        reader, writer = self.minimum_reader, self.minimum_writer
        if not OLDEST_VERSION <= reader <= writer <= self.version:
            versions = f"{self.version}, for readers of {reader} and writers of {writer}"
            raise Altered(f"superblock: version {versions}")
        for start, end in ((14, 16), (40, 64), (3945, 4032)):
            Fields(self.data[start:end], f"superblock from {start}", Altered).zero(end - start)
        if sum(slot.passes * slot.memory_kib for slot in self.key_slots()) > MAXIMUM_COST:
            raise Altered("superblock: the key slots cost more than they may together")

    def key_slots(self) -> list[KeySlot]:
        """The key slots that are not empty."""
        starts = range(64, 64 + KEY_SLOTS * KEY_SLOT_SIZE, KEY_SLOT_SIZE)
        parts = (self.data[start : start + KEY_SLOT_SIZE] for start in starts)
        slots = [KeySlot.parse(part, number) for number, part in enumerate(parts)]
        return [slot for slot in slots if slot]


def choose_slot(path: Path, writer_is_alive: Callable[[], bool]) -> tuple[Slot, Slot]:
    """The slot to use, and the other one. Waits for the update that a living writer may be at."""
    for _ in range(ATTEMPTS):
        try:
            return choose_slot_once(path)
        except (NotAContainer, TornSuperblock, TwoOfOneSequence):
            if not writer_is_alive():
                break
            time.sleep(SECONDS_BETWEEN)
    return choose_slot_once(path)


def choose_slot_once(path: Path) -> tuple[Slot, Slot]:
    """The slot to use, and the other one, by the page's rules in their order."""
    data = read_regular(path, SLOT_OFFSETS[1] + SLOT_SIZE)
    if data is None:
        raise NotAContainer("no superblock")
    slots = [Slot(data[offset : offset + SLOT_SIZE]) for offset in SLOT_OFFSETS]
    if not any(slot.has_magic for slot in slots):
        raise NotAContainer("neither slot has the magic")
    good = [slot for slot in slots if not slot.is_torn]
    if not good:
        raise TornSuperblock("both slots")
    for slot in good:
        if slot.minimum_reader > READER_VERSION:
            raise Unsupported(f"needs a reader of version {slot.minimum_reader}")
    for slot in good:
        slot.check()
    if len(good) == 1:
        return good[0], slots[1 - slots.index(good[0])]
    older, newer = sorted(good, key=lambda slot: slot.sequence)
    if older.sequence == newer.sequence and older.data != newer.data:
        raise TwoOfOneSequence("superblock: two slots with one sequence")
    if older.container_id != newer.container_id:
        raise Altered("superblock: slots of two containers")
    return newer, older


@dataclass(frozen=True)
class KeySlot:
    """A key slot whose fields are in range."""

    number: int
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
        fields.zero(3 if kind else KEY_SLOT_SIZE - 1)
        if not kind:
            return None
        passes, memory = fields.u32(), fields.u32()
        if kind == RAW_KEY:
            fields.range(passes, 0, 0, "passes")
            fields.range(memory, 0, 0, "memory")
        else:
            fields.range(passes, 1, MAXIMUM_PASSES, "passes")
            fields.range(memory, MINIMUM_MEMORY, MAXIMUM_MEMORY, "memory")
        fields.zero(4)
        salt, sealed, commitment = fields.take(16), fields.take(73), fields.take(32)
        fields.zero(23)
        return KeySlot(number, kind, passes, memory, salt, sealed, commitment, data[:32])

    def key(self, secret: bytes, container_id: bytes) -> bytes:
        """S, the slot's key, if the secret is the right one."""
        if self.kind == RAW_KEY:
            return kb(32, secret, label("OD1-raw-slot") + container_id + self.salt)
        return bindings.crypto_pwhash_alg(
            32, secret, self.salt, self.passes, self.memory_kib * 1024,
            bindings.crypto_pwhash_ALG_ARGON2ID13,
        )

    def open(self, key: bytes, container_id: bytes) -> bytes:
        """The root key."""
        wrap = kb(32, key, label("OD1-slot-wrap") + NO_ERASE_SECRET)
        ad = label("OD1-slot") + container_id + self.beginning + bytes(16)
        try:
            return open_message(wrap, ad, self.sealed)
        except NotAuthentic:
            raise Altered("key slot: fits, and does not open") from None


def unlock(slot: Slot, secret: Secret) -> bytes:
    """R, the root key, from the first key slot that the secret fits."""
    costly = 0
    for key_slot in slot.key_slots():
        data = secret.bytes_for(key_slot.kind)
        if data is None:
            continue
        if key_slot.memory_kib > secret.memory_kib:
            costly = max(costly, key_slot.memory_kib)
            continue
        key = key_slot.key(data, slot.container_id)
        committed = label("OD1-slot-commit") + slot.container_id + key_slot.beginning
        if hmac.compare_digest(kb(32, key, committed), key_slot.commitment):
            return key_slot.open(key, slot.container_id)
    if costly:
        raise CostlyKey(f"a key slot asks for {costly} KiB, and no other fits")
    raise WrongKey("no key slot fits")


def open_body(slot: Slot, root: bytes) -> Body:
    """The body; the slot is trusted from here on."""
    container_id = slot.container_id
    mac = kb(32, kb(32, root, label("OD1-super-mac") + container_id), slot.data[:4032])
    if not hmac.compare_digest(mac, slot.data[4032:4064]):
        raise Altered("superblock: MAC")
    try:
        data = open_message(
            kb(32, root, label("OD1-super-body") + container_id),
            label("OD1-super-ad") + container_id + u64(slot.sequence) + bytes(40),
            slot.data[1344:3945],
        )
    except NotAuthentic:
        raise Altered("superblock: body") from None
    body = Body.parse(data)
    used = {key_slot.number for key_slot in slot.key_slots()}
    if any(text and number not in used for number, text in enumerate(body.labels)):
        raise Altered("superblock body: a label of an empty key slot")
    return body


@dataclass(frozen=True)
class Table:
    """A table as a generation names it."""

    id: bytes
    size: int
    footer_length: int
    epoch: int
    footer_tag: bytes
    secret: bytes

    @staticmethod
    def parse(fields: Fields) -> Table:
        """Takes one table's entry off a generation."""
        identifier, size, footer_length = fields.take(16), fields.u64(), fields.u32()
        if identifier == NO_ID:
            raise fields.fail("a table without an id")
        return Table(
            identifier, size, footer_length, fields.u32(), fields.take(16), fields.take(32)
        )


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
    def parse(fields: Fields) -> Generation:
        """Takes one generation off the body."""
        number, epoch = fields.u64(), fields.u32()
        fields.range(number, 1, (1 << 64) - 1, "number of a generation")
        state = fields.range(fields.u16(), 1, 2, "state of a generation")
        count = fields.range(fields.u16(), 0, MAXIMUM_TABLES, "number of tables")
        secret, commit = fields.take(32), fields.u64()
        fields.range(commit, 0, COMMIT_LIMIT - 1, "commit of a generation")
        if state == 2:
            fields.range(count, 0, 0, "number of a pending generation's tables")
            fields.range(commit, 0, 0, "commit of a pending generation")
        fields.zero(16)
        tables = [Table.parse(fields) for _ in range(count)]
        fields.zero(TABLE_SIZE * (MAXIMUM_TABLES - count))
        if len({table.id for table in tables}) != count:
            raise fields.fail(f"generation {number} has a table twice")
        return Generation(number, epoch, state == 1, secret, commit, tables)


@dataclass(frozen=True)
class End:
    """A known end: a record, where its frame ends, its tag, and the last commit up to there."""

    number: int
    offset: int
    tag: bytes
    commit: int

    @staticmethod
    def parse(fields: Fields) -> End:
        """Takes the 40 bytes."""
        return End(fields.u64(), fields.u64(), fields.take(16), fields.u64())

    def encode(self) -> bytes:
        """The 40 bytes."""
        return u64(self.number) + u64(self.offset) + self.tag + u64(self.commit)


NO_END = End(0, 0, bytes(16), 0)


@dataclass(frozen=True)
class Link:
    """How a journal is found: from the superblock or its successor. The end is exact or a bound."""

    id: bytes
    generation: int
    end: End
    is_exact: bool = True


@dataclass(frozen=True)
class Body:
    """The superblock's body."""

    created: int
    epochs: dict[int, bytes]
    complete: Generation
    pending: Generation | None
    clean: bool
    journal: Link | None
    labels: list[str]  # of the eight key slots

    @property
    def generations(self) -> list[Generation]:
        """Newest first."""
        return [self.pending, self.complete] if self.pending else [self.complete]

    @staticmethod
    def parse(data: bytes) -> Body:
        """Reads the 2560 bytes."""
        fields = Fields(data, "superblock body", Altered)
        created, current_epoch = fields.time(), fields.u32()
        epochs = Body.parse_epochs(fields)
        count = fields.range(fields.u32(), 1, MAXIMUM_GENERATIONS, "number of generations")
        clean = fields.range(fields.u32(), 1, 2, "state") == 2
        generations = [Generation.parse(fields) for _ in range(count)]
        fields.zero(GENERATION_SIZE * (MAXIMUM_GENERATIONS - count))
        journal_id, journal_generation, end = fields.take(16), fields.u64(), End.parse(fields)
        fields.zero(LABELS_OFFSET - fields.position)
        labels = [Body.parse_label(fields) for _ in range(KEY_SLOTS)]

        if [generation.complete for generation in generations] not in ([True], [False, True]):
            raise fields.fail("not one complete generation, behind one pending at most")
        complete, pending = generations[-1], generations[0] if count > 1 else None
        if pending and pending.number <= complete.number:
            raise fields.fail("generations out of order")
        named = [current_epoch, *(generation.epoch for generation in generations)]
        named += [table.epoch for table in complete.tables]
        if unknown := set(named) - epochs.keys():
            raise fields.fail(f"no key for epoch {min(unknown)}")
        if journal_id == NO_ID:
            if not clean or journal_generation or end != NO_END:
                raise fields.fail("no journal, and an end, a generation or the state of one")
            return Body(created, epochs, complete, pending, clean, None, labels)
        if journal_generation not in [generation.number for generation in generations]:
            raise fields.fail(f"a journal of generation {journal_generation}")
        fields.range(end.commit, complete.commit, COMMIT_LIMIT - 1, "commit of the known end")
        journal = Link(journal_id, journal_generation, end, is_exact=clean)
        return Body(created, epochs, complete, pending, clean, journal, labels)

    @staticmethod
    def parse_label(fields: Fields) -> str:
        """Takes the label of a key slot."""
        count = fields.range(fields.u8(), 0, MAXIMUM_LABEL, "bytes of a label")
        try:
            text = fields.take(count).decode()
        except UnicodeDecodeError:
            raise fields.fail("a label that is no UTF-8") from None
        fields.zero(MAXIMUM_LABEL - count)
        return text

    @staticmethod
    def parse_epochs(fields: Fields) -> dict[int, bytes]:
        """Takes the epochs' keys."""
        count = fields.range(fields.u32(), 1, MAXIMUM_EPOCHS, "number of epochs")
        epochs: dict[int, bytes] = {}
        for _ in range(count):
            number = fields.range(fields.u32(), 1, (1 << 32) - 1, "number of an epoch")
            fields.zero(4)
            if number in epochs:
                raise fields.fail(f"epoch {number} twice")
            epochs[number] = fields.take(32)
        fields.zero(EPOCH_SIZE * (MAXIMUM_EPOCHS - count))
        return epochs
