"""Segments, frames and shared memory of deliveries: DELIVERY-PROTOCOL.md, and FILE-FORMAT.md for the segment."""

import fcntl
import mmap
import os
import struct
from bisect import bisect_right
from itertools import accumulate

from connection import Fault
from nacl import bindings

HEADER_BYTES, KEY_BYTES = 24, 32
TAG_MESSAGE = bindings.crypto_secretstream_xchacha20poly1305_TAG_MESSAGE
TAG_FINAL = bindings.crypto_secretstream_xchacha20poly1305_TAG_FINAL
GRAIN_BYTES = 16_384
# Header, tag byte and Poly1305 tag of a segment; tag byte and Poly1305 tag of a block.
SEGMENT_EXTRA, BLOCK_EXTRA = 41, 17
SEGMENTS_MAX, FILES_MAX = 256, 256
CONTENTS_MAX = 64 * (GRAIN_BYTES + SEGMENT_EXTRA)
SLOT_BYTES = 1_052_672
# Stream, length of the block, length of the contents.
FRAME = struct.Struct("<III")
BLOCK = struct.Struct("<QI")
# File, start, count, last length.
RUN = struct.Struct("<IQII")
BLOCK_MIN = BLOCK.size + BLOCK_EXTRA
BLOCK_MAX = BLOCK_MIN + SEGMENTS_MAX * (RUN.size + KEY_BYTES)
IN_SLOT = 1 << 31
# The lane's own frames.
GIVEN, FREED = 1, 2
STREAM_DAMAGED = 111
# linux/fcntl.h: F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
F_ADD_SEALS, F_GET_SEALS, SEALS = 1033, 1034, 1 | 2 | 4


class SecretStream:
    """libsodium's secretstream, through PyNaCl."""

    def __init__(self, key, header=None):
        self.state, self.header = bindings.crypto_secretstream_xchacha20poly1305_state(), header
        if header is None:
            self.header = bindings.crypto_secretstream_xchacha20poly1305_init_push(self.state, key)
        else:
            bindings.crypto_secretstream_xchacha20poly1305_init_pull(self.state, header, key)

    def seal(self, part, tag, data=None):
        return bindings.crypto_secretstream_xchacha20poly1305_push(self.state, part, data, tag)

    def open(self, body, data=None):
        """The plaintext and its tag, or None."""
        try:
            return bindings.crypto_secretstream_xchacha20poly1305_pull(self.state, body, data)
        except Exception:  # noqa: BLE001  PyNaCl raises several
            return None


# MARK: Segments


def associated_data(byte_count):
    return b"OD1-segment".ljust(16, b"\0") + struct.pack("<II", byte_count, GRAIN_BYTES)


def seal_segment(key, plaintext, tag=TAG_FINAL, data=None):
    """The stored segment, with a random header."""
    stream = SecretStream(key)
    return stream.header + stream.seal(plaintext, tag, data or associated_data(len(plaintext)))


def open_segment(key, stored):
    """The plaintext, or None for a segment that is not authentic."""
    opened = SecretStream(key, stored[:HEADER_BYTES]).open(
        stored[HEADER_BYTES:], associated_data(len(stored) - SEGMENT_EXTRA))
    return opened[0] if opened and opened[1] == TAG_FINAL else None


