"""CONTAINER-FORMAT.md, "Locks and readers' pins"."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path

from .files import REFUSED, open_regular, require_of_file

ENTRY_BYTE = 1 << 40


class Lock:
    """A reader's pins. This reader makes no lock file, and goes on without."""

    def __init__(self, path: Path) -> None:
        try:
            self.file = open_regular(path)
        except OSError as error:
            if error.errno not in REFUSED:
                require_of_file(error)
            self.file = None

    def close(self) -> None:
        """Releases every lock."""
        if self.file is not None:
            os.close(self.file)

    def _call(self, command: int, kind: int, byte: int) -> int:
        """Locks one byte by open file description; returns the kind of a lock in the way."""
        if self.file is None:
            return fcntl.F_UNLCK
        request = struct.pack("@hhqqi0q", kind, os.SEEK_SET, byte, 1, 0)
        return int.from_bytes(fcntl.fcntl(self.file, command, request)[:2], sys.byteorder)

    def writer_is_alive(self) -> bool:
        """Whether a writer holds its lock."""
        return self._call(fcntl.F_OFD_GETLK, fcntl.F_RDLCK, 0) != fcntl.F_UNLCK

    def is_held(self, byte: int) -> bool:
        """Whether another holds any lock on a byte, which is what a writer asks about pins."""
        return self._call(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, byte) != fcntl.F_UNLCK

    def hold(self, byte: int) -> None:
        """Takes a read lock, waiting for it."""
        self._call(fcntl.F_OFD_SETLKW, fcntl.F_RDLCK, byte)

    def release(self, byte: int) -> None:
        """Releases a lock."""
        self._call(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, byte)
