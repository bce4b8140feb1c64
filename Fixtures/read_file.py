#!/usr/bin/env python3
"""Reads the segment vectors and checks what they say of themselves: read_file.py VECTOR.json…"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from opendynamics import Extent, File, FileError


def read(vector: dict[str, Any]) -> tuple[str, int | None, str]:
    """The outcome, the grain where reading stopped, and the SHA-256 of all that was released."""
    extents = [
        Extent(
            start=extent["start"],
            count=extent["count"],
            last_length=extent["last_length"],
            session=bytes.fromhex(extent["session"]),
            counter=extent["counter"],
            offset=extent["offset"],
        )
        for extent in vector["extents"]
    ]
    file = File(
        key=bytes.fromhex(vector["file_key"]),
        size=vector["size"],
        extents=extents,
    )
    stored = bytes.fromhex(vector["stored"])

    def fetch(slab: int, offset: int, length: int) -> bytes:
        return stored[offset : offset + length]

    released = hashlib.sha256()
    try:
        for piece in file.contents(fetch):
            released.update(piece)
    except FileError as error:
        return error.kind, error.grain, released.hexdigest()
    return "ok", None, released.hexdigest()


def main(paths: list[str]) -> int:
    """Reads each vector, prints a line about it, and returns 1 if any was not as expected."""
    mismatches = 0
    for path in paths:
        vector = json.loads(Path(path).read_text())
        outcome, grain, digest = read(vector)
        print(f"{vector['name']}: " + (f"ok {digest}" if grain is None else f"{outcome} at grain {grain}"))
        found = (outcome, grain, digest)
        expected = (vector["expect"], vector.get("fail_grain"), vector["plaintext_sha256"])
        if found != expected:
            print(f"{vector['name']}: MISMATCH, expected {expected}, found {found}")
            mismatches += 1
    return 1 if mismatches or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
