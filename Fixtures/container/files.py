"""Files of a container: only regular ones are read, and no symbolic link is followed."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from .fields import Altered

JOURNALS, TABLES, COPIES, SLABS = "journal", "catalog", "copy", "slab"
SECTOR = 4096

REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
# What other files would meet as well.
COMMON = REFUSED | {
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT,
}


def require_of_file(error: OSError) -> None:
    """Raises an error again unless it is damage of its file alone."""
    if error.errno in COMMON:
        raise error


def check_directories(container: Path) -> None:
    """Refuses a directory of the container that is a symbolic link."""
    for name in (JOURNALS, TABLES, COPIES, SLABS):
        if (container / name).is_symlink():
            raise Altered(f"{name} is a symbolic link")


def open_regular(path: Path) -> int | None:
    """A descriptor for reading a regular file; nothing when there is none of that name."""
    try:
        # A FIFO would block, and a symbolic link could lead anywhere.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return None
        raise
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return None


def read_regular(path: Path, limit: int | None = None) -> bytes | None:
    """A regular file's bytes, at most so many. Sectors that cannot be read are zeros."""
    try:
        file = open_regular(path)
    except OSError as error:
        require_of_file(error)
        return None
    if file is None:
        return None
    try:
        size = os.fstat(file).st_size
        size = size if limit is None else min(size, limit)
        return b"".join(_read_sector(file, at, size) for at in range(0, size, SECTOR))
    finally:
        os.close(file)


def _read_sector(file: int, offset: int, size: int) -> bytes:
    """At most a sector's bytes."""
    length = min(SECTOR, size - offset)
    try:
        return os.pread(file, length, offset)
    except OSError as error:
        require_of_file(error)
        return bytes(length)  # nothing accepts that


def names_in(directory: Path) -> list[str]:
    """The names in a directory, sorted; none when there is no such directory, or it is damaged."""
    try:
        return sorted(os.listdir(directory))
    except OSError as error:
        require_of_file(error)
        return []


class Copies:
    """The two copies of a journal or table, and what is damaged in one of them."""

    def __init__(
        self, container: Path, folder: str, identifier: bytes, limit: int | None = None
    ) -> None:
        name = identifier.hex()
        self.names = (f"{folder}/{name}", f"{COPIES}/{name}")
        self.data = [read_regular(container / path, limit) for path in self.names]
        self.damaged: dict[str, list[str]] = {}

    def add_damage(self, copy: int, part: str) -> None:
        """Notes a part that is whole in the other copy."""
        self.damaged.setdefault(self.names[copy], []).append(part)

    def report_absent(self) -> None:
        """Notes each copy that is not there, whether or not anything of it was missed."""
        for copy, data in enumerate(self.data):
            if data is None:
                self.add_damage(copy, "absent")

    def damage(self) -> list[str]:
        """A line about each damaged copy."""
        return [
            f"{name}: absent" if data is None else f"{name}: {', '.join(self.damaged[name])}"
            for name, data in zip(self.names, self.data) if name in self.damaged
        ]
