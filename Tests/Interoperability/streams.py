"""What the streams of a bulk lane are sealed with, as the page says in "The bulk lane"."""

import os

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from nacl import bindings

HEADER_BYTES = 24
TAG_MESSAGE = bindings.crypto_secretstream_xchacha20poly1305_TAG_MESSAGE
TAG_FINAL = bindings.crypto_secretstream_xchacha20poly1305_TAG_FINAL
SECRETSTREAM, AES_256_GCM = 0, 1


class SecretStream:
    """Of libsodium, through PyNaCl."""

    def __init__(self, key, header=None):
        self.state, self.header = bindings.crypto_secretstream_xchacha20poly1305_state(), header
        if header is None:
            self.header = bindings.crypto_secretstream_xchacha20poly1305_init_push(self.state, key)
        else:
            bindings.crypto_secretstream_xchacha20poly1305_init_pull(self.state, header, key)

    def seal(self, part, tag):
        return bindings.crypto_secretstream_xchacha20poly1305_push(self.state, part, None, tag)

    def open(self, body):
        return bindings.crypto_secretstream_xchacha20poly1305_pull(self.state, body)


class GCMStream:
    def __init__(self, key, header=None):
        self.cipher, self.header, self.number = AESGCM(key), header or os.urandom(HEADER_BYTES), 0

    def nonce(self):
        self.number += 1
        return bytes(a ^ b for a, b in zip(self.header, (self.number - 1).to_bytes(12, "big")))

    def seal(self, part, tag):
        return bytes([tag]) + self.cipher.encrypt(self.nonce(), part, self.header + bytes([tag]))

    def open(self, body):
        return self.cipher.decrypt(self.nonce(), body[1:], self.header + body[:1]), body[0]


STREAMS = {SECRETSTREAM: SecretStream, AES_256_GCM: GCMStream}
