"""CONTAINER-MESSAGES.md: messages that arrived or wait for a handler, and staged files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable

from .catalog import (
    DIRECTORY_KIND, ID_LIMIT, INODE, Catalog, is_name, number_in, number_key,
)
from .fields import ContainerError, Fields, Inconsistent

if TYPE_CHECKING:
    from .state import Container

SENDER, DELIVERY, BY_REQUEST = b"\x60", b"\x61", b"\x62"
STAGING, QUEUED, CONTENTS = b"\x77", b"\x78", b"\x79"
REMEMBERED = 256  # numbers below a floor
CHUNK = 32768
MAXIMUM_MESSAGE = 2 << 20
MAXIMUM_FILES = (1 << 32) - 1
MAXIMUM_BYTES = (1 << 62) - 1  # of a message's files together
MAXIMUM_NAMES = 128  # of a path


def is_text(data: bytes) -> bool:
    """Whether these bytes are UTF-8 without control characters."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return not any(byte < 32 or byte == 127 for byte in data)


def are_names(path: bytes) -> bool:
    """Whether these are possible names with slashes between them, not too many."""
    names = path.split(b"/")
    return len(names) <= MAXIMUM_NAMES and all(is_name(name) for name in names)


def is_sender(name: bytes) -> bool:
    """Whether a sender can have that application id."""
    return b"/" not in name and are_names(name) and is_text(name)


def is_directory(path: bytes, sender: bytes) -> bool:
    """Whether a path can be that of a message's directory in the inbox."""
    beginning = b"/Inbox/" + sender + b"/"
    name = path[len(beginning) :]
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return path.startswith(beginning) and b"/" not in name and are_names(name)


def check_deliveries(container: Container) -> None:
    """Checks everything that is kept of arrivals."""
    catalog = container.state.catalog
    checks: list[tuple[bytes, Callable[[Catalog, bytes, bytes], None]]] = [
        (SENDER, check_sender), (DELIVERY, check_delivery), (BY_REQUEST, check_request),
        (STAGING, check_staging), (QUEUED, check_queued), (CONTENTS, check_contents),
    ]
    for kind, check in checks:
        for key, value in catalog.items(kind):
            try:
                check(catalog, key, value)
            except ContainerError as error:
                container.report_cause(error)


def incarnation_in(fields: Fields) -> tuple[int, bytes]:
    """Generation and draw of an incarnation."""
    generation = fields.range(fields.u64(), 1, ID_LIMIT - 1, "generation")
    return generation, fields.take(16)


@dataclass(frozen=True)
class Sender:
    """What is known of a sender."""

    incarnation: tuple[int, bytes]
    floor: int
    arrived: int
    count: int


def sender_in(value: bytes) -> Sender:
    """The value of a sender."""
    fields = Fields(value, "sender")
    incarnation = incarnation_in(fields)
    floor = fields.range(fields.u64(), 1, ID_LIMIT - 1, "floor")
    arrived = fields.range(fields.u64(), 0, ID_LIMIT - 1, "arrived messages")
    fields.range(fields.u64(), max(1, floor - REMEMBERED), ID_LIMIT - 1, "forgotten number")
    count = fields.u64()
    fields.time()
    fields.end()
    return Sender(incarnation, floor, arrived, count)


def check_sender(catalog: Catalog, key: bytes, value: bytes) -> None:
    """A sender, and how many deliveries it has."""
    if not is_sender(key[1:]):
        raise Inconsistent("sender: a sender that cannot be")
    sender = sender_in(value)
    if catalog.lacks(DELIVERY):
        return
    newest = sender.incarnation[0].to_bytes(8, "little") + sender.incarnation[1]
    mine = [
        value[:24] == newest
        for other, value in catalog.items(DELIVERY) if other[1:-25] == key[1:] and other[-25] == 0
    ]
    if sender.count != len(mine):
        raise Inconsistent(f"sender: counts {sender.count} deliveries of {len(mine)}")
    if sum(mine) > sender.arrived:
        raise Inconsistent(f"sender: more deliveries than the {sender.arrived} that have arrived")


