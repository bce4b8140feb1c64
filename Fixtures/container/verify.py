"""Opens everything that is live in a container, and holds the parts against each other."""

from __future__ import annotations

import os

from opendynamics import Extent, FileError

from .catalog import (
    DIRECTORY_KIND, ENTRY, EXTENT, FILE_KIND, INODE, ROOT, STATE, Catalog, key_is_possible,
    number_key,
)
from .deliveries import check_deliveries
from .fields import ContainerError, Damage, Fields
from .outbox import check_outbox
from .state import Container
from .superblock import open_body

MAXIMUM_SLAB = 67108864


def verify(container: Container) -> None:
    """Adds all that is found to the container's findings."""
    check_other_slot(container)
    check_older_generations(container)
    check_keys(container)
    links = check_tree(container)
    extents = check_inodes(container, links) + check_outbox(container)
    check_deliveries(container)
    check_state(container, extents)
    if not container.state.catalog.lost:  # what it says of slabs, and which files it needs, is known in part only
        check_slab_counters(container, extents)
        note_garbage(container, extents)


def check_other_slot(container: Container) -> None:
    """The superblock's slot that is not in use."""
    slot, other = container.slot, container.other_slot
    if other.is_torn:
        container.report("damage", "superblock: one slot is torn")
        return
    behind = slot.sequence - other.sequence
    if behind:
        level = "note" if behind == 1 else "damage"
        container.report(level, f"superblock: one slot is older by {behind}")
        try:
            open_body(other, container.root_key)
        except ContainerError as error:
            container.report("damage", f"superblock, older slot: {error}")


def check_older_generations(container: Container) -> None:
    """Every complete generation, with the journals since, has to lead to the same state."""
    for generation in container.complete_generations():
        if generation.number >= container.state.generation.number:
            continue
        try:
            state = container.replay(generation, container.tables(generation))
        except ContainerError as error:
            container.report("damage", f"generation {generation.number}: {error}")
            continue
        for part in state.catalog.lost:
            container.report("damage", f"generation {generation.number}, in part lost: {part.damage}")
        if state.commit != container.state.commit:
            container.report("damage", f"generation {generation.number}: leads to commit {state.commit}")
        if key := first_difference(state.catalog, container.state.catalog):
            container.report("damage", f"generation {generation.number}: leads to another state at key {key.hex()}")


def first_difference(one: Catalog, other: Catalog) -> bytes | None:
    """The first key whose value two catalogs know and do not agree on."""
    for group in sorted(one.groups.keys() | other.groups.keys()):
        ours, theirs = one.groups.get(group, {}), other.groups.get(group, {})
        for rest in sorted(ours.keys() | theirs.keys()) if ours != theirs else []:
            try:
                if one.get(group + rest) != other.get(group + rest):
                    return group + rest
            except Damage:
                continue  # lost, and reported
    return None


def check_keys(container: Container) -> None:
    """Keys that no reader would look for."""
    for key in container.state.catalog.keys():
        if not key_is_possible(key):
            container.report("damage", f"catalog: a key of type {key[:1].hex()} has {len(key)} bytes")


def check_tree(container: Container) -> dict[int, int]:
    """Walks through all directories; returns how many entries each file id has."""
    links = {ROOT: 1}
    try:
        if container.state.catalog.inode(ROOT).kind != DIRECTORY_KIND:
            raise Damage("the root is no directory")
        for _, file_id, _ in container.state.catalog.tree(lambda damage: container.report("damage", str(damage))):
            links[file_id] = links.get(file_id, 0) + 1
    except ContainerError as error:
        container.report("damage", str(error))
    return links


def check_inodes(container: Container, links: dict[int, int]) -> list[Extent]:
    """Every inode and every segment; returns all extents."""
    catalog = container.state.catalog
    found: list[Extent] = []
    for file_id in catalog.numbers(INODE):
        try:
            inode = catalog.inode(file_id)
            extents = catalog.extents(file_id, inode)
            entries = links.get(file_id, 0)
            if inode.links != entries or (inode.kind == DIRECTORY_KIND and entries != 1):
                container.report("damage", f"file {file_id}: {entries} entries, link count {inode.links}")
            if inode.kind == FILE_KIND:
                found += extents
                for _ in container.file(file_id, inode).pieces(container.stored):
                    pass
        except (ContainerError, FileError) as error:
            container.report("damage", f"file {file_id}: {error}")
    for kind, what in ((EXTENT, "extents"), (ENTRY, "entries")):
        for file_id in sorted(set(catalog.numbers(kind)) - set(catalog.numbers(INODE))):
            try:
                if catalog.get(number_key(INODE, file_id)) is None:
                    raise Damage(f"{what} without an inode")
            except Damage as error:
                container.report("damage", f"file {file_id}: {error}")
    return found


def check_state(container: Container, extents: list[Extent]) -> None:
    """The numbers to be given out next."""
    try:
        data = container.state.catalog.get(STATE)
        if data is None:
            raise Damage("catalog: no state")
        fields = Fields(data, "catalog: state")
        next_file, next_slab = fields.u64(), fields.u32()
        fields.zero(4)
        fields.end()
    except ContainerError as error:
        container.report("damage", str(error))
        return
    if next_file <= max(container.state.catalog.numbers(INODE), default=0):
        container.report("damage", f"catalog: the next file id {next_file} is in use")
    if next_slab <= max((extent.slab for extent in extents), default=-1):
        container.report("damage", f"catalog: the next slab {next_slab} is in use")


def check_slab_counters(container: Container, extents: list[Extent]) -> None:
    """What the catalog says of each slab."""
    catalog = container.state.catalog
    counters: dict[int, tuple[int, int]] = {}
    for slab, fields in catalog.slab_counters().items():
        try:
            counters[slab] = fields.range(fields.u64(), 1, MAXIMUM_SLAB, "live bytes"), fields.u64()
            fields.range(counters[slab][1], 1, MAXIMUM_SLAB, "end")
            fields.end()
        except ContainerError as error:
            container.report("damage", str(error))
    for slab in sorted(counters.keys() | {extent.slab for extent in extents}):
        live = sum(extent.stored_length() for extent in extents if extent.slab == slab)
        end = max((extent.offset + extent.stored_length() for extent in extents if extent.slab == slab), default=0)
        if slab not in counters:
            container.report("damage", f"slab {slab:08x}: has no counter")
            continue
        counted_live, counted_end = counters[slab]
        if live != counted_live:
            container.report("damage", f"slab {slab:08x}: {live} bytes are live, counted are {counted_live}")
        if end > counted_end:
            container.report("damage", f"slab {slab:08x}: extents end at {end}, committed are {counted_end}")


def note_garbage(container: Container, extents: list[Extent]) -> None:
    """Files that nothing names, as a crash leaves them."""
    tables = {table.id.hex() for generation in container.body.generations for table in generation.tables}
    oldest = container.complete_generations()[-1].number
    try:
        journals = {journal.link.id.hex() for journal in container.journals(oldest)}
    except ContainerError:
        journals = set()  # reported with the generation that needs them
    known = {extent.slab for extent in extents} | container.state.catalog.slab_counters().keys()
    slabs = {container.slab_path(slab).name for slab in known}
    for folder, names in (("journal", journals), ("catalog", tables), ("slab", slabs)):
        path = container.path / folder
        for name in sorted(os.listdir(path) if path.is_dir() else []):
            if name not in names:
                container.report("note", f"nothing names {folder}/{name}")
