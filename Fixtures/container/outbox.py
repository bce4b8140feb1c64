"""CONTAINER-MESSAGES.md, "The outbox": messages that wait, and the versions of files they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Iterator

from opendynamics import Extent, FileError

from .catalog import FILE_KIND, ID_LIMIT, ROOT, Catalog, Inode, extents_of, number_in, number_key
from .deliveries import MAXIMUM_MESSAGE, are_names, incarnation_in, join
from .fields import ContainerError, Fields, Inconsistent

if TYPE_CHECKING:
    from .state import Container

ENTRY, PINNED, PINNED_EXTENT, MESSAGE = b"\x70", b"\x71", b"\x72", b"\x73"
OUTBOX_STATE, PIN, RECEIVER = b"\x74", b"\x75", b"\x76"
MAXIMUM_PATH = 32000
MAXIMUM_RECEIVER = 255


@dataclass(frozen=True)
class Version:
    """A version of a file."""

    number: int
    attachment: int
    file_id: int
    inode: Inode
    extents: list[Extent]

    @property
    def name(self) -> str:
        return name_of(self.number, self.attachment)


def name_of(number: int, attachment: int) -> str:
    """An attachment in reports."""
    return f"attachment {attachment} of message {number}"


def parse_version(catalog: Catalog, number: int, attachment: int) -> Version:
    """Reads an attachment with its extents."""
    index = attachment.to_bytes(4, "big")
    name = name_of(number, attachment)
    data = catalog.get(number_key(PINNED, number) + index)
    if data is None:
        raise Inconsistent(f"{name}: missing")
    fields = Fields(data, name)
    file_id = fields.range(fields.u64(), ROOT + 1, ID_LIMIT - 1, "file id")
    path = fields.take(fields.range(fields.u16(), 2, MAXIMUM_PATH, "length of the path"))
    if path[:1] != b"/" or not are_names(path[1:]):
        raise fields.fail("a path that cannot be")
    inode = Inode.parse(fields.rest(), name)
    if inode.kind != FILE_KIND:
        raise fields.fail("no file")
    others = catalog.group(number_key(PINNED_EXTENT, number)).items()
    mine = [(rest[4:], value) for rest, value in others if rest[:4] == index]
    return Version(number, attachment, file_id, inode, extents_of(name, inode, mine))


def versions_of(catalog: Catalog, file_id: int) -> Iterator[Version]:
    """The versions of a file that are not malformed."""
    for key, value in catalog.items(PINNED):
        if len(key) == 13 and value[:8] == file_id.to_bytes(8, "little"):
            try:
                yield parse_version(catalog, number_in(key), int.from_bytes(key[9:], "big"))
            except ContainerError:
                continue


def check_outbox(container: Container) -> list[Version]:
    """Checks every message and opens every version; returns the versions."""
    catalog = container.state.catalog
    found: list[Version] = []
    kinds = (ENTRY, PINNED, PINNED_EXTENT, MESSAGE)
    numbers = {number for kind in kinds for number in catalog.numbers(kind)}
    for number in sorted(numbers):
        found += check_message(container, number)
    check_pins(container)
    for key, value in catalog.items(RECEIVER):
        try:
            check_receiver(catalog, key, value)
        except ContainerError as error:
            container.report_cause(error)
    try:
        check_numbers(catalog, max(numbers, default=0), found)
    except ContainerError as error:
        container.report_cause(error)
    return found


def check_message(container: Container, number: int) -> list[Version]:
    """Checks one message; returns its versions."""
    catalog = container.state.catalog
    found: list[Version] = []
    attachments = [
        int.from_bytes(rest, "big")
        for rest in sorted(catalog.groups.get(number_key(PINNED, number), {})) if len(rest) == 4
    ]
    for attachment in attachments:
        try:
            version = parse_version(catalog, number, attachment)
            found.append(version)
            file = container.version(version.file_id, version.inode, version.extents)
            for _ in file.pieces(container.stored):
                pass
        except ContainerError as error:
            container.report_cause(error)
        except FileError as error:
            container.report_contents(name_of(number, attachment), error)
    try:
        name = f"message {number}"
        extents = catalog.group(number_key(PINNED_EXTENT, number))
        if {int.from_bytes(rest[:4], "big") for rest in extents} - set(attachments):
            if not catalog.lacks(number_key(PINNED, number)):
                raise Inconsistent(f"{name}: extents without an attachment")
        check_parts(catalog, number, name)
        check_entry(catalog, number, name, found, attachments)
    except ContainerError as error:
        container.report_cause(error)
    return found


def check_parts(catalog: Catalog, number: int, name: str) -> None:
    """The message's parts."""
    fields = Fields(b"", name)
    parts = catalog.group(number_key(MESSAGE, number))
    fields.range(len(join(parts, fields)), 0, MAXIMUM_MESSAGE, "length")


