"""The one-message secretstream without libsodium, step by step as in FILE-FORMAT.md, "What the secretstream does".

Slow, not constant in time, and only for the self-test, which holds the page against libsodium with it.
"""

from __future__ import annotations

import struct

from opendynamics import FINAL, HEADER, OVERHEAD, NotAuthentic

QUARTERS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)) + (
    (0, 5, 10, 15),
    (1, 6, 11, 12),
    (2, 7, 8, 13),
    (3, 4, 9, 14),
)


def _rounds(words: list[int]) -> list[int]:
    """The twenty rounds of ChaCha20."""
    x = list(words)
    for _ in range(10):
        for a, b, c, d in QUARTERS:
            for i, j, k, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[i] = (x[i] + x[j]) & 0xFFFF_FFFF
                mixed = x[k] ^ x[i]
                x[k] = ((mixed << turn) | (mixed >> (32 - turn))) & 0xFFFF_FFFF
    return x


def _words(key: bytes, tail: bytes) -> list[int]:
    """The initial words: the constant, 32 bytes of key, and 16 bytes of counter and nonce."""
    return list(struct.unpack("<16I", b"expand 32-byte k" + key + tail))


def hchacha20(key: bytes, data: bytes) -> bytes:
    """HChaCha20: the first and the last four words after the rounds."""
    x = _rounds(_words(key, data))
    return struct.pack("<8I", *x[:4], *x[12:])


def chacha20(key: bytes, nonce: bytes, block: int, size: int) -> bytes:
    """Key stream of ChaCha20-IETF from a block on."""
    stream = b""
    while len(stream) < size:
        words = _words(key, struct.pack("<I", block) + nonce)
        stream += struct.pack("<16I", *((a + b) & 0xFFFF_FFFF for a, b in zip(words, _rounds(words))))
        block += 1
    return stream[:size]


def poly1305(key: bytes, data: bytes) -> bytes:
    """The Poly1305 authenticator."""
    r = int.from_bytes(key[:16], "little") & 0x0FFF_FFFC_0FFF_FFFC_0FFF_FFFC_0FFF_FFFF
    total = 0
    for start in range(0, len(data), 16):
        block = data[start : start + 16]
        total = (total + int.from_bytes(block + b"\1", "little")) * r % ((1 << 130) - 5)
    return ((total + int.from_bytes(key[16:], "little")) % (1 << 128)).to_bytes(16, "little")


def _xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b))


def open_message(key: bytes, ad: bytes, sealed: bytes) -> bytes:
    """What opendynamics.open_message does with libsodium; the numbers are the page's steps."""
    if len(sealed) < OVERHEAD:
        raise NotAuthentic("too short")
    header, tag_byte, ciphertext, authenticator = sealed[:24], sealed[24:25], sealed[25:-16], sealed[-16:]
    p = len(ciphertext)
    k, nonce = hchacha20(key, header[:16]), b"\1\0\0\0" + header[16:HEADER]  # 1
    poly_key = chacha20(k, nonce, 0, 32)  # 2
    tag_stream = chacha20(k, nonce, 1, 64)  # 3
    authenticated = (
        ad + bytes(-len(ad) % 16) + tag_byte + tag_stream[1:] + ciphertext + bytes(p % 16)
        + struct.pack("<QQ", len(ad), 64 + p)
    )  # 5
    if poly1305(poly_key, authenticated) != authenticator:
        raise NotAuthentic("does not open")
    if tag_byte[0] ^ tag_stream[0] != FINAL:
        raise NotAuthentic("the tag is not FINAL")
    return _xor(ciphertext, chacha20(k, nonce, 2, p))  # 4
