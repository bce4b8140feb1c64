"""Opens everything that is live in a container, and holds the parts against each other."""

from __future__ import annotations

from typing import Iterable

from opendynamics import OVERHEAD, Extent, FileError

from .catalog import (
    ANCHOR, ATTRIBUTE, DIRECTORY_KIND, ENTRY, EXTENT, FILE_KIND, ID_LIMIT, INODE, MAXIMUM_SLAB,
    ROOT, SLAB, SLAB_LIMIT, Inode, number_in, number_key,
)
from .deliveries import (
    BY_REQUEST, CONTENTS, DELIVERY, QUEUED, SENDER, STAGING, check_deliveries,
)
from .fields import ContainerError, Fields, Inconsistent
from .files import COPIES, JOURNALS, SLABS, TABLES, names_in
from .outbox import (
    ENTRY as MESSAGE_ENTRY, MESSAGE, OUTBOX_STATE, PIN, PINNED, PINNED_EXTENT, RECEIVER, Version,
    check_outbox,
)
from .state import Container, segments
from .superblock import READER_VERSION, open_body

KEY_LENGTHS = {
    b"\x01": (1, 1), ENTRY: (10, 264), INODE: (9, 9), EXTENT: (17, 17), ATTRIBUTE: (10, 264),
    SLAB: (5, 5), SENDER: (2, 256), DELIVERY: (27, 281), BY_REQUEST: (4, 512),
    MESSAGE_ENTRY: (9, 9), PINNED: (13, 13), PINNED_EXTENT: (21, 21), MESSAGE: (13, 13),
    OUTBOX_STATE: (1, 1), PIN: (21, 21), STAGING: (9, 9), QUEUED: (9, 9), CONTENTS: (13, 13),
    ANCHOR: (9, 9), RECEIVER: (2, 256),
}
NUMBERED = (
    ENTRY, INODE, EXTENT, ATTRIBUTE, MESSAGE_ENTRY, PINNED, PINNED_EXTENT, MESSAGE, PIN, STAGING,
    QUEUED, CONTENTS, ANCHOR,
)
EXTENT_WITH_RUN_TAG = 64  # bytes

Run = tuple[int, int, int]  # slab, offset, end


def verify(container: Container) -> None:
    """Adds all that is found to the container's findings."""
    check_other_slot(container)
    check_keys(container)
    links = check_tree(container)
    files = check_inodes(container, links)
    check_owners(container)
    versions = check_outbox(container)
    check_deliveries(container)
    check_anchors(container)
    check_state(container)
    check_run_tags(container)
    catalog = container.state.catalog
    # A part that is lost may have had extents or counters, and so may a malformed inode or version.
    if not catalog.lacks(INODE, EXTENT, SLAB, PINNED, PINNED_EXTENT) and None not in files.values():
        if len(versions) == len(catalog.items(PINNED)):
            check_slabs(container, live_runs(files, versions))
    note_unknown_files(container)


def check_other_slot(container: Container) -> None:
    """The superblock's slot that is not in use."""
    if container.other_slot.is_torn or container.other_slot.data == container.slot.data:
        return
    try:
        open_body(container.other_slot, container.root_key)
    except ContainerError as error:
        container.report("damage", error.kind, f"older slot: {error}")


def check_keys(container: Container) -> None:
    """Keys of known types have their lengths, and numbers from 1 on."""
    for key in container.state.catalog.keys():
        kind = key[:1]
        shortest, longest = KEY_LENGTHS.get(kind, (1, len(key)))
        words = f"catalog: a key of type {kind.hex()}"
        if not shortest <= len(key) <= longest:
            container.report_error(Inconsistent(f"{words} has {len(key)} bytes"))
        elif kind in NUMBERED and not 1 <= number_in(key) < ID_LIMIT:
            container.report_error(Inconsistent(f"{words} has the number {number_in(key)}"))


def check_tree(container: Container) -> dict[int, int]:
    """Walks through all directories; returns how many entries each file id has."""
    links = {ROOT: 1}
    catalog = container.state.catalog
    try:
        if catalog.inode(ROOT).kind != DIRECTORY_KIND:
            raise Inconsistent("the root is no directory")
    except ContainerError as error:
        container.report_cause(error)
    for _, file_id, _ in catalog.tree(container.report_cause):
        links[file_id] = links.get(file_id, 0) + 1
    return links


def check_inodes(container: Container, links: dict[int, int]) -> dict[int, list[Extent] | None]:
    """Every inode and every segment; returns the extents of each file, as far as they are known."""
    catalog = container.state.catalog
    entries_are_known = not catalog.lacks(ENTRY, INODE)
    found: dict[int, list[Extent] | None] = {}
    for file_id in catalog.numbers(INODE):
        try:
            found[file_id] = None
            inode = catalog.inode(file_id)
            found[file_id] = catalog.extents(file_id, inode) if inode.kind == FILE_KIND else []
            if inode.kind == FILE_KIND:
                for _ in container.file(file_id, inode).pieces(container.stored):
                    pass
        except ContainerError as error:
            container.report_cause(error)
        except FileError as error:
            container.report_contents(f"file {file_id}", error)
        if entries_are_known:
            try:
                check_links(file_id, catalog.inode(file_id), links.get(file_id, 0))
            except ContainerError as error:
                container.report_cause(error)
    return found


def check_links(file_id: int, inode: Inode, entries: int) -> None:
    """The link count is the number of entries."""
    if inode.links != entries or (inode.kind == DIRECTORY_KIND and entries != 1):
        raise Inconsistent(f"file {file_id}: {entries} entries, link count {inode.links}")