def check_entry(
    catalog: Catalog, number: int, name: str, versions: list[Version], attachments: list[int]
) -> None:
    """The entry of a message, and what it counts."""
    data = catalog.get(number_key(ENTRY, number))
    if data is None:
        raise Inconsistent(f"{name}: no entry")
    fields = Fields(data, name)
    fields.range(number, 1, ID_LIMIT - 1, "number")
    fields.range(fields.u8(), 0, 1, "state")
    fields.zero(7)
    fields.time()
    fields.take(16)
    files, byte_count, stored_byte_count = fields.u64(), fields.u64(), fields.u64()
    receiver = fields.rest()
    fields.range(len(receiver), 1, MAXIMUM_RECEIVER, "length of the receiver")
    try:
        receiver.decode()
    except UnicodeDecodeError:
        raise fields.fail("a receiver that is not UTF-8") from None
    if catalog.get(RECEIVER + receiver) is None and not catalog.lacks(RECEIVER):
        raise fields.fail("nothing is known of its receiver")
    if catalog.lacks(number_key(PINNED, number)):
        return
    if attachments != list(range(files)):
        raise fields.fail(f"has attachments {attachments}, and counts {files}")
    total = sum(version.inode.size for version in versions)
    if len(versions) == files and byte_count != total:
        raise fields.fail(f"has files of {total} bytes, and counts {byte_count}")
    stored = sum(extent.stored_length() for version in versions for extent in version.extents)
    if len(versions) == files and stored_byte_count != stored:
        raise fields.fail(f"has {stored} stored bytes, and counts {stored_byte_count}")


def check_receiver(catalog: Catalog, key: bytes, value: bytes) -> None:
    """What is known of a receiver."""
    fields = Fields(value, "receiver")
    fields.range(len(key) - 1, 1, MAXIMUM_RECEIVER, "length of the receiver")
    try:
        key[1:].decode()
    except UnicodeDecodeError:
        raise fields.fail("a receiver that is not UTF-8") from None
    incarnation_in(fields)
    first = fields.range(fields.u64(), 1, ID_LIMIT - 1, "first number")
    delivered = fields.range(fields.u64(), 0, ID_LIMIT - 1, "delivered number")
    fields.end()
    state = catalog.get(OUTBOX_STATE)
    if state is None and catalog.lacks(OUTBOX_STATE):
        return
    following = 1 if state is None else int.from_bytes(state[:8], "little")
    if max(first - 1, delivered) >= following:
        raise fields.fail("a number that was never given")


def check_pins(container: Container) -> None:
    """Each attachment has one pin with its file, and the other way round."""
    catalog = container.state.catalog
    if catalog.lacks(PINNED, PIN):
        return
    pins: set[tuple[int, int, int]] = set()
    for key, value in catalog.items(PIN):
        if value:
            container.report_error(Inconsistent(f"file {number_in(key)}: a pin with a value"))
        number, attachment = int.from_bytes(key[9:17], "big"), int.from_bytes(key[17:], "big")
        pins.add((number_in(key), number, attachment))
    attachments = {
        (int.from_bytes(value[:8], "little"), number_in(key), int.from_bytes(key[9:], "big"))
        for key, value in catalog.items(PINNED)
    }
    for file_id, number, attachment in sorted(pins ^ attachments):
        has = "a pin without" if (file_id, number, attachment) in pins else "no pin for"
        text = f"file {file_id}: {has} {name_of(number, attachment)}"
        container.report_error(Inconsistent(text))


def check_numbers(catalog: Catalog, used: int, versions: list[Version]) -> None:
    """The numbers to be given out next."""
    data = catalog.get(OUTBOX_STATE)
    if data is not None:
        fields = Fields(data, "outbox: state")
        following = fields.range(fields.u64(), 1, ID_LIMIT - 1, "next number")
        fields.end()
        if used >= following:
            raise fields.fail("the next number is in use")
    elif used:
        raise Inconsistent("outbox: no state")
    next_file = catalog.next_numbers().file_id
    for version in versions:
        if version.file_id >= next_file:
            raise Inconsistent(f"{version.name}: a file that was never there")
