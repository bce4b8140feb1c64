"""CONTAINER-FORMAT.md, "The outbox": messages that wait for their receivers, and the versions they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Iterator

from opendynamics import STRIDE, Extent, FileError

from .catalog import FILE_KIND, INODE, ROOT, Catalog, Inode, number_key, parse_extent
from .catalog import STATE as FILE_STATE
from .deliveries import MAXIMUM_MESSAGE, are_names, join
from .fields import ContainerError, Damage, Fields

if TYPE_CHECKING:
    from .state import Container

ENTRY, PINNED, PINNED_EXTENT, MESSAGE, STATE, PIN = b"\x70", b"\x71", b"\x72", b"\x73", b"\x74", b"\x75"
MAXIMUM_NUMBER = 1 << 62
MAXIMUM_PATH = 32000
MAXIMUM_RECEIVER = 255
LAYOUT = 2  # of the inodes of versions


@dataclass(frozen=True)
class Pinned:
    """A version of a file."""

    number: int
    attachment: int
    file_id: int
    path: bytes
    inode: Inode
    extents: tuple[Extent, ...]

    @property
    def name(self) -> str:
        return f"attachment {self.attachment} of message {self.number}"


def parse_pinned(catalog: Catalog, number: int, attachment: int) -> Pinned:
    """Reads an attachment with its extents."""
    key = number_key(PINNED, number) + attachment.to_bytes(4, "big")
    data = catalog.get(key)
    name = f"attachment {attachment} of message {number}"
    if data is None:
        raise Damage(f"{name}: missing")
    fields = Fields(data, name)
    file_id = fields.range(fields.u64(), ROOT + 1, MAXIMUM_NUMBER - 1, "file id")
    path = fields.take(fields.range(fields.u16(), 2, MAXIMUM_PATH, "length of the path"))
    if path[:1] != b"/" or not are_names(path[1:]):
        raise fields.fail("a path that cannot be")
    inode_data = fields.take(len(data) - fields.position)
    inode = Inode.parse(inode_data, name, newest_layout=LAYOUT)
    if inode.kind != FILE_KIND or inode_data[0] != LAYOUT:
        raise fields.fail("no file, or of another layout")
    state = catalog.groups.get(FILE_STATE, {}).get(b"", b"")
    if len(state) >= 8 and file_id >= int.from_bytes(state[:8], "little"):
        raise fields.fail("a file that was never there")
    extents = [inode.first] if inode.first else []
    others = catalog.groups.get(number_key(PINNED_EXTENT, number), {})
    for rest in sorted(rest for rest in others if rest[:4] == attachment.to_bytes(4, "big")):
        value = Fields(others[rest], f"extent of {name}")
        start = int.from_bytes(rest[4:], "big")
        if len(rest) != 12 or not extents or start <= extents[-1].start:
            raise value.fail("out of place")
        extents.append(parse_extent(value, start))
        value.end()
    return Pinned(number, attachment, file_id, path, inode, tuple(extents))


def pins(catalog: Catalog, number: int) -> Iterator[int]:
    """The attachments of a message."""
    for rest in sorted(catalog.groups.get(number_key(PINNED, number), {})):
        yield int.from_bytes(rest, "big")


def singles(extent: Extent) -> Iterator[Extent]:
    """Each segment of a run as a run of its own."""
    for k in range(extent.count):
        yield Extent(
            extent.start + k, 1, extent.plaintext_length(k), extent.session, extent.counter + k,
            extent.offset + STRIDE * k, extent.slab,
        )


def check_outbox(container: Container) -> list[Extent]:
    """Every message and version; returns the segments that versions alone keep."""
    catalog = container.state.catalog
    kinds = (ENTRY, PINNED, PINNED_EXTENT, MESSAGE)
    kept: dict[int, set[Extent]] = {}
    named: set[tuple[int, int, int]] = set()
    for number in sorted({number for kind in kinds for number in catalog.numbers(kind)}):
        check_message(container, number, kept, named)
    for file_id in catalog.numbers(PIN):
        for rest, value in catalog.groups[number_key(PIN, file_id)].items():
            if value:
                container.report("damage", f"file {file_id}: a pin with a value")
            pin = file_id, int.from_bytes(rest[:8], "big"), int.from_bytes(rest[8:], "big")
            if pin not in named:
                container.report("damage", f"file {file_id}: a pin without an attachment")
            named.discard(pin)
    for file_id, number, attachment in sorted(named):
        container.report("damage", f"attachment {attachment} of message {number}: its file {file_id} has no such pin")
    check_numbers(container)
    return [extent for file_id in sorted(kept) for extent in kept[file_id]]


def check_message(
    container: Container, number: int, kept: dict[int, set[Extent]], named: set[tuple[int, int, int]]
) -> None:
    """One message with its versions."""
    catalog = container.state.catalog
    files = byte_count = 0
    for attachment in pins(catalog, number):
        try:
            pinned = parse_pinned(catalog, number, attachment)
            if attachment != files:
                raise Damage(f"{pinned.name}: out of order")
            files, byte_count = files + 1, byte_count + pinned.inode.size
            named.add((pinned.file_id, number, attachment))
            check_version(container, pinned, kept.setdefault(pinned.file_id, set()))
        except (ContainerError, FileError) as error:
            container.report("damage", str(error))
    attached = {int.from_bytes(rest[:4], "big") for rest in catalog.groups.get(number_key(PINNED_EXTENT, number), {})}
    if attached - set(pins(catalog, number)):
        container.report("damage", f"message {number}: extents without an attachment")
    try:
        fields = Fields(b"", f"message {number}")
        fields.range(number, 1, MAXIMUM_NUMBER - 1, "number")
        message = join(catalog.groups.get(number_key(MESSAGE, number), {}), fields)
        fields.range(len(message), 0, MAXIMUM_MESSAGE, "length")
        data = catalog.get(number_key(ENTRY, number))
        if data is None:
            raise Damage(f"message {number}: no entry")
        fields = Fields(data, f"message {number}")
        if fields.u8() > 1:
            raise fields.fail("is in an unknown state")
        fields.zero(7)
        fields.time()
        fields.take(16)
        if (fields.u64(), fields.u64()) != (files, byte_count):
            raise fields.fail(f"has {files} files of {byte_count} bytes, and counts others")
        receiver = fields.take(len(data) - fields.position)
        fields.range(len(receiver), 1, MAXIMUM_RECEIVER, "length of the receiver")
        receiver.decode()
    except UnicodeDecodeError:
        container.report("damage", f"message {number}: a receiver that is not UTF-8")
    except ContainerError as error:
        container.report("damage", str(error))


def check_version(container: Container, pinned: Pinned, kept: set[Extent]) -> None:
    """Opens a version, and notes what the file as it is now does not have."""
    catalog = container.state.catalog
    file = container.version(pinned.file_id, pinned.inode, list(pinned.extents))
    for _ in file.pieces(container.stored):
        pass
    mine = {single for extent in pinned.extents for single in singles(extent)}
    data = catalog.get(number_key(INODE, pinned.file_id))
    if data is not None:
        inode = catalog.inode(pinned.file_id)
        if (inode.epoch, inode.secret) != (pinned.inode.epoch, pinned.inode.secret):
            raise Damage(f"{pinned.name}: another key than its file has")
        mine -= {single for extent in catalog.extents(pinned.file_id, inode) for single in singles(extent)}
    kept |= mine


def check_numbers(container: Container) -> None:
    """The number to be given out next."""
    catalog = container.state.catalog
    data = catalog.get(STATE)
    used = max(catalog.numbers(ENTRY), default=0)
    try:
        if data is None:
            if used:
                raise Damage("outbox: no state")
            return
        fields = Fields(data, "outbox: state")
        fields.take(16)
        if not used < fields.range(fields.u64(), 1, MAXIMUM_NUMBER - 1, "next number"):
            raise fields.fail("the next number is in use")
        fields.end()
    except ContainerError as error:
        container.report("damage", str(error))