def check_delivery(catalog: Catalog, key: bytes, value: bytes) -> None:
    """A delivery."""
    number = int.from_bytes(key[-24:-16], "big")
    fields = Fields(value, f"delivery {number}")
    if key[-25] != 0 or not is_sender(key[1:-25]):
        raise fields.fail("a sender that cannot be")
    fields.range(number, 1, ID_LIMIT - 1, "number")
    incarnation = incarnation_in(fields)
    fields.time()
    fields.end()
    known = catalog.get(SENDER + key[1:-25])
    if known is None:
        if not catalog.lacks(SENDER):
            raise fields.fail("of a sender that is not known")
        return
    sender = sender_in(known)
    if incarnation == sender.incarnation and number + REMEMBERED < sender.floor:
        raise fields.fail("too far below its floor")
    if incarnation[0] > sender.incarnation[0]:
        raise fields.fail("of a generation above its sender's")


def check_request(catalog: Catalog, key: bytes, value: bytes) -> None:
    """A delivery by request."""
    fields = Fields(value, "delivery by request")
    parts = Fields(key[1:], "key of a delivery by request")
    sender = parts.take(parts.u8())
    request = parts.rest()
    if not is_sender(sender):
        raise parts.fail("a sender that cannot be")
    parts.range(len(request), 1, 255, "length of the request id")
    try:
        request.decode()
    except UnicodeDecodeError:
        raise parts.fail("a request id that is not UTF-8") from None
    fields.time()
    fields.u64()
    fields.u64()
    if not is_directory(fields.rest(), sender):
        raise fields.fail("no directory of its sender")


def check_staging(catalog: Catalog, key: bytes, value: bytes) -> None:
    """A message on its way."""
    directory = number_in(key)
    fields = Fields(value, f"staging in directory {directory}")
    fields.take(16)
    fields.range(fields.u64(), 1, ID_LIMIT - 1, "number")
    fields.range(fields.u64(), 1, MAXIMUM_FILES, "number of files")
    fields.range(fields.u64(), 0, MAXIMUM_BYTES, "bytes of the files")
    fields.end()
    if catalog.inode(directory).kind != DIRECTORY_KIND:
        raise fields.fail("no directory")


def check_queued(catalog: Catalog, key: bytes, value: bytes) -> None:
    """A message of the queue, with its contents."""
    arrival = number_in(key)
    fields = Fields(value, f"queued message {arrival}")
    fields.range(arrival, 1, ID_LIMIT - 1, "arrival")
    if catalog.get(number_key(INODE, arrival)) is not None:
        raise fields.fail("its number is a file's")
    fields.time()
    fields.take(16)
    message_length = fields.range(fields.u32(), 0, MAXIMUM_MESSAGE, "length")
    fields.range(fields.u8(), 0, 3, "its state")
    fields.zero(2)
    sender_length = fields.u8()
    files = fields.range(fields.u64(), 0, MAXIMUM_FILES, "number of files")
    sender, directory = fields.take(sender_length), fields.rest()
    if not is_sender(sender):
        raise fields.fail("a sender that cannot be")
    if not is_directory(directory, sender) if files else directory:
        raise fields.fail("no directory of its sender")
    chunks = catalog.group(number_key(CONTENTS, arrival))
    contents = Fields(join(chunks, fields), f"contents of queued message {arrival}")
    contents.take(message_length)
    places: set[bytes] = set()
    byte_count = 0
    for _ in range(files):
        byte_count += contents.varint()
        place = contents.take(contents.varint(1 << 32))
        contents.range(byte_count, 0, MAXIMUM_BYTES, "bytes of the files")
        if place in places or not are_names(place) or not is_text(place):
            raise contents.fail("a path of a file that cannot be")
        places.add(place)
    contents.end()
    if arrival >= catalog.next_numbers().file_id:
        raise fields.fail("its number was not given out")


def check_contents(catalog: Catalog, key: bytes, value: bytes) -> None:
    """A chunk belongs to a message."""
    if catalog.get(number_key(QUEUED, number_in(key))) is None:
        raise Inconsistent(f"contents of a queued message that is not there: {key.hex()}")


def join(chunks: dict[bytes, bytes], fields: Fields) -> bytes:
    """A message that stands in parts from 0 on, all but the last of them full."""
    parts = [chunks[rest] for rest in sorted(chunks)]
    if sorted(chunks) != [index.to_bytes(4, "big") for index in range(len(chunks))]:
        raise fields.fail("parts are missing")
    if any(len(part) != CHUNK for part in parts[:-1]) or b"" in parts:
        raise fields.fail("a part of another length")
    return b"".join(parts)
