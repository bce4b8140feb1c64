"""CONTAINER-FORMAT.md, "Locks and readers' pins"."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path

ENTRY_BYTE = 1 << 40


class Lock:
    """A reader's pins. A copy of a container may lack the lock file; then there is nobody to pin against."""

    def __init__(self, path: Path) -> None:
        try:
            self.file: int | None = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            self.file = None

    def close(self) -> None:
        """Lets everything go."""
        if self.file is not None:
            os.close(self.file)

    def _call(self, command: int, kind: int, byte: int) -> int:
        """Open-file-description locking of one byte; returns the kind of lock that stands in the way."""
        if self.file is None:
            return fcntl.F_UNLCK
        answer = fcntl.fcntl(self.file, command, struct.pack("@hhqqi0q", kind, os.SEEK_SET, byte, 1, 0))
        return int.from_bytes(answer[:2], sys.byteorder)

    def writer_is_alive(self) -> bool:
        """Whether a writer holds its lock."""
        return self._call(fcntl.F_OFD_GETLK, fcntl.F_RDLCK, 0) != fcntl.F_UNLCK

    def is_held(self, byte: int) -> bool:
        """Whether somebody else holds any lock on a byte, which is what a writer asks about pins."""
        return self._call(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, byte) != fcntl.F_UNLCK

    def hold(self, byte: int) -> None:
        """Takes a read lock, waiting for it."""
        self._call(fcntl.F_OFD_SETLKW, fcntl.F_RDLCK, byte)

    def release(self, byte: int) -> None:
        """Lets a lock go."""
        self._call(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, byte)
