"""What readers of files and of containers share: labels, keys, messages, segments (Documentation/FILE-FORMAT.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterator

from nacl import bindings, exceptions

GRAIN = 16384
HEADER = 24
OVERHEAD = 41  # header 24, tag byte 1, authenticator 16
STRIDE = GRAIN + OVERHEAD
FINAL = 3
BATCH = 64  # segments fetched at once
HIGHEST_COUNTER_END = (1 << 64) - 1
SIZE_LIMIT, START_LIMIT, OFFSET_LIMIT = 1 << 62, 1 << 48, 1 << 48

Fetch = Callable[[int, int, int], bytes]  # (slab, offset, length) -> the bytes stored there, fewer if they are missing


class NotAuthentic(Exception):
    """A message that does not open, or not with tag FINAL."""


class FileError(Exception):
    """Contents that cannot be released from a grain on: not-authentic, damaged-extent or missing-bytes."""

    def __init__(self, kind: str, grain: int) -> None:
        super().__init__(f"{kind} at grain {grain}")
        self.kind = kind
        self.grain = grain


def label(text: str) -> bytes:
    """L("text") of the pages: the text padded with zero bytes to 16."""
    data = text.encode("ascii")
    assert len(data) <= 16
    return data.ljust(16, b"\0")


def u32(value: int) -> bytes:
    """Four bytes, little-endian."""
    return value.to_bytes(4, "little")


def u64(value: int) -> bytes:
    """Eight bytes, little-endian."""
    return value.to_bytes(8, "little")


def kb(size: int, key: bytes, data: bytes) -> bytes:
    """KB(n, key, data): keyed BLAKE2b; with an empty key the unkeyed hash."""
    return bindings.crypto_generichash.generichash_blake2b_salt_personal(data, digest_size=size, key=key)


def _state(header: bytes, key: bytes) -> bindings.crypto_secretstream_xchacha20poly1305_state:
    """A secretstream state set up to open what was sealed with this header and key."""
    state = bindings.crypto_secretstream_xchacha20poly1305_state()
    bindings.crypto_secretstream_xchacha20poly1305_init_pull(state, header, key)
    return state


def hchacha20(key: bytes, data: bytes) -> bytes:
    """HChaCha20, which this binding lacks: a secretstream state begins with it (FILE-FORMAT.md, "Conventions")."""
    state = _state(data + bytes(HEADER - len(data)), key)
    return bytes(state.statebuf[0:32])


def open_message(key: bytes, ad: bytes, sealed: bytes) -> bytes:
    """The plaintext of what Seal(key, header, ad, plaintext) made."""
    if len(sealed) < OVERHEAD:
        raise NotAuthentic("too short")
    try:
        state = _state(sealed[:HEADER], key)
        plaintext, tag = bindings.crypto_secretstream_xchacha20poly1305_pull(state, sealed[HEADER:], ad)
    except exceptions.CryptoError:
        raise NotAuthentic("does not open") from None
    if tag != FINAL:
        raise NotAuthentic("the tag is not FINAL")
    return plaintext


def writer_key(file_key: bytes, session: bytes) -> bytes:
    """W, the key of one file in one session."""
    return kb(32, file_key, label("OD1-writer-key") + session)


def segment_key(writer: bytes, counter: int, index: int) -> bytes:
    """K, the key of one segment."""
    return hchacha20(writer, u64(counter) + u64(index))


def segment_ad(length: int) -> bytes:
    """The associated data of a segment; its place is bound by its key alone."""
    return label("OD1-segment") + u32(length) + u32(GRAIN)


@dataclass(frozen=True)
class Extent:
    """A run of segments, and where it is stored."""

    start: int
    count: int
    last_length: int
    session: bytes
    counter: int
    offset: int
    slab: int = 0

    def plaintext_length(self, k: int) -> int:
        """Plaintext bytes of segment k of the run."""
        return self.last_length if k == self.count - 1 else GRAIN

    def stored_length(self, first: int = 0, end: int | None = None) -> int:
        """Stored bytes of the segments first … end - 1, of all by default."""
        last = (self.count if end is None else end) - 1
        return STRIDE * (last - first) + self.plaintext_length(last) + OVERHEAD

    def fits(self, size: int) -> bool:
        """Whether the extent is possible in a file of that size."""
        return (
            self.count >= 1
            and 1 <= self.last_length <= GRAIN
            and self.start < START_LIMIT
            and self.offset < OFFSET_LIMIT
            and self.counter >= 1
            and self.counter + self.count <= HIGHEST_COUNTER_END
            and GRAIN * (self.start + self.count - 1) + self.last_length <= size < SIZE_LIMIT
        )


@dataclass(frozen=True)
class File:
    """What the catalog says of a file's contents; the extents are sorted by start."""

    key: bytes
    size: int
    extents: list[Extent]

    def check(self) -> None:
        """Refuses a size or an extent that cannot be right: out of range, past the size, or into one before it."""
        end = 0
        for extent in self.extents:
            if not extent.fits(self.size) or extent.start < end:
                raise FileError("damaged-extent", extent.start)
            end = extent.start + extent.count
        if self.size >= SIZE_LIMIT:
            raise FileError("damaged-extent", 0)

    def pieces(self, fetch: Fetch) -> Iterator[tuple[int, bytes]]:
        """Each segment's position in the file and its plaintext, in order; holes are left out."""
        self.check()
        for extent in self.extents:
            writer = writer_key(self.key, extent.session)
            for first in range(0, extent.count, BATCH):
                end = min(first + BATCH, extent.count)
                stored = fetch(extent.slab, extent.offset + STRIDE * first, extent.stored_length(first, end))
                for k in range(first, end):
                    at = STRIDE * (k - first)
                    plaintext = self.open_segment(writer, extent, k, stored[at : at + STRIDE])
                    yield GRAIN * (extent.start + k), plaintext

    def open_segment(self, writer: bytes, extent: Extent, k: int, stored: bytes) -> bytes:
        """The plaintext of segment k of a run."""
        index, counter, length = extent.start + k, extent.counter + k, extent.plaintext_length(k)
        if len(stored) < length + OVERHEAD:
            raise FileError("missing-bytes", index)
        key = segment_key(writer, counter, index)
        try:
            return open_message(key, segment_ad(length), stored[: length + OVERHEAD])
        except NotAuthentic:
            raise FileError("not-authentic", index) from None

    def contents(self, fetch: Fetch) -> Iterator[bytes]:
        """The whole file in pieces, holes as zeros. Before an error, all that may be released is released."""
        self.check()
        position = 0
        try:
            for start, plaintext in self.pieces(fetch):
                yield from _zeros(start - position)
                yield plaintext
                position = start + len(plaintext)
        except FileError as error:
            yield from _zeros(min(GRAIN * error.grain, self.size) - position)
            raise
        yield from _zeros(self.size - position)


def _zeros(count: int) -> Iterator[bytes]:
    """That many zero bytes, in pieces of at most 1 MiB."""
    while count > 0:
        piece = min(count, 1 << 20)
        yield bytes(piece)
        count -= piece
