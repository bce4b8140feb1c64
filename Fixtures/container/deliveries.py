"""CONTAINER-FORMAT.md, "Catalog": what is remembered of messages that arrived, and those that wait for a handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator

from .catalog import INODE, MAXIMUM_NAME, STATE, Catalog, number_key, refuse
from .fields import ContainerError, Damage, Fields

if TYPE_CHECKING:
    from .state import Container

FLOOR, DELIVERY, BY_REQUEST, QUEUED, CONTENTS = b"\x60", b"\x61", b"\x62", b"\x78", b"\x79"
DELIVERED = 1
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
    return len(names) <= MAXIMUM_NAMES and all(
        1 <= len(name) <= MAXIMUM_NAME and b"\0" not in name and name not in (b".", b"..") for name in names
    )


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


def keys(catalog: Catalog, kind: bytes) -> list[bytes]:
    """The keys of a type, in order."""
    return sorted(key for key in catalog.keys() if key[:1] == kind)


def values(catalog: Catalog, kind: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a type, in order."""
    for key in keys(catalog, kind):
        yield key, catalog.groups[key[:9]][key[9:]]


def check_deliveries(container: Container) -> None:
    """Everything that is kept of arrivals."""
    check_ledger(container)
    check_requests(container)
    check_queue(container)


def check_source(key: bytes, name: str) -> None:
    """The sender of a floor or a numbered delivery: application id, zero, 16 bytes."""
    if len(key) < 18 or key[-17] != 0 or not is_sender(key[1:-17]):
        raise Damage(f"{name}: a sender that cannot be")


def check_ledger(container: Container) -> None:
    """Floors, and the deliveries from them on."""
    floors: dict[bytes, int] = {}
    for key, value in values(container.state.catalog, FLOOR):
        fields = Fields(value, "delivery floor")
        try:
            check_source(key, fields.name)
            floors[key[1:]] = fields.range(fields.u64(), 1, (1 << 64) - 1, "number")
            fields.time()
            fields.end()
        except ContainerError as error:
            container.report("damage", str(error))
    for key, value in values(container.state.catalog, DELIVERY):
        fields = Fields(value, "delivery")
        try:
            check_source(key[:-8], fields.name)
            number = int.from_bytes(key[-8:], "big")
            fields.name = f"delivery {number}"
            fields.range(fields.u8(), DELIVERED, DELIVERED, "state")
            fields.zero(7)
            fields.time()
            fields.take(16)
            fields.end()
            if number < floors.get(key[1:-8], 0):
                raise fields.fail("below its floor")
        except ContainerError as error:
            container.report("damage", str(error))


def check_requests(container: Container) -> None:
    """Deliveries by request."""
    for key, value in values(container.state.catalog, BY_REQUEST):
        fields, parts = Fields(value, "delivery by request"), Fields(key[1:], "key of a delivery by request")
        try:
            sender = parts.take(parts.u8())
            request = parts.take(len(key) - 1 - parts.position)
            if not is_sender(sender):
                raise parts.fail("a sender that cannot be")
            parts.range(len(request), 1, 255, "length of the request id")
            request.decode()
            fields.time()
            fields.u64()
            fields.u64()
            if not is_directory(fields.take(len(value) - fields.position), sender):
                raise fields.fail("no directory of its sender")
        except UnicodeDecodeError:
            container.report("damage", f"{parts.name}: a request id that is not UTF-8")
        except ContainerError as error:
            container.report("damage", str(error))


def check_queue(container: Container) -> None:
    """Messages that wait for a handler, with their contents."""
    catalog = container.state.catalog
    state = catalog.groups.get(STATE, {}).get(b"", b"")[:8]
    next_file = int.from_bytes(state, "little") if len(state) == 8 else 1 << 64
    arrivals = set()
    for key, value in values(catalog, QUEUED):
        if len(key) != 9:
            container.report("damage", "queued message: without a number")
            continue
        arrival = int.from_bytes(key[1:], "big")
        arrivals.add(arrival)
        try:
            if arrival >= next_file or number_key(INODE, arrival) in catalog.groups:
                raise Damage(f"queued message {arrival}: its number was not given out, or is a file's")
            check_queued(catalog, arrival, value)
        except ContainerError as error:
            container.report("damage", str(error))
    for key in keys(catalog, CONTENTS):
        if len(key) != 13 or int.from_bytes(key[1:9], "big") not in arrivals:
            container.report("damage", f"contents of a queued message that is not there: {key.hex()}")


def check_queued(catalog: Catalog, arrival: int, value: bytes) -> None:
    """One message of the queue."""
    fields = Fields(value, f"queued message {arrival}")
    fields.time()
    fields.take(16)
    message_length = fields.range(fields.u32(), 0, MAXIMUM_MESSAGE, "length")
    fields.zero(3)
    sender_length = fields.u8()
    files = fields.range(fields.u64(), 0, MAXIMUM_FILES, "number of files")
    sender = fields.take(sender_length)
    directory = fields.take(len(value) - fields.position)
    if not is_sender(sender):
        raise fields.fail("a sender that cannot be")
    if not is_directory(directory, sender) if files else directory:
        raise fields.fail("no directory of its sender")
    chunks = catalog.group(number_key(CONTENTS, arrival), refuse)
    contents = Fields(join(chunks, fields), f"contents of queued message {arrival}")
    contents.take(message_length)
    places: set[bytes] = set()
    byte_count = 0
    for _ in range(files):
        byte_count += contents.varint()
        place = contents.take(contents.varint(1 << 32))
        contents.range(byte_count, 0, MAXIMUM_BYTES, "bytes of the files")
        if place in places or not are_names(place) or not is_text(place):
            raise contents.fail("a file in a place that cannot be")
        places.add(place)
    contents.end()


def join(chunks: dict[bytes, bytes], fields: Fields) -> bytes:
    """A message that stands in parts from 0 on, all but the last of them full."""
    parts = [chunks[rest] for rest in sorted(chunks)]
    if sorted(chunks) != [index.to_bytes(4, "big") for index in range(len(chunks))]:
        raise fields.fail("parts are missing")
    if any(len(part) != CHUNK for part in parts[:-1]) or b"" in parts:
        raise fields.fail("a part of another length")
    return b"".join(parts)
