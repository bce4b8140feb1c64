"""X25519 keys (RFC 7748), and the files that have some."""

import hashlib
import os

from nacl import bindings

KEY_BYTES = 32
FINGERPRINT_LABEL = b"OD1-fingerprint".ljust(16, b"\0")


class Key:
    """A private key of 32 bytes, drawn if none is given, and its public key."""

    def __init__(self, private=None):
        self.private = private or os.urandom(KEY_BYTES)
        self.public = bindings.crypto_scalarmult_base(self.private)


def read_private(path):
    """The key in a file of the broker's state."""
    with open(path, "rb") as file:
        private = file.read()
    if len(private) != KEY_BYTES:
        raise ValueError(f"{path} has {len(private)} bytes")
    return Key(private)


def read_broker_key(socket_path):
    """The broker's public key, from the file beside its socket."""
    path = socket_path + ".key.pub"
    with open(path, encoding="ascii") as file:
        text = file.read()
    if len(text) != 2 * KEY_BYTES + 1 or text[-1] != "\n":
        raise ValueError(f"{path} is not a key in hexadecimal and a newline")
    return bytes.fromhex(text[:-1])


def fingerprint(public):
    """What people compare: 16 bytes."""
    return hashlib.blake2b(FINGERPRINT_LABEL + public, digest_size=32).digest()[:16]
