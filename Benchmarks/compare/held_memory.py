"""Keeps free memory at hand on a virtual machine that returns it to its host.

With free page reporting the kernel gives back free blocks of 2 MiB after two seconds, and each of their pages costs a
fault in the host when it is needed again: `cp` of 1 GiB to memory takes 0.6 or 5 seconds. `python3 held_memory.py`
touches most of the memory that is available, and then frees all but one page of each 2 MiB. These pages are at hand,
and not returned, since no block is free as a whole. It says "held" when that is done, and ends with its input.
"""

import mmap
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import machine

BLOCK = 2 << 20


def hold() -> None:
    # What is left is for whoever else needs memory meanwhile.
    size = machine.available_memory() * 7 // 8 // BLOCK * BLOCK
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        try:
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        except OSError:
            pass  # A kernel without huge pages.
        block = b"\1" * BLOCK
        for offset in range(0, size, BLOCK):
            memory[offset:offset + BLOCK] = block
        for offset in range(0, size, BLOCK):
            memory.madvise(mmap.MADV_DONTNEED, offset + mmap.PAGESIZE, BLOCK - mmap.PAGESIZE)
        print("held", flush=True)
        sys.stdin.read()


@contextmanager
def held_memory():
    """Memory is at hand within; goes on without when there is none to hold."""
    print("taking memory, so that it is at hand: this may take a minute", file=sys.stderr)
    holder = subprocess.Popen(
        [sys.executable, str(Path(__file__))], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        if not holder.stdout.readline():
            print("no memory could be held at hand: times scatter more on a virtual machine", file=sys.stderr)
        yield
    finally:
        holder.stdin.close()
        holder.wait()


if __name__ == "__main__":
    hold()