def check_owners(container: Container) -> None:
    """Extents belong to a file, entries to a directory, attributes to any of them."""
    catalog = container.state.catalog
    kinds = ((EXTENT, (FILE_KIND,)), (ENTRY, (DIRECTORY_KIND,)), (ATTRIBUTE, (1, 2, 3)))
    for kind, owners in kinds:
        for file_id in catalog.numbers(kind):
            try:
                data = catalog.get(number_key(INODE, file_id))
                if data is None or (data[1:2] and data[1] not in owners):
                    words = f"a key of type {kind.hex()} without its inode"
                    raise Inconsistent(f"file {file_id}: {words}")
            except ContainerError as error:
                container.report_cause(error)


def check_anchors(container: Container) -> None:
    """What was recorded of anchors."""
    for key, value in container.state.catalog.items(ANCHOR):
        fields = Fields(value, f"anchor of commit {number_in(key)}")
        try:
            fields.take(32)
            fields.time()
            fields.end()
        except ContainerError as error:
            container.report_cause(error)


def check_state(container: Container) -> None:
    """The numbers to be given out next."""
    catalog = container.state.catalog
    try:
        following = catalog.next_numbers()
        named = [
            entry.file_id for directory in catalog.numbers(ENTRY)
            for entry in catalog.directory(directory, lambda _: None)
        ]
        slabs = [slab_of(key) for key, _ in catalog.items(SLAB)]
        if following.file_id <= max([*named, *catalog.numbers(INODE)], default=0):
            raise Inconsistent(f"state: the next file id {following.file_id} is in use")
        if following.slab <= max(slabs, default=-1):
            raise Inconsistent(f"state: the next slab {following.slab} is in use")
    except ContainerError as error:
        container.report_cause(error)


def check_run_tags(container: Container) -> None:
    """Run tags are for later versions, and older writers must not change what has them."""
    catalog = container.state.catalog
    if container.slot.minimum_writer > READER_VERSION:
        return
    extents = catalog.items(EXTENT) + catalog.items(PINNED_EXTENT)
    tagged = [key for key, value in extents if len(value) == EXTENT_WITH_RUN_TAG]
    for file_id in catalog.numbers(INODE):
        try:
            if catalog.inode(file_id).has_run_tag:
                tagged.append(number_key(INODE, file_id))
        except ContainerError:
            continue
    for key in tagged:
        writer = container.slot.minimum_writer
        text = f"key {key.hex()}: a run tag, and the minimum writer version is {writer}"
        container.report_error(Inconsistent(text))


def slab_of(key: bytes) -> int:
    """The slab in a counter's key."""
    return int.from_bytes(key[1:], "big")


def live_runs(files: dict[int, list[Extent] | None], versions: list[Version]) -> list[Run]:
    """What is stored, in order. Segments that a file and its versions share are there once."""
    pinned: dict[int, list[Extent]] = {}
    for version in versions:
        pinned.setdefault(version.file_id, []).extend(version.extents)
    runs: list[Run] = []
    for file_id in files.keys() | pinned.keys():
        extents = (files.get(file_id) or []) + pinned.get(file_id, [])
        if file_id not in pinned:
            runs += [(e.slab, e.offset, e.offset + e.stored_length()) for e in extents]
        else:
            possible = [e for e in extents if e.offset + e.stored_length() <= MAXIMUM_SLAB]
            stored = {segment for extent in possible for segment in segments(extent)}
            for _, _, _, slab, offset, length in stored:
                runs.append((slab, offset, offset + length + OVERHEAD))
    return sorted(runs)


def check_slabs(container: Container, runs: list[Run]) -> None:
    """Two runs share no byte, and the counters are right."""
    last: Run = (-1, 0, 0)
    for run in runs:
        if run[0] == last[0] and run[1] < last[2]:
            text = f"slab {run[0]:08x}: two runs share the bytes from {run[1]} on"
            container.report_error(Inconsistent(text))
        last = run
    counters = {slab_of(key): value for key, value in container.state.catalog.items(SLAB)}
    for slab in sorted(counters.keys() | {run[0] for run in runs}):
        try:
            check_counter(slab, counters.get(slab), [run for run in runs if run[0] == slab])
        except ContainerError as error:
            container.report_error(error)


def check_counter(slab: int, value: bytes | None, runs: list[Run]) -> None:
    """What the catalog says of a slab."""
    name = f"slab {slab:08x}"
    if value is None:
        raise Inconsistent(f"{name}: has no counter")
    fields = Fields(value, f"counter of {name}")
    fields.range(slab, 0, SLAB_LIMIT - 1, "number")
    counted = fields.range(fields.u64(), 1, (1 << 64) - 1, "live bytes")
    end = fields.range(fields.u64(), 0, MAXIMUM_SLAB, "end")
    fields.end()
    live, last = union_length(runs), max((run[2] for run in runs), default=0)
    if live != counted:
        raise fields.fail(f"{live} bytes are live, counted are {counted}")
    if last > end:
        raise fields.fail(f"runs end at {last}, committed are {end}")


def union_length(runs: Iterable[Run]) -> int:
    """The bytes of runs in order, each once."""
    total = position = 0
    for _, start, end in runs:
        total += max(0, end - max(start, position))
        position = max(position, end)
    return total


def note_unknown_files(container: Container) -> None:
    """Files that nothing names, as a crash leaves them."""
    tables = {table.id.hex() for table in container.body.complete.tables}
    journals = {journal.link.id.hex() for journal in container.reached}
    known = {JOURNALS: journals, TABLES: tables, COPIES: journals | tables}
    catalog = container.state.catalog
    if not catalog.lacks(SLAB):
        known[SLABS] = {f"{slab_of(key):08x}" for key, _ in catalog.items(SLAB)}
    for folder, names in known.items():
        for name in names_in(container.path / folder):
            if name not in names:
                container.report("note", "unknown file", f"{folder}/{name}")