class Layout:
    """The positions of a message's files in its contents."""

    def __init__(self, sizes):
        self.sizes, self.begins = sizes, [0, *accumulate(sizes)]
        self.byte_count = self.begins.pop()
        self.filled = [begin for begin, size in zip(self.begins, sizes) if size]

    def is_boundary(self, position):
        """Whether a frame or a stream may begin there: at a file's grain, or at its end."""
        if position == self.byte_count:
            return True
        if not 0 <= position < self.byte_count:
            return False
        return (position - self.begins[bisect_right(self.begins, position) - 1]) % GRAIN_BYTES == 0

    def files_between(self, begin, end):
        """The number of files that are not empty and have contents there."""
        return bisect_right(self.filled, end - 1) - bisect_right(self.filled, begin) + 1

    def grain_byte_count(self, file, grain):
        """The length of the part of a grain that lies inside of the file: 0 or less outside."""
        return min(self.sizes[file] - grain * GRAIN_BYTES, GRAIN_BYTES) if file < len(self.sizes) else 0

    def position(self, file, grain):
        return self.begins[file] + grain * GRAIN_BYTES

    def grains(self, position):
        """File, grain and length of all grains from a boundary on."""
        if position == self.byte_count:
            return
        first = bisect_right(self.begins, position) - 1
        for file in range(first, len(self.sizes)):
            start = (position - self.begins[file]) // GRAIN_BYTES if file == first else 0
            for grain in range(start, -(-self.sizes[file] // GRAIN_BYTES)):
                yield file, grain, self.grain_byte_count(file, grain)


# MARK: Frames


class Frame:
    """A frame before its block is sealed, or after it was opened. A run is [file, start, count, last length]."""

    def __init__(self, end, runs=(), keys=(), contents=b"", tag=TAG_MESSAGE):
        self.end, self.runs, self.keys, self.contents, self.tag = end, list(runs), list(keys), contents, tag

    @classmethod
    def of(cls, end, parts, tag=TAG_MESSAGE):
        """Seals parts, which are file, grain and plaintext, with a key for each."""
        frame, stored, previous = cls(end, tag=tag), [], None
        for file, grain, plaintext in parts:
            if previous == (file, grain - 1, GRAIN_BYTES):
                frame.runs[-1][2:] = [frame.runs[-1][2] + 1, len(plaintext)]
            else:
                frame.runs.append([file, grain, 1, len(plaintext)])
            previous = (file, grain, len(plaintext))
            frame.keys.append(os.urandom(KEY_BYTES))
            stored.append(seal_segment(frame.keys[-1], plaintext))
        frame.contents = b"".join(stored)
        return frame

    def block(self):
        runs = b"".join(RUN.pack(*run) for run in self.runs)
        return BLOCK.pack(self.end, len(self.runs)) + runs + b"".join(self.keys)

    @classmethod
    def parse(cls, block, tag):
        """Raises Fault when it is no block."""
        end, count = BLOCK.unpack_from(block)
        keys = BLOCK.size + count * RUN.size
        if count > SEGMENTS_MAX or keys > len(block) or (len(block) - keys) % KEY_BYTES:
            raise Fault(STREAM_DAMAGED, "no block")
        runs = [list(run) for run in RUN.iter_unpack(block[BLOCK.size : keys])]
        if sum(run[2] for run in runs) != (len(block) - keys) // KEY_BYTES or any(run[2] == 0 for run in runs):
            raise Fault(STREAM_DAMAGED, "another number of keys")
        return cls(end, runs, [block[n : n + KEY_BYTES] for n in range(keys, len(block), KEY_BYTES)], tag=tag)

    def segments(self):
        """File, grain and plaintext length of each."""
        for file, start, count, last in self.runs:
            for grain in range(start, start + count):
                yield file, grain, last if grain == start + count - 1 else GRAIN_BYTES

    def check(self, layout, begin, byte_count):
        """Raises Fault when it may not come behind `begin`, or has contents of another length."""
        if len(self.keys) > SEGMENTS_MAX or not begin < self.end <= layout.byte_count:
            raise Fault(STREAM_DAMAGED, "too many segments, or an end that cannot be")
        if not layout.is_boundary(self.end) or layout.files_between(begin, self.end) > FILES_MAX:
            raise Fault(STREAM_DAMAGED, "an end inside of a grain, or too many files")
        reached = begin
        for file, grain, length in self.segments():
            whole = layout.grain_byte_count(file, grain)
            if not 1 <= length <= whole or layout.position(file, grain) < reached:
                raise Fault(STREAM_DAMAGED, "a segment outside of its file, or out of order")
            reached = layout.position(file, grain) + whole
        if reached > self.end or sum(length + SEGMENT_EXTRA for _, _, length in self.segments()) != byte_count:
            raise Fault(STREAM_DAMAGED, "an end before the last segment, or contents of another length")
        if (self.tag == TAG_FINAL) != (self.end == layout.byte_count):
            raise Fault(STREAM_DAMAGED, "FINAL elsewhere than at the end")


# MARK: Shared memory


def memory_file(byte_count, seals=SEALS, flags=os.MFD_ALLOW_SEALING):
    """A descriptor of memory, and this process's mapping of it, made before it is sealed."""
    descriptor = os.memfd_create("slots", os.MFD_CLOEXEC | flags)
    os.ftruncate(descriptor, byte_count)
    mapping = mmap.mmap(descriptor, byte_count) if byte_count else None
    if seals:
        fcntl.fcntl(descriptor, F_ADD_SEALS, seals)
    return descriptor, mapping


class Memory:
    """Slots of shared memory, given or taken, used in turn."""

    def __init__(self, count, descriptor=None):
        self.count, self.used, self.freed, self.mapping = count, 0, 0, None
        self.descriptor = descriptor
        if descriptor is None:
            self.descriptor, self.mapping = memory_file(count * SLOT_BYTES)

    @property
    def is_full(self):
        return self.used - self.freed == self.count

    def next(self):
        self.used += 1
        return (self.used - 1) % self.count * SLOT_BYTES

    def put(self, contents):
        """Where they are now."""
        begin = self.next()
        self.mapping[begin : begin + len(contents)] = contents
        return begin

    def reader(self):
        """A function that reads bytes of the next slot, from an offset on."""
        begin = self.next()
        return lambda offset, count: os.pread(self.descriptor, count, begin + offset)

    def close(self):
        if self.descriptor is not None:
            os.close(self.descriptor)
        self.descriptor = None
