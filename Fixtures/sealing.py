"""The writing side of the vectors and of the self-test; a reader needs nothing from here."""

from __future__ import annotations

from typing import Any

from nacl import bindings

from opendynamics import FINAL, HEADER, Extent, File, kb, segment_ad, segment_key, u64, writer_key

MESSAGE, PUSH, REKEY = 0, 1, 2


def expand(name: str, size: int) -> bytes:
    """Bytes that look random and are the same at every run: BLAKE2b of the name and a block number."""
    data = b"".join(kb(64, b"", name.encode() + b"\0" + u64(block)) for block in range((size + 63) // 64))
    return data[:size]


class Stream:
    """A secretstream with a chosen header: init_pull computes the state that init_push would."""

    def __init__(self, key: bytes, header: bytes) -> None:
        self.state = bindings.crypto_secretstream_xchacha20poly1305_state()
        bindings.crypto_secretstream_xchacha20poly1305_init_pull(self.state, header, key)

    def set_counter(self, counter: int) -> None:
        """Sets the message counter, which stands after the 32 bytes of key in the state."""
        statebuf: Any = self.state.statebuf
        statebuf[32:36] = counter.to_bytes(4, "little")

    def rekey(self) -> None:
        """Changes the key without a message that says so; the other side has to do the same."""
        bindings.crypto_secretstream_xchacha20poly1305_rekey(self.state)

    def push(self, plaintext: bytes, ad: bytes, tag: int) -> bytes:
        """Seals the next message."""
        return bindings.crypto_secretstream_xchacha20poly1305_push(self.state, plaintext, ad, tag)

    def pull(self, ciphertext: bytes, ad: bytes) -> tuple[bytes, int]:
        """Opens the next message: plaintext and tag. Raises a CryptoError when it does not open."""
        return bindings.crypto_secretstream_xchacha20poly1305_pull(self.state, ciphertext, ad)


def seal(key: bytes, header: bytes, ad: bytes, plaintext: bytes, tag: int = FINAL) -> bytes:
    """Seal(key, header, ad, m) of the pages; another tag makes a message that readers refuse."""
    return header + Stream(key, header).push(plaintext, ad, tag)


def seal_run(file: File, extent: Extent, plaintext: bytes) -> bytes:
    """The stored bytes of a run whose extent is given; headers are expanded from the keys."""
    stored = b""
    writer = writer_key(file.key, extent.session)
    for k in range(extent.count):
        index, counter, length = extent.start + k, extent.counter + k, extent.plaintext_length(k)
        key = segment_key(writer, counter, index)
        piece, plaintext = plaintext[:length], plaintext[length:]
        stored += seal(key, expand(f"header {key.hex()}", HEADER), segment_ad(length), piece)
    return stored
